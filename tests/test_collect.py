"""Collecting from this very host: real commands, files, servers and programs; deadlines; masked secrets."""

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from lpxdoctor.collect import collect
from lpxdoctor.evidence import Answer, Command, Evidence, File, Glob, Http, Listing, Probe, Program
from lpxdoctor.reading import mask
from tests.beside import beside
from tests.tune.test_command import ended


def ask(*probes: Probe, limit_s: float = 10.0, programs: Mapping[str, Path] | None = None) -> Evidence:
    return collect(probes, programs or {}, limit_s=limit_s)


def test_commands_answer_with_exit_and_both_streams() -> None:
    probe = Command(("sh", "-c", "echo out; echo err >&2; exit 7"))
    assert ask(probe).value(probe) == {"exit": 7, "stdout": "out\n", "stderr": "err\n"}


def test_commands_run_in_a_locale_that_parsers_know() -> None:
    probe = Command(("sh", "-c", "echo $LC_ALL"))
    assert ask(probe).text(probe) == "C.UTF-8\n"


def test_a_command_that_is_not_installed_is_absent() -> None:
    probe = Command(("no-such-program-here",))
    answer = ask(probe).answers[probe.key]
    assert answer.failure == "absent"
    assert "no-such-program-here" in answer.reason


def test_files_are_text_absent_or_denied(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xc3\xa9 \xff\n")
    readable, missing, pattern = File(str(tmp_path / "a")), File(str(tmp_path / "b")), Glob(str(tmp_path / "*"))
    answers = ask(readable, missing, pattern)
    assert answers.text(readable) == "café \\xff\n"
    assert answers.absent(missing)
    assert answers.found(pattern) == {str(tmp_path / "a"): "café \\xff\n"}


def test_a_glob_keeps_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    pattern = Glob(str(tmp_path / "*"))
    assert ask(pattern).found(pattern) == {str(tmp_path / "directory"): None}


def test_a_listing_has_device_numbers_and_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    null, links = Listing("/dev/null"), Listing(str(tmp_path / "*"))
    answers = ask(null, links)
    entry = answers.found(null)["/dev/null"]
    assert (entry["kind"], entry["major"], entry["minor"], entry["readable"]) == ("char", 1, 3, True)
    assert entry["mode"] == stat.S_IMODE(Path("/dev/null").stat().st_mode)
    assert answers.found(links)[str(tmp_path / "link")]["target"] == "nowhere"


def test_a_server_on_a_socket_answers(tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1 << 16).startswith(b"GET /info HTTP/1.0\r\n")
            connection.sendall(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n{}")

    # A child asks: this process has a thread now, and collecting forks.
    script = (
        "import json, sys; from lpxdoctor.collect import collect; from lpxdoctor.evidence import Http\n"
        "probe = Http('unix:' + sys.argv[1], '/info'); print(json.dumps(collect([probe], {}).value(probe)))"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "s")]
    with server, beside(serve):
        answer = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    assert answer.stdout.strip() == '{"status": 200, "body": "{}"}'


def test_a_server_that_is_not_there_is_absent() -> None:
    probe = Http("unix:/nonexistent.sock", "/info")
    assert ask(probe).absent(probe)


def test_a_program_answers_with_its_json(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import sys, json; print(json.dumps(sys.argv[1:]))")
    (tmp_path / "bad.py").write_text("import os; os.kill(os.getpid(), 11)")
    (tmp_path / "mute.py").write_text("import sys; sys.exit('the library is broken')")
    good, bad, mute, unknown = Program("good", ("a",)), Program("bad"), Program("mute"), Program("unknown")
    programs = {name: tmp_path / f"{name}.py" for name in ("good", "bad", "mute")}
    answers = ask(good, bad, mute, unknown, programs=programs)
    assert answers.value(good) == ["a"]
    assert "SIGSEGV" in answers.answers[bad.key].reason
    assert "the library is broken" in answers.answers[mute.key].reason
    assert answers.absent(unknown)


def test_a_deadline_ends_a_command_and_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.collect._BUSY_S", 20)  # on a busy machine one that is killed takes its time to go
    pid_file = tmp_path / "pid"
    probe = Command(("sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"), timeout_s=2.5)
    started = time.monotonic()
    answers = ask(probe)
    assert time.monotonic() - started < 30
    assert answers.answers[probe.key].failure == "timeout"
    assert answers.answers[probe.key].reason == "no answer within 2.5 s"
    pid = pid_file.read_text().strip()
    assert ended(pid)


def test_a_grandchild_that_keeps_the_pipe_open_is_not_waited_for() -> None:
    probe = Command(("sh", "-c", "sleep 60 & echo done"))
    assert ask(probe).text(probe) == "done\n"


def test_the_whole_run_ends_at_its_limit() -> None:
    probes = [Command(("sleep", str(100 + n)), timeout_s=60) for n in range(20)]
    quick = Command(("true",), timeout_s=90)
    started = time.monotonic()
    answers = ask(*probes, quick, limit_s=4.0)
    assert time.monotonic() - started < 30
    assert {answers.answers[probe.key].failure for probe in probes} == {"timeout"}
    assert answers.value(quick)["exit"] == 0


def test_a_file_that_hangs_takes_only_itself(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # opening a pipe that nobody writes to blocks for ever
    (tmp_path / "after").write_text("x")
    hangs, after = File(str(tmp_path / "fifo"), timeout_s=0.5), File(str(tmp_path / "after"))
    answers = ask(hangs, after)
    assert answers.answers[hangs.key].failure == "timeout"
    assert answers.text(after) == "x"


def test_progress_counts_every_probe_once() -> None:
    seen: list[tuple[int, int]] = []
    probes: list[Probe] = [Command(("true",)), Command(("true",)), File("/etc/hostname"), Command(("false",))]
    collect(probes, {}, on_answer=lambda _, answered, of: seen.append((answered, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_what_is_done_meanwhile_is_done_once_while_the_probes_are_at_work(tmp_path: Path) -> None:
    seen: list[bool] = []

    def meanwhile() -> None:
        for _ in range(500):
            if (tmp_path / "made").exists():
                break
            time.sleep(0.02)
        seen.append((tmp_path / "made").exists())

    first = Command(("touch", str(tmp_path / "made")), timeout_s=20)  # the longest deadline is asked first
    probes = [first, *(Command(("sleep", f"0.{n}")) for n in range(10, 40))]
    answers = collect(probes, {}, meanwhile=meanwhile)
    assert seen == [True]
    assert all(answers.value(probe)["exit"] == 0 for probe in probes)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=***"),
        ('"VLLM_API_KEY": "sk-1"', '"VLLM_API_KEY": "***"'),
        ("vllm serve --api-key abc123 --port 8000", "vllm serve --api-key *** --port 8000"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("pull hf_ABCDEFGHIJKLMNOPQRSTUV now", "pull hf_*** now"),
        ("sig_key:        3B:CB:9A", "sig_key:        3B:CB:9A"),
        ("Loading of module with unavailable key is rejected", "Loading of module with unavailable key is rejected"),
        ("max_num_batched_tokens=8192 --tokenizer x", "max_num_batched_tokens=8192 --tokenizer x"),
    ],
)
def test_secrets_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask(Answer({"stdout": [text]})).value == {"stdout": [masked]}


def test_a_large_file_comes_back_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('"\n' * (1 << 20))  # every character is escaped in JSON, so a line of 4 MiB crosses
    (tmp_path / "after").write_text("x")
    large, after = File(str(tmp_path / "log")), File(str(tmp_path / "after"))
    answers = ask(large, after)
    assert answers.text(large) == '"\n' * (1 << 20)
    assert answers.text(after) == "x"
