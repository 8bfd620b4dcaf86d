"""The server whose times are known, truth.c beside this file: a mode in, its URL and what it really did out."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import OUTPUT_LEN

ROOT = Path(__file__).resolve().parents[1]
TTFT_MS, GAP_MS = 50, 10


def compiled(directory: Path) -> Path:
    """Compile it there."""
    program = directory / "truth"
    subprocess.run(("cc", "-O2", "-o", str(program), str(Path(__file__).with_name("truth.c"))), check=True)
    return program


@contextmanager
def serving(program: Path, mode: str) -> Generator[str]:
    """Start it on a free port of loopback; "spread x4" sends four tokens a chunk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kind, _, tokens = mode.partition(" x")
    argv = [str(program), str(port), str(TTFT_MS * 1000), str(GAP_MS * 1000), tokens or "1", kind]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        while not _listens(port):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stats(url: str) -> dict[str, Any]:
    """Return what it has done since this was asked last."""
    sys.path.insert(0, str(ROOT))
    from lpxdoctor.decode.endpoint import endpoint  # noqa: PLC0415
    from lpxdoctor.decode.engine import fetch  # noqa: PLC0415

    answer: dict[str, Any] = json.loads(fetch(endpoint(url), "/stats?reset")[1])
    return answer


def ideal_tokens_per_s(concurrency: int) -> float:
    """Return what so many clients that lose no time would get."""
    return concurrency * OUTPUT_LEN / ((TTFT_MS + GAP_MS * (OUTPUT_LEN - 1)) / 1000)
