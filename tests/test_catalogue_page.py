"""docs/checks.md is what the checks say; each candidate of the field is a check of ours or left out with a reason."""

from collections import Counter
from pathlib import Path

import pytest

from docs import checks
from lpxdoctor import catalog

ROOT = Path(__file__).resolve().parent.parent
IDS = {check.id for check in catalog.load(None)}
CANDIDATES = {"HW": 22, "KM": 22, "DR": 22, "CU": 11, "CR": 32, "EN": 19, "HE": 22, "FL": 8}


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    assert written == checks.page(), "type: python docs/checks.py > docs/checks.md"


def test_every_check_is_on_the_page_once_with_a_reason_why() -> None:
    rows = [line for line in checks.page().splitlines() if line.startswith("| `")]
    assert Counter(line.split("`")[1] for line in rows) == Counter(IDS)
    assert len(rows) >= 140
    assert all(len(line.rsplit(" | ", 1)[1]) > 10 for line in rows)


def test_every_candidate_is_accounted_for() -> None:
    rows = checks.coverage()
    names = [row["row"] for row in rows]
    assert len(set(names)) == len(names)
    assert Counter(name[:2] for name in names if name != "DCGM") == CANDIDATES
    for row in rows:
        assert len({"by", "how", "because"} & set(row)) == 1, row
        assert set(row.get("by", ())) <= IDS, row
        assert len(row.get("because", "x" * 20)) >= 20, row


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "The module of 580.95.05 is in /etc/x.d and\nstays. It is old.",
            "The module of 580.95.05 is in /etc/x.d and stays",
        ),
        ("one only", "one only"),
        ("", ""),
    ],
)
def test_a_first_sentence_ends_where_a_sentence_does(text: str, first: str) -> None:
    assert checks.first_sentence(text) == first
