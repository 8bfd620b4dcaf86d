"""Facts of the engines in containers in: who may reach them, what they may do, and what slows them, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.engine import Engine, Engines


def _inspect(engine: Engine, what: str, value: str) -> Seen:
    return Seen(what, value, f"docker inspect {engine.name}")


@check("engine.open-to-network", Severity.WARN, layer="deployment")
def open_to_network(engines: Engines) -> Iterator[Finding]:
    """An engine can be reached from other hosts and asks for no key.

    Why: anybody who reaches the port may use the GPU and read what the model says. Docker publishes a port past ufw and
        firewalld's rules for the host.
    Fix: publish it on loopback only (-p 127.0.0.1:8000:8000) behind a proxy that asks for a key, or set VLLM_API_KEY
        in an --env-file. The key guards /v1 alone: /tokenize, /metrics and others stay open.
    Source: https://docs.vllm.ai/en/latest/usage/security.html
    """
    for engine in engines.some:
        if engine.up and engine.exposed and engine.guarded is False:
            seen = (
                _inspect(engine, "listens on", ", ".join(engine.exposed)),
                Seen("/v1/models without a key", "200", engine.address),
            )
            yield Finding(f"{engine.name} is open on {', '.join(engine.exposed)}", engine.name, seen)


@check("engine.key-in-arguments", Severity.WARN, layer="deployment")
def key_in_arguments(engines: Engines) -> Iterator[Finding]:
    """An engine's API key stands on its command line.

    Why: every user of the host reads it with ps, and everybody who may ask Docker with docker inspect.
    Fix: hand it over as VLLM_API_KEY in an --env-file of mode 0600, or in a mounted file, and make a new key.
    Source: https://docs.vllm.ai/en/latest/usage/security.html
    """
    for engine in engines.some:
        if engine.has("--api-key"):
            yield Finding(
                f"{engine.name} is started with --api-key",
                engine.name,
                (_inspect(engine, "arguments", "--api-key ***"),),
            )


@check("engine.development-mode", Severity.WARN, layer="deployment")
def development_mode(engines: Engines) -> Iterator[Finding]:
    """An engine runs in development mode, in which callers may run what they like in it.

    Why: VLLM_SERVER_DEV_MODE opens end points that reset caches, sleep the engine and call any method of its workers.
    Fix: take VLLM_SERVER_DEV_MODE out of its environment and recreate it.
    Source: https://docs.vllm.ai/en/latest/usage/security.html
    """
    for engine in engines.some:
        if engine.environment.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"):
            yield Finding(
                f"{engine.name} has VLLM_SERVER_DEV_MODE set",
                engine.name,
                (_inspect(engine, "VLLM_SERVER_DEV_MODE", "1"),),
            )


@check("engine.privileged", Severity.WARN, layer="deployment")
def privileged(engines: Engines) -> Iterator[Finding]:
    """An engine runs with all privileges of the host.

    Why: it needs none of them: a GPU is handed over without. Whoever breaks into the server in it owns the host.
    Fix: recreate it without --privileged, with --device nvidia.com/gpu=all or --gpus all.
    Source: https://docs.docker.com/engine/containers/run/#runtime-privilege-and-linux-capabilities
    """
    for engine in engines.some:
        if engine.privileged:
            yield Finding(f"{engine.name} is privileged", engine.name, (_inspect(engine, "Privileged", "true"),))


@check("engine.no-restart-policy", Severity.WARN, layer="deployment")
def no_restart_policy(engines: Engines) -> Iterator[Finding]:
    """An engine stays down when it ends or the host boots.

    Why: without a restart policy Docker starts it once. A crash at night, or a reboot for a driver, ends the service.
    Fix: docker update --restart unless-stopped NAME
    Source: https://docs.docker.com/engine/containers/start-containers-automatically/
    """
    for engine in engines.some:
        if engine.up and engine.restart_policy == "no":
            do = (f"docker update --restart unless-stopped {engine.name}",)
            yield Finding(
                f"{engine.name} has no restart policy", engine.name, (_inspect(engine, "RestartPolicy", "no"),), do
            )


@check("engine.no-health-check", Severity.INFO, layer="deployment")
def no_health_check(engines: Engines) -> Iterator[Finding]:
    """Docker does not watch whether an engine serves.

    Why: vLLM's images come without a health check. A server whose engine has died stays "running" for docker ps and for
        everything that goes by it.
    Fix: recreate it with --health-cmd "curl -fs http://127.0.0.1:8000/health" --health-start-period 20m
    Source: https://github.com/vllm-project/vllm/issues/4867
    """
    for engine in engines.some:
        if engine.up and not engine.healthcheck:
            yield Finding(f"{engine.name} has no health check", engine.name, (_inspect(engine, "Healthcheck", "none"),))


@check("engine.eager-mode", Severity.WARN, layer="engine", after=["host.no-gpu"])
def eager_mode(engines: Engines) -> Iterator[Finding]:
    """An engine decodes without CUDA graphs.

    Why: --enforce-eager launches each kernel by itself. A small model then waits for the CPU at every token, and
        decodes several times slower than the GPU could.
    Fix: recreate it without --enforce-eager. Where capturing the graphs runs out of memory, lower
        --gpu-memory-utilization or --max-num-seqs instead.
    Source: https://github.com/Project-MONAI/VLM-Surgical-Agent-Framework/issues/5;
        https://docs.vllm.ai/en/latest/design/cuda_graphs.html
    """
    for engine in engines.some:
        if engine.wants_gpu and engine.has("--enforce-eager"):
            yield Finding(
                f"{engine.name} is started with --enforce-eager",
                engine.name,
                (_inspect(engine, "arguments", "--enforce-eager"),),
            )


@check("engine.driver-capabilities-narrow", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def driver_capabilities_narrow(engines: Engines) -> Iterator[Finding]:
    """An engine asks the toolkit for less of the driver than it needs.

    Why: NVIDIA_DRIVER_CAPABILITIES decides which libraries the toolkit's hook puts into the container. Without
        "compute" there is no libcuda, without "utility" no NVML.
    Fix: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    for engine in engines.some:
        value = engine.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
        asked = {word.strip() for word in value.split(",")}
        missing = {"compute", "utility"} - asked
        if value and "all" not in asked and missing and engine.wants_gpu and "cdi" not in engine.gpu_requests:
            seen = (_inspect(engine, "NVIDIA_DRIVER_CAPABILITIES", value),)
            yield Finding(f"{engine.name} is given no {' and no '.join(sorted(missing))}", engine.name, seen)
