"""What people are told to type: a shell takes all of it, also where a narrow terminal broke it into lines."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from rich.console import Console

from lpxdoctor import bundled, catalog, knowledge
from lpxdoctor.recognize.questions import questions
from lpxdoctor.report.text import flowing
from lpxdoctor.report.typed import Typed, is_command, lines


def advised() -> list[str]:
    rows = [row for error in knowledge.tables_of("messages")["errors"] for row in (error, *error.get("but", ()))]
    others = [
        row["do"] for file in ("cuda", "driver", "xid") for row in within(knowledge.tables_of(file)) if "do" in row
    ]
    return sorted(
        {
            *chain.from_iterable((*row.get("ask", ()), *row.get("do", ())) for row in rows),
            *filter(None, others),
            *(line.strip() for check in catalog.load(None) for line in flowing(check.cure).splitlines()),
            *(question.command for question in questions({}, shown=False)),
        }
    )


def within(table: Any) -> Iterator[dict[str, Any]]:
    """Yield every row of a table, and of those inside."""
    if isinstance(table, dict):
        yield table
    for inner in table.values() if isinstance(table, dict) else table if isinstance(table, list) else ():
        yield from within(inner)


def words(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", " "), comments=True)


def test_a_shell_takes_every_command() -> None:
    commands = [text for text in advised() if is_command(text)]
    assert len(commands) > 250
    done = subprocess.run(("bash", "-n"), input="\n".join(commands), capture_output=True, text=True, check=False)
    number = re.search(r"line (\d+)", done.stderr)
    assert not done.stderr, commands[int(number[1]) - 1] if number else done.stderr


CHANGES = re.compile(
    r"(?:^|[&|;] )(?:systemctl (?:enable|disable|start|stop|restart)|modprobe|rmmod|reboot|poweroff|apt-get|dnf install"
    r"|mount|update-initramfs|dracut|nvidia-smi .*(?:-c \d|-pm|-pl|--gpu-reset))\b"
)


def test_what_changes_a_host_says_sudo() -> None:
    literals = [text for file in bundled.CHECKS.glob("*.py") for text in re.findall(r'"([^"]+)"', file.read_text())]
    assert [text for text in (*advised(), *literals) if is_command(text) and CHANGES.search(text)] == []


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_command_that_is_broken_into_lines_is_the_same_command(width: int) -> None:
    for text in filter(is_command, advised()):
        shown = list(lines(text, width))
        assert words("\n".join(shown)) == words(text), text
        assert all(len(line) <= width or len(words(line.rstrip(" \\"))) == 1 for line in shown), text


def test_a_sentence_is_wrapped_as_one() -> None:
    text = "look at the seat of the card, its power cables and the riser, and do so again when it is cold"
    console = Console(width=40)
    with console.capture() as shown:
        console.print(Typed(text))
    assert "\\" not in shown.get()
    assert " ".join(shown.get().split()) == text
