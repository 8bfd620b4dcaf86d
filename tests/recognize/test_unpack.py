"""Streams, plain and packed in any way, and any bytes at all: text in blocks out, and no exception of a library."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import tarfile
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpxdoctor.recognize.tar import TarError, members
from lpxdoctor.recognize.unpack import Packed, Unpacked, blocks

TEXT = "one\ntwo 显存\n".encode()


def unpacked(data: bytes) -> tuple[bytes, Unpacked]:
    kept = Unpacked()
    return b"".join(blocks(io.BytesIO(data), kept)), kept


def tar(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return raw.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_a_text_comes_out_as_it_was(pack: Callable[[bytes], bytes]) -> None:
    expected = TEXT if pack is not zlib.compress else pack(TEXT)  # a bare zlib stream has no name that it goes by
    assert unpacked(pack(TEXT))[0] == expected


def test_packed_streams_behind_each_other_are_one() -> None:
    assert unpacked(gzip.compress(b"a\n") + gzip.compress(b"b\n") + b"\0\0")[0] == b"a\nb\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_windows_own_encoding_is_read(encoding: str) -> None:
    assert unpacked(("\ufeff" + TEXT.decode()).encode(encoding))[0].decode().removeprefix("\ufeff") == TEXT.decode()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_each_file_of_an_archive_follows_its_name(form: int) -> None:
    name = "sos/" + "long/" * 20 + "dmesg"
    data = unpacked(lzma.compress(tar({name: TEXT, "log.gz": gzip.compress(TEXT)}, form)))[0]
    assert data == f"\n*** {name}\n".encode() + TEXT + b"\n\n*** log.gz\n" + TEXT + b"\n"


def test_what_is_packed_in_a_way_that_is_not_read_names_the_command() -> None:
    with pytest.raises(Packed, match="zstd -dc"):
        unpacked(b"\x28\xb5\x2f\xfd" + bytes(64))
    inside, kept = unpacked(tar({"x.zst": b"\x28\xb5\x2f\xfd" + bytes(64), "y": TEXT}))
    assert TEXT in inside
    assert kept.notes == ["a file in it is packed in a way that is not read here"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_cut_archive_gives_what_stands_before_the_cut(pack: Callable[[bytes], bytes]) -> None:
    noise = random.Random(5).randbytes(1 << 20).hex().encode()
    whole = pack(tar({"a": b"x\n" * 500, "b": noise}))
    data, kept = unpacked(whole[: len(whole) - len(whole) // 4])
    assert b"*** a" in data
    assert data.count(b"x\n") == 500
    assert "damaged" in kept.notes[0]


def test_evidence_is_kept_apart_wherever_it_lies() -> None:
    bundle = b'{"schema": 1,\n "answers": {}}'
    for data in (bundle, gzip.compress(bundle), tar({"host/e.json": bundle})):
        text, kept = unpacked(data)
        assert kept.bundles == [bundle]
        assert b"answers" not in text
    assert unpacked(b'{"schema": 1, "other": true}\n')[0] == b'{"schema": 1, "other": true}\n'


def test_a_header_of_any_size_costs_no_memory() -> None:
    entry = tarfile.TarInfo("path")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 32
    with pytest.raises(TarError, match="ends in the middle"):
        list(members(io.BytesIO(entry.tobuf() + b"11 path=x\n" + bytes(4096))))


@given(st.binary(max_size=4000))
def test_any_bytes_end_in_text(data: bytes) -> None:
    for prefix in (b"", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\x00", b"\xff\xfe\x00", b'{"schema":'):
        with contextlib.suppress(Packed):
            unpacked(prefix + data)


@settings(max_examples=60)
@given(st.binary(max_size=700), st.integers(0, 511))
def test_any_damage_to_an_archive_ends_in_text_or_a_hint(data: bytes, at: int) -> None:
    whole = bytearray(tar({"a": TEXT, "b": TEXT}))
    whole[at : at + len(data)] = data
    for pack in (bytes, gzip.compress):
        with contextlib.suppress(Packed):  # damage can look like the beginning of something else
            unpacked(pack(bytes(whole)))
