"""What hosts of one fleet should have in common: facts in, one word or two for each such thing out."""

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.engine import Engines
from lpxdoctor.facts.fabric import Fabric
from lpxdoctor.facts.fact import Fact
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host

F = TypeVar("F", bound=Fact)
V = TypeVar("V")
NONE = "none"
_Facts = Mapping[type[Fact], Fact]


def traits(facts: _Facts) -> dict[str, str]:
    """Return the traits that could be read, outermost first; NONE where the host has no such thing."""
    return {
        **_read(facts, "OS", Host, lambda host: host.os_name),
        **_read(facts, "kernel", Host, lambda host: host.kernel),
        **_read(facts, "GPUs", Gpus, lambda gpus: gpus.models),
        **_read(facts, "driver", Driver, lambda driver: driver.loaded),
        **_read(facts, "CUDA", Gpus, lambda gpus: gpus.cuda_version),
        **_read(facts, "Fabric Manager", Fabric, lambda fabric: fabric.version or ""),
        **_read(facts, "Docker", Container, lambda container: container.version),
        **_read(facts, "Container Toolkit", Container, lambda container: str(container.toolkit or "")),
        **_read(facts, "GPUs in containers", Container, _paths),
        **_read(facts, "engine image", Engines, _images),
    }


def _paths(container: Container) -> str:
    if not container.trials:
        raise Unreadable("no container was started")
    return " and ".join(container.working_paths)


def _images(engines: Engines) -> str:
    return ", ".join(sorted({engine.image for engine in engines.engines}))


def _read(facts: _Facts, name: str, kind: type[F], words: Callable[[F], str]) -> dict[str, str]:
    value = read(facts, kind, words)
    return {} if value is None else {name: value or NONE}


def read(facts: _Facts, kind: type[F], value: Callable[[F], V]) -> V | None:
    """Return a value of a fact, None where it was not asked for or cannot be read."""
    fact = facts.get(kind)
    try:
        return None if fact is None else value(cast("F", fact))
    except Unreadable:
        return None
