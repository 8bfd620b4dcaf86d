"""Diagnoses: each kind of fault as people paste it, hosts that only look odd, bad input, and this host asked."""

import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.check import Check, Severity
from lpxdoctor.cli import diagnose, run
from lpxdoctor.evaluate import Judgement, State, Verdict
from lpxdoctor.evidence import Answer, Evidence, to_json
from lpxdoctor.facts import messages
from lpxdoctor.facts.gpu import NVML
from lpxdoctor.recognize import recognize
from lpxdoctor.report.json import document
from tests.checks.test_told import TOLD
from tests.facts.test_engine import SAID

# Pastes of one kind of fault a file, named by the check that must come first; "%%" begins each, with the words that its
# finding must say. They are written by us, in the forms in which programs and people really say these things.
KINDS = Path(__file__).parent / "kinds"
FALLEN = "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."


def pastes() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for path in sorted(KINDS.glob("invented-*.txt")):
        for head, text in re.findall(r"^%%(.*)\n((?:(?!%%).*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            says = head.partition("says=")[2]
            yield path.stem.removeprefix("invented-"), text, tuple(filter(None, says.split(",")))


PASTES = tuple(pastes())
ILL = [paste for paste in PASTES if paste[0] != "healthy"]
HEALTHY = [text for id_, text, _ in PASTES if id_ == "healthy"]


@lru_cache(maxsize=1)
def checks() -> tuple[Check[...], ...]:
    return catalog.load(None)


def judged(text: str | bytes) -> Judgement:
    data = text.encode() if isinstance(text, str) else text
    return diagnose.judge(recognize(io.BytesIO(data)), checks(), policy.load())


# --- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("id_", "text", "says"), ILL, ids=[f"{id_}-{n}" for n, (id_, _, _) in enumerate(ILL)])
def test_the_cause_comes_first_and_says_what_matters(id_: str, text: str, says: tuple[str, ...]) -> None:
    judgement = judged(text)
    first = document(judgement).findings[0]
    assert first.id == id_
    told = f"{first.id} {first.title} {first.message} {first.why} {first.fix}".casefold()
    assert [word for word in says if word.casefold() not in told] == []
    assert first.confirm
    assert first.evidence
    assert not re.search(r"\{\w+\}|\s[,.;:](?:\s|$)|\(\s|\s\)", first.message), first.message


@pytest.mark.parametrize("text", HEALTHY, ids=range(len(HEALTHY)))
def test_what_only_looks_odd_is_no_failure_and_never_healthy(text: str) -> None:
    judgement = judged(text)
    assert [result.check.id for result in judgement.found if result.severity is Severity.FAIL] == []
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.WARNING)
    assert judgement.of(State.PASS, State.CRASHED) == ()


def test_there_are_three_pastes_of_every_kind_that_the_table_proves() -> None:
    proven = {known.proves for known in messages.table()}
    proven |= {reading.proves for known in messages.table() for reading in known.but if reading.proves}
    counted = {id_: sum(paste[0] == id_ for paste in PASTES) for id_ in proven}
    assert {id_: count for id_, count in counted.items() if count < 3} == {}
    assert proven <= {check.id for check in checks()}


def test_every_row_of_the_table_has_a_line_that_it_finds() -> None:
    lines = [*SAID.values(), *(line for pair in TOLD.values() for line in pair), *(text for _, text, _ in ILL)]
    told = {name for line in lines for name in proven_by(line)}
    assert {known.name for known in messages.table()} - told == set()


def proven_by(text: str) -> set[str]:
    recognition = recognize(io.BytesIO(text.encode()))
    return {told.name for told in messages.tell(recognition.pasted.text, recognition.about)}


def test_no_line_of_one_kind_crashes_the_judgement_of_another() -> None:
    everything = "\n".join(text for _, text, _ in PASTES)
    judgement = judged(everything)
    assert judgement.of(State.CRASHED) == ()
    assert judgement.verdict is Verdict.FAILED


