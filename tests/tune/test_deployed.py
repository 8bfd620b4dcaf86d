"""A deployment under tune: rolled out with each candidate, left as it was found, also after a run that was killed."""

import msgspec
import pytest

from lpxdoctor import deployments
from lpxdoctor.deploy import rollout
from lpxdoctor.deploy.request import Request, asked
from lpxdoctor.errors import UsageError
from lpxdoctor.inventory import Source
from lpxdoctor.state import made
from lpxdoctor.tune.deployed import deployed
from lpxdoctor.tune.service import Settings
from tests.tune.test_tune_cli import RECORD, recorded

FASTER = Settings(("--max-num-seqs", "4"))
OWN = ["--enforce-eager"]


@pytest.fixture
def rolled_out(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record what is asked for, as the role's run does in the end; the role itself is tested with real hosts."""
    found: list[list[str]] = []

    def deploy(request: Request, _source: Source, _on_event: object) -> tuple[()]:
        found.append(list(request.variables["engine_arguments"]))
        deployments.save(msgspec.structs.replace(RECORD, asked=asked(request)))
        return ()

    monkeypatch.setattr(rollout, "deploy", deploy)
    recorded(engine_arguments=OWN)
    return found


def test_it_is_left_as_it_was_found_or_with_what_was_chosen(rolled_out: list[list[str]]) -> None:
    service = deployed("q7", 60)
    with service.running(FASTER, lambda: False) as where:
        assert where == "q7"
    service.leave(Settings())
    assert rolled_out == [[*OWN, *FASTER.added], OWN]
    service.leave(Settings())
    service.leave(FASTER)
    assert rolled_out[2:] == [[*OWN, *FASTER.added]]
    # What was kept is how it is found from now on.
    kept_of = deployed("q7", 60).asked.variables["engine_arguments"]
    assert kept_of == [*OWN, *FASTER.added]


def test_a_run_that_was_killed_does_not_take_its_candidate_for_what_was_found(rolled_out: list[list[str]]) -> None:
    killed = deployed("q7", 60)
    with killed.running(FASTER, lambda: False):
        pass
    service = deployed("q7", 60)
    assert service.asked.variables["engine_arguments"] == OWN
    assert "--max-num-seqs" not in service.hints.flags
    service.leave(Settings())  # though nothing was tried by this one
    assert rolled_out == [[*OWN, *FASTER.added], OWN]
    assert deployed("q7", 60).now == Settings()


def test_what_was_deployed_since_is_what_is_found(rolled_out: list[list[str]]) -> None:
    killed = deployed("q7", 60)
    with killed.running(FASTER, lambda: False):
        pass
    recorded(engine_arguments=["--max-model-len", "512"])
    service = deployed("q7", 60)
    assert (service.asked.variables["engine_arguments"], service.now) == (["--max-model-len", "512"], Settings())
    assert len(rolled_out) == 1


def test_a_broken_note_of_how_it_was_found_is_said(rolled_out: list[list[str]]) -> None:
    (made("tunes") / "q7.as-found.json").write_text("{")
    with pytest.raises(UsageError, match=r"(?s)cannot be read.*lpxdoctor deploy again"):
        deployed("q7", 60)
    assert rolled_out == []
