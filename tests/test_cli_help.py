"""What the help of every command says of its options and exit statuses: the same words for the same thing."""

import re
from collections.abc import Iterator

import click

from tests.command_tree import LEAVES, option, takes_text

# Options by which commands mean things of their own; all others have the same words wherever they stand.
OWN = {
    *("--concurrency", "--from", "--output", "--model", "--name", "--plan", "--image", "--resume", "--timeout"),
    *("--requests", "--variant", "--local", "--api-key-file"),
}


def options() -> Iterator[tuple[str, tuple[str, ...], click.Option]]:
    for words, command in LEAVES.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield option(parameter), words, parameter


def test_an_option_has_the_same_words_in_every_command() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for name, words, found in options():
        told = (found.opts, found.metavar, (found.help or "").split(".")[0].split(",")[0], found.default)
        if name not in OWN:
            assert seen.setdefault(name, told) == told, f"{name} of {' '.join(words)}"
    assert {"--inventory", "--vars", "--policy", "--format"} <= set(seen)


def test_an_option_says_what_it_takes_and_what_it_does() -> None:
    for name, words, found in options():
        where = f"{name} of {' '.join(words)}"
        if takes_text(found):
            assert found.metavar, where
        assert "RANGE" not in found.make_metavar(click.Context(LEAVES[words])), where
        assert found.help, where
        assert "[default" not in re.sub(r" {2}\[default", "", found.help), where
        assert "repeatable" not in (found.help or ""), where
        assert not found.multiple or "may be repeated" in (found.help or "") or name in {"--env", "--from"}, where
