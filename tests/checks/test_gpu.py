"""Each check of a GPU fires on its own fault, and is silent on hosts that are healthy, busy or merely different."""

import contextlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.dcgm import Dcgm
from lpxdoctor.facts.gpu import Gpu, Gpus, gpu
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.nvml import Process, Reason, Remaps
from tests.checks.judging import bundled_policy, by_id, found
from tests.facts.builders_gpu import bridge, healthy_gpu, healthy_gpus, host_with, pci_gpu
from tests.facts.given import H200

ENGINE = Process(900, "compute", "VLLM::EngineCor", "VLLM::EngineCore", 130_000)
NOTEBOOK = Process(901, "compute", "python3", "python3 train.py", 20_000)
DESKTOP = Process(902, "graphics", "Xorg", "/usr/lib/xorg/Xorg :0", 80)

# One line a check: what is changed in a healthy GPU, and what the finding must say.
ONE_GPU: dict[str, tuple[dict[str, Any], str]] = {
    "gpu.lost": ({"codes": frozenset({15})}, "NVML has lost GPU 0"),
    "gpu.bar1-unassigned": ({"bar1_mib": 0}, "BAR1 of 0 MiB"),
    "gpu.recovery-needed": ({"recovery_action": 2}, "reboot the machine"),
    "gpu.inforom-corrupt": ({"codes": frozenset({14})}, "corrupt infoROM"),
    "gpu.ecc-uncorrectable": ({"ecc_uncorrected": 2}, "2 uncorrectable errors"),
    "gpu.ecc-corrected-many": ({"ecc_corrected": 5000}, "5000 corrected"),
    "gpu.sram-threshold-exceeded": ({"sram_threshold_exceeded": True}, "to be replaced"),
    "gpu.row-remap-failed": ({"remaps": Remaps(0, 8, pending=False, failure=True)}, "cannot be replaced"),
    "gpu.row-remap-pending": ({"remaps": Remaps(0, 1, pending=True, failure=False)}, "at its next reset"),
    "gpu.page-retirement-pending": ({"retirement_pending": True}, "next boot"),
    "gpu.pages-retired-many": ({"retired_pages": (40, 20)}, "60 pages"),
    "gpu.ecc-change-pending": ({"ecc": (True, False)}, "ECC will be off"),
    "gpu.hardware-slowdown": ({"reasons": Reason.HARDWARE_SLOWDOWN | Reason.HARDWARE_THERMAL}, "hardware slow-down"),
    "gpu.power-brake": ({"reasons": Reason.HARDWARE_SLOWDOWN | Reason.POWER_BRAKE}, "power brake"),
    "gpu.thermal-slowdown": ({"reasons": Reason.SOFTWARE_THERMAL}, "temperature limit"),
    "gpu.temperature-near-limit": ({"temperature_margin_c": 3, "temperature_c": 84}, "3 °C below"),
    "gpu.power-limit-lowered": ({"power_limit_w": 500.0}, "500 of 700 W"),
    "gpu.memory-taken": ({"memory_used_mib": 21_000, "processes": (NOTEBOOK,)}, "15% of GPU 0's memory"),
    "gpu.other-programs": ({"processes": (NOTEBOOK,)}, "1 other program on GPU 0"),
    "gpu.graphics-session": ({"processes": (DESKTOP,)}, "graphical"),
    "gpu.mig-on": ({"mig": (True, True)}, "MIG mode"),
    "gpu.mig-change-pending": ({"mig": (False, True)}, "MIG will be on"),
    "gpu.compute-mode-prohibited": ({"compute_mode": "prohibited"}, "closed to CUDA"),
    "gpu.compute-mode-exclusive": ({"compute_mode": "exclusive-process"}, "admits one process"),
    "gpu.persistence-off": ({"persistence": False}, "persistence is off on GPU 0"),
    "gpu.pcie-speed-low-under-load": ({"utilization_percent": 97, "pcie_generation": 1}, "generation 1 link"),
}
# What serves, what has no such feature, and what a board without ECC, power limit or thresholds answers.
BUSY = healthy_gpu(
    utilization_percent=99, reasons=Reason.POWER_CAP, power_w=699.0, memory_used_mib=131_000, processes=(ENGINE,)
)
GEFORCE = healthy_gpu(
    device_id=0x2684,
    name="NVIDIA GeForce RTX 4090",
    ecc=None,
    remaps=None,
    mig=None,
    sram_threshold_exceeded=None,
    ecc_corrected=None,
    ecc_uncorrected=None,
    fabric=None,
    persistence=None,
    temperature_margin_c=None,
    temperature_c=60,
    slowdown_c=90,
    pcie_generation=1,  # it is idle
    reasons=Reason.IDLE | Reason.DISPLAY_CLOCKS,
)
ECC_OFF = healthy_gpu(ecc=(False, False), ecc_corrected=None, ecc_uncorrected=None)


