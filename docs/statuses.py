"""Write docs/exit-status.md: what every command ends with, from its own --help.

python docs/statuses.py > docs/exit-status.md
"""

import re
import sys
from collections.abc import Iterator

import click

from lpxdoctor.cli import group

OWN = (0, 1, 2, 3)  # what commands mean by themselves; all others mean the same in each
COMMON = {
    3: "this machine lacks what it takes: a program, room, a directory that can be read, an output that can be written",
    64: "wrong use: an option, a name or an id that there is not, a file that cannot be used as what it was named for",
    70: "a defect of lpxdoctor; the trace is kept in a file that the message names",
    130: "interrupted; what was done and how to go on is said",
    141: "what reads the output went away (`head -1`), so that less was said than was asked for",
}
_TOLD = re.compile(r"Exit status[^:]*: (.*?)\.(?: [A-Z]|$)")
_NEXT = re.compile(rf",? ?\b(?=(?:{'|'.join(map(str, sorted({*OWN, *COMMON})))}) [a-z])")


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that can be run, with the words that call it."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found
        yield from leaves(found, (*words, name))


def statuses(command: click.Command) -> dict[int, str]:
    """Return status -> meaning, as the help of a command tells it."""
    told = _TOLD.search(" ".join((command.help or "").split()))
    parts = (part.partition(" ") for part in _NEXT.split(told[1]) if part) if told else ()
    return {int(number): meaning for number, _, meaning in parts}


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# What commands end with",
        "",
        "<!-- Made by docs/statuses.py from the commands' own --help. -->",
        "",
        "In every command:",
        "",
        "| exit status | meaning |",
        "| --- | --- |",
        *(f"| {number} | {meaning} |" for number, meaning in COMMON.items()),
        "",
        "And by itself:",
        "",
        f"| command | {' | '.join(map(str, OWN))} |",
        f"| --- | {' | '.join('---' for _ in OWN)} |",
    )
    for name, command in leaves(group):
        told = statuses(command)
        yield f"| `{name}` | {' | '.join(told.get(number, '') for number in OWN)} |"
    yield from (
        "",
        "Of several hosts it is the worst one's: a failure before what could not be judged before a warning. No defect",
        "hides a failure, and what could not be judged is never 0.",
    )


if __name__ == "__main__":
    sys.stdout.write(page())
