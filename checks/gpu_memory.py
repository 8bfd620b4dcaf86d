"""Each GPU's memory errors in; memory that fails, and what waits for a reset out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.gpu import Gpus, on_or_off
from lpxdoctor.policy import Policy


@check("gpu.ecc-uncorrectable", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def ecc_uncorrectable(gpus: Gpus) -> Iterator[Finding]:
    """A GPU has had uncorrectable memory errors.

    Why: a fault of hardware: data in the card's memory was wrong and could not be repaired. The program that held it
        was stopped, and until the GPU is reset the bad place may be used again.
    Fix: let what runs finish, then reset: sudo nvidia-smi --gpu-reset -i N (all GPUs at once with NVSwitch). If it
        comes back, run the field diagnostics and have the card replaced (RMA).
    Source: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
    """
    for gpu in gpus.working:
        if gpu.ecc_uncorrected:
            seen = (
                Seen("uncorrectable since the driver was loaded", str(gpu.ecc_uncorrected), "NVML"),
                Seen("uncorrectable ever", str(gpu.ecc_uncorrected_ever), "NVML"),
            )
            yield Finding(
                f"{gpu.subject}: {gpu.ecc_uncorrected} uncorrectable errors", gpu.subject, seen, (gpu.reset_command,)
            )


@check("gpu.ecc-corrected-many", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def ecc_corrected_many(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """A GPU corrects memory errors at a rate worth watching.

    Why: each one was repaired and cost nothing, but many of them often come before one that cannot be.
    Fix: note the count and look again in a day: nvidia-smi -q -d ECC.
    Source: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/; policy.toml, correctable_ecc
    """
    for gpu in gpus.working:
        if (gpu.ecc_corrected or 0) > policy.limits.correctable_ecc:
            seen = (Seen("corrected since the driver was loaded", str(gpu.ecc_corrected), "NVML"),)
            yield Finding(f"{gpu.subject}: {gpu.ecc_corrected} corrected memory errors", gpu.subject, seen)


@check("gpu.sram-threshold-exceeded", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def sram_threshold_exceeded(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's on-chip memory has had more uncorrectable errors than NVIDIA allows.

    Why: on-chip memory has no spare rows: the card itself says that it is to be replaced.
    Fix: take the GPU out of service and open a replacement case with the output of nvidia-bug-report.sh.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetSramEccErrorStatus)
    """
    for gpu in gpus.working:
        if gpu.sram_threshold_exceeded:
            seen = (Seen("SRAM threshold exceeded", "yes", "NVML"),)
            yield Finding(f"{gpu.subject} is to be replaced: on-chip memory", gpu.subject, seen)


@check("gpu.row-remap-failed", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def row_remap_failed(gpus: Gpus) -> Iterator[Finding]:
    """A GPU could not replace a bad memory row.

    Why: no spare row is left for that bank, so uncorrectable errors will come back at the same place.
    Fix: take the GPU out of service; run the field diagnostics; replace it.
    Source: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row remapping failure)
    """
    for gpu in gpus.working:
        if gpu.remaps and gpu.remaps.failure:
            seen = (
                Seen("remapping failure", "yes", "NVML"),
                Seen("rows replaced", str(gpu.remaps.uncorrectable), "NVML"),
            )
            yield Finding(f"{gpu.subject} has a memory row that cannot be replaced", gpu.subject, seen)


@check(
    "gpu.row-remap-pending",
    Severity.WARN,
    layer="hardware",
    after=["driver.nvml-fails", "gpu.lost", "gpu.row-remap-failed"],
)
def row_remap_pending(gpus: Gpus) -> Iterator[Finding]:
    """A GPU waits for a reset to replace a bad memory row.

    Why: until then the bad row stays in use, and the next error at that place stops the program that holds it.
    Fix: let what runs finish, then sudo nvidia-smi --gpu-reset -i N, or reboot.
    Source: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row remapping pending)
    """
    for gpu in gpus.working:
        if gpu.remaps and gpu.remaps.pending:
            seen = (Seen("remapping pending", "yes", "NVML"),)
            yield Finding(
                f"{gpu.subject} replaces a memory row at its next reset", gpu.subject, seen, (gpu.reset_command,)
            )


@check("gpu.page-retirement-pending", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def page_retirement_pending(gpus: Gpus) -> Iterator[Finding]:
    """A GPU waits for a reboot to retire a bad memory page.

    Why: GPUs before Ampere take bad pages out of use when the driver next loads; until then the page stays in use.
    Fix: let what runs finish, then reboot.
    Source: https://docs.nvidia.com/deploy/dynamic-page-retirement/
    """
    for gpu in gpus.working:
        if gpu.retirement_pending:
            yield Finding(f"{gpu.subject} retires a memory page at the next boot", gpu.subject, do=("sudo reboot",))


@check("gpu.pages-retired-many", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def pages_retired_many(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """A GPU has retired as many memory pages as NVIDIA replaces cards for.

    Why: the table of retired pages is nearly full, and its memory keeps failing.
    Fix: open a replacement case with the output of nvidia-bug-report.sh.
    Source: https://docs.nvidia.com/deploy/dynamic-page-retirement/; policy.toml, retired_pages
    """
    for gpu in gpus.working:
        retired = sum(gpu.retired_pages or (0, 0))
        if retired >= policy.limits.retired_pages:
            yield Finding(
                f"{gpu.subject} has retired {retired} pages", gpu.subject, (Seen("pages", str(retired), "NVML"),)
            )


@check("gpu.ecc-change-pending", Severity.INFO, layer="hardware", after=["driver.nvml-fails"])
def ecc_change_pending(gpus: Gpus) -> Iterator[Finding]:
    """ECC will be switched at a GPU's next reset.

    Why: with ECC on, some boards have less memory: an engine's settings that fit today may not fit after the reset.
    Fix: reset now to have it behind you, or take the change back: nvidia-smi -e 0|1.
    Source: https://docs.nvidia.com/deploy/nvidia-smi/ (ECC mode, pending)
    """
    for gpu in gpus.working:
        if gpu.ecc and gpu.ecc[0] != gpu.ecc[1]:
            seen = (
                Seen("ECC now", on_or_off(gpu.ecc[0]), "NVML"),
                Seen("after the next reset", on_or_off(gpu.ecc[1]), "NVML"),
            )
            yield Finding(f"{gpu.subject}: ECC will be {on_or_off(gpu.ecc[1])}", gpu.subject, seen)
