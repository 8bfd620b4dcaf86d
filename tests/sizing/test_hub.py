"""Models of the hub through the real huggingface_hub: from a server that answers as the hub does, and from a cache."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from lpxdoctor.errors import SetupError
from lpxdoctor.sizing.source import load
from tests.beside import beside
from tests.sizing import checkpoints
from tests.sizing.test_source import SMALL

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """A hub with the files below a directory as OWNER/NAME/FILE; asked counts the bytes that it sent of each."""

    daemon_threads = True

    def __init__(self, files: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.sent: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = cast("Hub", self.server)
        repository, _, file = self.path.split("?")[0].lstrip("/").partition("/resolve/")
        path = hub.files / repository / file.partition("/")[2]
        if repository == "owner/gated":
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        elif not (hub.files / repository).is_dir():
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._file(path)

    def _file(self, path: Path) -> None:
        content, status = path.read_bytes(), 200
        headers = {"ETag": f'"{path.stat().st_size:040x}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if wanted := self.headers.get("Range", ""):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[int(first) : int(last or len(content)) + 1], 206
        if self.command == "GET":
            sent = cast("Hub", self.server).sent
            sent[path.name] = sent.get(path.name, 0) + len(content)
        self._send(status, content, headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Stay quiet."""


# Runs one plan after another in a process whose environment says where the hub and its cache are.
DRIVER = """
import contextlib, io, json, sys
from lpxdoctor.cli import run
for model in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        status = run(["plan", model, "--gpu", "NVIDIA L4", "--format", "json"])
    print(json.dumps([status, json.loads(out.getvalue() or "{}"), error.getvalue()]))
"""
Answer = tuple[int, dict[str, Any], str]


def plans(home: Path, *models: str, **environment: str) -> list[Answer]:
    """Return (exit status, JSON, standard error) of a plan for each model."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    variables = {**inherited, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", **environment}
    argv = (sys.executable, "-c", DRIVER, *models)
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    files = tmp_path_factory.mktemp("hub")
    checkpoints.directory(files / "owner/small", SMALL, checkpoints.llama(SMALL))
    checkpoints.directory(files / "owner/config-only", SMALL)
    (files / "owner/empty").mkdir()
    server = Hub(files)
    with server, beside(server.serve_forever, 0.05):
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def online(hub: Hub, cache: Path) -> dict[str, Answer]:
    models = [f"owner/{name}" for name in ("small", "config-only", "nothing", "gated", "empty")]
    return dict(zip(models, plans(cache, *models, HF_ENDPOINT=hub.url), strict=True))


@pytest.fixture(scope="module")
def offline(online: dict[str, Answer], cache: Path) -> dict[str, Answer]:
    repository = cache / "hub/models--owner--whole"
    checkpoints.directory(repository / "snapshots" / COMMIT, SMALL, checkpoints.llama(SMALL))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    models = ("owner/small", "owner/whole", "owner/never-seen")
    return dict(zip(models, plans(cache, *models, HF_HUB_OFFLINE="1"), strict=True))


def test_the_hub_is_asked_for_config_and_headers_alone(hub: Hub, online: dict[str, Answer]) -> None:
    status, answer, _ = online["owner/small"]
    assert (status, answer["model"]["exact"]) == (0, True)
    assert answer["weights_bytes"] == load(str(hub.files / "owner/small")).weights.resident_bytes()
    whole = (hub.files / "owner/small/model.safetensors").stat().st_size
    assert 0 < hub.sent["model.safetensors"] < whole


def test_a_model_without_safetensors_is_counted_from_its_config(online: dict[str, Answer]) -> None:
    status, answer, _ = online["owner/config-only"]
    assert (status, answer["model"]["exact"]) == (0, False)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("owner/nothing", "The hub has no model owner/nothing, or not for everybody"),
        ("owner/gated", "owner/gated is gated: accept its terms"),
        ("owner/empty", "owner/empty has no config.json"),
    ],
)
def test_what_the_hub_refuses_is_said(online: dict[str, Answer], model: str, said: str) -> None:
    status, answer, error = online[model]
    assert (status, answer) == (64, {})
    assert said in error


def test_offline_the_cached_config_is_enough(online: dict[str, Answer], offline: dict[str, Answer]) -> None:
    status, answer, _ = offline["owner/small"]
    assert (status, answer["model"]["exact"]) == (0, False)  # the weights were never downloaded
    assert answer["weights_bytes"] == online["owner/small"][1]["weights_bytes"]


def test_offline_cached_weights_are_exact(offline: dict[str, Answer]) -> None:
    status, answer, _ = offline["owner/whole"]
    assert (status, answer["model"]["exact"]) == (0, True)


def test_offline_without_a_cache_is_said(offline: dict[str, Answer]) -> None:
    status, _, error = offline["owner/never-seen"]
    assert status == 3
    assert "The hub does not tell of owner/never-seen, nor does its local cache" in error


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as where it is not installed
    with pytest.raises(SetupError, match="pip install huggingface_hub"):
        load("owner/small")
