"""Diagnoses: each kind of fault as people paste it, hosts that only look odd, and the whole evidence of a host."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.check import Severity
from lpxdoctor.cli import run
from lpxdoctor.evaluate import State, Verdict
from lpxdoctor.facts import messages
from lpxdoctor.recognize import recognize
from lpxdoctor.report.json import document
from tests.checks.test_told import TOLD
from tests.diagnosing import FALLEN, HEALTHY, ILL, PASTES, checks, judged
from tests.facts.test_engine_log import SAID

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
