"""What DCGM's own quick diagnostic says in, where DCGM is installed; its complaints, with its words, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.dcgm import DIAG, Dcgm, Warned

# What DCGM asks of the operator, by the severity that it gives an error.
_ASKED = {
    "isolate": "DCGM says: take the GPU out of service",
    "reset": "DCGM says: drain the GPU and reset it",
    "triage": "DCGM says: to be looked into",
}


def _warned(dcgm: Dcgm) -> tuple[Warned, ...]:
    if not dcgm.installed:
        raise NotApplicable("DCGM is not installed")
    if dcgm.refusal:
        raise NotApplicable(f"dcgmi did not test: {dcgm.refusal}")
    return dcgm.warned


@check(
    "gpu.dcgm-test-failed",
    Severity.FAIL,
    layer="hardware",
    after=["host.no-gpu", "driver.nvml-fails", "gpu.lost", "fabric.manager-not-running", "cuda.init-fails"],
)
def dcgm_test_failed(dcgm: Dcgm) -> Iterator[Finding]:
    """DCGM's quick diagnostic fails.

    Why: DCGM looks at libraries, permissions, the InfoROM, page retirement and row remapping with knowledge of the
        vendor's own. What it fails is not fit to serve, whatever else looks well.
    Fix: do what the message asks for; drain the GPU, then run the longer diagnostic: dcgmi diag -r 3. A GPU that fails
        it again after a reset is to be replaced.
    Source: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
    """
    for each in _warned(dcgm):
        if each.status == "fail" and not each.is_setting:
            asked = _ASKED.get(each.severity, "")
            seen = (Seen(each.test, each.words, " ".join(DIAG.argv)),)
            subject = f"{each.subject}: " if each.subject else ""
            message = f"{subject}{each.test}" + (f"; {asked}" if asked else "")
            yield Finding(message, each.subject, seen, ("dcgmi diag -r 3   (drain the GPU first: it puts load on it)",))


@check(
    "gpu.dcgm-setting-refused",
    Severity.INFO,
    layer="driver",
    after=["host.no-gpu", "driver.nvml-fails", "gpu.lost", "gpu.dcgm-test-failed"],
)
def dcgm_setting_refused(dcgm: Dcgm) -> Iterator[Finding]:
    """DCGM's quick diagnostic would have a setting of this host otherwise.

    Why: it asks for persistence mode, for no environment variables that change CUDA and for no desktop on the GPUs. The
        GPU works without; its longer tests refuse to run.
    Fix: what the message asks for, mostly: sudo systemctl enable --now nvidia-persistenced
    Source: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
    """
    for each in _warned(dcgm):
        if each.is_setting or each.status == "warn":
            yield Finding(each.words, each.subject, (Seen(each.test, each.status, " ".join(DIAG.argv)),))
