"""A roll-out's pure parts: choosing an engine, the role's variables, and what is said when something fails."""

from pathlib import Path

import pytest

from lpxdoctor import bundled, cli
from lpxdoctor.cli.deploy import VARIABLES, command, extended
from lpxdoctor.deploy import failures
from lpxdoctor.deploy.difference import changed_lines
from lpxdoctor.deploy.request import Request, known_variables, read_variables, role_variables
from lpxdoctor.deploy.variant import Choice, GpuHost, catalogue, choose
from lpxdoctor.errors import DeployError, UsageError
from lpxdoctor.playbook import State, TaskEvent
from lpxdoctor.state import state_dir

H200, L4, T4 = ("NVIDIA H200", "9.0"), ("NVIDIA L4", "8.9"), ("Tesla T4", "7.5")


def host(driver: str | None, *cards: tuple[str, str], on_bus: int = 1, error: str | None = None) -> GpuHost:
    return GpuHost(driver=driver, cards=cards, cdi=True, on_bus=on_bus, error=error)


@pytest.mark.parametrize(
    ("driver", "cards", "name"),
    [
        ("580.95.05", (H200,), "v0.30.0"),
        ("580.65.06", (H200, H200), "v0.30.0"),
        ("620.70.06", (L4,), "v0.30.0"),
        ("580.65.05", (H200,), "v0.30.0-cu129"),  # one below the floor of CUDA 13
        ("570.86.10", (L4,), "v0.30.0-cu129"),
        ("535.261.03", (H200,), "v0.30.0-cu129"),
        ("525.60.13", (L4,), "v0.30.0-cu129"),  # the floor of CUDA 12
        ("580.95.05", (("NVIDIA H100 80GB HBM3", "9.0"), ("NVIDIA A10", "8.6")), "v0.30.0"),
        ("580.95.05", (("NVIDIA GeForce RTX 4090", "8.9"),), "v0.30.0"),
    ],
)
def test_the_newest_engine_that_the_driver_runs(driver: str, cards: tuple[tuple[str, str], ...], name: str) -> None:
    choice = choose(host(driver, *cards), catalogue())
    assert choice.variant.name == name
    assert driver in choice.reason
    assert "@sha256:" in choice.reference
    assert ":v0" not in choice.reference


@pytest.mark.parametrize(
    ("driver", "card", "why"),
    [
        ("525.60.12", L4, "needs 525.60.13"),
        ("470.256.02", T4, "needs 525.60.13"),
        ("580.95.05", ("Tesla V100-SXM2-16GB", "7.0"), "compute capability 7.0"),
        ("580.95.05", ("Tesla P100-PCIE-16GB", "6.0"), "compute capability 6.0"),
    ],
)
def test_no_engine_is_forced_on_a_host(driver: str, card: tuple[str, str], why: str) -> None:
    with pytest.raises(DeployError) as caught:
        choose(host(driver, card), catalogue())
    assert "No pinned engine runs on this host:" in str(caught.value)
    assert why in str(caught.value)
    assert "lpxdoctor check" in str(caught.value)
    for image in catalogue().images:
        assert f"  {image.name}: " in str(caught.value)


def test_a_host_without_a_gpu_gets_the_engine_for_cpus() -> None:
    choice = choose(host(None, on_bus=0, error="nvidia-smi is not installed"), catalogue())
    assert (choice.variant.name, choice.reason) == ("cpu", "no NVIDIA GPU on the PCI bus")
    assert choice.reference == choice.variant.tag


def test_a_gpu_without_a_driver_is_no_host_without_a_gpu() -> None:
    with pytest.raises(DeployError, match=r"2 NVIDIA GPUs on the PCI bus and no driver that answers: it is broken\."):
        choose(host(None, on_bus=2, error="it is broken"), catalogue())


