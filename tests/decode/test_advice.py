"""What a comparison tells somebody who was woken by it: what to do, and what it is worth; and no file breaks it."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from lpxdoctor import policy
from lpxdoctor.cli import run
from lpxdoctor.decode import store
from lpxdoctor.decode.advice import advice, warnings
from lpxdoctor.decode.compare import Comparison, compare
from lpxdoctor.decode.profile import GpuUse, Ladder, Profile, decode, encode
from lpxdoctor.errors import UsageError
from lpxdoctor.report import compare as report
from lpxdoctor.report import compare_json
from tests.decode.servers import Server, measured
from tests.decode.simulated import BUSY

POLICY = policy.load().compare
CALM = Server(request=0.02, run=0.002)


def after(slower: float = 0.0, **changes: Any) -> Comparison:
    b = msgspec.structs.replace(measured(replace(CALM, slower=slower), 2), **changes)
    return compare(measured(CALM, 1), b, POLICY)


def at(profile: Profile, *gpus: GpuUse) -> Profile:
    return msgspec.structs.replace(
        profile, rungs=tuple(msgspec.structs.replace(rung, gpus=gpus) for rung in profile.rungs)
    )


def test_nothing_is_to_be_done_where_all_is_as_before() -> None:
    assert advice(after()) == ()
    assert advice(after(-0.2)) == ()


def test_a_slow_down_in_the_same_set_up_points_at_the_machine() -> None:
    (line,) = advice(after(0.2))
    assert "lpxdoctor check" in line


def test_one_variable_is_named_and_several_are_to_be_told_apart() -> None:
    known = measured(CALM, 1)
    before = msgspec.structs.replace(known, driver="570", precision="bf16")
    later = msgspec.structs.replace(measured(replace(CALM, slower=0.2), 2), driver="580", precision="bf16")
    assert advice(compare(before, later, POLICY))[-1].startswith("driver is all that is known to differ")
    both = compare(before, msgspec.structs.replace(later, precision="fp8"), POLICY)
    assert "change back one of precision, driver at a time" in advice(both)[-1]


def test_a_gpu_that_ran_at_a_lower_clock_is_named_first() -> None:
    a, b = at(measured(CALM, 1), BUSY), measured(replace(CALM, slower=0.2), 2)
    capped = msgspec.structs.replace(BUSY, sm_clock_mhz=(1410, 1980))
    assert advice(compare(a, at(b, capped), POLICY))[0].startswith("GPU 0 ran at 1410 MHz, and at 1980 before")
    assert not any("MHz" in line for line in advice(compare(a, at(b, BUSY), POLICY)))
    assert not any("MHz" in line for line in advice(compare(measured(CALM, 1), at(b, capped), POLICY)))


@pytest.mark.parametrize(
    ("b", "said"),
    [
        (measured(replace(CALM, concurrencies=(2, 4)), 2), "--concurrency 1,8,32"),
        (measured(Server(request=0.4, spells=0.3, run=0.1), 2), "--repeats 3"),
        (
            msgspec.structs.replace(
                measured(replace(CALM, concurrencies=(1, 8)), 2), ladder=Ladder(asked=(1, 8, 32), stopped="latency")
            ),
            "to its end",
        ),
    ],
)
def test_what_cannot_be_judged_says_how_it_can(b: Profile, said: str) -> None:
    assert said in " ".join(advice(compare(measured(CALM, 1), b, POLICY)))


def test_lines_that_cannot_be_compared_are_to_be_measured_again() -> None:
    b = measured(CALM, 2)
    invalid = tuple(msgspec.structs.replace(rung, valid=False, invalid_because="x") for rung in b.rungs)
    assert "measure again" in advice(after(rungs=invalid))[0]
    old = tuple(msgspec.structs.replace(rung, samples=None) for rung in b.rungs)
    assert "the older one anew" in advice(after(rungs=old))[0]


def test_the_wrong_order_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = msgspec.structs.replace(measured(CALM, 1), started="2026-11-29T10:00:00Z")
    b = msgspec.structs.replace(measured(CALM, 2), started="2026-11-28T10:00:00Z", id="abc123")
    assert warnings(compare(b, a, POLICY)) == ()
    files = [str(store.save(profile, tmp_path / f"{n}.json")) for n, profile in enumerate((a, b))]
    assert run(["compare", *files]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("The second was measured before the first")


def test_a_run_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(store.save(measured(CALM, 1), tmp_path / "a.json"))
    assert run(["compare", file, file]) == 64
    assert "one and the same run" in capsys.readouterr().err


# --- any file -----------------------------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (None, 0, -1, 1e308, -1e308, 1e-308, "", "x" * 300, True, [], {}, [1], 10**30)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    if isinstance(value, list) and value:
        yield from leaves(value[0], (*path, 0))


def spoiled(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = document.copy()
    if len(path) == 1 and value is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = spoiled(copy[path[0]], path[1:], value)
    return copy


def test_no_field_of_a_profile_breaks_a_comparison() -> None:
    """Fields missing or with another value: compared, or refused as a file; nothing else."""
    chance = random.Random(5)
    a = at(measured(replace(CALM, concurrencies=(1,)), 1), BUSY)
    whole: dict[str, Any] = json.loads(encode(a))
    paths = [path for path in leaves(whole) if path]
    for path in chance.sample(paths, 100):
        text = json.dumps(spoiled(whole, path, chance.choice((*VALUES, ...)) if chance.random() < 0.8 else ...))
        try:
            b = decode(text.encode(), "b.json")
        except UsageError:
            continue
        found = compare(a, b, POLICY, resamples=50)
        report.render(found, Console(file=StringIO(), width=80))
        compare_json.to_json(found)
