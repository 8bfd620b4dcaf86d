"""Two profiles in, the variables in which their set-ups differ out: pure.

What follows from another variable is not counted beside it: a version brings its image, --quantization its precision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lpxdoctor.decode.profile import Profile

_NOT_OF_THE_SETUP = ("--host", "--port", "--served-model-name", "--model", "--api-key")
_PRECISION_FLAGS = ("--quantization", "--dtype")
# What vllm:cache_config_info tells of arguments, where they themselves are not known.
_CACHE_FIELDS = ("cache_dtype", "block_size", "gpu_memory_utilization", "enable_prefix_caching")


@dataclass(frozen=True)
class Variable:
    """A variable of the set-up with its two values, in words."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Setups:
    """What differs between two set-ups, and what cannot be told since one of them does not know it."""

    differing: tuple[Variable, ...]
    unknown: tuple[str, ...]


def setups(a: Profile, b: Profile) -> Setups:
    """Compare two set-ups."""
    differing: list[Variable] = []
    unknown: list[str] = []
    flags = _arguments(a, b)
    for name, one, other in _fields(a, b):
        if one is None or other is None:
            if (one, other) != (None, None):
                unknown.append(name)
        elif one != other:
            differing.append(Variable(name, one, other))
    named = {variable.name for variable in differing}
    follows = {"image"} if "engine version" in named else set[str]()
    if any(flag.name in _PRECISION_FLAGS for flag in flags):
        follows.add("precision")
    if a.engine.arguments is None or b.engine.arguments is None:
        flags = tuple(_cache(a, b))
        if (a.engine.arguments is None) != (b.engine.arguments is None):
            unknown.append("engine arguments")
    kept = tuple(variable for variable in differing if variable.name not in follows)
    return Setups((*kept, *flags), tuple(unknown))


def _fields(a: Profile, b: Profile) -> Iterator[tuple[str, str | None, str | None]]:
    yield "model", a.model, b.model
    yield "precision", a.precision, b.precision
    yield "GPU", _listed(a.gpu), _listed(b.gpu)
    yield "driver", a.driver, b.driver
    yield "engine version", a.engine.version, b.engine.version
    yield "image", a.engine.image, b.engine.image
    yield "context of the engine", _number(a.engine.max_model_len), _number(b.engine.max_model_len)
    yield "input length", _length(a), _length(b)
    yield "output length", str(a.output_len), str(b.output_len)
    yield "client machine", _client(a), _client(b)
    yield "way to the engine", _way(a), _way(b)
    yield "lpxdoctor", a.lpxdoctor, b.lpxdoctor


def _arguments(a: Profile, b: Profile) -> tuple[Variable, ...]:
    one, other = by_flag(a.engine.arguments or ()), by_flag(b.engine.arguments or ())
    names = [name for name in dict.fromkeys((*one, *other)) if name not in _NOT_OF_THE_SETUP]
    pairs = ((name, one.get(name), other.get(name)) for name in names)
    return tuple(
        Variable(name, "not given" if x is None else x or "given", "not given" if y is None else y or "given")
        for name, x, y in pairs
        if x != y and not (name == "--max-model-len" and a.engine.max_model_len != b.engine.max_model_len)
    )


def by_flag(arguments: tuple[str, ...]) -> Mapping[str, str]:
    """Return a command line's options with their values, "" for one without; words before the first are left out."""
    found: dict[str, str] = {}
    name = ""
    for word in arguments:
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            name, _, value = word.partition("=")
            name = {"-q": "--quantization", "-tp": "--tensor-parallel-size"}.get(name, name.replace("_", "-"))
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return found


def _cache(a: Profile, b: Profile) -> Iterator[Variable]:
    one, other = a.engine.cache_config or {}, b.engine.cache_config or {}
    for name in _CACHE_FIELDS:
        x, y = one.get(name), other.get(name)
        if x is not None and y is not None and x != y:
            yield Variable(f"cache: {name}", x, y)


def _listed(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else ", ".join(names)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _length(profile: Profile) -> str:
    return f"{profile.input_len}" if profile.input_exact else f"about {profile.input_len}"


def _client(profile: Profile) -> str:
    host = profile.client_host
    return f"{host.name}, {host.cores} cores, kernel {host.kernel}"


def _way(profile: Profile) -> str:
    return profile.reached.partition(":")[0].partition(" to ")[0]
