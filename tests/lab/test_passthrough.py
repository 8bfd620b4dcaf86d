"""The probe image, the passthrough proof, and what Docker says of real engines, on this machine's own Docker."""

import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from images.probe import build, passthrough
from lpxdoctor import bundled
from lpxdoctor.collect import collect
from lpxdoctor.evidence import Evidence, Probe, Unreadable
from lpxdoctor.facts import passthrough as results
from lpxdoctor.facts.container import DOCKER, PASSTHROUGH, Container
from lpxdoctor.facts.engine import Engines
from lpxdoctor.facts.host import Host
from lpxdoctor.programs import _docker
from tests.lab.engine import container, docker, wait_until
from tests.lab.vllm import Server

pytestmark = pytest.mark.xdist_group("engine")  # nothing else may use the probe image meanwhile
PROBE = bundled.IMAGES / "probe"
PROGRAMS: Mapping[str, Path] = {"passthrough": PROBE / "passthrough.py", "docker": bundled.PROGRAMS / "docker.py"}
# The same request without a GPU.
PLAIN: tuple[tuple[str, tuple[str, ...], dict[str, Any], tuple[str, ...]], ...] = (("--gpus", (), {}, ()),)
SLEEPS_S = 600
SLEEPS = f"import ctypes, json, os, sys\nctypes.CDLL(None).sleep({SLEEPS_S})\n"


def left_behind() -> str:
    """Return the containers that a proof has left, as docker ps shows them."""
    return docker("ps", "--all", "--quiet", "--filter", "label=lpxdoctor-probe")


def nothing_stays() -> None:
    """Wait until Docker, which answers while it still removes, has done so: sooner than a program ends by itself."""
    wait_until(lambda: left_behind() == "", "its removal", lambda: docker("ps", "--all"), 60)


def asked(*probes: Probe) -> Evidence:
    return collect(probes, PROGRAMS)


def tried(limit_s: float = 180, program: Path | None = None) -> tuple[results.Trial, ...]:
    """Return what comes of all paths, in an image of a program, of cuda.py where none is given."""
    address = _docker.server()
    name, interpreter, _ = build.ensure(address, program) if program else build.ensure(address)
    raw = [vars(trial) for trial in passthrough.try_all(address, name, interpreter, time.monotonic() + limit_s)]
    return results.trials({"paths": json.loads(json.dumps(raw))})


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_made_once_of_this_hosts_own_python(docker_engine: None) -> None:
    name, interpreter, _ = build.ensure(_docker.server())
    assert build.ensure(_docker.server()) == (name, interpreter, False)
    said = docker(
        "run", "--rm", "--network", "none", name, interpreter, "-I", "-S", "-c", "import sys; print(sys.version)"
    )
    here = subprocess.run(
        (interpreter, "-I", "-S", "-c", "import sys; print(sys.version)"), capture_output=True, text=True, check=True
    )
    assert said == here.stdout.strip()
    size_mb = int(docker("image", "inspect", "--format", "{{.Size}}", name)) / 1e6
    assert size_mb < 60


def test_an_image_of_other_contents_takes_the_place_of_the_older(docker_engine: None, tmp_path: Path) -> None:
    program = tmp_path / "cuda.py"
    program.write_text("import json\nprint(json.dumps({}))\n")
    first = build.ensure(_docker.server(), program)[0]
    program.write_text("import json\nprint(json.dumps({'other': 1}))\n")
    second = build.ensure(_docker.server(), program)[0]
    there = docker("images", "--format", "{{.Repository}}:{{.Tag}}", "lpxdoctor/probe").splitlines()
    assert second in there
    assert first not in there


def test_the_program_runs_in_it_and_finds_no_driver(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passthrough, "PATHS", PLAIN)
    (plain,) = tried()
    assert plain.answered
    assert plain.stage == "run"
    assert plain.call == "dlopen"
    assert "libcuda.so.1" in plain.reason
    assert plain.known is not None
    assert plain.known.name == "no-gpu-in-container"
    nothing_stays()


# --- the proof --------------------------------------------------------------------------------------------------------


