"""A probe in uninterruptible sleep, for real: a command reads a file of a frozen file system."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lpxdoctor.collect import collect
from lpxdoctor.evidence import Command, File
from tests.lab.engine import run, wait_until

pytestmark = pytest.mark.xdist_group("engine")  # its time is taken


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A file of an ext4 image that is frozen until the test ends: whoever writes to it sleeps uninterruptibly."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    mount.mkdir()
    with ExitStack() as undo:
        run("mkfs.ext4", "-q", str(image))
        device = run("losetup", "--find", "--show", str(image))
        undo.callback(run, "losetup", "--detach", device)
        run("mount", device, str(mount))
        undo.callback(wait_until, lambda: unmounted(mount), "umount", lambda: run("grep", str(mount), "/proc/mounts"), 60)
        (mount / "file").write_text("x")
        run("fsfreeze", "--freeze", str(mount))
        undo.callback(run, "fsfreeze", "--unfreeze", str(mount))
        yield mount / "file"


def unmounted(mount: Path) -> bool:
    """Return whether it could be: who slept wakes up by being killed, and until then it holds a file."""
    return subprocess.run(("umount", str(mount)), capture_output=True, check=False).returncode == 0


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
