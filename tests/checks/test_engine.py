"""Each check of the engines fires on its own fault, and is silent on one that serves and is set up to be relied on."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.facts import messages
from lpxdoctor.facts.engine import Engine, Mount, Reply
from lpxdoctor.facts.nvml import Process
from tests.checks.judging import bundled_policy, by_id, found
from tests.facts.builders_container import healthy as container
from tests.facts.builders_container import tried
from tests.facts.builders_engine import OOM_KILL, ended, engines, healthy_engine, recorded, silent
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus, host_with
from tests.facts.test_engine_log import SAID

CHECKS = [id_ for id_ in by_id() if id_.startswith("engine.")]
AROUND = (container(), healthy_gpus(), host_with())
SERVE = ("vllm", "serve", "/models/q7", "--served-model-name", "tiny")
HOLDER = Process(900, "compute", "python3", "python3 train.py", 90_000)
HELD = healthy_gpus(healthy_gpu(memory_used_mib=90_000, processes=(HOLDER,)))


def judged(id_: str, *given: Any) -> list[str]:
    """Return what a check says of these engines; other facts take the place of the healthy ones."""
    facts = [each for each in given if not isinstance(each, Engine)]
    return [each.message for each in found(id_, *AROUND, *facts, engines(*(e for e in given if isinstance(e, Engine))))]


# One line a check: an engine that has this fault, and what the finding must say.
FAULTS: dict[str, tuple[Engine, str]] = {
    "engine.killed-for-memory": (
        recorded("ok", status="exited", oom_killed=True, exit_code=137, up_s=None),
        "for memory",
    ),
    "engine.killed": (recorded("oom"), "ended by SIGKILL"),
    "engine.not-running": (ended("INFO nothing that is known"), "vllm is exited, exit code 1"),
    "engine.not-healthy": (healthy_engine(health="unhealthy"), "does not answer as healthy"),
    "engine.still-starting": (healthy_engine(replies=silent(), up_s=60.0), "does not answer yet"),
    "engine.stopped": (ended("bye", exit_code=143), "vllm was stopped"),
    "engine.restarted": (healthy_engine(restarts=3), "started again 3 times"),
    "engine.other-model-served": (healthy_engine(command=("vllm", "serve", "org/other")), "vllm serves tiny"),
    "engine.shared-memory-small": (
        healthy_engine(command=(*SERVE, "-tp", "2"), ipc="private", shm_bytes=64 << 20),
        "64 MiB for 2 ranks",
    ),
    "engine.image-not-pinned": (healthy_engine(image="vllm/vllm-openai:latest"), "vllm runs vllm/vllm-openai:latest"),
    "engine.image-moved": (healthy_engine(image="vllm/vllm-openai:latest", tag_id="sha256:new"), "has moved since"),
    "engine.image-not-the-pinned": (
        healthy_engine(image="vllm/vllm-openai:v0.30.0", digests=("vllm/vllm-openai@sha256:0123",)),
        "is not the pinned image",
    ),
    "engine.model-not-kept": (
        healthy_engine(command=("vllm", "serve", "org/model"), mounts=()),
        "keeps org/model inside",
    ),
    "engine.open-to-network": (healthy_engine(published=(("", "8000"),), guarded=False), "open on 0.0.0.0:8000"),
    "engine.key-in-arguments": (healthy_engine(command=(*SERVE, "--api-key", "***")), "started with --api-key"),
    "engine.development-mode": (healthy_engine(environment={"VLLM_SERVER_DEV_MODE": "1"}), "VLLM_SERVER_DEV_MODE"),
    "engine.privileged": (healthy_engine(privileged=True), "is privileged"),
    "engine.no-restart-policy": (healthy_engine(restart_policy="no"), "no restart policy"),
    "engine.no-health-check": (healthy_engine(healthcheck=False), "no health check"),
    "engine.eager-mode": (healthy_engine(command=(*SERVE, "--enforce-eager")), "started with --enforce-eager"),
    "engine.driver-capabilities-narrow": (
        healthy_engine(environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"}, gpu_requests=("gpus",)),
        "given no compute",
    ),
}
# Which check names which known error as the cause of an engine's end.
CAUSES: dict[str, tuple[str, ...]] = {
    "engine.fabric-not-ready": ("fabric-not-ready",),
    "engine.compat-library-shadows-driver": ("compat-library-shadows-driver",),
    "engine.driver-too-old": ("driver-too-old", "forward-compatibility-refused", "ptx-too-new"),
    "engine.driver-broken": ("library-mismatch", "driver-not-loaded"),
    "engine.started-without-gpu": (
        *("no-gpu-in-container", "gpu-hook-unknown", "runtime-unknown", "toolkit-program-missing", "cdi-off"),
        *("driver-library-hidden", "cgroup-denied", "cdi-vendor-unknown", "cdi-device-unknown", "cdi-path-missing"),
        *("device-filter-refused", "ldconfig-missing"),
    ),
    "engine.lost-its-gpu": ("gpu-lost-by-container", "gpu-denied"),
    "engine.no-code-for-gpu": (
        *("no-kernel-image", "kernel-wants-larger-gpu", "triton-assembler-too-old", "sinks-not-supported"),
    ),
    "engine.number-format-unsupported": ("number-format-unsupported",),
    "engine.split-impossible": ("more-ranks-than-gpus", "heads-not-divisible"),
    "engine.shared-memory-ran-out": ("shared-memory-too-small",),
    "engine.gpus-do-not-talk": (
        *("nccl-failed", "nccl-no-interface", "nccl-gpu-twice", "nccl-memory-not-locked", "nccl-multicast"),
        "peer-access-refused",
    ),
    "engine.memory-held-by-others": ("memory-held-by-others",),
    "engine.context-exceeds-kv-cache": ("context-exceeds-kv-cache", "no-kv-cache-memory"),
    "engine.out-of-gpu-memory": ("out-of-memory", "allocator-without-nvml"),
    "engine.killed-for-memory": ("host-memory-refused",),
    "engine.model-gated": ("model-gated",),
    "engine.model-not-found": (
        *("model-not-found", "hub-unreachable", "vocabulary-not-downloaded", "mount-source-missing"),
    ),
    "engine.port-in-use": ("port-in-use",),
    "engine.arguments-refused": (
        *("argument-unknown", "architecture-unknown", "context-longer-than-model"),
        *("batch-smaller-than-context", "argument-refused", "quantization-does-not-fit"),
        *("tokenizer-class-unknown", "weights-do-not-fit", "lora-rank-too-large", "port-from-service"),
        *("sequences-exceed-states", "items-per-request"),
    ),
    "engine.disk-full": ("disk-full",),
    "engine.forked-after-cuda": ("forked-after-cuda",),
    "engine.nvml-not-on-jetson": ("nvml-not-on-jetson",),
    "engine.gpu-id-unknown": ("gpu-id-unknown",),
    "engine.image-of-other-architecture": ("image-of-other-architecture",),
    "engine.mig-uuid-not-understood": ("mig-uuid-not-understood",),
    "engine.kernel-fault": ("kernel-fault",),
    "engine.weights-broken": ("weights-broken",),
    "engine.directory-closed": ("directory-closed", "user-unknown"),
    "engine.model-wants-own-code": ("wants-own-code",),
    "engine.installation-mixed": (
        *("installation-mixed", "architecture-not-inspected", "kernels-not-compiled", "triton-backend-missing"),
        "transformers-of-other-age",
    ),
    "engine.compiler-missing": ("compiler-missing",),
    "engine.too-many-open-files": ("too-many-open-files",),
}


@pytest.mark.parametrize("id_", FAULTS)
def test_a_check_fires_on_its_fault(id_: str) -> None:
    engine, message = FAULTS[id_]
    assert message in "\n".join(judged(id_, engine))


@pytest.mark.parametrize("id_", CHECKS)
def test_an_engine_that_serves_is_left_alone(id_: str) -> None:
    with contextlib.suppress(NotApplicable):
        assert judged(id_, healthy_engine()) == []


@pytest.mark.parametrize("id_", CHECKS)
def test_a_host_without_engines_is_not_judged(id_: str) -> None:
    with pytest.raises(NotApplicable, match="no engine"):
        judged(id_)


def test_every_check_has_a_firing_test() -> None:
    assert set(CHECKS) == FAULTS.keys() | CAUSES.keys() | {"engine.gpu-memory-taken"}


# --- why it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", SAID)
def test_each_known_error_is_one_checks_and_no_other(error: str) -> None:
    owner = next(id_ for id_, errors in CAUSES.items() if error in errors)
    down = ended(f"INFO before\n{SAID[error]}\nRuntimeError: Engine core initialization failed. See root cause above.")
    finds = [
        id_ for id_ in CHECKS if id_ in (*CAUSES, "engine.not-running", "engine.not-healthy") and judged(id_, down)
    ]
    assert finds == [owner]
    finding = found(owner, *AROUND, engines(down))[0]
    assert finding.message.startswith("vllm: ")
    assert finding.seen[0].value == SAID[error]
    assert finding.seen[0].where == "docker logs vllm"


def test_every_known_error_has_a_check() -> None:
    assert {error for errors in CAUSES.values() for error in errors} == {
        known.name for known in messages.table() if known.engine
    }


@pytest.mark.parametrize("id_", CAUSES)
def test_an_engine_that_serves_may_have_logged_an_error(id_: str) -> None:
    said = "\n".join(SAID.values())
    assert judged(id_, healthy_engine(log=said)) == []
    assert judged(id_, ended(said, exit_code=0)) == []  # stopped in order


@pytest.mark.parametrize(
    ("name", "id_", "message"),
    [
        ("nomodel", "engine.model-not-found", "engine-nomodel: the engine finds no model at /models/nothing-here"),
        (
            "badarg",
            "engine.arguments-refused",
            "engine-badarg: this version of the engine has no such argument: --no-such-flag",
        ),
        ("context", "engine.arguments-refused", "engine-context: the engine is told a context of 1024000 tokens"),
        ("port", "engine.port-in-use", "engine-port: another program listens on the engine's port 18444"),
        ("gpus", "engine.started-without-gpu", "engine-gpus: Docker found no hook of the NVIDIA Container Toolkit"),
    ],
)
def test_real_engines_that_ended(name: str, id_: str, message: str) -> None:
    assert judged(id_, recorded(name))[0].startswith(message)
    assert judged("engine.not-running", recorded(name)) == []


def test_what_to_type_when_the_context_does_not_fit() -> None:
    line = (
        "To serve at least one request with the model's max seq len (262144), (24.0 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated "
        "maximum model length is 34736. "
    )
    finding = found("engine.context-exceeds-kv-cache", *AROUND, engines(ended(line)))[0]
    assert finding.do == ("recreate vllm with --max-model-len 34736",)


def test_the_kernel_log_tells_who_was_killed_for_memory() -> None:
    victim = recorded("oom")
    killed = host_with(kernel_log=("quiet", OOM_KILL.format(id=victim.id)))
    finding = found("engine.killed-for-memory", *AROUND, killed, engines(victim))[0]
    assert finding.message == "engine-oom was killed for memory"
    assert "CONSTRAINT_MEMCG" in finding.seen[1].value
    assert judged("engine.killed-for-memory", victim) == []
    assert judged("engine.not-running", victim) == []  # engine.killed says it


def test_an_engine_that_ended_without_a_known_error_shows_its_last_lines() -> None:
    finding = found("engine.not-running", *AROUND, engines(ended("a\nb\nc\nd\n", status="restarting", restarts=9)))[0]
    assert finding.message == "vllm is restarting, exit code 1"
    assert [seen.value for seen in finding.seen] == ["restarting, exit code 1, 9 restarts", "b", "c", "d"]


def test_an_engine_that_waits_for_a_gpu_is_not_a_second_failure() -> None:
    closed = container(trials=tried("no-spec"))
    assert judged("engine.not-running", ended("unknown"), closed) == []
    assert judged("engine.not-running", ended("unknown", gpu_requests=()), closed)


# --- whether it serves ------------------------------------------------------------------------------------------------


def test_an_engine_whose_core_died_is_not_healthy() -> None:
    dead = healthy_engine(health="", replies={"/health": Reply(503, ""), "/v1/models": Reply(200, "{}")})
    assert judged("engine.not-healthy", dead) == ["vllm does not answer as healthy"]
    explained = replace(dead, log=SAID["out-of-memory"])
    assert judged("engine.not-healthy", explained) == []
    assert judged("engine.out-of-gpu-memory", explained)


def test_a_start_is_given_its_time() -> None:
    limit = bundled_policy().limits.engine_start_s
    starting, stuck = (
        healthy_engine(health="starting", replies=silent(), up_s=up_s) for up_s in (limit - 1, limit + 1)
    )
    assert judged("engine.not-healthy", starting) == []
    assert judged("engine.still-starting", starting)
    assert judged("engine.not-healthy", stuck)
    assert judged("engine.still-starting", stuck) == []


def test_memory_that_others_hold_while_an_engine_is_down() -> None:
    down = ended("unknown")
    assert judged("engine.gpu-memory-taken", down, HELD)[0].startswith("GPU 0: 90000 of")
    assert judged("engine.gpu-memory-taken", down) == []
    with pytest.raises(NotApplicable):
        judged("engine.gpu-memory-taken", healthy_engine(), HELD)
    with pytest.raises(NotApplicable):
        judged("engine.gpu-memory-taken", replace(down, gpu_requests=()), HELD)


# --- what is no fault -------------------------------------------------------------------------------------------------

NO_FAULT: dict[str, Engine] = {
    # An image that was built here has no digest, and one named by its id is pinned by it.
    "engine.image-not-pinned": recorded("ok", image="lpxdoctor/vllm-cpu:0.32.0"),
    "engine.image-moved": healthy_engine(tag_id=""),
    "engine.image-not-the-pinned": healthy_engine(
        image="registry.example/vllm:v1", digests=("registry.example/vllm@sha256:1",)
    ),
    "engine.shared-memory-small": healthy_engine(command=(*SERVE, "-tp", "2"), ipc="host", shm_bytes=64 << 20),
    "engine.model-not-kept": healthy_engine(
        command=("vllm", "serve", "org/model"), mounts=(Mount("/srv/hf", "/root/.cache/huggingface"),)
    ),
    "engine.open-to-network": healthy_engine(published=(("0.0.0.0", "8000"),), guarded=True),
    "engine.development-mode": healthy_engine(environment={"VLLM_SERVER_DEV_MODE": "0"}),
    # The CPU engine has no graphs, and the hook has no part in CDI.
    "engine.eager-mode": recorded("ok"),
    "engine.driver-capabilities-narrow": healthy_engine(environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"}),
    "engine.no-restart-policy": ended("bye", exit_code=0, restart_policy="no"),
    "engine.other-model-served": healthy_engine(command=("vllm", "serve", "org/other"), replies=silent()),
}


@pytest.mark.parametrize("id_", NO_FAULT)
def test_what_is_no_fault(id_: str) -> None:
    assert judged(id_, NO_FAULT[id_]) == []


def test_capabilities_for_a_hook() -> None:
    everything = healthy_engine(environment={"NVIDIA_DRIVER_CAPABILITIES": "all"}, gpu_requests=("gpus",))
    assert judged("engine.driver-capabilities-narrow", everything) == []
