"""A real engine that is light enough for several hosts: llama.cpp's server in an image, and a tiny model."""

import re
import shutil
from pathlib import Path

from tests.lab.engine import LAB, docker, run

IMAGE = "lpxdoctor-lab/llama:latest"
DOCKERFILE = """FROM {base}
COPY . /opt/llama/
ENV LD_LIBRARY_PATH=/opt/llama
"""
COMMAND = ("python3", "/opt/llama/serve_as_vllm.py", "/model/tiny.gguf")


def image(base: str, python: Path, work: Path) -> str:
    """Return an image with Python that has llama.cpp's server of an interpreter's environment, and its OpenMP."""
    package = Path(run(python, "-c", "import xllamacpp; print(xllamacpp.__path__[0])"))
    shutil.copytree(package, work / "xllamacpp", ignore=shutil.ignore_patterns("__pycache__"))
    (openmp,) = re.findall(r"libgomp\S* => (\S+)", run("ldd", next(package.glob("*.so"))))
    for file in (LAB / "serve_as_vllm.py", openmp):
        shutil.copy(file, work)
    (work / "Dockerfile").write_text(DOCKERFILE.format(base=base))
    docker("build", "--tag", IMAGE, work, timeout_s=600)
    return IMAGE


def model(python: Path, directory: Path) -> Path:
    """Return a directory with a tiny model with random weights that anybody may read."""
    directory.chmod(0o755)
    run(python, LAB / "make_gguf.py", directory / "tiny.gguf")
    (directory / "config.json").write_text("{}")  # what the role looks for
    return directory
