"""A daemon.json that is listed is judged wherever it stands, and what people wrote into the listing is not."""

import io
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize import recognize
from lpxdoctor.recognize.condense import condense
from lpxdoctor.recognize.listed import proofs
from lpxdoctor.recognize.text import pasted

HEAD = "$ cat /etc/docker/daemon.json\n"
OPEN = '{\n  "runtimes": { "nvidia": {\n    "path": "nvidia-container-runtime"\n  }\n}\n'


@pytest.mark.parametrize(("behind", "line"), [("", "line 6"), ("$ docker info\n", "line 6"), ("\n\n", "line 6")])
def test_a_brace_that_is_not_closed_is_told_at_the_last_line_whatever_follows(behind: str, line: str) -> None:
    (proof,) = proofs(pasted(condense([f"{HEAD}{OPEN}{behind}".encode()])))
    assert [seen.what for seen in proof.finding.seen] == [line]


@pytest.mark.parametrize("inside", ["  ...\n", "  # mine\n", "  // mine\n"])
def test_a_listing_with_something_left_out_or_remarked_is_not_judged(inside: str) -> None:
    assert list(proofs(pasted(condense([f'{HEAD}{{\n{inside}  "debug": true,\n}}\n'.encode()])))) == []


PIECES = st.sampled_from(["{", "}", "\n", '"a": 1', ",", "[", "]", "&#10;", "\\u000a", '\\"'])


@given(st.lists(PIECES | st.text(max_size=4)))
def test_whatever_is_listed_is_taken(parts: list[str]) -> None:
    recognize(io.BytesIO("".join(chain([HEAD, "{\n"], parts, ["\n}\n"])).encode("utf-8", "replace")))