def test_what_is_asked_for_is_taken_and_what_is_not_there_is_told() -> None:
    assert choose(host("580.95.05", H200), catalogue(), "v0.28.0").variant.engine == "0.28.0"
    assert choose(host(None), catalogue(), "cpu").reason == "asked for"
    with pytest.raises(UsageError, match=r"(?s)no variant v9\..*v0\.30\.0, .*cpu\."):
        choose(host(None), catalogue(), "v9")


def test_older_gpus_compute_in_half_precision() -> None:
    assert choose(host("580.95.05", T4), catalogue()).arguments[-2:] == ("--dtype", "half")
    assert choose(host("580.95.05", L4, T4), catalogue()).arguments[-2:] == ("--dtype", "half")
    assert "--dtype" not in choose(host("580.95.05", L4), catalogue()).arguments


def test_a_condition_that_is_narrower_than_cuda_is_lifted() -> None:
    """Branch 545 runs CUDA 12.9 by minor-version compatibility; the image's NVIDIA_REQUIRE_CUDA does not list it."""
    assert choose(host("545.23.08", L4), catalogue()).env["NVIDIA_DISABLE_REQUIRE"] == "1"
    assert "NVIDIA_DISABLE_REQUIRE" not in choose(host("535.261.03", L4), catalogue()).env
    assert "NVIDIA_DISABLE_REQUIRE" not in choose(host("580.95.05", L4), catalogue()).env


def cpu() -> Choice:
    return choose(host(None, on_bus=0), catalogue())


def test_what_was_given_comes_after_what_the_engine_needs() -> None:
    given = {"engine_arguments": ["--seed", "1"], "engine_env": {"A": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}}
    made = role_variables(Request(name="a", variables=given), cpu())
    assert made["engine_arguments"] == [*cpu().arguments, "--seed", "1"]
    assert made["engine_env"] == {"A": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}
    assert made["engine_gpu"] == "none"
    assert made["engine_image"] == cpu().reference
    assert str(bundled.IMAGES / "cpu/build") in made["engine_image_hint"]


def test_an_image_of_ones_own_and_a_variable_of_the_file_win() -> None:
    choice = choose(host(None, on_bus=0), catalogue(), own_image="own:1")
    made = role_variables(Request(name="a", variables={"engine_gpu": "cdi"}), choice)
    assert (made["engine_image"], made["engine_gpu"]) == ("own:1", "cdi")


