"""The decorator: a docstring becomes title, why, fix and source; parameters become the facts that are needed."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Severity, check
from lpxdoctor.evidence import Command, Evidence, Unreadable
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.policy import Policy


class Weather(Fact):
    rain: bool

    @classmethod
    def parse(cls, evidence: Evidence) -> "Weather":
        raise NotImplementedError


@check("host.wet", Severity.WARN, layer="hardware", after=["host.roofless"], fix="host")
def wet(weather: Weather, policy: Policy) -> Iterator[Finding]:
    """The server stands in the rain.

    Why: water conducts.
        Servers do not like that.

    Fix: find a roof:
        sudo roof --find

    Source: https://example.org/rain
    """
    del policy
    if weather:
        yield Finding("wet")


def test_the_docstring_is_the_product() -> None:
    assert wet.title == "The server stands in the rain"
    assert wet.why.startswith("water conducts.")
    assert "sudo roof --find" in wet.cure
    assert wet.source == "https://example.org/rain"


def test_the_parameters_are_the_facts() -> None:
    assert wet.parameters == {"weather": Weather, "policy": Policy}


def test_an_unreadable_field_raises_its_reason_when_used() -> None:
    probe = Command(("dmesg",))

    def read() -> str:
        return Evidence("h").text(probe)

    value = known(read)
    assert isinstance(value, Unreadable)
    assert "command:dmesg was not asked" in str(value)


def test_output_that_a_parser_does_not_understand_is_unreadable_too() -> None:
    value: object = known(lambda: int("four"))
    assert isinstance(value, Unreadable)
    assert "could not be understood" in str(value)