def facts(one: Gpu) -> tuple[Gpus, Host, Dcgm]:
    return healthy_gpus(one), host_with(), Dcgm(installed=True, refusal="", warned=())


@pytest.mark.parametrize("check_id", ONE_GPU)
def test_fires_on_its_fault(check_id: str) -> None:
    changes, words = ONE_GPU[check_id]
    (finding,) = found(check_id, *facts(healthy_gpu(**changes)))
    assert words in finding.message
    assert finding.subject == "GPU 0"


@pytest.mark.parametrize("one", [healthy_gpu(), BUSY, GEFORCE, ECC_OFF], ids=["idle", "busy", "geforce", "ecc off"])
@pytest.mark.parametrize("check_id", [check_id for check_id in by_id() if check_id.startswith("gpu.")])
def test_is_silent_where_nothing_is_wrong(check_id: str, one: Gpu) -> None:
    with contextlib.suppress(NotApplicable):
        assert found(check_id, *facts(one)) == []


def test_a_check_of_a_gpu_stays_silent_for_what_the_gpu_does_not_offer() -> None:
    nothing: dict[str, Any] = dict.fromkeys(H200["nvml"]["gpus"][0])
    bare = gpu(nothing | {"index": 0, "name": "x", "bus_id": "0000:01:00.0"})
    for check_id in ONE_GPU:
        if check_id not in ("gpu.memory-taken", "gpu.pcie-speed-low-under-load", "gpu.bar1-unassigned"):
            assert found(check_id, *facts(bare)) == [], check_id


def test_a_gpu_of_the_bus_that_nvml_does_not_have_is_not_initialised() -> None:
    log = ("NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x24:0x72:1603)",)
    host = host_with(pci_gpu(0), pci_gpu(1), kernel_log=log)
    (finding,) = found("gpu.not-initialised", host, healthy_gpus())
    assert finding.subject == "0000:02:00.0"
    assert "RmInitAdapter failed" in finding.seen[-1].value
    assert found("gpu.not-initialised", host, healthy_gpus(healthy_gpu(0), healthy_gpu(1))) == []


def test_a_gpu_that_was_given_to_a_guest_is_not_missed() -> None:
    host = host_with(pci_gpu(0), pci_gpu(1, driver="vfio-pci"))
    assert found("gpu.not-initialised", host, healthy_gpus()) == []


def test_a_gpu_without_a_handle_is_counted_once() -> None:
    gpus = healthy_gpus(healthy_gpu(0), gpu({"index": 1, "error": 4}))
    host = host_with(pci_gpu(0), pci_gpu(1))
    assert found("gpu.not-initialised", host, gpus) == []
    (finding,) = found("gpu.no-handle", gpus)
    assert "NO_PERMISSION" in finding.message


def test_in_a_container_fewer_gpus_than_the_bus_has_are_no_fault() -> None:
    host = host_with(pci_gpu(0), pci_gpu(1), virtualization="container")
    with pytest.raises(NotApplicable):
        found("gpu.not-initialised", host, healthy_gpus())


def test_a_missing_power_cable_is_named_by_nvml_or_by_the_log() -> None:
    (by_nvml,) = found("gpu.power-cable-missing", host_with(), healthy_gpus(gpu({"index": 0, "error": 8})))
    assert "insufficient power" in by_nvml.message
    log = ("NVRM: Xid (PCI:0000:65:00): 54, GPU is not supplied with enough power",)
    (by_log,) = found("gpu.power-cable-missing", host_with(kernel_log=log), healthy_gpus())
    assert by_log.subject == "0000:65:00"


def test_a_bar_without_an_address_is_seen_in_the_log_even_when_nvml_fails() -> None:
    log = ("[83260.06] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)",)
    host = host_with(kernel_log=log)
    broken = healthy_gpus(gpus=Unreadable("NVML failed"))
    check = by_id()["gpu.bar1-unassigned"]
    finding = next(iter(check(host=host, gpus=broken)))
    assert finding.subject == "0000:14:00.0"


