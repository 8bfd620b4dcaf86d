"""The benchmark's server and the client agree on what happened: two programs that share no line of code."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.engine import fetch
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.samples import Sample
from lpxdoctor.decode.stats import gaps_ms, percentile, ttft_of
from lpxdoctor.decode.workload import Dialect, Workload
from lpxdoctor.errors import MeasureError
from tests.decode.peer import ROOT
from tests.lab.engine import free_port, wait_until

ATTEMPTS = 3  # where other tests starve the two, an answer comes late or all at once
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled server."""
    path = tmp_path_factory.mktemp("truth") / "truth"
    source = ROOT / "benchmarks/truth.c"
    subprocess.run(("cc", "-O2", "-o", path, source), check=True)
    return path


@pytest.fixture(params=["spread", "sync"])
def url(request: pytest.FixtureRequest, program: Path) -> Iterator[str]:
    port = free_port()
    with subprocess.Popen((program, str(port), "20000", "5000", "2", request.param)) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url), "truth", str, timeout_s=60)
        yield url
        process.terminate()


def answers(url: str) -> bool:
    try:
        return fetch(endpoint(url), "/health")[0] == 200
    except MeasureError:
        return False


@pytest.mark.parametrize("dialect", [Dialect(), Dialect(chat=True)], ids=["completions", "chat"])
def test_client_and_server_count_and_time_the_same(url: str, dialect: Dialect) -> None:
    work = Workload(model="mock", input_len=32, output_len=15, nonce="test", dialect=dialect)
    there = endpoint(url)
    agreed = False
    for _ in range(ATTEMPTS):
        samples = Loop(there, work, 4, 12, timeout_s=60, hooks=Hooks()).run().samples
        truth = json.loads(fetch(there, "/stats?reset")[1])
        assert [sample.failure for sample in samples if sample.failure] == []
        assert (len(samples), sum(sample.tokens for sample in samples)) == (truth["done"], truth["tok"])
        assert sum(len(sample.arrivals_ns) for sample in samples) == truth["chunks"]
        assert {(sample.first_tokens, sample.first_tokens_known) for sample in samples} == {(1, True)}
        agreed = times_agree(samples, truth)
        if agreed:
            break
    assert agreed
    assert json.loads(fetch(there, "/stats")[1])["done"] == 0


def times_agree(samples: Sequence[Sample], truth: dict[str, float]) -> bool:
    """Return whether four ran at once, and took as long for the client as for the server.

    On a busy machine the server reads a request late, when its clock begins, and the kernel stamps at once what it
    sends, before its clock stops: far apart they are only when one of them is wrong. test_load is exact.
    """
    ttft = percentile(sorted(map(ttft_of, samples)), 0.5)
    gap = percentile(sorted(gap for sample in samples for gap in gaps_ms(sample)), 0.5)
    return (
        truth["peak"] == 4
        and truth["ttft_p50"] - 5 < ttft < 2 * truth["ttft_p50"] + 50
        and gap == pytest.approx(truth["itl_p50"], abs=5)
    )
