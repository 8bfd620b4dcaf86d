"""A pasted text in; the answers that a host would have given to our own probes, as far as the text shows them, out."""

import re

from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.facts import boot, driver, gpu, host
from lpxdoctor.recognize import nvidia_smi
from lpxdoctor.recognize.text import Pasted

_KERNEL_LINE = re.compile(
    r"NVRM: |\bnvidia-nvswitch\d|\bnouveau \S+: |^\s*\[\s*\d+\.\d{6}\]|\bkernel:\s|^\s+NVRM:"
    r"|^\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\]"
)
_MODULE = re.compile(r"NVRM version: NVIDIA UNIX.*")
_RELEASE = re.compile(r'PRETTY_NAME="?[^"\n]+"?')

# The checks that judge what is there; those that judge what is missing cannot by an excerpt, in which nearly all is.
JUDGED = frozenset(
    {
        *(
            "gpu.xid-hardware",
            "gpu.xid-driver",
            "gpu.xid-program",
            "gpu.xid-minor",
            "gpu.xid-unknown",
            "gpu.gsp-timeout",
        ),
        *("gpu.ecc-uncorrectable", "gpu.sram-threshold-exceeded", "gpu.row-remap-failed", "gpu.row-remap-pending"),
        *("gpu.page-retirement-pending", "gpu.recovery-needed", "gpu.hardware-slowdown", "gpu.power-brake"),
        "gpu.power-limit-lowered",
        *("gpu.thermal-slowdown", "gpu.temperature-near-limit", "gpu.pcie-width-degraded", "gpu.mig-on"),
        *(
            "gpu.mig-change-pending",
            "gpu.compute-mode-prohibited",
            "gpu.compute-mode-exclusive",
            "fabric.not-completed",
        ),
        *("host.kernel-stalls", "host.out-of-memory", "host.pcie-errors"),
    }
)


def evidence(pasted: Pasted, about: dict[str, str]) -> Evidence:
    """Return the evidence in a text; about is what context found in it."""
    lines = pasted.searched
    answers: dict[str, Answer] = {}
    smi = nvidia_smi.answer(lines)
    if smi:
        answers[gpu.NVML.key] = Answer(smi)
    log = [line for line in lines if _KERNEL_LINE.search(line)]
    if log:
        answers[host.DMESG.key] = _command("\n".join(log))
    module = _MODULE.search(pasted.text)
    if module:
        answers[driver.VERSION.key] = Answer(module[0] + "\n")
    release = _RELEASE.search(pasted.text)
    if release:
        answers[host.OS_RELEASE.key] = Answer(release[0] + "\n")
    elif about.get("os"):
        answers[host.OS_RELEASE.key] = Answer(f'PRETTY_NAME="{about["os"]}"\n')
    if about.get("kernel"):
        answers[boot.KERNEL.key] = Answer(about["kernel"] + "\n")
    return Evidence(host="", answers=answers)


def _command(stdout: str) -> Answer:
    return Answer({"exit": 0, "stdout": stdout, "stderr": ""})
