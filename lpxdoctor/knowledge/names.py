"""names.toml in; which GPU a text speaks of, by the words that people and programs have for it, out."""

import re
from functools import lru_cache

from lpxdoctor import knowledge
from lpxdoctor.knowledge import tables_of
from lpxdoctor.knowledge.rows import OpenModules


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(rf"(?<![\w-])(?:{row['pattern']})(?![\w-])"), str(row["cc"])) for row in tables_of("names")["rows"]
    )


def gpu_in(line: str) -> tuple[str, str]:
    """Return (name as it stands there, compute capability) of the first GPU that a line names, ("", "") for none."""
    found = ((pattern.search(line), cc) for pattern, cc in _rows())
    named = [(match.start(), match[0], cc) for match, cc in found if match]
    return min(named)[1:] if named else ("", "")


def family(cc: str) -> tuple[str, OpenModules | None]:
    """Return (architecture, whether the open kernel modules can or must drive it) of a compute capability."""
    row = knowledge.load().capability(cc)
    if row:
        return row.arch, row.open
    # The table knows what drivers in service know; before that was Kepler.
    return ("Kepler", "unsupported") if cc.startswith("3.") else ("", None)