def test_each_path_gives_dockers_own_refusal(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU, so its paths may work")
    known = {trial.path: trial.known.name if trial.known else trial.reason for trial in tried()}
    assert known["--gpus"] in {"gpu-hook-unknown", "cdi-vendor-unknown"}
    assert known["--runtime"] == "runtime-unknown"
    assert known["CDI"] in {"cdi-off", "cdi-device-unknown"}
    nothing_stays()


def test_a_program_that_does_not_end_is_ended_and_removed(
    docker_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cuda.py"
    program.write_text(SLEEPS)
    monkeypatch.setattr(passthrough, "PATHS", PLAIN)
    began = time.monotonic()
    (late,) = tried(limit_s=10, program=program)
    assert time.monotonic() - began < SLEEPS_S / 2
    assert late.stage == "late"
    assert not late.works
    assert "no end within" in late.reason
    nothing_stays()


def test_an_image_that_took_all_of_the_time_is_no_refusal_of_docker() -> None:
    trials = passthrough.try_all("/nobody/listens", "image", "python3", time.monotonic() - 1)
    assert {(trial.stage, trial.error) for trial in trials} == {("late", "its image took the whole of the 22 s")}


def test_what_was_made_and_never_started_is_removed(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    name, interpreter, _ = build.ensure(_docker.server())
    docker("create", "--label", "lpxdoctor-probe=test", name, interpreter)
    passthrough.remove_leftovers(_docker.server())  # another run may just be about to start it
    assert left_behind()
    monkeypatch.setattr(passthrough, "_LEFTOVER_S", -1)
    passthrough.remove_leftovers(_docker.server())
    nothing_stays()


def test_the_collector_asks_for_the_proof(docker_engine: None) -> None:
    container_facts = Container.parse(asked(DOCKER, PASSTHROUGH))
    if Path("/dev/nvidiactl").exists():
        assert len(container_facts.trials) == 3
    else:
        assert container_facts.untried == "there is no NVIDIA GPU to hand over"


def test_docker_where_docker_host_says(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Container.parse(asked(DOCKER))
    assert here.version == docker("version", "--format", "{{.Server.Version}}")
    assert here.daemon is not None
    assert here.daemon.root_dir == docker("info", "--format", "{{.DockerRootDir}}")
    assert here.disks[0].free_bytes > 0
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert "/nowhere/docker.sock: No such file" in Container.parse(asked(DOCKER)).silent
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    raw = asked(DOCKER).value(DOCKER)
    assert raw["failure"] == "failed"
    assert "run lpxdoctor on the host" in raw["reason"]


# --- engines ----------------------------------------------------------------------------------------------------------


def found(name_or_id: str, *, serves: bool = False) -> Any:
    """Return an engine as it is described; it or one beside it may be too busy to answer in time at first."""
    for _ in range(5):
        with suppress(Unreadable):
            engine = described(name_or_id)
            if not serves or all(reply.status for reply in engine.replies.values()):
                return engine
    return described(name_or_id)


def described(name_or_id: str) -> Any:
    return next(each for each in Engines.parse(asked(DOCKER)).engines if name_or_id in (each.name, each.id))


def test_a_real_engine_that_serves(vllm_server: Server) -> None:
    engine = found(vllm_server.container_id, serves=True)
    assert engine.up
    assert not engine.fails
    assert engine.served == (vllm_server.model,)
    assert engine.guarded is False
    assert engine.exposed == ()
    assert engine.model == "/model"
    assert engine.replies["/health"].status == 200
    assert "vllm:cache_config_info" in engine.replies["/metrics"].body


def test_a_real_engine_without_its_model(cpu_image: str) -> None:
    command = ("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/not-mounted")
    options = ("-e", "HF_HUB_OFFLINE=1", "-e", "VLLM_NO_USAGE_STATS=1", "--entrypoint", "python3")
    with container(cpu_image, *options, command=command) as identity:
        wait_until(lambda: found(identity).status == "exited", "its end", lambda: docker("logs", identity), 480)
        engine = found(identity)
        assert engine.fails
        assert engine.cause is not None
        assert engine.cause.name == "model-not-found"
        assert engine.cause.values == {"model": "/models/not-mounted"}


def test_no_secret_of_an_engine_is_in_the_evidence(lab_image: str) -> None:
    secrets = ("sk-in-the-environment", "sk-on-the-command-line", "hunter2hunter2")
    said = "echo \"Received request 1: prompt: '$WORDS'\"; echo started vllm with $VLLM_API_KEY; sleep infinity"
    environment = (f"VLLM_API_KEY={secrets[0]}", f"DATABASE_PASSWORD={secrets[2]}", "WORDS=private words")
    options = tuple(part for entry in environment for part in ("-e", entry))
    evidence = ""

    def in_its_log(words: str) -> bool:
        nonlocal evidence
        with suppress(Unreadable):  # not answered in time
            evidence = json.dumps(asked(DOCKER).value(DOCKER))
        return words in evidence

    with container(lab_image, *options, command=("sh", "-c", said, "vllm", "--api-key", secrets[1])) as identity:
        wait_until(lambda: in_its_log("started vllm with ***"), "its log", lambda: evidence, 120)
        assert found(identity).has("--api-key")
        for secret in (*secrets, "private words"):
            assert secret not in evidence


def test_a_container_that_the_kernel_killed_for_memory(lab_image: str) -> None:
    hungry = "exec tail /dev/zero"  # vllm in the name makes it an engine
    with container(lab_image, "--memory", "20m", command=("sh", "-c", hungry, "vllm")) as identity:
        wait_until(lambda: found(identity).status == "exited", "its end", lambda: docker("logs", identity), 60)
        engine = found(identity)
        assert engine.oom_killed or engine.killed
        assert not engine.stopped
        log = Host.parse(asked(*Host.probes)).kernel_log
        assert any("oom-kill:" in line and identity in line for line in log)
