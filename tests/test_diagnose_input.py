"""What diagnose is given: bad input is refused with what to type, and size is no obstacle."""

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lpxdoctor.cli import run
from lpxdoctor.recognize import recognize
from tests.diagnosing import FALLEN

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
    ids=["nothing", "chance", "zeros", "zip", "zstd", "png"],  # every worker of a run must give them the same names
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
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before  # of its own: others compute here too
    assert done.returncode == 2
    assert json.loads(done.stdout)["findings"][0]["id"] == "gpu.lost"
    assert int(done.stderr.split()[-1]) < 300 << 10  # KiB
    assert seconds < 5
