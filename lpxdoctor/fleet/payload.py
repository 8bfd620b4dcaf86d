"""What is sent to every host of a fleet: probes in, the start line and the bytes for its standard input out."""

import json
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lpxdoctor import __version__, bundled
from lpxdoctor.evidence import Probe, Program
from lpxdoctor.fleet import bootstrap
from lpxdoctor.fleet.reach import TOO_OLD

_PACKAGE = Path(bootstrap.__file__).resolve().parents[1]
_MODULES = ("__init__", "evidence", "reading", "child", "collect")


@dataclass(frozen=True)
class Payload:
    """start is the Python line that reads the rest; body follows on standard input, which then stays open."""

    start: str
    body: bytes
    mark: bytes  # what the answer begins with: a login shell may print before it


def pack(probes: Iterable[Probe], *, unwanted: Collection[str], limit_s: float, mark: str) -> Payload:
    """Return what makes a host answer the probes, but for the programs that are unwanted."""
    wanted = [probe for probe in probes if not (isinstance(probe, Program) and probe.name in unwanted)]
    files, programs = _files()
    sent = {
        "files": files,
        "programs": programs,
        "probes": [(type(probe).__name__, vars(probe)) for probe in wanted],
        "limit_s": limit_s,
        "collector": f"lpxdoctor {__version__}",
    }
    source = Path(bootstrap.__file__).read_bytes()
    packed = zlib.compress(json.dumps(sent).encode(), 9)
    return Payload(
        # In any Python, and through any login shell: one line without quotes of its own.
        start=f"import sys; sys.version_info < (3, 9) and sys.exit({TOO_OLD}); "
        f"exec(sys.stdin.buffer.read({len(source)}))",
        body=source + f"{len(packed)} {mark}\n".encode() + packed,
        mark=mark.encode(),
    )


def _files() -> tuple[dict[str, str], dict[str, str]]:
    """Return the files to send, path -> text, and where among them each program is."""
    places = {f"lpxdoctor/{name}.py": _PACKAGE / f"{name}.py" for name in _MODULES}
    places |= {f"lpxdoctor/programs/{path.name}": path for path in bundled.PROGRAMS.glob("*.py")}
    programs = {
        name: f"{'lpxdoctor/programs' if path.parent == bundled.PROGRAMS else 'probe'}/{path.name}"
        for name, path in bundled.programs().items()
    }
    places |= {programs[name]: path for name, path in bundled.programs().items()}
    binding = find_spec("pynvml")
    if binding and binding.origin:  # beside the program that needs it; few hosts have it installed
        places["lpxdoctor/programs/pynvml.py"] = Path(binding.origin)
    return {place: path.read_text(encoding="utf-8") for place, path in places.items()}, programs
