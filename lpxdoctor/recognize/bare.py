"""Lines as they were copied in; the same lines without what collectors, pagers and web pages put around each, out."""

import html
import re
from collections.abc import Sequence
from itertools import pairwise

_MARKUP = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,5}|#x[0-9a-f]{1,4});", re.IGNORECASE)
_TAGS = re.compile(r"</?(?:pre|code|br|p|div|span|details|summary|blockquote)\b[^>\n]{0,200}>", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
# A log in JSON: the keys under which Docker, journald and most others hold the line, and what comes behind its end.
_IN_JSON = re.compile(
    r'^\{\s*(?:"\w{1,40}"\s*:\s*(?:"[^"]{0,80}"|[\d.]{1,20})\s*,\s*){0,6}"(?:log|MESSAGE|message|msg)"\s*:\s*"|^"\s*,\s*"\w+"\s*:[^\n]*\}\s*$'
)
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# One after the other, each once. What names the program (nv-fabricmanager[7]:) is kept, the kernel needs no name; in
# the log of dpkg the day is what it tells.
_BEFORE = (
    re.compile(r"^[\w./-]{0,200}(?:log|txt|messages|journal)[\w.-]{0,40}:\d{1,9}:\s?"),  # grep -n
    re.compile(r"^\[pod/[^\]\s]{1,200}\] "),
    re.compile(
        rf"^{_ISO}\s(?! *(?:upgrade|install|remove|status|configure) )"  # one space: the rest is the line's own indent
        r"(?:(?:stdout|stderr) [FP] |[\w.-]{1,80} kernel: (?!\d+\.\d+\.\d))?"  # "running kernel: 6.8.0" names no host
    ),
    re.compile(
        r"^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2}|\d{1,2}月) [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} "
        r"(?:kernel: |(?=[\w./()-]+(?:\[\d+\])?: ))"
    ),
    re.compile(r"^kernel: "),
    re.compile(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "),
    re.compile(r"^\[ *\d{1,9}\.\d{1,9}\] "),
    re.compile(r"^(?:\([A-Z]\w+(?:_\w+)?[^)\n]{0,40}\bpid=\d+\) )+"),
    re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w.]+:\d+\] ?"),
    re.compile(r"^\[rank\d+\]: ?"),
)
_NUMBER = re.compile(r"^\s*(\d{1,7})(?:[:|.)]\s?|\t|\s(?=\S)|$)")
_FEWEST = 3  # lines, below which what they begin with in common says nothing
# What a program may itself begin each of its lines with; it is no name of a pod and stays.
_TELLING = re.compile(
    r"nv|nouv|cud|gpu|err|fail|fatal|warn|modul|driver|docker|depend|\bii\b|xid|nccl|torch|^\s*\d[\d\s]*$",
    re.IGNORECASE,
)


def bare(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without numbers, time stamps, names of containers and markup before or around each."""
    plain = tuple(_unwrapped(line) for line in lines)
    stamped = tuple(_without_stamps(line) for line in _without_numbers(plain))
    return tuple(_without_stamps(line) for line in _without_common(stamped))


def _unwrapped(line: str) -> str:
    """Return what stands in a line of a web page, or of a log in JSON."""
    line = _IN_JSON.sub("", line)
    if "\\u" in line:
        line = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), line)
    if "<" in line:
        line = _TAGS.sub("", line)
    line = html.unescape(line) if _MARKUP.search(line) else line
    return line.replace("\n", " ")  # written as an escape, it would make two lines of one


def _without_numbers(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines without their numbers, where nearly each has one that is by one more than the one before."""
    found = [_NUMBER.match(line) for line in lines]
    numbers = [int(match[1]) for match in found if match]
    rising = sum(after - before == 1 for before, after in pairwise(numbers))
    too_few = len(numbers) < _FEWEST and numbers != [1, 2]
    if too_few or rising < 0.8 * (len(lines) - 1):
        return lines
    return tuple(line[match.end() :] if match else line for line, match in zip(lines, found, strict=True))


def _without_common(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines without what all of them begin with, as the name of a pod, up to a space."""
    written = [line for line in lines if line.strip()]
    common = _common(min(written, default=""), max(written, default=""))
    indented = len(common) - len(common.lstrip())
    named = len(written) >= _FEWEST and not _TELLING.search(common)
    cut = common.rfind(" ") + 1 if named else indented
    return tuple(line[cut:] if line.strip() else line for line in lines) if cut else lines


def _common(one: str, other: str) -> str:
    """Return what two lines begin with in common: the first and the last of many in order have what all have."""
    differ = next((at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), len(one))
    return one[:differ]


def _without_stamps(line: str) -> str:
    for pattern in _BEFORE:
        line = pattern.sub("", line, count=1)
    return line
