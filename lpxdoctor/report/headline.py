"""A host's facts in, the few words out that tell a person which host this is and whether it is fit to serve."""

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.fact import Fact
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host

F = TypeVar("F", bound=Fact)
Facts = Mapping[type[Fact], Fact]


def headline(facts: Facts) -> list[str]:
    """Return what this host is, outermost first; what could not be read is left out."""
    return [
        *_say(facts, Host, lambda host: host.os_name),
        *_say(facts, Host, lambda host: f"kernel {host.kernel}"),
        *_say(facts, Gpus, lambda gpus: gpus.models),
        *_say(facts, Driver, lambda driver: f"driver {driver.loaded}" if driver.loaded else ""),
        *_say(facts, Container, lambda container: f"Docker {container.version}" if container.version else ""),
    ]


def fitness(facts: Facts) -> str:
    """Return the reasons to trust the host: its GPUs, driver, CUDA, and the ways in which containers see the GPUs."""
    return ", ".join(
        [
            *_say(facts, Gpus, lambda gpus: gpus.models),
            *_say(facts, Gpus, lambda gpus: f"driver {gpus.driver_version}"),
            *_say(facts, Gpus, lambda gpus: f"CUDA {gpus.cuda_version}"),
            *_say(facts, Container, _paths),
        ]
    )


def outlook(facts: Facts) -> list[str]:
    """Return what the next boot will bring."""
    return [f"Next boot: {line}" for line in _say(facts, Boot, lambda boot: boot.outlook)]


def _paths(container: Container) -> str:
    paths = container.working_paths
    return f"GPUs seen in a container by {' and '.join(paths)}" if paths else ""


def _say(facts: Facts, kind: type[F], words: Callable[[F], str]) -> list[str]:
    """Return the words as a list of one, empty where the fact was not asked for, cannot be read or says nothing."""
    fact = facts.get(kind)
    if fact is None:
        return []
    try:
        said = words(cast("F", fact))
    except Unreadable:
        return []
    return [said] if said else []
