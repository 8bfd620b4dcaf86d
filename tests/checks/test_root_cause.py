"""One fault on a recorded host, and every check: one cause is named, and what follows from it is no second failure."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import Judgement, State, evaluate
from lpxdoctor.evidence import Answer, Evidence, Probe, from_json
from lpxdoctor.facts import boot, driver, gpu, host
from tests.facts.given import H200, command

DATA = Path(__file__).resolve().parents[1] / "facts" / "data"
CHECKS = catalog.load(None)
OURS = ("host", "boot", "driver")
KERNEL, NEWER = "6.1.0-50-amd64", "6.1.0-55-amd64"
ABSENT = Answer(failure="absent", reason="No such file or directory")
Changes = dict[Probe, Any]


def answers(name: str) -> dict[str, Answer]:
    return dict(from_json((DATA / f"{name}.json").read_text(encoding="utf-8")).answers)


GUEST = {**answers("h200-guest"), gpu.NVML.key: Answer(H200["nvml"])}
# A server with Debian's kernel, module and libraries, that module loaded, and the GPU and device files of the guest.
SERVER = {
    **answers("debian-12-dkms"),
    **{
        probe.key: GUEST[probe.key]
        for probe in (
            host.UEVENTS,
            host.PCI,
            driver.ADAPTERS,
            driver.PARAMETERS,
            driver.NODES,
            driver.MAJORS,
            driver.SMI,
        )
    },
    gpu.NVML.key: Answer({**H200["nvml"], "driver_version": "535.261.03"}),
    boot.KERNEL.key: Answer(KERNEL),
    boot.CMDLINE.key: Answer("root=/dev/md0 ro quiet"),
    host.DETECT_VIRT.key: Answer(command("none\n", 1)),
    host.DMESG.key: Answer(command("[    0.000000] Linux version 6.1.0-50-amd64\n")),
    driver.VERSION.key: Answer(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Jul 10 20:44:01 UTC 2025\n"
    ),
    driver.MODULES.key: Answer({"/sys/module/nvidia": {}, "/sys/module/nvidia_uvm": {}}),
}
UNLOADED: Changes = {
    driver.VERSION: ABSENT,
    driver.MODULE_VERSION: ABSENT,
    driver.MODULES: {},
    driver.ADAPTERS: {},
    driver.PARAMETERS: ABSENT,
    driver.NODES: {},
    driver.MAJORS: "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n",
    gpu.NVML: {"library": "libnvidia-ml.so.1", "error": {"call": "nvmlInit_v2", "code": 9}, "gpus": []},
}


def with_text(probe: Probe, old: str, new: str, base: dict[str, Answer]) -> Any:
    """Return a recorded answer with a text in it replaced wherever it stands."""
    return json.loads(json.dumps(base[probe.key].value).replace(old, new))


def server_modules(**changes: Any) -> Any:
    """Return what the modules program printed on the server, changed at the top or in its one kernel."""
    value = copy.deepcopy(SERVER[boot.MODULES.key].value)
    value["kernels"][0].update(changes.pop("kernel", {}))
    return {**value, **changes}


def judge(base: dict[str, Answer], changes: Changes) -> Judgement:
    """Judge a recorded host with some answers changed."""
    wrapped = {probe.key: value if isinstance(value, Answer) else Answer(value) for probe, value in changes.items()}
    return evaluate(CHECKS, Evidence("gpu-12", {**base, **wrapped}, uid=0), policy.load())


def failures(judgement: Judgement) -> list[str]:
    assert judgement.of(State.CRASHED) == ()
    return [result.check.id for result in judgement.results if result.failed]


NOUVEAU = ["kernel/drivers/gpu/drm/nouveau/nouveau.ko"]
FAILED_LOG = [f"DKMS make.log for nvidia-current-535.261.03 for kernel {KERNEL} (x86_64)", "cc1: error: unrecognized"]
SOURCE = {"name": "nvidia-current", "version": "535.261.03", "built": [], "log": []}
GONE = {address: {**raw, "config": "f" * 128} for address, raw in GUEST[host.PCI.key].value.items()}
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Wed Oct 29 23:15:11 UTC 2025\n"
NEEDS_OPEN = """[    5.559842] NVRM: The NVIDIA GPU 0000:00:06.0 (PCI ID: 10de:2bb5)
               NVRM: installed in this system requires use of the NVIDIA open kernel modules.