# --- forms of the same text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda line: f"\x1b[31m{line}\x1b[0m",
        lambda line: f"> {line}",
        lambda line: f"Nov 29 03:12:44 gpu12 kernel: [12345.678901] {line}",
        lambda line: f"2026-11-29T03:12:44.123456+00:00 gpu12 kernel: {line}",
        lambda line: f"gpu-1  | {line}",
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T03:12:44Z"}),
        lambda line: f"\ufeff好的\uff0c日志如下\uff1a\r\n{line}\r\n谢谢",
        lambda line: f"progress 10%\rprogress 90%\r{line}",
    ],
)
def test_a_line_is_recognized_however_it_was_copied(form: Any) -> None:
    assert document(judged(form(FALLEN))).findings[0].id == "gpu.lost"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_a_text_is_recognized_in_the_encodings_of_linux_and_windows(encoding: str) -> None:
    assert document(judged(f"日志\uff1a\n{FALLEN}\n".encode(encoding))).findings[0].id == "gpu.lost"


def test_what_follows_from_the_cause_waits_for_it() -> None:
    judgement = judged(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
        "RuntimeError: No CUDA GPUs are available\n"
    )
    found = document(judgement).findings
    assert [finding.id for finding in found] == ["boot.signature-refused"]
    assert {"driver.module-not-loaded", "engine.started-without-gpu"} <= set(found[0].blocked)


def test_what_is_stated_does_not_wait_for_what_is_only_likely() -> None:
    judgement = judged(
        "NCCL error in: x, unhandled system error\nError while creating shared memory segment /dev/shm/n"
    )
    assert document(judgement).findings[0].id == "engine.shared-memory-ran-out"


def test_the_lines_that_prove_it_are_shown_with_their_numbers() -> None:
    finding = document(judged(f"a\nb\n{FALLEN}\nc\n")).findings[0]
    assert (finding.evidence[0].what, finding.evidence[0].value) == ("line 3", FALLEN)


def test_a_denial_proves_nothing() -> None:
    assert document(judged("there was no Xid 79 since, and without CUDA out of memory; 没有 Xid 48")).findings == ()


def test_numbers_of_buses_and_processes_are_no_xids() -> None:
    line = "NVRM: Xid (PCI:0000:79:00): 31, pid=48, name=python3, Ch 00000063, intr 64"
    assert [finding.id for finding in document(judged(line)).findings] == ["gpu.xid-program"]


# --- the whole evidence of a host -------------------------------------------------------------------------------------


def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.json"
    path.write_text(Path("tests/hosts/no-gpu/evidence.json").read_text(encoding="utf-8"), encoding="utf-8")
    return path


def test_collected_evidence_is_judged_as_check_judges_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(recorded(tmp_path))
    assert run(["check", "--from", path, "--format", "json"]) == run(["diagnose", path, "--format", "json"])
    output = capsys.readouterr().out
    first, second = (json.loads(part) for part in re.split(r"(?<=\n\})\n(?=\{)", output))
    assert first == second


