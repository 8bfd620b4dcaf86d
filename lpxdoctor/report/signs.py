"""A text and a console in; the text, with plainer signs where the console's encoding lacks some, out."""

from collections.abc import Mapping

from rich.console import Console


def shown(text: str, console: Console, plain: Mapping[int, str]) -> str:
    """Return the text as it is where the encoding has it, else with plain signs, as str.translate takes them."""
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(plain).encode(console.encoding, "replace").decode(console.encoding)
    return text
