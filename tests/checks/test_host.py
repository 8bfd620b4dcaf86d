"""Each check of the machine fires on its own fault, and is silent where nothing, or something harmless, is there."""

import contextlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Disk, Host, StuckProcess
from tests.checks.judging import bundled_policy, by_id, found
from tests.facts.builders_gpu import bridge, healthy_gpus, pci_gpu
from tests.facts.builders_host import healthy_host, two_gpus
from tests.facts.given import only

ROOT = Disk("/", 900_000_000, 700_000_000)
NO_NVML = only(Gpus, error=None)
SWITCH = replace(pci_gpu(7), device=0x22A3, class_code=0x068000)
SOUND = replace(pci_gpu(0), address="0000:01:00.1", device=0x10FA, class_code=0x040300, driver="snd_hda_intel")
NET = replace(pci_gpu(9), vendor=0x15B3, device=0x1021, class_code=0x020000, driver="mlx5_core")
IN_RM = StuckProcess(
    411, "python3", "os_acquire_rwlock_write", ("[<0>] os_acquire_rwlock_write+0x3a/0x50 [nvidia]",), 900
)
IN_NFS = StuckProcess(412, "cp", "rpc_wait_bit_killable", ("[<0>] rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]",), 900)

OOM = "[1234.5] Out of memory: Killed process 811 (VLLM::EngineCor) total-vm:90000000kB, anon-rss:60000000kB"
STALL = "[1234.5] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:77]"
BLOCKED = "[1234.5] INFO: task jbd2/nvme0n1p2-8:511 blocked for more than 120 seconds."

# A line a check: what is changed in a healthy machine, and what the finding must say.
CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "host.no-gpu": ({"pci": (NET, SOUND)}, "none of the 2 PCI devices"),
    "host.gpu-does-not-answer": ({"pci": (pci_gpu(gone=True),)}, "reads as all ones"),
    "host.iommu-translates": ({"pci": two_gpus(iommu_type="DMA-FQ", iommu_group="12")}, "2 of 2 GPUs"),
    "host.acs-redirects": ({"pci": two_gpus(), "bridges": (bridge(0, acs=0x1D), bridge(1, acs=0))}, "1 of 2 bridges"),
    "host.shm-small": ({"pci": two_gpus(), "disks": (ROOT, Disk("/dev/shm", 65536, 1))}, "64 MiB large, 1024 MiB"),
    "host.process-stuck-in-driver": ({"stuck": (IN_NFS, IN_RM)}, "process 411 (python3)"),
    "host.disk-read-only": ({"read_only": ("/var",)}, "/var is mounted read-only"),
    "host.disk-full": ({"disks": (Disk("/", 30_000_000, 900_000),)}, "878 MiB of 29296 MiB are free, 2048 MiB"),
    "host.reboot-pending": ({"reboot_required": True, "reboot_packages": ("linux-base", "dbus")}, "linux-base, dbus"),
    "host.out-of-memory": ({"kernel_log": (OOM,)}, "1 times in the kernel log, the last: Out of memory"),
    "host.kernel-stalls": ({"kernel_log": (STALL, BLOCKED)}, "seen 2 times"),
    "host.kernel-log-cut": ({"kernel_log": ("[40000.5] usb 1-1: new device", OOM)}, "11.1 hours after the boot"),
    "host.cpu-clock-held-low": ({"governor": "powersave", "governor_driver": "acpi-cpufreq"}, "acpi-cpufreq"),
    "host.clocksource-slow": ({"clocksource": "hpet"}, "hpet"),
}
# What looks like a fault and is none.
HARMLESS: dict[str, dict[str, Any]] = {
    "host.no-gpu": {"pci": (SOUND, pci_gpu(driver=""))},
    "host.iommu-translates": {"pci": two_gpus(iommu_type="identity")},
    "host.acs-redirects": {"pci": two_gpus(), "bridges": (bridge(0, acs=0x01), bridge(1, acs=None))},
    "host.process-stuck-in-driver": {"stuck": (IN_NFS,)},
    "host.disk-full": {
        "disks": (Disk("/", 30_000_000, 9_000_000), Disk("/dev/shm", 1, 1), Disk("/boot", 900_000, 200_000))
    },
    "host.out-of-memory": {
        "kernel_log": ("[1.0] oom_reaper: started", "[2.0] Freeing unused kernel image memory: 2048K")
    },
    "host.kernel-log-cut": {"kernel_log": ("<6>[    0.459548] Freeing unused kernel image memory: 2008K", OOM)},
    "host.kernel-stalls": {
        "kernel_log": ("[1.0] rcu: Hierarchical RCU implementation.", "[1.1] NMI watchdog: Enabled.")
    },
    "host.cpu-clock-held-low": {"governor": "powersave", "governor_driver": "intel_pstate"},  # follows the load
    "host.clocksource-slow": {"clocksource": "kvm-clock"},
    "host.shm-small": {"pci": two_gpus(), "disks": (Disk("/dev/shm", 16_000_000, 1),)},
}


def judged(check_id: str, **changes: Any) -> list[str]:
    return [f"{f.subject} {f.message}" for f in found(check_id, healthy_host(**changes), NO_NVML)]