def test_a_bundle_is_evidence_and_text(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    (tmp_path / "dmesg.txt").write_text(FALLEN + "\n", encoding="utf-8")
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(recorded(tmp_path), "host/evidence.json")
        archive.add(tmp_path / "dmesg.txt", "host/dmesg.txt")
    recognition = recognize(io.BytesIO(bundle.read_bytes()))
    assert recognition.whole
    assert [proof.id for proof in recognition.proofs] == ["gpu.lost"]


def test_what_looks_like_evidence_and_is_none_says_so() -> None:
    recognition = recognize(io.BytesIO(b'{"schema": 7, "answers": {}}'))
    assert not recognition.whole
    assert "schema 7" in recognition.notes[0]


# --- bad input --------------------------------------------------------------------------------------------------------


def diagnosed(path: Path | str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    status = run(["diagnose", str(path), *more])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err


def test_a_text_without_anything_known_is_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prose"
    path.write_text("Dear all, my new server is a bit odd today. Kind regards\n")
    status, out, _ = diagnosed(path, capsys)
    assert status == 3
    assert "Nothing in it is known" in out
    assert out.index("symptom:") < out.index("input:") < out.index("environment:")
    status, out, _ = diagnosed(path, capsys, "--format", "json")
    assert status == 3
    data = json.loads(out)
    assert (data["verdict"], data["findings"]) == ("unknown", [])
    assert [question["layer"] for question in data["questions"]] == ["symptom", "input", "environment"]


def test_what_is_only_possible_comes_with_the_questions_that_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "told"
    path.write_text("the container cannot see the GPU\n")
    status, out, _ = diagnosed(path, capsys)
    assert status == 1
    assert "To decide, in this order" in out


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (os.urandom(200_000), "does not look like text"),
        (bytes(300_000), "does not look like text"),
        (b"PK\x03\x04" + bytes(100), "unzip -p"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "zstd -dc"),
        (b"\x89PNG\r\n\x1a\n" + bytes(5000), "does not look like text"),
    ],
)
def test_what_is_no_text_is_refused_with_what_to_type(
    data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given"
    path.write_bytes(data)
    status, out, err = diagnosed(path, capsys)
    assert (status, out) == (64, "")
    assert words in err


@pytest.mark.parametrize("form", ["text", "json"])
def test_invalid_bytes_in_a_text_are_no_obstacle(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\xfa broken \xc3\x28 \x80\n" + FALLEN.encode() + b"\n\xed\xa0\x80\n")
    status, out, _ = diagnosed(path, capsys, "--format", form)
    assert status == 2
    assert "gpu.lost" in out


def test_a_directory_or_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnosed(tmp_path, capsys)[0] == 64
    assert "No such file" in diagnosed(tmp_path / "none", capsys)[2]
    assert run(["diagnose"]) == 64
    assert run(["diagnose", "x", "--symptom", "y"]) == 64


@pytest.mark.slow
def test_a_sparse_file_of_four_gigabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    assert diagnosed(path, capsys)[0] == 64


def test_a_line_of_fifty_megabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "line"
    path.write_bytes(b"x" * (50 << 20) + b"\n" + FALLEN.encode() + b"\n")
    status, out, _ = diagnosed(path, capsys, "--format", "json")
    assert status == 2
    assert json.loads(out)["findings"][0]["evidence"][0]["what"] == "line 2"


@pytest.mark.slow
def test_a_gzip_bomb_ends_at_the_limit() -> None:
    member = gzip.compress(bytes(32 << 20))
    recognition = recognize(io.BytesIO(member * 40))
    assert recognition.notes == ("only the first 1024 MiB were read",)


def test_an_archive_of_wicked_paths_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wicked.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("/etc/lpxdoctor-test", "../../escaped", "a/../../b"):
            entry = tarfile.TarInfo(name)
            entry.size = len(FALLEN)
            archive.addfile(entry, io.BytesIO(FALLEN.encode()))
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "../../escaped")):
            entry = tarfile.TarInfo("link" + kind.decode())
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
        device = tarfile.TarInfo("null")
        device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 3
        archive.addfile(device)
    monkeypatch.chdir(tmp_path)
    assert diagnosed(path, capsys)[0] == 2
    assert [each.name for each in tmp_path.iterdir()] == ["wicked.tar"]
    assert not Path("/etc/lpxdoctor-test").exists()


