"""The tables are whole and agree with each other, and what is newer than they are is not guessed."""

from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.errors import UsageError
from lpxdoctor.knowledge import Knowledge, images
from lpxdoctor.knowledge.rows import Row

K = knowledge.load()
TABLES: dict[str, tuple[Row, ...]] = {
    "toolkits": K.toolkits,
    "floors": K.floors,
    "forwards": K.forwards,
    "cuda_errors": K.cuda_errors,
    "branches": K.branches,
    "nvml_codes": K.nvml_codes,
    "nvidia_smi_codes": K.nvidia_smi_codes,
    "recoveries": K.recoveries,
    "capabilities": K.capabilities,
    "gpus": K.gpus,
    "xids": K.xids,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_says_where_it_is_from_and_stands_once(name: str) -> None:
    rows = TABLES[name]
    assert rows
    assert all(len(row.source) > 10 and row.date.year >= 2023 for row in rows)
    keys = [next(iter(vars_of(row).values())) for row in rows]
    if name != "gpus":  # two memory sizes may share a name
        assert len(set(keys)) == len(keys)


def vars_of(row: Row) -> dict[str, object]:
    own = [name for name in type(row).__struct_fields__ if name not in Row.__struct_fields__]
    return {name: getattr(row, name) for name in own}


def test_toolkits_rise_and_so_do_their_drivers() -> None:
    for earlier, later in pairwise(K.toolkits):
        assert Version(earlier.version) < Version(later.version)
        assert Version(earlier.driver) <= Version(later.driver)


def test_a_floor_is_no_higher_than_what_the_toolkits_of_its_major_ask_for() -> None:
    for floor in K.floors:
        drivers = [Version(row.driver) for row in K.toolkits if row.version.startswith(f"{floor.major}.")]
        # 11.0 was built before the floor of its major was set.
        assert Version(floor.driver) <= (max(drivers) if floor.major == 11 else min(drivers))


def test_branches_rise_with_their_cuda_and_forward_rows_name_known_ones() -> None:
    for earlier, later in pairwise(K.branches):
        assert earlier.branch < later.branch
        assert Version(earlier.cuda) < Version(later.cuda)
    known = {row.branch for row in K.branches}
    assert all(set(row.branches) <= known for row in K.forwards)
    assert set(K.forward_classes) < {row.kind for row in K.gpus}


def test_gpus_have_a_known_capability_and_no_id_means_two_of_them() -> None:
    capabilities = {row.cc for row in K.capabilities}
    by_id: dict[str, set[str]] = {}
    for gpu in K.gpus:
        assert gpu.cc in capabilities
        for device in gpu.pci:
            assert int(device, 16) > 0
            by_id.setdefault(device, set()).add(gpu.cc)
    assert all(len(capability) == 1 for capability in by_id.values())


def test_xids_name_known_actions_and_154_stands_above_them() -> None:
    assert {row.action for row in K.xids} <= set(K.xid_actions)
    row = K.xid(154)
    assert row is not None
    assert row.action == "read-line"
    assert [recovery.value for recovery in K.recoveries] == list(range(8))


@pytest.mark.parametrize(
    ("cuda", "driver"), [("12.9", "575.51.03"), ("13.0", "580.65.06"), ("13.0.2", "580.95.05"), ("11.8.0", "520.61.05")]
)
def test_a_toolkit_is_found_by_line_and_by_release(cuda: str, driver: str) -> None:
    row = K.toolkit(cuda)
    assert row is not None
    assert row.driver == driver


def test_what_is_newer_than_the_tables_is_unknown() -> None:
    assert K.toolkit("13.9") is None
    assert K.floor("14.0") is None
    assert K.forward("13.5") is None
    assert K.branch("999.10") is None
    assert K.capability("13.0") is None
    assert K.gpu_by_pci(0xFFFF) is None
    assert K.xid(999) is None
    assert K.newer_than_known("999.10")
    assert not K.newer_than_known("580.95.05")
    assert not K.newer_than_known("unknown")


def test_gpus_are_found_by_id_and_by_name() -> None:
    by_id = K.gpu_by_pci(0x2335)
    assert by_id is not None
    assert (by_id.name, by_id.cc, by_id.kind) == ("NVIDIA H200", "9.0", "data-center")
    assert K.gpu_by_name("NVIDIA H200") == by_id


def test_gpus_that_share_a_name_differ_in_memory_alone() -> None:
    shared = {name: [gpu for gpu in K.gpus if gpu.name == name] for name in {gpu.name for gpu in K.gpus}}
    assert len(shared["NVIDIA GeForce RTX 4060 Ti"]) == 2
    for name, rows in shared.items():
        assert len({(row.cc, row.kind, row.bandwidth_gbs, row.open) for row in rows}) == 1, name


def test_open_modules_are_judged_by_gpu_and_not_only_by_capability() -> None:
    rules = {
        name: K.open_modules_of(gpu)
        for name in ("NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA B200", "Tesla V100-SXM2-16GB")
        if (gpu := K.gpu_by_name(name))
    }
    assert list(rules.values()) == ["supported", "required", "required", "unsupported"]


def test_every_table_is_there_and_has_rows() -> None:
    fresh = Knowledge()
    assert all(getattr(fresh, name) for name in (*TABLES, "open_modules", "xid_actions", "forward_classes"))


def test_versions_are_no_text() -> None:
    older, newer = knowledge.version("580.95.05"), knowledge.version("580.105.08")
    assert older is not None
    assert newer is not None
    assert older < newer
    assert knowledge.version("N/A") is None


def test_a_file_of_images_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    for number, text in enumerate(("[[images]]\nname = 1", "nothing = [", "")):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=str(path)):
            images.load(path)
    with pytest.raises(UsageError, match="No such file"):
        images.load(tmp_path / "none.toml")
