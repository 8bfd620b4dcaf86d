"""Headers of safetensors files: real ones written here, and every way in which a download can be broken."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.safetensors import INDEX, Tensor, of_directory, of_file
from tests.sizing import checkpoints

ONE = {"a.weight": ("BF16", (3, 4)), "a.bias": ("F32", (3,))}


def raw(path: Path, header: Any, data: int = 0, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data))
    return path


def test_a_file_tells_its_tensors(tmp_path: Path) -> None:
    file = checkpoints.write(tmp_path / "model.safetensors", ONE)
    assert of_file(file) == (Tensor("a.weight", "BF16", 12, 2, 24), Tensor("a.bias", "F32", 3, 1, 12))


def test_a_file_without_tensors_is_one(tmp_path: Path) -> None:
    assert of_file(checkpoints.write(tmp_path / "model.safetensors", {})) == ()


def test_half_bytes_are_rounded_up(tmp_path: Path) -> None:
    file = raw(tmp_path / "x.safetensors", {"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, 2)
    assert of_file(file)[0].bytes == 2


def test_a_type_of_the_future_is_believed(tmp_path: Path) -> None:
    file = raw(tmp_path / "x.safetensors", {"a": {"dtype": "F3", "shape": [8], "data_offsets": [0, 3]}}, 3)
    assert of_file(file)[0].bytes == 3


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    checkpoints.directory(tmp_path, {}, {"a": ("BF16", (2,))}, {"b": ("BF16", (3,))})
    checkpoints.write(tmp_path / "stray.safetensors", {"c": ("BF16", (9,))})
    assert sorted(tensor.name for tensor in of_directory(tmp_path)) == ["a", "b"]


def test_a_second_copy_in_mistrals_names_is_left_out(tmp_path: Path) -> None:
    checkpoints.directory(tmp_path, {}, {"a": ("BF16", (2,))})
    checkpoints.write(tmp_path / "consolidated.safetensors", {"b": ("BF16", (2,))})
    assert [tensor.name for tensor in of_directory(tmp_path)] == ["a"]
    (tmp_path / "model.safetensors").unlink()
    assert [tensor.name for tensor in of_directory(tmp_path)] == ["b"]


def test_no_files_are_no_tensors(tmp_path: Path) -> None:
    assert of_directory(tmp_path) == ()


def test_a_missing_shard_is_an_unfinished_download(tmp_path: Path) -> None:
    checkpoints.directory(tmp_path, {}, {"a": ("BF16", (2,))}, {"b": ("BF16", (3,))})
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UsageError, match=r"names 2 files, and 1 of them are missing \(model-00002-of-00002"):
        of_directory(tmp_path)
    (tmp_path / INDEX).unlink()
    with pytest.raises(UsageError, match="1 of the 2 files"):
        of_directory(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": 5}}', "no safetensors file beside it"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "no safetensors file beside it"),
        ('{"weight_map": {"a": "/etc/x.safetensors"}}', "no safetensors file beside it"),
        ('{"weight_map": {"a": "x\\u0000.safetensors"}}', "no safetensors file beside it"),
    ],
)
def test_an_index_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UsageError, match=said):
        of_directory(tmp_path)


def test_a_file_cut_off_in_its_header(tmp_path: Path) -> None:
    file = checkpoints.write(tmp_path / "model.safetensors", ONE)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UsageError, match=r"cut off: 32 of the .* bytes of its header"):
        of_file(file)


def test_a_file_cut_off_in_its_weights(tmp_path: Path) -> None:
    file = checkpoints.write(tmp_path / "model.safetensors", ONE)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match="tells of 36 bytes of weights and 35 are there"):
        of_file(file)


@pytest.mark.parametrize("length", [0, 1, 100_000_001, 2**63, 2**64 - 1])
def test_a_header_length_that_is_a_bomb(tmp_path: Path, length: int) -> None:
    with pytest.raises(UsageError, match=f"a header of {length} bytes"):
        of_file(raw(tmp_path / "x.safetensors", b"{}", length=length))


def test_a_pointer_of_git_lfs_is_no_safetensors_file(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(UsageError, match="no safetensors file"):
        of_file(file)


@pytest.mark.parametrize("header", [b"{nonsense", b"\xff\xfe\x00\x00", b"[" * 50_000, b"[]", b"3.5"])
def test_a_header_that_is_none(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(UsageError, match="no safetensors file"):
        of_file(raw(tmp_path / "x.safetensors", header))


@pytest.mark.parametrize(
    "entry",
    [
        5,
        {},
        {"dtype": "BF16", "shape": [2]},
        {"dtype": "BF16", "shape": 2, "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [0]},
        {"dtype": 16, "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2.0], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [0, 400]},
        {"dtype": "BF16", "shape": [3], "data_offsets": [0, 4]},
    ],
)
def test_a_tensor_that_is_impossible(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(UsageError, match=r"x\.safetensors"):
        of_file(raw(tmp_path / "x.safetensors", {"a": entry}, 4))


@given(st.binary(max_size=300))
def test_any_bytes_are_tensors_or_one_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.safetensors"
    file.write_bytes(content)
    with suppress(UsageError):
        assert isinstance(of_file(file), tuple)
