"""The programs about libraries and nvidia-smi, on this machine's loader and on scripts that end as nvidia-smi can."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.programs import libraries, nvidia_smi

LOADED = any(Path(proof).exists() for proof in ("/sys/module/nvidia", "/proc/driver/nvidia/version"))


def test_ld_library_path_is_searched_with_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.580.95.05").write_bytes(b"")
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    (tmp_path / "libcudart.so.13").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:relative::/")
    found: dict[str, Any] = json.loads(
        subprocess.run([sys.executable, libraries.__file__], capture_output=True, text=True, check=True).stdout
    )
    assert found["ld_library_path"] == f"{tmp_path}:relative::/"
    ours = {path: real for path, real in found["files"].items() if path.startswith(str(tmp_path))}
    assert ours == {
        f"{tmp_path}/libcuda.so.1": f"{tmp_path}/libcuda.so.580.95.05",
        f"{tmp_path}/libcuda.so.580.95.05": f"{tmp_path}/libcuda.so.580.95.05",
    }


def test_the_loaders_cache_is_read() -> None:
    cache, reason = libraries.cache()
    assert cache is not None, reason
    assert all(name.startswith("lib") and paths for name, paths in cache.items())


def test_a_loader_that_cannot_be_asked_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert libraries.cache() == (None, "ldconfig: No such file or directory")


def run_smi(directory: Path, script: str, deadline_s: float = 60) -> dict[str, Any]:
    """Run the program in a child, since it gives up capabilities, with a program of this name first on PATH."""
    tool = directory / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    code = (
        "import json, sys; from pathlib import Path; from lpxdoctor.programs import nvidia_smi as m;"
        "m._LOADED = ('/proc',); print(json.dumps(m.answer(float(sys.argv[1]))))"
    )
    path = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    argv = [sys.executable, "-c", code, f"{deadline_s}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=path)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_its_status_and_words_are_kept(tmp_path: Path) -> None:
    found = run_smi(tmp_path, "echo 'Unable to determine the device handle'; echo oops >&2; exit 15")
    assert (found["exit"], found["stdout"], found["stderr"]) == (
        15,
        "Unable to determine the device handle\n",
        "oops\n",
    )
    assert (found["skipped"], found["hung"]) == ("", "")


def test_one_that_does_not_end_is_described(tmp_path: Path) -> None:
    found = run_smi(tmp_path, "exec sleep 20", deadline_s=1)
    assert found["exit"] is None
    assert "in state S" in found["hung"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has these capabilities to give up")
def test_it_can_neither_load_a_module_nor_make_a_device_node(tmp_path: Path) -> None:
    node = tmp_path / "node"
    found = run_smi(tmp_path, f"mknod {node} c 1 3; echo $?; grep CapEff /proc/self/status")
    assert not node.exists()
    effective = int(found["stdout"].split()[-1], 16)
    assert effective & (1 << 16 | 1 << 27) == 0


@pytest.mark.skipif(LOADED, reason="the module is loaded here")
def test_without_the_module_it_is_not_run_at_all() -> None:
    found = nvidia_smi.answer()
    assert found["exit"] is None
    assert found["skipped"] in ("nvidia-smi is not installed", "the nvidia module is not loaded")
