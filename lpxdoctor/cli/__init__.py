"""The command line: argv in, exit status out; each command is a module of this package, imported when it is run."""

import sys
from importlib import import_module
from typing import Any

import click

from lpxdoctor.cli._edges import defect, drop_output, open_streams, refuse_empty, told
from lpxdoctor.errors import DoctorError, SetupError, UsageError

# Command -> its line in --help. A command's module is lpxdoctor.cli.<name>, its click command `command`.
COMMANDS = {
    "check": "Judge this host, or recorded evidence, and name one root cause.",
    "checks": "List the checks.",
    "fix": "Plan what puts a host right, do it with --yes, and check again.",
    "diagnose": "Name the cause in a pasted report, a log, an archive, or of a symptom.",
    "explain": "Show why a check matters, how to fix what it finds, and its source.",
    "knowledge": "Show what the tables of versions, GPUs and errors know, and how old they are.",
    "collect": "Write down what the probes see, as evidence to keep or to send.",
    "plan": "Say whether a model fits a GPU, with what engine arguments, and how fast it can be.",
    "deploy": "Roll out the pinned vLLM container and wait until it is healthy.",
    "undeploy": "Remove a deployed engine.",
    "provision": "Put many servers right, batch by batch, each gated by its check and its engine's baseline.",
    "bundle": "Carry packages, wheels and images to hosts without a network, in one verified archive.",
    "baseline": "Measure TTFT, TPOT and tokens/s of a running engine.",
    "compare": "Tell whether one baseline is slower than another, and what differs.",
    "tune": "Find the engine arguments that decode fastest without answering worse.",
}


class _Commands(click.Group):
    """A group whose commands are imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"lpxdoctor.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lpxdoctor")
def group() -> None:
    """Judge NVIDIA inference servers, roll out a pinned engine, measure its decode speed.

    Exit status of every command, besides its own: 3 this machine lacks what it takes (a program, room, a directory that
    can be read or written), 64 wrong use (also of a file that was named), 70 a defect of lpxdoctor, 130 interrupted,
    141 the reader of its output went away.
    """


def run(argv: list[str]) -> int:
    """Run one command and return its exit status: its own, an error's own, or 64, 70, 130 or 141 as said below."""
    try:
        open_streams()
        refuse_empty(argv)
        answer: Any = group.main(args=argv, prog_name="lpxdoctor", standalone_mode=False)
        sys.stdout.flush()
        status = answer if isinstance(answer, int) else 0
    except click.ClickException as error:
        error.show()
        status = UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("Interrupted.", file=sys.stderr)
        status = 130  # 128 and the signal's number, as shells count
    except DoctorError as error:
        print(f"lpxdoctor: {error}", file=sys.stderr)
        status = error.exit_code
    except (BrokenPipeError, SystemExit):  # the reader (head, less) went away; rich says so by the latter
        drop_output()
        status = 141  # as of any program in such a pipe: less than was asked for is not "healthy"
    except OSError as error:
        drop_output()
        print(f"lpxdoctor: {told(error)}", file=sys.stderr)
        status = SetupError.exit_code
    except Exception as error:  # noqa: BLE001 - Python's own status for it, 1, would read as "warnings"
        print(f"lpxdoctor: {defect(error)}", file=sys.stderr)
        status = DoctorError.exit_code
    return status