def test_a_damaged_archive_is_read_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress((FALLEN + "\n" + os.urandom(300_000).hex()).encode())
    path = tmp_path / "cut.log.gz"
    path.write_bytes(whole[: len(whole) // 2])
    status, out, _ = diagnosed(path, capsys)
    assert status == 2
    assert "the archive is damaged" in " ".join(out.split())
    run(["diagnose", str(path), "--format", "json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["findings"]
    assert "the archive is damaged" in err


# --- size -------------------------------------------------------------------------------------------------------------


def hundred_megabytes() -> Iterator[bytes]:
    """Yield a kernel log and an engine's log of a hundred megabytes, with one line that matters far inside."""
    for block in range(100):
        lines = [
            f"Nov 29 {block % 24:02}:{n % 60:02}:07 gpu12 kernel: [{block * 7919 + n * 0.37:12.6f}] audit: type=1400 "
            f"audit({n}.{block}): apparmor=ALLOWED comm=worker{n % 7} requested_mask=r ino={n * block}\n"
            f"INFO 11-29 03:{n % 60:02}:{block % 60:02} [loggers.py:118] Engine 000: "
            f"Avg prompt throughput: {n * 0.3:.1f} tokens/s, Running: {n % 64} reqs, Waiting: 0 reqs, "
            f"request cmpl-{n * block:032x} finished\n"
            for n in range(3000)
        ]
        data = "".join(lines).encode()
        yield data + data[: (1 << 20) - len(data)] if len(data) < 1 << 20 else data
        if block == 61:
            yield FALLEN.encode() + b"\n"


@pytest.mark.slow
def test_a_log_of_a_hundred_megabytes_takes_seconds_and_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.writelines(hundred_megabytes())
    assert path.stat().st_size > 100_000_000
    program = (
        "import re, sys; from lpxdoctor.cli import run\n"
        "status = run(['diagnose', sys.argv[1], '--format', 'json'])\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "print(peak, file=sys.stderr); sys.exit(status)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    assert done.returncode == 2
    assert json.loads(done.stdout)["findings"][0]["id"] == "gpu.lost"
    assert int(done.stderr.split()[-1]) < 300 << 10  # KiB
    assert seconds < 5 * slack()


def slack() -> float:
    """Return how much slower than its own this machine is just now: others compute on it."""
    begun, used = time.monotonic(), time.process_time()
    sum(range(3_000_000))
    return max(1.0, (time.monotonic() - begun) / max(1e-6, time.process_time() - used))


# --- this host --------------------------------------------------------------------------------------------------------


def asked(monkeypatch: pytest.MonkeyPatch, evidence: Evidence) -> list[str]:
    """Let a host answer evidence, and return the keys of what it was asked."""
    keys: list[str] = []

    def ask(probes: Any, **_: Any) -> Evidence:
        keys.extend(probe.key for probe in probes)
        return evidence

    monkeypatch.setattr(diagnose, "ask", ask)
    return keys


def test_a_symptom_asks_this_host_what_may_explain_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = asked(monkeypatch, Evidence("gpu-1"))
    assert run(["diagnose", "--symptom", "the first token is slow, TTFT of 9 s", "--format", "json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert [finding["id"] for finding in data["findings"]] == ["decode.first-token-slow"]
    assert NVML.key in keys
    assert set(data["checks"]) < {check.id for check in checks()}


def test_a_symptom_that_is_not_known_asks_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, Evidence("gpu-1", {NVML.key: Answer(failure="absent", reason="no")}))
    with contextlib.suppress(SystemExit):
        run(["diagnose", "--symptom", "it smells of burnt dust", "--format", "json"])
    captured = capsys.readouterr()
    assert "every check is run" in captured.err
    assert len(json.loads(captured.out)["checks"]) == len(checks())


def test_evidence_that_was_told_a_symptom_stays_evidence() -> None:
    evidence = replace(Evidence("h"), answers={"told": Answer([{"check": "x"}])})
    assert json.loads(to_json(evidence))["answers"]["told"]


def test_a_waiver_of_this_site_does_not_hide_what_a_text_says(tmp_path: Path) -> None:
    site = tmp_path / "policy.toml"
    site.write_text('[[waivers]]\nid = "gpu.lost"\nreason = "known"\nuntil = 2999-01-01\n')
    recognition = recognize(io.BytesIO(FALLEN.encode()))
    judgement = diagnose.judge(recognition, checks(), policy.load(site))
    assert [result.check.id for result in judgement.found] == ["gpu.lost"]