def test_a_branch_that_dropped_the_gpu_and_one_that_does_not_know_it_yet() -> None:
    volta, blackwell = pci_gpu(device=0x1DB5), pci_gpu(device=0x2901)
    gpus = healthy_gpus(driver_version="595.58.03")
    (old,) = found("gpu.dropped-by-driver", host_with(volta), gpus)
    assert "R580 or older" in old.message
    assert found("gpu.dropped-by-driver", host_with(volta), healthy_gpus()) == []
    assert found("gpu.dropped-by-driver", host_with(), gpus) == []
    (new,) = found("gpu.newer-than-driver", host_with(blackwell), healthy_gpus(driver_version="550.163.01"))
    assert "R570 or newer" in new.message
    assert found("gpu.newer-than-driver", host_with(blackwell), healthy_gpus()) == []


def test_a_driver_s_word_in_the_log_counts_where_nvml_does_not_say() -> None:
    log = ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",)
    old_driver = healthy_gpus(healthy_gpu(recovery_action=None))
    (finding,) = found("gpu.recovery-needed", host_with(kernel_log=log), old_driver)
    assert "--gpu-reset" in finding.message
    assert found("gpu.recovery-needed", host_with(kernel_log=log), healthy_gpus()) == []  # it was reset since
    (required,) = found("gpu.recovery-needed", host_with(), healthy_gpus(healthy_gpu(codes=frozenset({16}))))
    assert "--gpu-reset" in required.message


@pytest.mark.parametrize(
    ("line", "check_id"),
    [
        ("48, pid=1, name=python3, DBE (double bit error)", "gpu.xid-hardware"),
        ("79, GPU has fallen off the bus.", "gpu.xid-hardware"),
        (
            "119, pid=1, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
            "gpu.xid-hardware",
        ),
        ("109, pid=1, name=python3, Ch 0000, errorString CTX SWITCH TIMEOUT", "gpu.xid-driver"),
        ("31, pid=1, name=python3, Ch 0000, MMU Fault", "gpu.xid-program"),
        ("45, pid=1, name=python3, Ch 0000", "gpu.xid-program"),
        ("63, Row Remapper: new row marked for remapping", "gpu.xid-minor"),
        ("999, something new", "gpu.xid-unknown"),
    ],
)
def test_an_xid_is_judged_by_its_kind_and_once(line: str, check_id: str) -> None:
    log = (f"[1.0] NVRM: Xid (PCI:0000:01:00): {line}", f"[2.0] NVRM: Xid (PCI:0000:01:00): {line}")
    host = host_with(kernel_log=log)
    hits = [check for check in by_id() if check.startswith("gpu.xid-") and found(check, host)]
    assert hits == [check_id]
    (finding,) = found(check_id, host)
    assert "2 times" in finding.message


def test_an_announcement_of_the_recovery_action_is_no_error_of_its_own() -> None:
    log = ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",)
    assert not [check for check in by_id() if check.startswith("gpu.xid-") and found(check, host_with(kernel_log=log))]


def test_a_log_that_may_not_be_read_leaves_xids_unknown() -> None:
    with pytest.raises(Unreadable, match="root"):
        found("gpu.xid-hardware", host_with(kernel_log=Unreadable("dmesg: needs root")))


def test_a_narrow_link_is_shown_with_the_slot_s_own_width() -> None:
    host = host_with(pci_gpu(width=8), bridges=(bridge(width=8, width_max=8),))
    (finding,) = found("gpu.pcie-width-degraded", host, healthy_gpus())
    assert finding.subject == "GPU 0"
    assert "x8 of x16" in finding.message
    assert finding.seen[-1].value == "x8"  # the slot: it is narrow by design, and to be waived


def test_a_narrow_uplink_above_the_gpus_is_found_too() -> None:
    shared = ("0000:00:01.0", "0000:10:00.0")
    devices = pci_gpu(0, above=shared), pci_gpu(1, above=shared)
    ways = replace(bridge(0), width=8), replace(bridge(0), address="0000:10:00.0")
    (finding,) = found("gpu.pcie-width-degraded", host_with(*devices, bridges=ways), healthy_gpus())
    assert finding.subject == "0000:00:01.0"


