"""A safetensors file in; its tensors, by its header alone, out. Nothing of the weights is read."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from lpxdoctor.errors import UsageError

INDEX = "model.safetensors.index.json"
_NUMBERED = re.compile(r"-\d{1,9}-of-(\d{1,9})\.safetensors$")
_LENGTH_BYTES = 8
_HEADER_MOST = 100_000_000  # the format's own limit
_INDEX_MOST = 200_000_000
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    "F4": 4,
}


@dataclass(frozen=True)
class Tensor:
    """One tensor: its name, its type as the format writes it ("BF16"), how many elements and dimensions, its bytes."""

    name: str
    dtype: str
    elements: int
    dimensions: int
    bytes: int


def of_directory(directory: Path) -> tuple[Tensor, ...]:
    """Return the tensors of a model directory, none where it has no safetensors files.

    Where there is an index, the files are those that it names; else all of them, without a second copy of the same
    weights in Mistral's own names.

    Raises:
        UsageError: for a file that is missing, cut off or no safetensors file.
    """
    index = directory / INDEX
    if index.is_file():
        names = sorted(_indexed(index))
        missing = [name for name in names if not (directory / name).is_file()]
        if missing:
            raise UsageError(
                f"{index} names {len(names)} files, and {len(missing)} of them are missing ({missing[0]}, …): "
                "the download is not complete. Download the model again"
            )
        files = [directory / name for name in names]
    else:
        files = sorted(directory.glob("*.safetensors"))
        files = [file for file in files if not file.name.startswith("consolidated")] or files
        _complete(files)
    return tuple(tensor for file in files for tensor in of_file(file))


def _complete(files: Sequence[Path]) -> None:
    """Raise where the names of the files tell that some of them are missing: model-00001-of-00004.safetensors."""
    counts = [int(match[1]) for file in files if (match := _NUMBERED.search(file.name))]
    if counts and len(counts) < max(counts):
        raise UsageError(
            f"{files[0].parent} holds {len(counts)} of the {max(counts)} files that their names tell of: "
            "the download is not complete. Download the model again"
        )


def _indexed(index: Path) -> set[str]:
    try:
        if index.stat().st_size > _INDEX_MOST:
            raise UsageError(f"{index} has {index.stat().st_size} bytes, and no index is that large")
        content = json.loads(index.read_bytes())
    except (ValueError, RecursionError):
        raise UsageError(f"{index} is not JSON: the download is not complete. Download the model again") from None
    except OSError as error:
        raise UsageError(f"{index}: {error.strerror}") from None
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise UsageError(f"{index} has no weight_map, so it does not say which files hold the weights")
    for name in shards.values():
        if not isinstance(name, str) or "/" in name or "\0" in name or not name.endswith(".safetensors"):
            raise UsageError(f"{index} names {str(name)[:60]!r}, which is no safetensors file beside it")
    return set(shards.values())


def of_file(path: Path) -> tuple[Tensor, ...]:
    """Return the tensors of one file.

    Raises:
        UsageError: for a file that cannot be read, is cut off or is none.
    """
    try:
        with path.open("rb") as file:
            header, data_at = _header(file, path)
        return tuple(_tensors(header, path, path.stat().st_size - data_at))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _header(file: BinaryIO, path: Path) -> tuple[Mapping[str, Any], int]:
    """Return the header and where the data begin; its length stands before it in 8 bytes, and is not believed."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 2 <= length <= _HEADER_MOST:
        raise UsageError(f"{path} is no safetensors file: its first 8 bytes would mean a header of {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise UsageError(
            f"{path} is cut off: {len(text)} of the {length} bytes of its header are there. Download the model again"
        )
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is no safetensors file: its header is not an object")
    return header, _LENGTH_BYTES + length


def _tensors(header: Mapping[str, Any], path: Path, data_bytes: int) -> Iterator[Tensor]:
    end = 0
    for name, value in header.items():
        if name == "__metadata__":
            continue
        tensor, last = _tensor(name, value, path)
        end = max(end, last)
        yield tensor
    if end > data_bytes:
        raise UsageError(
            f"{path} is cut off: its header tells of {end} bytes of weights and {data_bytes} are there. "
            "Download the model again"
        )


def _tensor(name: str, value: Any, path: Path) -> tuple[Tensor, int]:
    """Return a tensor and where it ends in the data."""
    try:
        dtype, shape, (start, end) = value["dtype"], value["shape"], value["data_offsets"]
        numbers = [*shape, start, end]
    except (TypeError, KeyError, ValueError):
        raise UsageError(f"{path}: its header describes the tensor {name[:60]!r} in a way that is none") from None
    if not isinstance(dtype, str) or not all(type(number) is int and number >= 0 for number in numbers) or end < start:
        raise UsageError(f"{path}: the tensor {name[:60]!r} has an impossible type, shape or place")
    elements = prod(shape)
    if dtype in _BITS and -(-elements * _BITS[dtype] // 8) != end - start:
        raise UsageError(f"{path}: the tensor {name[:60]!r} has {end - start} bytes, and its shape asks for others")
    return Tensor(name, dtype, elements, len(shape), end - start), end
