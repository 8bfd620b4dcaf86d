"""A fleet's report: a row for every host, numbers that add up, any terminal, a published schema, a page by itself."""

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from lpxdoctor import catalog, policy
from lpxdoctor.cli import group
from lpxdoctor.cli._fleet import Judge
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.fleet import NoAnswer
from lpxdoctor.fleet.twins import Identity
from lpxdoctor.report import fleet_html, fleet_text
from lpxdoctor.report.fleet import FleetDocument, HostDocument, fleet, judged, refused, render
from lpxdoctor.report.json import CoverageDocument, UnknownDocument
from tests.report.schemas import valid

GOLDEN = Path("tests/report/fleet.txt")
CHECKS, POLICY = catalog.load(None), policy.load()


def host(name: str, recorded: str, *changes: tuple[str, str]) -> HostDocument:
    """Return the row of a recorded host, with a few words of its evidence changed."""
    text = Path(f"tests/hosts/{recorded}/evidence.json").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return judged(name, evaluate(CHECKS, from_json(text), POLICY))


@pytest.fixture(scope="module")
def report() -> FleetDocument:
    """Return the report of ten hosts: eight fit, one without a GPU, one away, one that told nothing."""
    fit = [host(f"gpu-{number:02}", "h200-cdi") for number in range(1, 8)]
    other = host("gpu-08", "h200-cdi", ("6.18.44-gpu", "6.18.41-gpu"))
    away = refused("gpu-31", NoAnswer("nothing listens for SSH at its address and port", "Start its SSH server."))
    silent = judged("gpu-32", evaluate(CHECKS, Evidence("gpu-32"), POLICY))
    assert silent.report
    known = {
        "coverage": CoverageDocument(ran=0, of=200),  # however many checks there are
        "unknown": (UnknownDocument(id="a.b", reason="the kernel log cannot be read without root"),),
    }
    silent = msgspec.structs.replace(silent, report=msgspec.structs.replace(silent.report, **known))
    return fleet([host("gpu-12", "no-gpu"), *fit, other, away, silent])