def test_a_card_of_eight_lanes_and_a_guest_without_a_link_are_no_fault() -> None:
    assert found("gpu.pcie-width-degraded", host_with(pci_gpu(width=8, width_max=8)), healthy_gpus()) == []
    assert found("gpu.pcie-width-degraded", host_with(pci_gpu(width=None, width_max=None)), healthy_gpus()) == []


def test_an_idle_link_s_speed_is_not_judged() -> None:
    with pytest.raises(NotApplicable, match="idle"):
        found("gpu.pcie-speed-low-under-load", healthy_gpus(healthy_gpu(pcie_generation=1)))


def test_an_nvlink_is_down_where_the_others_of_its_model_are_up() -> None:
    up, down = (True,) * 18, (True,) * 17 + (False,)
    (finding,) = found("gpu.nvlink-down", healthy_gpus(healthy_gpu(0, nvlinks=up), healthy_gpu(1, nvlinks=down)))
    assert finding.subject == "GPU 1"
    assert found("gpu.nvlink-down", healthy_gpus(healthy_gpu(0, nvlinks=up), healthy_gpu(1, nvlinks=up))) == []
    bridged = healthy_gpu(2, name="NVIDIA A40", nvlinks=(False,) * 4)
    assert found("gpu.nvlink-down", healthy_gpus(healthy_gpu(0, nvlinks=up), bridged)) == []


def test_mixed_models_are_told_and_equal_ones_are_not() -> None:
    (finding,) = found("gpu.models-mixed", healthy_gpus(healthy_gpu(0), healthy_gpu(1, name="NVIDIA L4")))
    assert "2 models" in finding.message
    assert found("gpu.models-mixed", healthy_gpus(healthy_gpu(0), healthy_gpu(1))) == []


def test_heat_and_power_are_told_apart() -> None:
    braked = healthy_gpus(healthy_gpu(reasons=Reason.HARDWARE_SLOWDOWN | Reason.POWER_BRAKE))
    assert found("gpu.hardware-slowdown", braked) == []
    hot = healthy_gpus(healthy_gpu(reasons=Reason.HARDWARE_SLOWDOWN | Reason.HARDWARE_THERMAL))
    assert found("gpu.power-brake", hot) == []


def test_a_limit_without_a_margin_is_judged_by_the_slow_down_temperature() -> None:
    near = healthy_gpu(temperature_margin_c=None, temperature_c=88, slowdown_c=90)
    assert found("gpu.temperature-near-limit", healthy_gpus(near))


def test_memory_that_an_engine_holds_is_the_engine_s() -> None:
    serving = healthy_gpu(memory_used_mib=131_000, processes=(ENGINE, NOTEBOOK))
    assert found("gpu.memory-taken", healthy_gpus(serving)) == []
    (finding,) = found("gpu.other-programs", healthy_gpus(serving))
    assert "python3 (pid 901" in finding.seen[0].value


def test_memory_that_nobody_is_shown_to_hold_is_unknown() -> None:
    with pytest.raises(Unreadable, match="shows no process that holds them"):
        found("gpu.memory-taken", healthy_gpus(healthy_gpu(memory_used_mib=90_000)))


def test_a_site_names_its_own_engines() -> None:
    mine = msgspec.structs.replace(bundled_policy().expect, engines=("train.py",))
    site = msgspec.structs.replace(bundled_policy(), expect=mine)
    assert found("gpu.other-programs", healthy_gpus(healthy_gpu(processes=(NOTEBOOK,))), site) == []


def test_several_gpus_without_persistence_are_one_finding() -> None:
    (finding,) = found("gpu.persistence-off", healthy_gpus(*(healthy_gpu(n, persistence=False) for n in range(8))))
    assert "GPU 0, 1, 2, 3, 4, 5, 6, 7" in finding.message


def test_every_check_of_a_gpu_has_a_firing_test() -> None:
    others = (
        *("gpu.power-cable-missing", "gpu.not-initialised", "gpu.no-handle", "gpu.dropped-by-driver"),
        *("gpu.newer-than-driver", "gpu.models-mixed", "gpu.pcie-width-degraded", "gpu.nvlink-down"),
        *("gpu.xid-hardware", "gpu.xid-driver", "gpu.xid-program", "gpu.xid-minor", "gpu.xid-unknown"),
        *("gpu.gsp-timeout", "gpu.dcgm-test-failed", "gpu.dcgm-setting-refused"),
    )
    assert {check_id for check_id in by_id() if check_id.startswith("gpu.")} == {*ONE_GPU, *others}
