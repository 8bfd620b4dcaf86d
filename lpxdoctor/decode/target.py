"""What was typed as TARGET in, the endpoint, the model and what is on record about its deployment out."""

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lpxdoctor import deployments
from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import Endpoint, endpoint
from lpxdoctor.deployments import Deployment
from lpxdoctor.errors import MeasureError, UsageError
from lpxdoctor.files import read_text
from lpxdoctor.ports import free_port

KEY_VARIABLE = "LPXDOCTOR_API_KEY"
_SSH_TIMEOUT_S = 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server that answers, and the model to ask for."""

    endpoint: Endpoint
    model: engine.Model
    deployment: Deployment | None
    reached: str  # how the requests travel
    is_local: bool  # the engine runs on this machine


@contextlib.contextmanager
def reached(text: str, *, model: str | None, key_file: Path | None) -> Generator[Target]:
    """Resolve a URL or a deployment's name and keep a way to it open until the block ends.

    Raises:
        UsageError: it is neither, or it does not tell which model.
        MeasureError: nothing answers, the key is not accepted or the model is not served.
    """
    deployment = _deployment(text)
    url = deployment.url if deployment else text
    key = _key(deployment, key_file)
    through_ssh = deployment is not None and deployment.ssh and urlsplit(url).hostname in _LOOPBACK
    with contextlib.ExitStack() as stack:
        if deployment and through_ssh:
            url = stack.enter_context(_tunnel(deployment))
        there = endpoint(url, key)
        yield Target(
            endpoint=there,
            model=_model(there, model or (deployment.served_model if deployment else None)),
            deployment=deployment,
            reached=_how(there, tunnelled=bool(through_ssh)),
            is_local=not through_ssh and there.proxy is None and _is_here(there),
        )


def _deployment(text: str) -> Deployment | None:
    if "://" in text:
        return None
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit() and host and text not in deployments.names():
        raise UsageError(f"{text} is neither a URL nor a deployment; did you mean http://{text}?")
    return deployments.load(text)


def _is_here(there: Endpoint) -> bool:
    """Tell whether the address is one of this machine's: no other can be bound to."""
    with socket.socket(there.family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((there.address, 0))
        except OSError:
            return False
    return True


def _how(there: Endpoint, *, tunnelled: bool) -> str:
    if tunnelled:
        return "through an SSH tunnel: receive times are those of the tunnel's end here, its delay is in them"
    if there.proxy:
        return f"through the proxy {there.proxy.netloc}: times are those of what it passes on, its delay is in them"
    return "over loopback" if there.is_loopback else f"over the network to {there.address}"


def _key(deployment: Deployment | None, key_file: Path | None) -> str:
    """Return the API key, "" for none: from the file named, the environment, or the deployment's own file."""
    if key_file is None and (given := os.environ.get(KEY_VARIABLE)):
        return given.strip()
    if key_file is None and deployment and deployment.api_key_file and deployment.ssh:
        return _remote_key(deployment, deployment.api_key_file)
    if key_file is None and deployment and deployment.api_key_file:
        key_file = Path(deployment.api_key_file)
    if key_file is None:
        return ""
    return key_in(key_file)


def key_in(file: Path) -> str:
    """Return the API key in a file; UsageError where it has none or cannot be read."""
    try:
        key = read_text(file).strip()
    except UsageError as error:
        raise UsageError(
            f"The file of the API key {error}\nRun this as the user who may, or set {KEY_VARIABLE} to the key."
        ) from None
    if not key:
        raise UsageError(f"The file of the API key {file} is empty.\nWrite the key into it, or set {KEY_VARIABLE}.")
    return key


def _remote_key(deployment: Deployment, path: str) -> str:
    quoted = shlex.quote(path)
    command = (*deployment.ssh, f"cat {quoted} 2>/dev/null || sudo -n cat {quoted}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SSH_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasureError(f"The API key on {deployment.host} could not be fetched: {error}.") from None
    if done.returncode != 0:
        raise MeasureError(
            f"The API key in {path} on {deployment.host} could not be read: {_last_line(done.stderr)}\n"
            f"Set {KEY_VARIABLE} to the key, or name a file here with --api-key-file."
        )
    return done.stdout.strip()


def _model(there: Endpoint, wanted: str | None) -> engine.Model:
    served = engine.models(there)
    if served is None and wanted is None:
        raise UsageError(f"{there.url} does not list its models; name the one to ask for: --model NAME.")
    if served is None:
        return engine.Model(id=wanted or "")
    base = [model for model in served if model.parent is None]
    found = [model for model in served if model.id == wanted] if wanted is not None else base
    if len(found) == 1:
        return found[0]
    listed = ", ".join(model.id for model in served) or "none"
    if wanted is None:
        raise UsageError(f"{there.url} serves several models; choose one with --model: {listed}.")
    raise MeasureError(f"{there.url} does not serve a model named {wanted}.\nIt serves: {listed}.")


@contextlib.contextmanager
def _tunnel(deployment: Deployment) -> Generator[str]:
    """Forward a local port to the engine on its host's loopback while the block lasts; yield the URL here."""
    there = urlsplit(deployment.url)
    port = free_port()
    host = f"[{there.hostname}]" if there.hostname and ":" in there.hostname else there.hostname
    forward = f"127.0.0.1:{port}:{host}:{there.port or 80}"
    # ssh takes options behind the host too, but not behind a command's beginning such as sudo.
    login = deployment.ssh[:-2] if deployment.ssh[-2:] == ("sudo", "-n") else deployment.ssh
    command = (*login, "-N", "-o", "ExitOnForwardFailure=yes", "-L", forward)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C ends the measurement in its own way, the way there only after it
        )
    except OSError as error:
        raise MeasureError(f"The SSH tunnel to {deployment.host} could not be started: {error}.") from None
    try:
        _wait_for(process, port, deployment.host)
        yield f"{there.scheme}://127.0.0.1:{port}{there.path}"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)


def _wait_for(process: "subprocess.Popen[str]", port: int, host: str) -> None:
    deadline = time.monotonic() + _SSH_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = _last_line(process.communicate()[1])
            raise MeasureError(f"The SSH tunnel to {host} ended: {said}\nCan you log in there with ssh?")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise MeasureError(f"The SSH tunnel to {host} was not there within {_SSH_TIMEOUT_S} s.")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing."])[-1]
