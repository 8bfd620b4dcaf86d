"""Every command line in the pages and in what checks advise is one that is understood; every link leads somewhere."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lpxdoctor import catalog
from lpxdoctor.check import Check
from lpxdoctor.cli import COMMANDS, group
from tests.command_tree import leaves

ROOT = Path(__file__).resolve().parent.parent
# Less the changelog: what it tells of the past need not be typed today.
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "playbooks").rglob("*.md"))
    if page.name != "CHANGELOG.md"
)
# A line of a block, with what stands before it in a shell; or what stands between backquotes.
LINE = re.compile(r"(?:[$#] |\s*\$ )?\s*(?:.*\| )?(?:sudo )?lpxdoctor (.+)")
QUOTED = re.compile(r"`(?:sudo )?lpxdoctor ([^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


def blocks(text: str) -> Iterator[str]:
    """Yield the lines of fenced and of indented blocks, joined where a backslash ends them."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line


def typed(text: str) -> Iterator[str]:
    """Yield what follows `lpxdoctor` wherever a page shows a command."""
    for line in blocks(text):
        if (found := LINE.fullmatch(line)) and not line.lstrip().startswith(("Do ", "next", "Run")):
            yield found[1]
    for found in QUOTED.finditer(text):
        yield " ".join(found[1].split())


def understood(line: str) -> click.Context:
    """Parse a command line as the program would; raises click's errors."""
    words = shlex.split(line, comments=True)
    words = words[: next((place for place, word in enumerate(words) if word in (">", "|", "&&", ";")), len(words))]
    command: click.Command = group
    context = click.Context(group)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command = found
    shown = not words or any(word in ("--help", "--version") for word in words)  # named, rather than called
    return command.make_context(command.name, words, resilient_parsing=shown)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_pages_are_understood(page: str) -> None:
    for line in typed((ROOT / page).read_text(encoding="utf-8")):
        left_out = (click.MissingParameter,) if "…" in line else ()  # what was typed before
        with contextlib.suppress(*left_out):
            understood(line)


def test_the_pages_have_commands() -> None:
    found = {page: len(list(typed((ROOT / page).read_text(encoding="utf-8")))) for page in PAGES}
    assert found["README.md"] > 15
    assert sum(found.values()) > 100


@pytest.mark.parametrize("check", catalog.load(None), ids=lambda check: check.id)
def test_commands_that_a_check_advises_are_understood(check: Check[...]) -> None:
    for line in typed(f"{check.cure}\n{check.why}"):
        understood(line.replace("<", "").replace(">", ""))


@pytest.mark.parametrize("page", PAGES)
def test_links_in_the_pages_lead_somewhere(page: str) -> None:
    for target, anchor in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        if "://" in target:
            continue
        place = (ROOT / page).parent / target
        assert place.exists(), f"{page}: {target}"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{page}: {target}#{anchor}"


def test_a_page_for_users_ends_with_what_comes_next() -> None:
    jobs = [page for page in (ROOT / "docs").glob("*.md") if page.stem in {*COMMANDS, "fleet"} - {"checks"}]
    assert len(jobs) >= 10
    for page in jobs:
        last = page.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
        assert last.startswith("Next: "), page
        assert LINK.search(last), page


def test_every_command_ends_its_help_with_an_example_of_itself() -> None:
    for words, command in leaves():
        lines = [line for line in (command.epilog or "").splitlines() if "lpxdoctor " in line]
        assert lines, words
        for line in lines:
            assert understood(line.partition("lpxdoctor ")[2]).command.name == words[-1]
            assert len(line) <= 78  # click puts two before it


def test_what_is_wrong_is_seen() -> None:
    for line in ("no-such", "check --no-such", "baseline --requests few vllm", "bundle no-such", "fix --drain soon"):
        with pytest.raises(click.ClickException):
            understood(line)
    assert list(typed("text `sudo lpxdoctor check a.b` and\n\n    $ lpxdoctor fix \\\n  --yes  # now")) == [
        "fix    --yes  # now",
        "check a.b",
    ]
