"""Roll-out on real parts: Ansible over SSH, Docker, and vLLM on the CPU behind its key."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor.deployments import Deployment
from tests.lab.engine import docker, free_port, wait_until
from tests.lab.hosts import Host, write_inventory
from tests.lab.said import KEPT, SERVES, Doctor, inspect, one_error

pytestmark = pytest.mark.usefixtures("nothing_left")
NAME = SERVES
TINY = ("--arg=--load-format", "--arg=dummy", "--env=OMP_NUM_THREADS=1", "--max-model-len=1024", "--variant=cpu")


def status_of(url: str, key: str | None = None) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@dataclass(frozen=True)
class Deployed:
    """The engine that the tests below share."""

    options: Sequence[str | Path]  # of the deploy command that made it
    inventory: Path
    answer: dict[str, Any]
    record: Deployment

    @property
    def key(self) -> str:
        assert self.record.api_key_file is not None
        return Path(self.record.api_key_file).read_text()  # the shared engine's host has this machine's directory


@pytest.fixture(scope="module")
def deployed(
    doctor: Doctor, cpu_image: str, model_dir: Path, shared_engine_host: Host, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    inventory = write_inventory(tmp_path_factory.mktemp("inventory") / "hosts.yml", (shared_engine_host,))
    options = ("-i", inventory, "--name", NAME, "--model", model_dir, f"--port={free_port()}", *TINY)
    said = doctor("deploy", *options, "--format", "json")
    try:
        assert said.status == 0, said
        answer = json.loads(said.out)["hosts"][0]
        yield Deployed(options, inventory, answer, deployment_of(answer))
    finally:
        doctor("undeploy", NAME, "-i", inventory)


def deployment_of(answer: dict[str, Any]) -> Deployment:
    return msgspec.convert(answer["deployment"], Deployment)


def test_the_engine_serves_who_has_the_key(deployed: Deployed, model_dir: Path) -> None:
    url = deployed.record.url
    assert status_of(f"{url}/health") == 200
    assert status_of(f"{url}/v1/models") == 401
    assert status_of(f"{url}/v1/models", "wrong") == 401
    assert status_of(f"{url}/v1/models", deployed.key) == 200
    assert deployed.record.served_model == model_dir.name
    assert deployed.record.engine_version == "0.32.0"
    assert deployed.answer["reason"] == "asked for"
    assert deployed.answer["started_s"] > 0


def test_the_key_is_private_and_shown_nowhere(deployed: Deployed, environment: dict[str, str]) -> None:
    assert deployed.record.api_key_file is not None
    key_file = Path(deployed.record.api_key_file)
    assert len(deployed.key) >= 43  # 256 bits
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert key_file.parent.stat().st_mode & 0o777 == 0o700
    assert deployed.key not in json.dumps(inspect(NAME))
    assert deployed.key not in docker("logs", NAME)
    assert deployed.key not in docker("top", NAME, "-o", "pid,args")
    assert deployed.key not in json.dumps(deployed.answer)
    for file in Path(environment["XDG_STATE_HOME"]).rglob("*"):
        assert not file.is_file() or deployed.key not in file.read_text(errors="replace")


def test_the_container_can_do_little(deployed: Deployed, cpu_image: str) -> None:
    found = inspect(NAME)
    host = found["HostConfig"]
    assert found["Image"] == deployed.record.image == docker("image", "inspect", "--format", "{{.Id}}", cpu_image)
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "5"}
    assert [one["HostIp"] for one in host["PortBindings"]["8000/tcp"]] == ["127.0.0.1"]
    assert found["Config"]["User"] == "65532:0"
    assert [mount["RW"] for mount in found["Mounts"] if mount["Destination"] == "/model"] == [False]


def test_docker_sees_it_healthy(deployed: Deployed) -> None:
    kind, *program = inspect(NAME)["Config"]["Healthcheck"]["Test"]
    assert kind == "CMD"
    argv = ("docker", "exec", NAME, *program)
    sees = lambda: subprocess.run(argv, capture_output=True, check=False).returncode == 0  # noqa: E731
    wait_until(sees, "health", lambda: docker("logs", "--tail", "30", NAME), 90)  # Docker asks three times, too


def test_a_second_run_changes_nothing(deployed: Deployed, doctor: Doctor, environment: dict[str, str]) -> None:
    before, record = inspect(NAME), Path(environment["XDG_STATE_HOME"], "lpxdoctor/deployments", f"{NAME}.json")
    kept = record.read_bytes()
    said = doctor("deploy", *deployed.options, "--format", "json")
    assert said.status == 0, said
    assert json.loads(said.out)["hosts"][0]["changes"] == []
    after = inspect(NAME)
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])
    assert record.read_bytes() == kept
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_plan_shows_what_differs_and_changes_nothing(deployed: Deployed, doctor: Doctor) -> None:
    before = inspect(NAME)
    said = doctor("deploy", *deployed.options, "--max-num-seqs", "7", "--plan")
    assert said.status == 0, said
    assert said.out.splitlines()[0].startswith("lab-shared: would change;")
    assert [line.strip() for line in said.out.splitlines() if line.strip()[:1] in "+-"] == [
        "+command: --max-num-seqs",
        "+command: 7",
    ]
    after = inspect(NAME)
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])


def test_its_speed_can_be_measured_by_its_name(deployed: Deployed, doctor: Doctor) -> None:
    size = ("--concurrency=1", "--requests=4", "--input-len=16", "--output-len=8", "--format=json")
    said = doctor("baseline", NAME, *size)
    assert said.status in {0, 1}, said  # 1: so few requests are measured and cannot be compared
    (rung,) = json.loads(said.out)["rungs"]
    assert rung["errors"] == 0
    assert rung["output_tokens_per_s"] > 0


def test_an_engine_that_cannot_start_leaves_the_former_one(deployed: Deployed, doctor: Doctor) -> None:
    before = inspect(NAME)["Id"]
    said = doctor("deploy", *deployed.options, "--max-model-len", "99999")
    one_error(
        said,
        "lab-shared: The container ended with exit code 1 while the engine was starting.",
        "It said: ",
        "User-specified max_model_len (99999) is greater than",
        "Its last lines:",
        "The container that failed was removed; the engine that ran before was started again.",
        "What the engine said: ",
    )
    after = inspect(NAME)
    assert after["Id"] == before
    assert after["State"]["Running"]


def test_undeploy_takes_key_and_record_and_then_finds_nothing(
    deployed: Deployed, doctor: Doctor, model_dir: Path, cpu_image: str, environment: dict[str, str]
) -> None:
    said = doctor("undeploy", NAME)
    assert (said.status, said.out) == (0, f"lab-shared: {NAME} is gone\n"), said
    assert NAME not in docker("ps", "--all", "--format", "{{.Names}}").splitlines()
    assert not (KEPT / NAME).exists()
    assert not list(Path(environment["XDG_STATE_HOME"]).rglob(f"{NAME}.json"))
    assert (model_dir / "config.json").exists()
    docker("image", "inspect", cpu_image)
    again = doctor("undeploy", NAME, "-i", deployed.inventory, "--format", "json")
    assert again.status == 0, again
    assert json.loads(again.out)["hosts"] == [{"host": "lab-shared", "removed": False}]
    one_error(doctor("undeploy", NAME), f"No deployment named {NAME} is recorded", status=64)