[    5.559858] NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x22:0x56:884)
"""

# The cause that must be named alone; the host; what is changed on it.
FAULTS: list[tuple[str, dict[str, Answer], Changes]] = [
    ("host.no-gpu", GUEST, {host.UEVENTS: {}, gpu.NVML: UNLOADED[gpu.NVML]}),
    (
        "host.gpu-does-not-answer",
        GUEST,
        {host.PCI: GONE, gpu.NVML: {**H200["nvml"], "gpus": [{"index": 0, "error": 15}]}},
    ),
    (
        "driver.nouveau-bound",
        GUEST,
        {
            **UNLOADED,
            host.UEVENTS: with_text(host.UEVENTS, "DRIVER=nvidia", "DRIVER=nouveau", GUEST),
            driver.MODULES: {"/sys/module/nouveau": {}},
        },
    ),
    ("driver.module-not-loaded", GUEST, UNLOADED),
    (
        "driver.library-mismatch",
        GUEST,
        {
            driver.LIBRARIES: with_text(driver.LIBRARIES, "580.159.04", "580.173.02", GUEST),
            gpu.NVML: {"library": "", "error": {"call": "nvmlInit_v2", "code": 18}, "gpus": []},
            driver.SMI: {**GUEST[driver.SMI.key].value, "exit": 18, "stdout": "Failed to initialize NVML"},
        },
    ),
    (
        "driver.device-node-stale",
        GUEST,
        {driver.MAJORS: with_text(driver.MAJORS, "238 nvidia-uvm", "237 nvidia-uvm", GUEST)},
    ),
    (
        "driver.nvml-fails",
        GUEST,
        {
            gpu.NVML: Answer(failure="timeout", reason="no answer within 27 s"),
            driver.SMI: {**GUEST[driver.SMI.key].value, "exit": None, "hung": "process 7 in uninterruptible sleep (D)"},
        },
    ),
    (
        "driver.wrong-module-flavour",
        {key: answer for key, answer in GUEST.items() if key != host.CONTAINER_MARKS[0].key},
        {
            host.DETECT_VIRT: command("kvm\n"),
            host.UEVENTS: with_text(host.UEVENTS, "10DE:2335", "10DE:2BB5", GUEST),
            host.DMESG: command(NEEDS_OPEN),
            driver.VERSION: PROPRIETARY,
            gpu.NVML: {**H200["nvml"], "gpus": []},
        },
    ),
    (
        "boot.signature-refused",
        SERVER,
        {
            **UNLOADED,
            boot.EFI: {"/sys/firmware/efi": {}},
            boot.SECURE_BOOT: {"/sys/firmware/efi/efivars/SecureBoot-8be4df61": "\x06\x00\x00\x00\x01"},
            boot.LOCKDOWN: "none [integrity] confidentiality\n",
        },
    ),
    (
        "boot.dkms-not-built",
        SERVER,
        {**UNLOADED, boot.MODULES: server_modules(kernel={"modules": NOUVEAU}, dkms=[SOURCE])},
    ),
    (
        "boot.dkms-build-failed",
        SERVER,
        {
            **UNLOADED,
            boot.MODULES: server_modules(kernel={"modules": NOUVEAU}, dkms=[{**SOURCE, "log": FAILED_LOG}]),
        },
    ),
    (
        "boot.headers-missing",
        SERVER,
        {**UNLOADED, boot.MODULES: server_modules(kernel={"modules": NOUVEAU, "headers": False}, dkms=[SOURCE])},
    ),
    ("boot.module-missing", SERVER, {**UNLOADED, boot.MODULES: server_modules(kernel={"modules": NOUVEAU}, dkms=[])}),
    ("boot.nvidia-blacklisted", SERVER, {**UNLOADED, boot.CMDLINE: "root=/dev/md0 ro module_blacklist=nvidia"}),
    ("boot.modules-of-running-kernel-gone", SERVER, {**UNLOADED, boot.KERNEL: "6.1.0-40-amd64"}),
    (
        "boot.next-kernel-without-module",
        SERVER,
        {
            boot.MODULES: server_modules(
                kernels=[
                    {"release": NEWER, "headers": False, "modules": NOUVEAU, "builtin": []},
                    *SERVER[boot.MODULES.key].value["kernels"],
                ]
            ),
            boot.BOOT_FILES: {f"/boot/vmlinuz-{release}": {"mtime": 0} for release in (KERNEL, NEWER)},
            boot.INITRAMFS: [
                {"release": NEWER, "path": ""},
                *SERVER[boot.INITRAMFS.key].value,
            ],
        },
    ),
]


@pytest.mark.parametrize(("cause", "base", "changes"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_one_cause_is_named(cause: str, base: dict[str, Answer], changes: Changes) -> None:
    judgement = judge(base, changes)
    assert failures(judgement) == [cause]
    assert judgement.found[0].check.id == cause


@pytest.mark.parametrize("base", [GUEST, SERVER], ids=["guest", "server"])
def test_a_healthy_host_is_quiet(base: dict[str, Answer]) -> None:
    judgement = judge(base, {})
    assert failures(judgement) == []
    noise = [result.check.id for result in judgement.found if result.check.id.startswith(OURS)]
    assert noise == []


def test_healthy_now_and_lost_at_the_next_reboot_is_said_with_the_reason() -> None:
    (changes,) = (changes for cause, _, changes in FAULTS if cause == "boot.next-kernel-without-module")
    judgement = judge(SERVER, changes)
    (finding,) = judgement.found[0].findings
    assert judgement.found[0].check.title.startswith("The next reboot loses the GPUs")
    assert finding.message == f"kernel {NEWER} starts next and has none"
    assert ("headers", "missing") in [(seen.what, seen.value) for seen in finding.seen]


def test_without_root_what_was_not_seen_is_unknown_and_never_fine() -> None:
    denied = Answer(failure="denied", reason="Operation not permitted")
    image = [{**SERVER[boot.INITRAMFS.key].value[0], "modules": [], "settings": {}, "reason": "Permission denied"}]
    judgement = judge(SERVER, {host.DMESG: denied, boot.KEYS: denied, boot.INITRAMFS: image})
    unknown = {result.check.id: result.reason for result in judgement.of(State.UNKNOWN)}
    assert "Permission denied" in unknown["boot.initramfs-allows-nouveau"]
    assert "not permitted" in unknown["host.out-of-memory"]
    assert failures(judgement) == []