def printed(report: FleetDocument, *, encoding: str = "utf-8", width: int = 80, verbose: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    fleet_text.render(report, Console(file=file, width=width), seconds=11.0, verbose=verbose)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_the_text_is_the_one_that_was_read(report: FleetDocument, request: pytest.FixtureRequest) -> None:
    text = printed(report)
    if request.config.getoption("--update"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "pytest --update, and read the difference"


def test_the_numbers_add_up_and_the_worst_host_decides(report: FleetDocument) -> None:
    summary = report.summary
    parts = (summary.healthy, summary.warning, summary.failed, summary.unknown, summary.no_answer)
    assert parts == (8, 0, 1, 1, 1)
    assert summary.hosts == sum(parts) == len(report.hosts)
    assert report.exit_code == 2
    by_name = {host.name: host for host in report.hosts}
    assert fleet([by_name["gpu-01"]]).exit_code == 0
    assert fleet([by_name["gpu-01"], by_name["gpu-32"]]).exit_code == 3
    assert fleet([by_name["gpu-31"], by_name["gpu-32"]]).exit_code == 2
    assert fleet([]).exit_code == 3


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(report: FleetDocument, width: int, verbose: bool) -> None:
    assert max(map(len, printed(report, width=width, verbose=verbose).splitlines())) <= width


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_any_terminal_can_show_it(report: FleetDocument, encoding: str) -> None:
    assert "gpu-12" in printed(report, encoding=encoding)


def test_fit_hosts_are_folded_and_others_never(report: FleetDocument) -> None:
    text = printed(report)
    assert "8 hosts" in text
    assert "gpu-07" not in text
    assert "gpu-07" in printed(report, verbose=True)
    many = fleet([refused(f"gpu-{number}", NoAnswer("away", "Look.")) for number in range(50)])
    assert printed(many).count("no answer: away") == 50


def test_a_reason_is_whole_where_it_is_first_told_and_on_every_line_only_when_asked() -> None:
    reason = "its SSH server refuses every key that this machine has for the user root at port 2222"
    two = fleet([refused(f"gpu-{number}", NoAnswer(reason, "Look.")) for number in range(2)])
    assert " ".join(printed(two).split()).count(reason) == 1
    assert " ".join(printed(two, verbose=True).split()).count(reason) == 2
    assert max(len(line) for line in printed(two).splitlines()) <= 80


def test_two_hosts_of_one_name_stay_two(report: FleetDocument) -> None:
    row = report.hosts[0]
    assert [host.name for host in fleet([row, row, row]).hosts] == ["gpu-12", "gpu-12 (2)", "gpu-12 (3)"]


@pytest.fixture(scope="module")
def twice() -> FleetDocument:
    """Return the report of one fit machine that has two names."""
    own = Identity(machine="0123456789abcdef", boot="4d4c6b0e", gpus={"GPU-1": "NVIDIA H200"})
    row = msgspec.structs.replace(host("gpu-01", "h200-cdi"), identity=own)
    return fleet([row, msgspec.structs.replace(row, name="gpu-02")])


def test_what_is_wrong_with_hosts_together_is_told_and_counts(twice: FleetDocument) -> None:
    assert twice.summary.healthy == 2
    assert twice.exit_code == 2
    (found,) = json.loads(render(twice))["findings"]
    assert (found["id"], found["severity"], found["hosts"]) == ("fleet.machine-twice", "fail", ["gpu-01", "gpu-02"])
    valid(json.loads(render(twice)), "fleet-1")
    text = printed(twice)
    assert "✗ fleet.machine-twice  One machine answers as gpu-01, gpu-02\n" in text
    assert "ansible_host" in text
    assert "One machine answers as gpu-01, gpu-02" in fleet_html.render(twice)
    boot = Identity(machine="0123456789abcdef", boot="5d4c6b0e", gpus={})
    cloned = fleet([twice.hosts[0], msgspec.structs.replace(twice.hosts[1], identity=boot)])
    assert [finding.id for finding in cloned.findings] == ["fleet.machine-id-cloned"]
    assert cloned.exit_code == 1


def test_a_long_report_ends_with_its_numbers_and_names_every_host_of_a_cause() -> None:
    bad = host("gpu-001", "no-gpu")
    many = fleet([msgspec.structs.replace(bad, name=f"gpu-{number:03}") for number in range(1, 201)])
    text = printed(many)
    assert text.count("host.no-gpu  none of") == 200
    assert "200 hosts  lpxdoctor explain host.no-gpu\n" in text.replace("  200", "200")
    assert "gpu-[001-200]" in text
    assert text.splitlines()[0] == text.splitlines()[-1] == "200 hosts · 200 failed · 11 s"
    assert "200 x <span" in fleet_html.render(many)
    assert "gpu-[001-200]" in fleet_html.render(many)


def test_the_remedy_of_one_reason_is_shown_once() -> None:
    rows = [refused(f"gpu-{number}", NoAnswer("away", f"ssh gpu-{number}")) for number in range(3)]
    assert printed(fleet(rows)).count("ssh gpu-") == 1
    assert printed(fleet(rows), verbose=True).count("ssh gpu-") == 3


def test_the_json_is_valid_and_a_host_is_a_line(report: FleetDocument) -> None:
    for rows in (report, fleet([])):
        document = json.loads(render(rows))
        valid(document, "fleet-1")
        assert [row["name"] for row in document["hosts"]] == [row.name for row in rows.hosts]
    lines = render(report).splitlines()
    assert json.loads(lines[1].removesuffix(","))["name"] == "gpu-12"
    drift = {row["fact"]: row for row in json.loads(render(report))["odd_ones_out"]}["kernel"]
    assert drift["majority_hosts"] == 7
    assert {"value": "6.18.41-gpu", "hosts": ["gpu-08"]} in drift["others"]


class Page(HTMLParser):
    """Reads a page: what it would fetch, and whether every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action")
        ]
        if tag in ("script", "link", "iframe", "img"):
            self.fetched.append(tag)
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_with_a_row_for_every_host(report: FleetDocument) -> None:
    text = fleet_html.render(report)
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert page.open == []
    assert not re.search(r"url\(|@import|https?:", text.partition("</style>")[0])
    assert text.count('class="host ') == len(report.hosts)
    for row in report.hosts:
        assert f"<b>{row.name}</b>" in text
    assert '<span class="odd">6.18.41-gpu</span>' in text


def test_a_page_shows_what_a_host_says_as_text() -> None:
    row = refused("<b>gpu</b>", NoAnswer('<script>alert("x")</script>', "&"))
    text = fleet_html.render(fleet([row]))
    assert "<script" not in text
    assert "&lt;script&gt;alert(&quot;x&quot;)" in text


def invoked(*argv: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(group, ["check", "--no-site-checks", *map(str, argv)], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, done.output


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that writes three hosts to a directory."""

    def write() -> Path:
        for name, source in (("a", "h200-cdi"), ("b", "no-gpu"), ("c", "h200-cdi-serving")):
            text = Path(f"tests/hosts/{source}/evidence.json").read_text(encoding="utf-8")
            (tmp_path / f"{name}.json").write_text(text.replace('"host": "host"', f'"host": "{name}"', 1))
        return tmp_path

    return write


def test_check_judges_a_directory_and_misses_whom_the_inventory_expects(recorded: Callable[[], Path]) -> None:
    place = recorded()
    status, out = invoked("--from", place, "-i", "a,b,c,d", "--format", "json", "-o", place / "report")
    assert status == 2
    rows = {row["name"]: row for row in json.loads(out)["hosts"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "a": "healthy",
        "b": "failed",
        "c": "healthy",
        "d": "no answer",
    }
    assert "nothing was recorded" in rows["d"]["no_answer"]["reason"]
    assert (place / "report").read_text() == out
    status, out = invoked("--from", place / "a.json", "--from", place / "c.json", "--format", "html")
    assert (status, out.count('class="host ')) == (0, 2)
    status, out = invoked("--from", place / "a.json", "--from", place / "c.json")
    assert (status, out.splitlines()[0]) == (0, "2 hosts · 2 fit")


def test_an_answer_becomes_the_row_of_its_kind() -> None:
    import datetime

    row = Judge(CHECKS, POLICY, datetime.date(2026, 11, 29)).row
    assert row(("a", NoAnswer("away", "Look."))).verdict == "no answer"
    assert row(("a", Evidence("b"))).name == "a"
