"""One text in the many forms in which it is copied: the cause stays the same, and a host that is well stays so."""

import html
import json
import re
import textwrap
from collections.abc import Callable

import pytest

from lpxdoctor.check import Severity
from lpxdoctor.report.json import document
from tests.diagnosing import HEALTHY, ILL, judged

Form = Callable[[str], str]
NOISE = (
    "Nov 29 03:00:01 n1 CRON[991]: (root) CMD (run-parts /etc/cron.hourly)",
    'audit: type=1400 audit(1732849.1:22): apparmor="ALLOWED" operation="open" comm="snapd"',
    "INFO 11-29 03:00:01 [loggers.py:118] Engine 000: Avg prompt throughput: 12.0 tokens/s, Running: 3 reqs",
    "[    9.100000] EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "hello, thanks in advance for any help!",
)


def before(prefix: str) -> Form:
    """Put a prefix before each line; {n} in it is the line's number."""
    return lambda text: "".join(prefix.format(n=n) + f"{line}\n" for n, line in enumerate(text.splitlines(), 1))


def broken_by_terminal(width: int) -> Form:
    return lambda text: "".join(
        f"{line[at : at + width]}\n" for line in text.splitlines() for at in range(0, max(1, len(line)), width)
    )


def broken_by_mail(width: int) -> Form:
    def wrap(line: str) -> str:
        return "\n".join(textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)) + "\n"

    return lambda text: "".join(map(wrap, text.splitlines()))


FORMS: dict[str, Form] = {
    "editor": before("{n:4}\t"),
    "numbered": before("{n}: "),
    "grep": before("/var/log/dmesg.log:{n}:"),
    "journal": before("2026-11-29T03:12:44.123456+00:00 gpu12 kernel: "),
    "dmesg -T": before("[Sun Nov 29 03:12:44 2026] "),
    "dmesg": before("[ 1234.{n:06}] "),
    "kubectl --timestamps": before("2026-11-29T03:12:44.123456789Z "),
    "kubectl --prefix": before("[pod/vllm-7d9f-abc/vllm] "),
    "containerd": before("2026-11-29T03:12:44.123456789Z stderr F "),
    "worker": before("(EngineCore_DP0 pid=68) ERROR 02-06 16:34:06 [core.py:936] "),
    "rank": before("[rank0]: "),
    "mail": before("> > "),
    "indented": before("      "),
    "coloured": before("\x1b[1;31m"),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "web page": lambda text: f"<pre><code>{html.escape(text)}</code></pre>\n",
    "typographic": lambda text: re.sub(r"'([^'\n]*)'", "\u2018\\1\u2019", text),
    "among others": lambda text: "\n".join((*NOISE, text, *NOISE)),
    "upper case addresses": lambda text: re.sub(
        r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\b", lambda found: found[0].upper(), text
    ),
    "80 columns": broken_by_terminal(80),
    "120 columns": broken_by_terminal(120),
    "mail of 72": broken_by_mail(72),
    "mail of 100": broken_by_mail(100),
    "journal in 120 columns": lambda text: FORMS["120 columns"](FORMS["kubectl --timestamps"](text)),
}


def cases() -> list[tuple[str, str, str]]:
    """Return (check, text, form): each paste in one form, the forms in turn."""
    names = list(FORMS)
    return [(id_, text, names[n % len(names)]) for n, (id_, text, _) in enumerate(ILL)]


@pytest.mark.parametrize(
    ("id_", "text", "form"), cases(), ids=[f"{id_}-{form}-{n}" for n, (id_, _, form) in enumerate(cases())]
)
def test_a_cause_is_named_in_whatever_form_it_was_copied(id_: str, text: str, form: str) -> None:
    found = document(judged(FORMS[form](text))).findings
    assert [finding.id for finding in found[:1]] == [id_]


@pytest.mark.parametrize("form", FORMS)
def test_what_only_looks_odd_is_no_failure_in_any_form(form: str) -> None:
    everything = HEALTHY[list(FORMS).index(form) % len(HEALTHY)]
    judgement = judged(FORMS[form](everything))
    assert [result.check.id for result in judgement.found if result.severity is Severity.FAIL] == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "gb18030"])
def test_a_whole_log_in_another_encoding(encoding: str) -> None:
    text = "\n".join((*NOISE, ILL[0][1], *NOISE))
    assert document(judged(text.encode(encoding))).findings[0].id == ILL[0][0]


def test_two_faults_at_once_are_both_told_the_deeper_first() -> None:
    text = "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\nOSError: [Errno 98] Address already in use\n"
    for whole in (text, "".join(reversed(text.splitlines(keepends=True)))):
        assert [finding.id for finding in document(judged(whole)).findings] == ["gpu.lost", "engine.port-in-use"]


def test_lines_of_a_log_in_json_are_read_with_what_they_hold() -> None:
    lines = (
        "ii  nvidia-container-toolkit  1.17.4-1  amd64",
        'could not select device driver "" with capabilities: [[gpu]]',
    )
    text = "\n".join(json.dumps({"log": line + "\n", "stream": "stderr"}) for line in lines)
    assert document(judged(text)).findings[0].id == "container.daemon-not-restarted"
