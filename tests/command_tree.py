"""The command line itself in; every command that can be run with its words, and its options, out."""

from collections.abc import Iterator

import click

from lpxdoctor.cli import group


def leaves(
    command: click.Command = group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that can be run, with the words that call it."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from leaves(found, (*words, name))


LEAVES = dict(leaves())


def option(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len)


def takes_text(parameter: click.Parameter) -> bool:
    """Tell whether any text may be typed; click itself refuses what is no number and none of the choices."""
    plain = isinstance(parameter.type, (click.types.StringParamType, click.Path))
    return plain and not (isinstance(parameter, click.Option) and parameter.is_flag)
