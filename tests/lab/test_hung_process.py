"""A probe in uninterruptible sleep, for real: a command reads a file of a frozen file system."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lpxdoctor.collect import collect
from lpxdoctor.evidence import Command, File
from tests.lab.engine import run, wait_until

pytestmark = pytest.mark.xdist_group("engine")  # its time is taken


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A file of an ext4 image that is frozen until the test ends: whoever writes to it sleeps uninterruptibly."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    with ExitStack() as undo:
        # Not in tmp_path: what a killed run leaves mounted there would end every later run in pytest's own cleaning up.
        mount = Path(undo.enter_context(TemporaryDirectory(prefix="lpxdoctor-lab-")))
        run("mkfs.ext4", "-q", image)
        device = run("losetup", "--find", "--show", image)
        undo.callback(run, "losetup", "--detach", device)
        run("mount", device, mount)
        undo.callback(wait_until, lambda: unmounted(mount), "umount", lambda: run("grep", mount, "/proc/mounts"), 60)
        (mount / "file").write_text("x")
        run("fsfreeze", "--freeze", mount)
        undo.callback(run, "fsfreeze", "--unfreeze", mount)
        yield mount / "file"


def unmounted(mount: Path) -> bool:
    """Return whether it could be: who slept wakes up by being killed, and until then it holds a file."""
    return subprocess.run(("umount", mount), capture_output=True, check=False).returncode == 0


def test_a_process_that_cannot_be_killed_is_named_and_left_behind(frozen: Path) -> None:
    hangs = Command(("touch", str(frozen)), timeout_s=1.0)
    others: list[Command | File] = [Command(("uname", "-r")), File("/etc/os-release")]
    started = time.monotonic()
    evidence = collect([hangs, *others], {}, limit_s=20)
    seconds = time.monotonic() - started
    assert seconds < 15
    answer = evidence.answers[hangs.key]
    assert answer.failure == "timeout"
    assert "cannot be killed" in answer.reason
    assert "uninterruptible sleep (D)" in answer.reason
    assert all(evidence.text(probe) for probe in others)
