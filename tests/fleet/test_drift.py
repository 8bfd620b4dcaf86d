"""Who differs from the others, and in what."""

from pathlib import Path

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.fleet.drift import Drift, drifts
from lpxdoctor.fleet.traits import traits


def test_the_odd_ones_out_are_named_with_what_the_others_have() -> None:
    fleet = {"a": {"kernel": "1"}, "b": {"kernel": "2"}, "c": {"kernel": "1"}, "d": {}}
    assert drifts(fleet) == (Drift(trait="kernel", majority="1", majority_hosts=2, others=(("2", ("b",)),)),)


def test_half_of_the_hosts_are_no_majority() -> None:
    fleet = {"a": {"kernel": "1"}, "b": {"kernel": "2"}}
    assert drifts(fleet) == (
        Drift(trait="kernel", majority="", majority_hosts=0, others=(("1", ("a",)), ("2", ("b",)))),
    )


def test_what_is_the_same_everywhere_is_not_told() -> None:
    assert drifts({"a": {"kernel": "1", "OS": "x"}, "b": {"kernel": "1"}}) == ()
    assert drifts({}) == ()


def test_the_traits_of_a_recorded_host_are_those_that_it_shows() -> None:
    evidence = from_json(Path("tests/hosts/h200-cdi/evidence.json").read_text(encoding="utf-8"))
    judgement = evaluate(catalog.load(None), evidence, policy.load())
    assert traits(judgement.facts) == {
        "OS": "Ubuntu 24.04.3 LTS",
        "kernel": "6.18.44-gpu",
        "GPUs": "1 x NVIDIA H200",
        "driver": "580.159.04",
        "CUDA": "13.0",
        "Fabric Manager": "none",
        "Docker": "28.5.2+dfsg4",
        "Container Toolkit": "none",
        "GPUs in containers": "CDI",
        "engine image": "none",
    }


def test_what_was_not_asked_is_no_trait() -> None:
    assert traits(evaluate(catalog.load(None), Evidence("silent"), policy.load()).facts) == {}
