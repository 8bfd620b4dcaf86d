"""A pasted text in; proofs for settings that people list in it and that no program takes, out."""

import re
from collections.abc import Iterator

from lpxdoctor.check import Finding, Proof
from lpxdoctor.facts import daemon_json
from lpxdoctor.facts.container import DAEMON_JSON
from lpxdoctor.recognize.text import Pasted

# From the brace that begins it to the one that ends it, both at the beginning of a line, and what follows as another.
_FILE = r"\{(?:[^\n]*\n){1,99}?\} *\n"
_LISTED = re.compile(rf"{re.escape(DAEMON_JSON.path)}\b[^\n]{{0,60}}\n+(?P<file>{_FILE}(?:\n*{_FILE})?)")
_SHORTENED = re.compile(r"\.\.\.|\u2026|^\s*(?:#|//)", re.MULTILINE)  # what people put for lines, and beside them
_LINE = re.compile(r"line (\d+)")


def proofs(pasted: Pasted) -> Iterator[Proof]:
    """Yield a proof where Docker's daemon.json is listed, whole, and is no JSON."""
    found = _LISTED.search(pasted.text)
    if found is None or _SHORTENED.search(found["file"]):
        return
    error = daemon_json.settings(DAEMON_JSON.path, found["file"].rstrip()).error
    line = _LINE.match(error)
    if line:
        index = pasted.text.count("\n", 0, found.start("file")) + int(line[1]) - 1
        confirm = (f"sudo dockerd --validate --config-file {DAEMON_JSON.path}",)
        finding = Finding(f"{DAEMON_JSON.path}: {error}", seen=(pasted.seen(index),), confirm=confirm)
        yield Proof("container.daemon-json-invalid", finding)
