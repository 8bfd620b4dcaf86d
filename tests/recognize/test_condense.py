"""Texts of any size: short ones whole, of long ones what matters; what is kept is bounded whatever comes."""

import random
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize.condense import LINE_BYTES, WHOLE_BYTES, Excerpt, condense

FALLEN = b"NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n"
DULL = b"INFO 11-29 10:00:00 [loggers.py:118] Engine 000: Running: 12 reqs, Waiting: 0 reqs, hit rate 3.0\n"


def in_blocks(data: bytes) -> Iterable[bytes]:
    return (data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16))


def kept(data: bytes) -> Excerpt:
    return condense(in_blocks(data))


def test_a_short_text_is_whole() -> None:
    excerpt = kept(b"a\n\nb\nc")
    assert excerpt.lines == ((1, b"a"), (2, b""), (3, b"b"), (4, b"c"))
    assert (excerpt.whole, excerpt.total_lines, excerpt.binary) == (True, 4, False)


def test_of_a_long_text_the_line_that_matters_is_kept_with_its_number() -> None:
    excerpt = kept(DULL * 30_000 + FALLEN + DULL * 30_000)
    assert excerpt.lines == ((30_001, FALLEN.rstrip()),)
    assert (excerpt.whole, excerpt.total_lines) == (False, 60_001)


def test_one_rare_xid_among_hundred_thousand_others_is_kept() -> None:
    usual = b"".join(
        b"NVRM: Xid (PCI:0000:65:00): 31, pid=%d, name=python3, MMU Fault %x\n" % (n, n) for n in range(90_000)
    )
    excerpt = kept(usual + FALLEN + usual)
    assert FALLEN.rstrip() in [line for _, line in excerpt.lines]
    assert len(excerpt.lines) < 30


def test_a_table_in_a_long_log_stays_a_table() -> None:
    rows = b"".join(
        b"|   %d  NVIDIA H100 80GB HBM3          On  |   00000000:%02X:00.0 Off |                    0 |\n" % (n, n)
        for n in range(64)
    )
    lines = [line for _, line in kept(DULL * 30_000 + rows + DULL * 10).lines]
    assert len(lines) == 64


def test_a_listing_in_a_long_log_stays_a_listing() -> None:
    listing = b"==============NVSMI LOG==============\n\nGPU 00000000:65:00.0\n    Product Name : NVIDIA L4\n"
    listing += b"".join(b"    Field %d\n        Value : %d\n" % (n, n) for n in range(300))
    lines = [line for _, line in kept(DULL * 30_000 + listing + b"Next thing\n" + DULL * 10).lines]
    assert lines.count(b"        Value : 299") == 1
    assert b"Next thing" not in lines


def test_errors_of_many_shapes_fill_the_excerpt_and_no_more() -> None:
    source = random.Random(7)
    words = [bytes(source.choices(b"ghijklmnopqrstuvwxyz", k=8)) for _ in range(2000)]
    noise = b"".join(b"error in " + b" ".join(source.choices(words, k=6)) + b"\n" for _ in range(40_000))
    excerpt = kept(noise + FALLEN + noise)
    assert FALLEN.rstrip() in [line for _, line in excerpt.lines]
    assert sum(len(line) for _, line in excerpt.lines) < WHOLE_BYTES + (400 << 10)


def test_a_line_without_an_end_keeps_its_beginning() -> None:
    excerpt = kept(b"x" * (3 << 20) + b"\n" + FALLEN)
    assert [(number, len(line)) for number, line in excerpt.lines] == [(1, LINE_BYTES), (2, len(FALLEN) - 1)]


def test_what_is_no_text_is_seen() -> None:
    assert kept(bytes(100_000)).binary
    assert kept(random.Random(1).randbytes(100_000)).binary
    assert not kept("显存不足 请检查\n".encode("gb18030") * 100).binary


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_blocks_are_cut_anywhere(parts: list[bytes]) -> None:
    whole = condense([b"".join(parts)])
    assert condense(parts).lines == whole.lines
    text = b"".join(parts)
    assert whole.total_lines == text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
