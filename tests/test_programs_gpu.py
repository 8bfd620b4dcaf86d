"""The programs that ask NVML and try CUDA answer whatever they meet: no library, a wrong one, one that hangs."""

import ast
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import bundled
from lpxdoctor.facts.cuda import CUDA, Cuda
from lpxdoctor.facts.gpu import NVML, Gpus
from tests.facts.given import evidence

PROGRAMS = {
    "libnvidia-ml.so.1": bundled.PROGRAMS / "nvml.py",
    "libcuda.so.1": bundled.IMAGES / "probe" / "cuda.py",
}


def run(library: str, directory: Path, deadline_s: float = 10.0) -> Any:
    """Run the program of a library with a directory in front of the library path; return what it printed."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
    command = (sys.executable, str(PROGRAMS[library]), str(deadline_s))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_library_that_hangs_is_named_within_the_deadline(library: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / library)  # the loader opens it, and waits for ever for somebody to write into it
    error = run(library, tmp_path, 3.0)["error"]
    assert error["call"] == f"dlopen {library}"
    assert error["code"] == -1


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_file_that_is_no_library_is_one_that_cannot_be_loaded(library: str, tmp_path: Path) -> None:
    (tmp_path / library).write_bytes(b"\x7fELF, or not")
    error = run(library, tmp_path)["error"]
    assert error["code"] == {"libcuda.so.1": -3, "libnvidia-ml.so.1": 12}[library]


def test_a_library_without_cuda_s_functions_is_told(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(_maths())
    answer = run("libcuda.so.1", tmp_path)
    assert answer["error"] == {"call": "cuDriverGetVersion", "code": 500, "name": "this libcuda has no such function"}
    assert Cuda.parse(evidence({CUDA: answer})).error is not None


def test_a_library_without_nvml_s_functions_is_told(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").symlink_to(_maths())
    answer = run("libnvidia-ml.so.1", tmp_path)
    assert (answer["error"]["call"], answer["error"]["code"]) == ("nvmlInit_v2", 13)
    error = Gpus.parse(evidence({NVML: answer})).error
    assert error is not None
    assert error.name == "FUNCTION_NOT_FOUND"


def _maths() -> Path:
    """Return where the loader finds libm, which has neither CUDA's nor NVML's functions."""
    ctypes.CDLL("libm.so.6")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return Path(next(line.split(maxsplit=5)[-1] for line in maps if "/libm.so.6" in line or "/libm-" in line))


def test_without_the_binding_nothing_is_known_and_the_reason_is_said() -> None:
    bare = (sys.executable, "-S", "-E", str(PROGRAMS["libnvidia-ml.so.1"]))
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "no pynvml" in done.stderr


@pytest.mark.parametrize("path", PROGRAMS.values(), ids=lambda path: path.name)
def test_the_programs_run_on_the_oldest_python_of_a_host(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("function", ["ended", "give_up_loading"])
def test_cuda_s_program_which_stands_alone_in_an_image_guards_itself_as_nvml_s_does(function: str) -> None:
    """cuda.py is a copy there: the probe image holds one file."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PROGRAMS.values()]
    (one, other) = (
        [ast.unparse(line) for line in each.body if not isinstance(line, ast.Expr) or isinstance(line.value, ast.Call)]
        for tree in trees
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and each.name == function
    )
    assert one == other