@pytest.mark.parametrize("check_id", CHANGED)
def test_it_fires_on_its_own_fault(check_id: str) -> None:
    changes, words = CHANGED[check_id]
    (message,) = judged(check_id, **changes)
    assert words in message


@pytest.mark.parametrize("check_id", [*CHANGED, "host.gpus-missing"])
def test_it_is_silent_on_a_healthy_machine(check_id: str) -> None:
    with contextlib.suppress(NotApplicable):  # one GPU, say
        assert judged(check_id) == []


@pytest.mark.parametrize("check_id", HARMLESS)
def test_it_is_silent_on_what_only_looks_like_it(check_id: str) -> None:
    assert judged(check_id, **HARMLESS[check_id]) == []


def test_every_check_of_the_machine_is_tested() -> None:
    assert {check_id for check_id in by_id() if check_id.startswith("host.")} == {
        *CHANGED,
        "host.gpus-missing",
        "host.pcie-errors",  # test_told.py
    }


def test_a_kernel_log_that_was_cleared_is_not_quiet_and_one_without_times_is_not_judged() -> None:
    assert judged("host.kernel-log-cut", kernel_log=()) == [" it is empty"]
    (soon,) = judged("host.kernel-log-cut", kernel_log=("[   75.2] docker0: port 1(veth1) entered blocking state",))
    assert "75 seconds after the boot" in soon
    with pytest.raises(NotApplicable):
        judged("host.kernel-log-cut", kernel_log=("usb 1-1: new device",))


@pytest.mark.parametrize("check_id", ["host.iommu-translates", "host.acs-redirects"])
@pytest.mark.parametrize(
    "changes",
    [
        {"pci": (pci_gpu(iommu_type="DMA"),)},  # one GPU has no peer
        {"pci": (*two_gpus(iommu_type="DMA"), SWITCH)},
        {"pci": two_gpus(iommu_type="DMA"), "virtualization": "kvm"},
    ],
)
def test_the_way_between_gpus_is_judged_only_where_peers_meet_on_pci_express(
    check_id: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(NotApplicable):
        judged(check_id, **changes, bridges=(bridge(acs=0x1D),))


def test_only_bridges_above_gpus_count_and_their_bits_are_named() -> None:
    beside = bridge(5, acs=0x1D)  # above NVIDIA's network card, say
    host = healthy_host(pci=two_gpus(), bridges=(bridge(0, acs=0x1D), bridge(1, acs=0), beside))
    (finding,) = found("host.acs-redirects", host)
    assert [(seen.what, seen.value) for seen in finding.seen] == [("0000:00:01.0", "0x001d ReqRedir CmpltRedir")]
    assert finding.do == ("sudo setpci -s 0000:00:01.0 ECAP_ACS+6.w=0000",)


def test_what_nvidia_has_on_the_bus_beside_gpus_is_shown() -> None:
    (finding,) = found("host.no-gpu", healthy_host(pci=(NET, SOUND)), NO_NVML)
    assert [seen.value for seen in finding.seen] == ["2", "0000:01:00.1 10de:10fa", "bare metal"]


def test_acs_that_only_root_may_read_is_unknown_not_fine() -> None:
    closed: Any = Unreadable("only root may read it")
    with pytest.raises(Unreadable, match="only root"):
        judged("host.acs-redirects", pci=two_gpus(), bridges=(bridge(acs=closed), bridge(1)))


@pytest.mark.parametrize(("count", "fires"), [(1, False), (2, True), (0, True)])
def test_the_number_of_gpus_is_compared_with_the_sites(count: int, fires: bool) -> None:
    expect = msgspec.structs.replace(bundled_policy().expect, gpus=1)
    policy = msgspec.structs.replace(bundled_policy(), expect=expect)
    host = healthy_host(pci=tuple(pci_gpu(index) for index in range(count)))
    assert bool(found("host.gpus-missing", host, policy)) == fires


def test_a_gpu_that_no_pci_bus_shows_is_no_missing_gpu() -> None:
    with pytest.raises(NotApplicable, match="NVML opens a GPU"):
        found("host.no-gpu", healthy_host(pci=()), healthy_gpus())


def test_a_read_only_container_is_no_broken_disk() -> None:
    with pytest.raises(NotApplicable):
        judged("host.disk-read-only", read_only=("/",), virtualization="container")


def test_a_guest_whose_clock_is_its_hosts_is_not_judged_by_it() -> None:
    with pytest.raises(NotApplicable, match="not the kernel's to set"):
        judged("host.cpu-clock-held-low", governor="")


def test_stuck_processes_are_named_with_what_they_wait_in() -> None:
    (finding,) = found("host.process-stuck-in-driver", healthy_host(stuck=(IN_RM,)))
    assert [seen.value for seen in finding.seen][1] == "os_acquire_rwlock_write"


def test_a_silent_log_that_could_not_be_read_is_unknown() -> None:
    closed: Any = Unreadable("dmesg: read kernel buffer failed: Operation not permitted")
    host: Host = healthy_host(kernel_log=closed)
    for check_id in ("host.out-of-memory", "host.kernel-stalls"):
        with pytest.raises(Unreadable, match="not permitted"):
            found(check_id, host)
