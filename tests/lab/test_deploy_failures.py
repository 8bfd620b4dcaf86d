"""What can go wrong with a container here: each case has one clear error and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lpxdoctor import termination
from tests.lab.engine import container, docker, free_port, wait_until
from tests.lab.registry import Registry
from tests.lab.said import DIES, Doctor, inspect, no_trace, one_error, with_variables

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def options(model_dir: Path, lab_image: str) -> tuple[str, ...]:
    """Return a local deployment of an image that has no engine: its container ends at once."""
    return ("--local", f"--name={DIES}", f"--model={model_dir}", f"--port={free_port()}", "--variant=cpu", "--image")


def test_a_container_that_dies_at_start(doctor: Doctor, options: tuple[str, ...], lab_image: str) -> None:
    said = doctor("deploy", *options, lab_image)
    one_error(said, "localhost: The container ended with exit code 127", "python3: not found", "was removed.")
    no_trace(DIES)


def test_an_image_is_pulled_by_its_digest(
    doctor: Doctor, options: tuple[str, ...], lab_image: str, lab_registry: Registry
) -> None:
    pinned = lab_registry.push(lab_image, "dies")
    assert subprocess.run(("docker", "image", "inspect", pinned), capture_output=True, check=False).returncode != 0
    planned = doctor("deploy", *options, pinned, "--plan")
    assert planned.status == 0, planned
    assert "Pull the image by its digest" in planned.out
    assert "Plan a container from an image that is not here yet" in planned.out
    assert subprocess.run(("docker", "image", "inspect", pinned), capture_output=True, check=False).returncode != 0
    one_error(doctor("deploy", *options, pinned), "exit code 127")
    docker("rmi", pinned)
    no_trace(DIES)


def test_an_image_that_no_registry_has(doctor: Doctor, options: tuple[str, ...], lab_registry: Registry) -> None:
    said = doctor("deploy", *options, f"{lab_registry.address}/none@sha256:{'0' * 64}")
    one_error(said, "localhost: the image could not be pulled: ", "Can the host reach the registry")
    no_trace(DIES)


def test_an_image_that_is_not_built(doctor: Doctor, options: tuple[str, ...]) -> None:
    said = doctor("deploy", *options, "lpxdoctor/none:1")
    one_error(said, "The image lpxdoctor/none:1 is not on the host.", "images/cpu/build")
    no_trace(DIES)


def test_an_engine_that_never_answers(doctor: Doctor, options: tuple[str, ...], lab_image: str, tmp_path: Path) -> None:
    sleeping = with_variables(tmp_path / "vars.yml", engine_command=["sh", "-c", "echo loading; sleep infinity", "sh"])
    said = doctor("deploy", *options, lab_image, "--vars", sleeping, "--timeout=3")
    one_error(said, "The engine was not ready after 3 s", "did not answer", "--timeout", "  loading")
    no_trace(DIES)


def test_a_gpu_that_docker_cannot_give(
    doctor: Doctor, options: tuple[str, ...], lab_image: str, tmp_path: Path
) -> None:
    with_gpu = with_variables(tmp_path / "vars.yml", engine_gpu="gpus")
    said = doctor("deploy", *options, lab_image, "--vars", with_gpu)
    one_error(said, "Docker has no NVIDIA support there", "could not select device driver", "was removed.")
    no_trace(DIES)


def test_a_port_that_a_process_holds(doctor: Doctor, options: tuple[str, ...], lab_image: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        said = doctor("deploy", *options, lab_image, "--port", str(holder.getsockname()[1]))
    one_error(said, f"(process {os.getpid()})", "--port")
    no_trace(DIES)


def test_a_port_that_a_container_holds(doctor: Doctor, options: tuple[str, ...], lab_image: str) -> None:
    port = free_port()
    with container(
        lab_image, f"--name=lab-holder-{os.getpid()}", "-p", f"127.0.0.1:{port}:80", command=("sleep", "infinity")
    ):
        said = doctor("deploy", *options, lab_image, "--port", str(port))
    one_error(said, f"Port {port} on 127.0.0.1 is taken by container lab-holder-{os.getpid()}.", "--port")
    no_trace(DIES)


def test_a_model_that_is_missing(doctor: Doctor, options: tuple[str, ...], lab_image: str, tmp_path: Path) -> None:
    said = doctor("deploy", *options, lab_image, "--model", tmp_path / "none")
    one_error(said, f"The model is not there: {tmp_path}/none is no directory.", "--model")
    said = doctor("deploy", *options, lab_image, "--model", tmp_path)
    one_error(said, f"{tmp_path} has no config.json.")
    no_trace(DIES)


def test_a_model_that_the_engine_may_not_read(
    doctor: Doctor, options: tuple[str, ...], lab_image: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").touch(mode=0o600)
    os.chown(tmp_path / "config.json", 12345, 12345)
    said = doctor("deploy", *options, lab_image, "--model", tmp_path)
    one_error(said, "The engine runs as user 65532:0 and may not read", f"chmod -R a+rX {tmp_path}")
    no_trace(DIES)


def test_a_variable_of_the_wrong_type(doctor: Doctor, options: tuple[str, ...], lab_image: str, tmp_path: Path) -> None:
    wrong = with_variables(tmp_path / "vars.yml", engine_network="token-ring")
    said = doctor("deploy", *options, lab_image, "--vars", wrong)
    one_error(said, "engine_network", "bridge, host", "token-ring")
    no_trace(DIES)


def awaits_health(pid: int) -> bool:
    """Tell whether a process waits for /health by one of its own; other workers roll out here, too."""
    argv = ("pgrep", "-f", "AnsiballZ_engine_ready")
    waiting = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    return not termination.descendants(pid).keys().isdisjoint(map(int, waiting))


def test_ctrl_c_takes_the_candidate_away(
    docker_engine: None, environment: dict[str, str], options: tuple[str, ...], lab_image: str, tmp_path: Path
) -> None:
    sleeping = with_variables(tmp_path / "vars.yml", engine_command=["sh", "-c", "sleep infinity", "sh"])
    argv = [sys.executable, "-m", "lpxdoctor", "deploy", *options, lab_image, "--vars", str(sleeping)]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: f"{DIES}.candidate" in docker("ps", "--format", "{{.Names}}"), "the candidate", str, 600)
        wait_until(lambda: awaits_health(process.pid), "the wait for /health", str, 600)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "Interrupted" in err
    assert f"{DIES}.candidate" not in docker("ps", "--all", "--format", "{{.Names}}")
    no_trace(DIES)


def test_what_a_killed_run_left_is_cleared_by_the_next(
    doctor: Doctor, options: tuple[str, ...], lab_image: str
) -> None:
    docker("run", "--detach", f"--name={DIES}.candidate", lab_image, "sleep", "infinity")
    docker("create", f"--name={DIES}", "--stop-signal=KILL", lab_image, "sleep", "infinity")
    former = inspect(DIES)["Id"]
    try:
        one_error(
            doctor("deploy", *options, lab_image), "exit code 127", "the engine that ran before was started again"
        )
        assert inspect(DIES)["Id"] == former
        assert inspect(DIES)["State"]["Running"]
    finally:
        doctor("undeploy", "--local", DIES)
    no_trace(DIES)