def test_a_file_of_variables_is_read_and_its_mistakes_are_told(tmp_path: Path) -> None:
    file = tmp_path / "vars.yml"
    file.write_text("engine_port: 8001\n")
    assert read_variables(file) == {"engine_port": 8001}
    file.write_text("")
    assert read_variables(file) == {}
    for text, told in (
        ("engine_prot: 1", "engine_prot: unknown"),
        ("engine_state: absent", "engine_state: unknown"),
        ("- 1", "no mapping"),
        ("a: [", "cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=told):
            read_variables(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_variables(tmp_path / "none")


def failed(message: str, action: str = "engine_ready", **result: object) -> TaskEvent:
    return TaskEvent(state=State.FAILED, task="t", action=action, host="h", result={"msg": message, **result})


def test_the_cause_of_an_engines_end_is_found_in_its_log() -> None:
    log = [
        *(f"INFO {number}" for number in range(60)),
        "(EngineCore pid=9) ERROR [core.py:1] ValueError: No available memory for the cache blocks.",
        '  File "core.py", line 3',
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    (first, *rest) = failures.explain((failed("It ended.", log=log), failed("It was removed.")), "h").splitlines()
    assert first == "h: It ended."
    assert rest[0] == "It said: ValueError: No available memory for the cache blocks."
    assert rest[1] == "Its last lines:"
    assert len(rest) == 2 + failures.TAIL_LINES + 1
    assert rest[-1] == "It was removed."


def test_the_substance_of_a_validation_error_is_on_its_next_line() -> None:
    log = ["pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, too long"]
    assert failures.log_summary(log)[0].endswith("1 validation error for ModelConfig Value error, too long")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ssh: connect to host h port 22: Connection timed out", "did not answer within 10 s"),
        ("ssh: connect to host h port 22: Connection refused", "nothing listens for SSH"),
        ("Host key verification failed.", "is not known here"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "is not the one"),
        ("op@10.0.0.5: Permission denied (publickey).", "ssh-copy-id op@10.0.0.5"),
        ("ssh: connect to host 10.0.0.5 port 2222: Connection refused", "Try: ssh -p 2222 10.0.0.5"),
        ("ssh: Could not resolve hostname h: Name or service not known", "no address is known"),
        ("Task failed: Failed to connect to the host via ssh: Connection to h closed by remote host.", "was cut off"),
        ("Task failed: Failed to connect to the host via ssh: Timeout, server h not responding.", "was cut off"),
        ("Task failed: Failed to connect to the host via ssh:", "was cut off"),
        ("something new", "something new"),
    ],
)
def test_what_ssh_says_is_explained(said: str, told: str) -> None:
    event = TaskEvent(state=State.UNREACHABLE, task="t", action="raw", host="h", result={"msg": said})
    explained = failures.explain((event,), "h")
    assert told in explained
    assert not explained.endswith(": ")


@pytest.mark.parametrize(
    ("said", "action", "told"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "docker_container", "Container Toolkit"),
        ("CDI device injection failed: unresolvable CDI devices x", "docker_container", "nvidia-ctk cdi generate"),
        ("requirement error: unsatisfied condition: cuda>=13.0", "docker_container", "--variant"),
        ("driver failed: port is already allocated", "docker_container", "--port"),
        ("no space left on device", "docker_container", "docker system df"),
        ("manifest unknown", "community.docker.docker_image_pull", "--image"),
        ("No package matching", "ansible.builtin.package", "apt-get install python3-requests"),
        ("Task failed: Missing sudo password", "ansible.builtin.setup", "ansible_become_password"),
    ],
)
def test_what_docker_says_is_explained(said: str, action: str, told: str) -> None:
    explained = failures.explain((failed(said, action),), "h")
    assert told in explained
    assert said in explained


def test_a_difference_shows_what_differs() -> None:
    before = {"command": ["serve", "--port", "1"], "shm_size": 1, "image": "a"}
    after = {"command": ["serve", "--port", "2"], "shm_size": 1, "image": "a"}
    assert changed_lines(before, after) == ["-command: 1", "+command: 2"]
    assert changed_lines("a\nb\n", "a\nc\n") == ["-b", "+c"]
    assert changed_lines(None, {"exists": True}) == ["+exists: true"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "lpxdoctor"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("deploy --model /m", "Where to?"),
        ("deploy --local", "Which model?"),
        ("deploy --local -i h --model /m", "exclude each other"),
        ("deploy --local --model /m --name a.b", "cannot be a name"),
        ("deploy --local --model /m --env LPX_NOT_THERE", "there is no LPX_NOT_THERE"),
        ("deploy --local --model /m --vars /none", "cannot be read"),
        ("deploy --local --model /m --port 70000", "70000"),
        ("deploy --local --model /m --bind ::1", "::1 is no IPv4 address"),
        ("undeploy none", "No deployment named none"),
        ("undeploy ../x --local", "cannot be a name"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_done(argv: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv.split()) == UsageError.exit_code
    out, err = capfd.readouterr()
    assert told in err
    assert out == ""
    assert not state_dir().exists()


def test_the_option_that_hides_a_value_takes_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hidden")
    given = extended({"engine_env": {"A": "1"}}, ("--seed",), ("HF_TOKEN", "B=2=3"), ("/a:/b:ro",))
    assert given == {
        "engine_arguments": ["--seed"],
        "engine_env": {"A": "1", "B": "2=3"},
        "engine_secret_env": {"HF_TOKEN": "hidden"},
        "engine_volumes": ["/a:/b:ro"],
    }


def test_every_option_is_a_variable_that_the_role_knows() -> None:
    assert set(VARIABLES.values()) <= known_variables()
    assert set(VARIABLES) <= {parameter.name for parameter in command.params}
