"""Entry point: argv in, exit status out; answers --version before anything heavy is imported."""

import sys


def main() -> int:
    """Run the command line and return its exit status."""
    if sys.argv[1:] == ["--version"]:
        from lpxdoctor import __version__  # noqa: PLC0415 - keeps `--version` within 5x of a bare interpreter

        try:
            print(f"lpxdoctor {__version__}", flush=True)  # noqa: T201 - before the command line exists
        except OSError:  # a full disk or a reader gone: the command line knows what to say
            pass
        else:
            return 0
    try:
        from lpxdoctor.cli import run  # noqa: PLC0415 - see above

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while that was imported, or told of another end
        print("Interrupted.", file=sys.stderr)  # noqa: T201
        return 130


if __name__ == "__main__":
    sys.exit(main())
