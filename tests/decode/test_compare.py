"""A comparison finds what is slower, seldom what is not, and says what differs and what it cannot judge."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor import policy
from lpxdoctor.cli import run
from lpxdoctor.decode import noise, store
from lpxdoctor.decode.compare import Verdict, compare
from lpxdoctor.decode.profile import Engine, Ladder, Profile
from lpxdoctor.decode.variables import setups
from lpxdoctor.errors import UsageError
from tests.decode.servers import Server, measured
from tests.decode.test_profile import PROFILE
from tests.report.schemas import valid

POLICY = policy.load().compare
FAST, MANY = 100, 1000  # pairs of profiles
# One run a rung, with spells of 3 % within; and three runs a rung, each 3 % luckier or not than the others.
SPELLS = Server(spells=0.03, request=0.03, run=0.005)
REPEATED = Server(run=0.03, request=0.03, repeats=3)


def verdicts(server: Server, slower: float, pairs: int, resamples: int = 500) -> Counter[Verdict]:
    return Counter(
        compare(
            measured(server, ("a", seed)),
            measured(replace(server, slower=slower), ("b", seed)),
            POLICY,
            resamples=resamples,
        ).verdict
        for seed in range(pairs)
    )


@pytest.mark.parametrize("server", [SPELLS, REPEATED], ids=["spells", "repeated"])
def test_identical_servers_are_seldom_called_slower_and_a_tenth_is_found(server: Server) -> None:
    assert verdicts(server, 0.0, FAST)[Verdict.SLOWER] <= FAST * 0.01
    assert verdicts(server, 0.1, FAST)[Verdict.SLOWER] >= FAST * 0.99


@pytest.mark.slow
@pytest.mark.parametrize("server", [SPELLS, REPEATED], ids=["spells", "repeated"])
def test_the_same_over_a_thousand_pairs(server: Server) -> None:
    assert verdicts(server, 0.0, MANY, 1000)[Verdict.SLOWER] <= MANY * 0.01
    assert verdicts(server, 0.1, MANY, 1000)[Verdict.SLOWER] >= MANY * 0.99


def test_a_server_that_got_faster_is_said_to_be() -> None:
    assert verdicts(SPELLS, -0.15, 5) == {Verdict.FASTER: 5}


def test_what_noise_hides_is_not_called_equal() -> None:
    shaky = Server(run=0.06, request=0.03, repeats=2, concurrencies=(1, 8, 16, 32))
    found = compare(measured(shaky, 1), measured(shaky, 2), POLICY)
    assert (found.verdict, found.noise.degrees) == (Verdict.UNJUDGED, 8)
    assert "too much noise" in found.why


def test_a_late_spell_widens_the_noise() -> None:
    calm = compare(measured(Server(request=0.03), 1), measured(Server(request=0.03), 2), POLICY)
    spells = Server(request=0.03, spells=0.05, memory=24)
    uneven = compare(measured(spells, 1), measured(spells, 2), POLICY)
    assert calm.overall is not None
    assert uneven.overall is not None
    assert uneven.overall.changes["tokens_per_s"].within > 2 * calm.overall.changes["tokens_per_s"].within


def test_the_same_files_give_the_same_verdict() -> None:
    a, b = measured(SPELLS, 1), measured(SPELLS, 2)
    assert compare(a, b, POLICY) == compare(a, b, POLICY)


def test_the_variance_between_repeats_is_that_of_the_runs() -> None:
    pooled = measured(replace(REPEATED, repeats=60), 1).pooled_variance
    assert pooled is not None
    assert pooled["tokens_per_s"].degrees == 3 * 59
    assert pooled["tokens_per_s"].variance ** 0.5 == pytest.approx(0.03, rel=0.15)
    assert noise.pooled(measured(SPELLS, 1).rungs) is None


def spoiled(profile: Profile, concurrency: int, **changes: Any) -> Profile:
    rungs = tuple(
        msgspec.structs.replace(rung, **changes) if rung.concurrency == concurrency else rung for rung in profile.rungs
    )
    return msgspec.structs.replace(profile, rungs=rungs)


def test_an_invalid_line_is_not_passed_over() -> None:
    a, b = measured(SPELLS, 1), measured(SPELLS, 2)
    found = compare(a, spoiled(b, 8, valid=False, invalid_because="client-limited: x"), POLICY)
    assert found.verdict is Verdict.UNJUDGED
    assert found.why == "1 of 3 concurrencies could not be compared"
    eight = next(row for row in found.rungs if row.concurrency == 8)
    assert "client-limited" in eight.why
    slower = compare(a, spoiled(measured(replace(SPELLS, slower=0.2), 2), 8, valid=False, invalid_because="x"), POLICY)
    assert slower.verdict is Verdict.SLOWER


def test_without_samples_or_a_common_line_nothing_is_judged() -> None:
    a = measured(SPELLS, 1)
    old = msgspec.structs.replace(a, rungs=tuple(msgspec.structs.replace(rung, samples=None) for rung in a.rungs))
    assert compare(a, old, POLICY).verdict is Verdict.UNJUDGED
    other = compare(a, measured(replace(SPELLS, concurrencies=(2, 4)), 1), POLICY)
    assert (other.verdict, other.alone) == (Verdict.UNJUDGED, (1, 2, 4, 8, 32))


def test_a_run_that_ended_before_the_other_did_is_not_called_equal() -> None:
    calm = Server(request=0.03)
    a, b = measured(calm, 1), measured(replace(calm, concurrencies=(1, 8)), 2)
    assert compare(a, b, POLICY).verdict is Verdict.SAME  # it was not to come further
    short = msgspec.structs.replace(b, ladder=Ladder(asked=(1, 8, 32), stopped="3 of 16 requests failed"))
    found = compare(a, short, POLICY)
    assert (found.verdict, found.alone) == (Verdict.UNJUDGED, (32,))
    assert "did not come to 32 at once: 3 of 16 requests failed" in found.why
    assert compare(a, msgspec.structs.replace(b, interrupted=True), POLICY).verdict is Verdict.UNJUDGED


def engine(*arguments: str, version: str = "0.25.1", image: str | None = None) -> Engine:
    return Engine(version=version, image=image, arguments=arguments, max_model_len=None, cache_config=None)


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        ({}, {}, []),
        ({"driver": "570.1"}, {"driver": "580.1"}, ["driver"]),
        ({"driver": "570.1"}, {}, []),
        ({"input_len": 128}, {"input_len": 256, "output_len": 20}, ["input length", "output length"]),
        (
            {"engine": engine("--max-num-seqs", "4", "--port", "8000")},
            {"engine": engine("--max-num-seqs=8", "--port", "9", "--enforce-eager")},
            ["--max-num-seqs", "--enforce-eager"],
        ),
        (  # the image comes with the version, the precision with the argument: one variable each
            {"engine": engine(image="sha256:1"), "precision": "bfloat16"},
            {"engine": engine("-q", "fp8", version="0.30.0", image="sha256:2"), "precision": "fp8"},
            ["engine version", "--quantization"],
        ),
        ({"gpu": ("A",)}, {"gpu": ("A", "A")}, ["GPU"]),
    ],
)
def test_every_variable_that_differs_is_named_once(a: dict[str, Any], b: dict[str, Any], names: list[str]) -> None:
    one, other = (msgspec.structs.replace(PROFILE, **changes) for changes in (a, b))
    assert [variable.name for variable in setups(one, other).differing] == names


def test_what_one_side_does_not_know_is_said() -> None:
    known = msgspec.structs.replace(PROFILE, driver="570.1", engine=engine("--x"))
    assert setups(known, PROFILE).unknown == ("driver", "engine arguments")


def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **profiles: Profile) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store.check(None)
    for profile in profiles.values():
        store.save(profile, None)


def test_a_baseline_is_found_by_what_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = msgspec.structs.replace(PROFILE, id="cafe01", name="main", started="2026-11-28T00:00:00Z")
    new = msgspec.structs.replace(PROFILE, id="cab002", name="main", started="2026-11-29T00:00:00Z")
    kept(tmp_path, monkeypatch, old=old, new=new)
    file = store.save(PROFILE, tmp_path / "mine.json")
    assert store.find("last") == new
    assert store.find("caf") == old
    assert store.find("main") == new
    assert store.find(str(file)) == PROFILE
    with pytest.raises(UsageError, match=r"2 baselines begin with ca.*\n.*cafe01 main.*\n.*cab002 main"):
        store.find("ca")
    with pytest.raises(UsageError, match=r"'dev'.*\n.*newest.*\n  cab002 main"):
        store.find("dev")


def test_a_broken_file_is_counted_and_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="No baseline is kept"):
        store.find("last")
    (store.directory() / "2026-11-29T000000Z-beef00.json").write_text("{")
    with pytest.raises(UsageError, match="1 files there cannot be read"):
        store.find("main")
    with pytest.raises(UsageError, match="no baseline that can be read"):
        store.find("beef")


@pytest.mark.parametrize(("slower", "status", "words"), [(0.0, 0, "No difference beyond noise"), (0.1, 2, "Slower")])
def test_the_command_answers_with_its_status(
    slower: float, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = store.save(measured(SPELLS, 1), tmp_path / "one.json")
    changed = msgspec.structs.replace(measured(replace(SPELLS, slower=slower), 2), driver="1", precision="fp8")
    other = store.save(changed, tmp_path / "other.json")
    assert run(["compare", str(one), str(other)]) == status
    said = capsys.readouterr().out
    assert words in said.replace("\n", " ")
    assert "Known on one side only: precision, driver." in said
    assert run(["compare", str(one), str(other), "--format", "json"]) == status
    answer = json.loads(capsys.readouterr().out)
    valid(answer, "compare-1")
    assert answer["verdict"] == ("slower" if status else "same")
    assert [row["concurrency"] for row in answer["rungs"]] == [1, 8, 32]
    assert answer["overall"]["changes"]["tpot"]["slower"] == pytest.approx(slower, abs=0.03)


def test_several_variables_are_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = msgspec.structs.replace(measured(SPELLS, 1), driver="1", precision="bfloat16")
    second = msgspec.structs.replace(measured(SPELLS, 2), driver="2", precision="fp8")
    files = [store.save(profile, tmp_path / f"{n}.json") for n, profile in enumerate((first, second))]
    assert run(["compare", *map(str, files)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1] == "2 variables differ, so no verdict here can name the cause:"
    assert said.index("bfloat16 → fp8") < said.index("at once")


def test_nothing_comparable_is_status_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = store.save(measured(SPELLS, 1), tmp_path / "one.json")
    other = store.save(measured(replace(SPELLS, concurrencies=(2,)), 1), tmp_path / "other.json")
    assert run(["compare", str(one), str(other)]) == 3
    assert "Not judged: the two have no concurrency in common." in capsys.readouterr().out
    assert run(["compare", str(one), "nowhere.json"]) == 64
