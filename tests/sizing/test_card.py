"""A GPU by its name, and a host's GPUs as NVML tells them."""

from typing import Any

import pytest

from lpxdoctor import knowledge
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.facts.gpu import NVML, Gpus
from lpxdoctor.sizing.card import GIB, MIB, Card, by_name, of_host
from tests.sizing.hosts import H200, L4, evidence, process


def host(*gpus: dict[str, Any], count: int = 1) -> Card:
    return of_host(Gpus.parse(evidence(*gpus)), count)


@pytest.mark.parametrize("name", ["NVIDIA L4", "nvidia l4", "L4", " l4 "])
def test_a_gpu_by_its_name(name: str) -> None:
    card = by_name(name)
    assert (card.name, card.capability, card.bytes_per_s) == ("NVIDIA L4", "8.9", 300 * 10**9)
    assert "fp8" in card.native
    assert card.free_bytes is None


def test_every_gpu_of_the_table_has_a_name_that_finds_it() -> None:
    for row in knowledge.load().gpus:
        shared = sum(other.name == row.name for other in knowledge.load().gpus) > 1
        card = by_name(f"{row.name} {row.memory_gb}GB" if shared else row.name)
        assert card.name == row.name
        assert 0.85 * row.memory_gb * 10**9 < card.total_bytes < row.memory_gb * GIB


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(UsageError, match=r"'RTX 5090 Super' is in the table\. Near it: .*NVIDIA GeForce RTX 5090"):
        by_name("RTX 5090 Super")
    with pytest.raises(UsageError, match=r"Near it: NVIDIA A100-PCIE-40GB, .*A100-SXM4-80GB"):
        by_name("A100")
    with pytest.raises(UsageError, match="No GPU of the name"):
        by_name("")


def test_a_name_that_two_gpus_share_asks_which() -> None:
    with pytest.raises(UsageError, match='RTX 4060 Ti 8GB" or "NVIDIA GeForce RTX 4060 Ti 16GB"'):
        by_name("RTX 4060 Ti")
    assert by_name("RTX 4060 Ti 16GB").total_bytes > 15 * GIB


@pytest.mark.parametrize(
    ("name", "cuda_gib"),  # totals in public logs of PyTorch and vLLM
    [
        ("NVIDIA L4", 22.06),
        ("RTX 4090", 23.52),
        ("RTX 5090", 31.36),
        ("A100-SXM4-40GB", 39.49),
        ("H100 80GB HBM3", 79.19),
        ("RTX PRO 6000 Blackwell Server Edition", 94.97),
        ("NVIDIA H200", 139.81),
    ],
)
def test_cuda_sees_less_than_nvml_by_about_what_the_driver_keeps(name: str, cuda_gib: float) -> None:
    assert by_name(name).total_bytes / GIB == pytest.approx(cuda_gib, rel=0.005)


def test_bandwidth_is_clock_times_two_times_bus_width() -> None:
    card = host(H200)
    assert card.bytes_per_s == 3201 * 10**6 * 2 * 6016 // 8 == 4_814_304_000_000
    assert card.bandwidth_from == "3201 MHz x 2 x 6016 bit / 8, by NVML"


def test_without_a_clock_or_a_width_the_table_tells_the_bandwidth() -> None:
    for missing in ({"bus_width_bits": None}, {"bus_width_bits": 0}, {"memory_clock_max_mhz": {"error": 3}}):
        card = host({**L4, **missing})
        assert (card.bytes_per_s, card.bandwidth_from) == (300 * 10**9, "data sheet")
    unknown = host({**L4, "name": "NVIDIA X9", "compute_capability": "19.0", "bus_width_bits": None})
    assert (unknown.bytes_per_s, unknown.native) == (None, ())


def test_an_idle_gpus_total_is_what_is_free() -> None:
    card = host(H200)
    assert card.total_bytes == card.free_bytes == 143166 * MIB
    assert card.holders == ()


def test_what_processes_hold_belongs_to_the_total() -> None:
    busy = {**L4, "memory_mib": {"total": 23034, "free": 12563, "used": 10471}}
    card = host({**busy, "processes": [process(1423, "Xorg", 300), process(99, "python", 9700)]})
    assert (card.total_bytes, card.free_bytes) == (22563 * MIB, 12563 * MIB)
    assert card.holders == ("Xorg (pid 1423, 300 MiB)", "python (pid 99, 9700 MiB)")


def test_a_process_whose_memory_is_not_shown_leaves_an_estimate() -> None:
    busy = {**L4, "memory_mib": {"total": 23034, "free": 12563, "used": 10471}}
    card = host({**busy, "processes": [process(1423, "", None)]})
    assert card.total_bytes / GIB == pytest.approx(22.06, rel=0.005)
    assert "not shown here (pid 1423)" in card.holders[0]


def test_memory_that_no_shown_process_holds_is_not_taken_for_no_memory() -> None:
    card = host({**L4, "memory_mib": {"total": 23034, "free": 2563, "used": 20471}})
    assert card.total_bytes / GIB == pytest.approx(22.06, rel=0.005)
    assert (card.free_bytes, card.holders) == (2563 * MIB, ())


def free(gpu: dict[str, Any], mib: int) -> dict[str, Any]:
    return {**gpu, "memory_mib": {"total": 23034, "free": mib, "used": 23034 - mib}}


def test_the_emptiest_gpu_is_chosen() -> None:
    card = host(free(L4, 5000), free(L4, 20000), free(L4, 9000))
    assert (card.index, card.alike, card.free_bytes) == (1, 3, 20000 * MIB)


def test_of_several_gpus_the_fullest_decides_and_kinds_are_not_mixed() -> None:
    gpus = (free(L4, 22000), free(L4, 9000), {**free(L4, 21000), "name": "NVIDIA A10"}, free(L4, 15000))
    assert host(*gpus, count=2).free_bytes == 15000 * MIB
    assert host(*gpus, count=3).free_bytes == 9000 * MIB
    with pytest.raises(SetupError, match="by 4 GPUs of one kind, and this host has 3"):
        host(*gpus, count=4)


def test_a_gpu_divided_by_mig_is_not_planned_for() -> None:
    divided = {**H200, "mig_mode": [True, True]}
    assert host(divided, H200).index == 1
    with pytest.raises(SetupError, match="GPU 0: divided by MIG"):
        host(divided)


def test_a_gpu_that_shares_the_cpus_memory_is_planned_by_the_table() -> None:
    card = host({**L4, "name": "NVIDIA GB10", "compute_capability": "12.1", "memory_mib": None})
    assert (card.name, card.bytes_per_s, card.free_bytes) == ("NVIDIA GB10", 273 * 10**9, None)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (evidence(), "No GPU of this host answers"),
        (
            evidence(error={"call": "nvmlInit_v2", "code": 9}),
            "cannot be read: NVML failed: nvmlInit_v2: DRIVER_NOT_LOADED",
        ),
        (Evidence(host="x"), "cannot be read: program:nvml was not asked"),
        (Evidence(host="x", answers={NVML.key: Answer({"gpus": "nonsense"})}), "cannot be read"),
        (evidence({**L4, "memory_mib": None}), "cannot be read"),
        (evidence({**L4, "memory_mib": {"error": 999}}), "cannot be read"),
        (evidence({"name": "half"}), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said(seen: Evidence, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        of_host(Gpus.parse(seen), 1)
