"""A model's config.json in; its fields out, each checked when it is read: an absurd one is an error with its name."""

from collections.abc import Mapping, Sequence
from typing import Any

from lpxdoctor.errors import UsageError

LAYERS_MOST = 4096  # what is counted layer by layer; the largest published models have some hundred
_COUNT_MOST = 1 << 31
# Where a model of several modalities keeps the language model's own fields.
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_SHOWN_CHARACTERS = 60


class Fields:
    """The language model's part of a config.json. Reading a field raises UsageError where its value makes no sense.

    A field that the nested part lacks is taken from the outer one: multimodal checkpoints keep dtype and quantization
    there.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.outer = values
        self._values = dict(values)
        nested = values
        while inner := next((nested[key] for key in _NESTED if isinstance(nested.get(key), dict)), None):
            nested = inner
            self._values = {**self._values, **nested}

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def any_of(self, *names: str) -> Any:
        """Return the first of these fields that is there, None where none is."""
        return next((self._values[name] for name in names if name in self), None)

    def count(self, *names: str, default: int | None = None, most: int = _COUNT_MOST, least: int = 1) -> int:
        """Return a whole number under the first of these names that is there, or the default."""
        value = self.any_of(*names)
        if value is None:
            if default is None:
                raise self.wrong(" or ".join(names), "is missing")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            name = next(name for name in names if name in self)
            raise self.wrong(name, f"is {shown(value)}, and must be a whole number from {least} to {most}")
        return value

    def optional(self, *names: str) -> int | None:
        """Return a whole number from 1, None where the field is missing, null or 0: transformers writes all three."""
        return self.count(*names, default=0, least=0) or None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false."""
        value = self.any_of(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, f"is {shown(value)}, and must be true or false")
        return value

    def word(self, *names: str, default: str = "") -> str:
        """Return a text."""
        value = self.any_of(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(names[0], f"is {shown(value)}, and must be a text")
        return value

    def words(self, name: str, length: int) -> tuple[str, ...] | None:
        """Return a list of texts, one a layer; None where the field is missing."""
        value = self.any_of(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or not all(isinstance(word, str) for word in value):
            raise self.wrong(name, f"is {shown(value)}, and must be a list of {length} texts, one a layer")
        return tuple(value)

    def numbers(self, name: str) -> Sequence[int]:
        """Return a list of whole numbers from 0, empty where the field is missing."""
        value = self.any_of(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= LAYERS_MOST for item in value):
            raise self.wrong(name, f"is {shown(value)}, and must be a list of layer numbers")
        return value

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a nested object, empty where the field is missing."""
        value = self.any_of(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(name, f"is {shown(value)}, and must be an object")
        return value

    def layers(self) -> int:
        """Return how many layers the model has."""
        return self.count("num_hidden_layers", "n_layer", "num_layers", most=LAYERS_MOST)

    def wrong(self, name: str, what: str) -> UsageError:
        """Return the error of a field."""
        return UsageError(f"{self.where}: {name} {what}. Is this the config.json of a language model?")


def shown(value: Any) -> str:
    """Return a value as an error message quotes it: short, whatever it is."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_CHARACTERS:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write out thousands of digits
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
