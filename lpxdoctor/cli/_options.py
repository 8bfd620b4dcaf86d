"""Options that several commands have: what is special to a command in, the option in the same words everywhere out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

TEXT_OR_JSON = ("text", "json")
FILE = click.Path(path_type=Path, readable=False)  # who opens it says why that failed, as for every other file
EVIDENCE = "evidence that `collect` wrote, or - for standard input"
HOSTS = "An Ansible inventory, or [USER@]HOST[:PORT],..."


def examples(*lines: str) -> str:
    """Return what --help ends with: commands as they are typed."""
    return "\n".join(("\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)))


def inventory(more: str = "", *, required: bool = False) -> Decorator:
    """Return -i; more is a sentence on what is done with the hosts."""
    text = f"{HOSTS} {more}".strip()
    return click.option("-i", "--inventory", "hosts", metavar="HOSTS", required=required, help=text)


def output_format(forms: Sequence[str] = TEXT_OR_JSON) -> Decorator:
    """Return --format; the first form is what people read."""
    text = (
        f"What is printed, for {'people, for programs or as a page' if 'html' in forms else 'people or for programs'}."
    )
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=text)


def variables(more: str = "") -> Decorator:
    """Return --vars; more says what else may be in the file."""
    text = f"Variables of the roles, in YAML or JSON{more}."
    return click.option("--vars", "variables_file", metavar="FILE", help=text)


def policy() -> Decorator:
    """Return --policy."""
    return click.option("--policy", "policy_file", metavar="FILE", help="Instead of /etc/lpxdoctor/policy.toml.")


def container_test() -> Decorator:
    """Return --no-container-test."""
    text = "Do not prove GPU passthrough by starting containers."
    return click.option("--no-container-test", is_flag=True, help=text)


def site_checks() -> Decorator:
    """Return --no-site-checks."""
    return click.option("--no-site-checks", is_flag=True, help="Leave out /etc/lpxdoctor/checks.d.")


def patience(default_s: float) -> Decorator:
    """Return --limit, how long one host is asked."""
    kind, text = click.FloatRange(1), "Longest time for a host."
    return click.option(
        "--limit", "limit_s", metavar="SECONDS", type=kind, default=default_s, show_default=True, help=text
    )


def forks(default: int) -> Decorator:
    """Return --forks."""
    kind, text = click.IntRange(1), "Hosts asked at once."
    return click.option("--forks", metavar="N", type=kind, default=default, show_default=True, help=text)


def lengths(most: int, default: int = 128) -> Decorator:
    """Return --input-len and --output-len: of a prompt and of its answer, which has a token after the first one."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, least, text in (
            ("--output-len", 2, "Tokens of each answer."),
            ("--input-len", 1, "Tokens of each prompt."),
        ):
            kind = click.IntRange(least, most)
            command = click.option(name, metavar="N", type=kind, default=default, show_default=True, help=text)(command)
        return command

    return decorated


def api_key(what: str) -> Decorator:
    """Return --api-key-file, with the variable that does instead; what is whose key it is."""
    text = f"{what}; or set LPXDOCTOR_API_KEY.  [default: the deployment's own]"
    return click.option("--api-key-file", "key_file", metavar="FILE", type=FILE, callback=_readable_key, help=text)


def _readable_key(_ctx: click.Context, _param: click.Parameter, file: Path | None) -> Path | None:
    """Have a file without a key refused before an engine is started for it."""
    if file is not None:
        from lpxdoctor.decode.target import key_in  # noqa: PLC0415 - most runs name none

        key_in(file)
    return file
