"""nvidia-smi's table, list and query, whole and cut: what our own NVML program would have said, and nothing besides."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Evidence, Unreadable
from lpxdoctor.facts.gpu import NVML, Gpus
from lpxdoctor.facts.nvml import FabricState, Reason
from lpxdoctor.recognize import nvidia_smi

TABLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |
| N/A   31C    P0              62W / 400W |   4011MiB / 81920MiB |      7%      Default |
|                                         |                      |             Disabled |
|   3  NVIDIA A100-SXM4-80GB          Off | 00000000:BD:00.0 Off |                    2 |
| N/A   33C    P0              64W / 400W |      4MiB / 81920MiB |      0%   E. Process |
|                                         |                      |             Enabled* |
"""
QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  6 10:00:00 2025
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Compute Mode                          : Exclusive_Process
    GPU Recovery Action                   : Drain and Reset
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 8x
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 2
            DRAM Correctable              : 3
            DRAM Uncorrectable            : 4
        Aggregate
            DRAM Uncorrectable            : 9
            SRAM Threshold Exceeded       : No
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 5
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    Fabric
        State                             : In Progress
        Status                            : N/A
    Temperature
        GPU Current Temp                  : 88 C

"""


def gpus(text: str) -> Gpus:
    raw = nvidia_smi.answer(text.splitlines())
    return Gpus.parse(Evidence("h", {NVML.key: Answer(raw)} if raw else {}))


def test_a_table_as_facts() -> None:
    found = gpus(TABLE)
    assert (found.driver_version, found.cuda_version) == ("535.183.01", "12.2")
    first, second = found.gpus
    assert (first.index, first.name, first.bus_id, first.persistence) == (
        0,
        "NVIDIA A100-SXM4-80GB",
        "0000:07:00.0",
        True,
    )
    assert (first.memory_used_mib, first.memory_total_mib, first.utilization_percent) == (4011, 81920, 7)
    assert (first.temperature_c, first.power_w, first.power_limit_w, first.ecc_uncorrected) == (31, 62.0, 400.0, 0)
    assert (first.mig, first.compute_mode) == ((False, False), "default")
    assert (second.index, second.ecc_uncorrected, second.compute_mode) == (3, 2, "exclusive-process")
    assert second.mig == (True, False)


@pytest.mark.parametrize("field", ["uuid", "remaps", "fabric", "pcie_width", "processes", "ecc", "nvlinks"])
def test_what_a_table_does_not_show_is_not_known(field: str) -> None:
    with pytest.raises(Unreadable):
        getattr(gpus(TABLE).gpus[0], field)


def test_a_query_as_facts() -> None:
    (gpu,) = gpus(QUERY).gpus
    assert (gpu.name, gpu.bus_id, gpu.compute_mode) == ("NVIDIA H100 80GB HBM3", "0000:3b:00.0", "exclusive-process")
    assert (gpu.recovery_action, gpu.pcie_width, gpu.pcie_width_max, gpu.temperature_c) == (4, 8, 16, 88)
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.ecc_uncorrected_ever) == (4, 6, 9)
    assert gpu.remaps is not None
    assert (gpu.remaps.uncorrectable, gpu.remaps.pending, gpu.remaps.failure) == (5, True, False)
    assert gpu.reasons == Reason.HARDWARE_SLOWDOWN | Reason.HARDWARE_THERMAL
    assert gpu.fabric is not None
    assert gpu.fabric.state == FabricState.IN_PROGRESS
    assert gpus(QUERY).driver_version == "550.54.15"


def test_a_list_and_a_watched_table() -> None:
    assert [gpu.name for gpu in gpus("GPU 0: NVIDIA L4 (UUID: GPU-a)\nGPU 1: NVIDIA L4 (UUID: GPU-b)").gpus] == [
        "NVIDIA L4"
    ] * 2
    assert len(gpus(TABLE * 3).gpus) == 2


@pytest.mark.parametrize("cut", range(0, len(TABLE), 37))
def test_a_table_that_is_cut_gives_less_and_nothing_wrong(cut: int) -> None:
    whole = {gpu["index"]: gpu for gpu in (nvidia_smi.answer(TABLE.splitlines()) or {})["gpus"]}
    for gpu in (nvidia_smi.answer(TABLE[:cut].splitlines()) or {"gpus": []})["gpus"]:
        assert gpu.items() <= whole[gpu["index"]].items()


def test_no_gpu_is_no_answer() -> None:
    assert nvidia_smi.answer(["No devices were found", "| nothing |"]) is None


@given(st.lists(st.one_of(st.text(), st.sampled_from([*TABLE.splitlines(), *QUERY.splitlines()]))))
def test_any_lines_are_read(lines: list[str]) -> None:
    raw: Any = nvidia_smi.answer(lines)
    Gpus.parse(Evidence("h", {NVML.key: Answer(raw)}))
