"""A container registry for tests: a directory in, the distribution's docker-registry on 127.0.0.1 out."""

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.lab.engine import docker, free_port, wait_until


@dataclass(frozen=True)
class Registry:
    """A running registry; address is HOST:PORT, which an engine on this machine trusts without TLS."""

    address: str

    def push(self, image: str, name: str) -> str:
        """Push a local image under a name and return it pinned: HOST:PORT/NAME@sha256:DIGEST."""
        tagged = f"{self.address}/{name}:pushed"
        docker("tag", image, tagged)
        docker("push", "--quiet", tagged, timeout_s=900)
        pinned = docker("image", "inspect", "--format", '{{join .RepoDigests "\\n"}}', tagged)
        docker("rmi", tagged)
        return next(line for line in pinned.splitlines() if line.startswith(f"{self.address}/{name}@"))


@contextmanager
def started(directory: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Generator[Registry]:
    """Serve an empty registry from the directory, with settings of the environment added, until the block ends."""
    assert shutil.which("docker-registry"), "No docker-registry here: run ./test, or apt-get install docker-registry."
    address, log, config = f"127.0.0.1:{free_port()}", directory / "log", directory / "config.yml"
    config.write_text("version: 0.1\n")
    environment = {
        **os.environ,
        "REGISTRY_HTTP_ADDR": address,
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(directory / "data"),
        "REGISTRY_LOG_LEVEL": "warn",
        "OTEL_TRACES_EXPORTER": "none",
        **settings,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(("docker-registry", "serve", config), env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: _answers(address), "docker-registry", log.read_text, timeout_s=60)
        yield Registry(address)
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        return error.code == 401  # it asks for a token
    except OSError:
        return False
