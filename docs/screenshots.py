"""Render what lpxdoctor prints as SVG: `docs/screenshots.py` judges tests/hosts again and rewrites docs/*.svg."""

import io
from pathlib import Path

import msgspec
from rich.console import Console

from lpxdoctor import catalog, policy
from lpxdoctor.decode.profile import Profile
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import from_json
from lpxdoctor.report import decode, text

ROOT = Path(__file__).resolve().parent.parent


def console() -> Console:
    """Return a terminal of 80 columns that remembers what was printed."""
    return Console(record=True, width=80, file=io.StringIO(), force_terminal=True)


def checked(host: str) -> str:
    """Return the report of a recorded host as SVG."""
    evidence = from_json((ROOT / "tests/hosts" / host / "evidence.json").read_text(encoding="utf-8"))
    screen = console()
    text.render(evaluate(catalog.load(None), evidence, policy.load()), screen)
    return screen.export_svg(title="lpxdoctor check")


def measured(profile: str) -> str:
    """Return the table of a recorded baseline as SVG."""
    screen = console()
    decode.render(msgspec.json.decode((ROOT / profile).read_bytes(), type=Profile), screen)
    return screen.export_svg(title="lpxdoctor baseline")


if __name__ == "__main__":
    for name in ("h200-cdi", "no-gpu"):
        (ROOT / f"docs/check-{name}.svg").write_text(checked(name), encoding="utf-8")
    (ROOT / "docs/baseline-h200.svg").write_text(measured("docs/results/h200-profile.json"), encoding="utf-8")
