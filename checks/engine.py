"""Facts of the engines in containers in: whether they run, answer, and are set up to be relied on, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check, logged
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.engine import Engine, Engines
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host, log_matches
from lpxdoctor.policy import Policy


def _inspect(engine: Engine, what: str, value: str) -> Seen:
    return Seen(what, value, f"docker inspect {engine.name}")


def _said(engine: Engine) -> tuple[Seen, ...]:
    return tuple(Seen("log", line, f"docker logs {engine.name}") for line in engine.last_lines)


# --- does it run ------------------------------------------------------------------------------------------------------


@check("engine.killed-for-memory", Severity.FAIL, layer="engine")
def killed_for_memory(engines: Engines, host: Host) -> Iterator[Finding]:
    """The host's memory, or a container's limit of it, ran out under an engine.

    Why: the kernel kills the engine then (OOM), or refuses it memory: main memory (RAM), not the GPU's. Loading takes
        about the size of the weights for a while, and offloading to the CPU takes more for good.
    Fix: raise or take away the container's --memory, or free memory on the host. The kernel's line names which it was:
        CONSTRAINT_MEMCG is the container's limit.
    Source: https://docs.docker.com/engine/containers/resource_constraints/
    """
    for engine in engines.some:
        if engine.up or not (engine.oom_killed or engine.killed):
            continue
        lines = () if engine.oom_killed else log_matches(host.kernel_log, f"oom-kill:.*{engine.id}")
        if engine.oom_killed or lines:
            seen = (
                _inspect(engine, "state", f"exit code {engine.exit_code}, OOMKilled {str(engine.oom_killed).lower()}"),
                *(Seen("kernel log", line.strip()[:120], "dmesg") for line in lines[-1:]),
            )
            yield Finding(f"{engine.name} was killed for memory", engine.name, seen, ("sudo dmesg | grep -i oom",))
    for engine, cause in engines.ended("host-memory-refused"):
        yield logged(engine, cause, do=("free -h",))


@check("engine.killed", Severity.WARN, layer="engine", after=["engine.killed-for-memory"])
def killed(engines: Engines) -> Iterator[Finding]:
    """An engine was killed.

    Why: it ended by SIGKILL. docker stop does that after ten seconds to an engine that is slow to end, and so does the
        kernel when memory runs out.
    Fix: docker start NAME, or docker rm NAME where it is no longer wanted; docker stop -t 60 gives it more time.
    Source: https://docs.docker.com/reference/cli/docker/container/stop/
    """
    for engine in engines.some:
        if engine.killed:
            yield Finding(f"{engine.name} ended by SIGKILL", engine.name, (_inspect(engine, "exit code", "137"),))


@check("engine.not-running", Severity.FAIL, layer="engine", after=["engine.killed-for-memory"])
def not_running(engines: Engines, container: Container) -> Iterator[Finding]:
    """An engine is down, and nobody stopped it.

    Why: it ended by itself, or starts and ends again and again. None of the errors that are known by their text stands
        in its last lines, so these are what there is.
    Fix: docker logs --tail 200 NAME, from the first error on: the last line is mostly a consequence.
    Source: https://docs.docker.com/reference/cli/docker/container/inspect/
    """
    for engine in engines.some:
        # A known cause has a check of its own, and so has a host that hands no GPU over.
        waits = engine.wants_gpu and bool(container.tried) and not container.proven
        if engine.fails and not engine.up and engine.unexplained and not waits:
            ended = f"{engine.status}, exit code {engine.exit_code}, {engine.restarts} restarts"
            seen = (
                _inspect(engine, "state", ended),
                *((_inspect(engine, "Docker", engine.docker_error),) if engine.docker_error else ()),
                *_said(engine),
            )
            do = (f"docker logs --tail 200 {engine.name}",)
            yield Finding(f"{engine.name} is {engine.status}, exit code {engine.exit_code}", engine.name, seen, do)


@check("engine.not-healthy", Severity.FAIL, layer="engine", after=["engine.not-running"])
def not_healthy(engines: Engines, policy: Policy) -> Iterator[Finding]:
    """An engine runs and does not serve.

    Why: its process is there, and /health does not say 200: the engine behind the server has died, or is stuck. The
        first start takes long, since kernels are compiled; it is given its time.
    Fix: docker logs --tail 200 NAME; then docker restart NAME.
    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    """
    for engine in engines.some:
        reply = engine.replies.get("/health")
        late = engine.up and (engine.up_s or 0) > policy.limits.engine_start_s
        silent = late and reply is not None and reply.status is None
        if silent or (engine.ill and engine.unexplained):
            said = f"{reply.status or ''} {reply.body[:100]}".strip() if reply else "not asked"
            health = _inspect(engine, "health check", engine.health or "none")
            do = (f"docker logs --tail 200 {engine.name}",)
            seen = (Seen("/health", said, engine.address), health, *_said(engine))
            yield Finding(f"{engine.name} does not answer as healthy", engine.name, seen, do)


@check("engine.still-starting", Severity.INFO, layer="engine", after=["engine.not-healthy"])
def still_starting(engines: Engines, policy: Policy) -> Iterator[Finding]:
    """An engine is starting and does not serve yet.

    Why: weights are read and kernels compiled; the first start of an image on a host takes minutes.
    Fix: wait, and look at docker logs -f NAME.
    Source: https://docs.vllm.ai/en/latest/design/torch_compile.html
    """
    for engine in engines.some:
        reply = engine.replies.get("/health")
        if engine.up and reply and reply.status is None and (engine.up_s or 0) <= policy.limits.engine_start_s:
            seen = (
                Seen("/health", reply.body, engine.address),
                _inspect(engine, "up for", f"{engine.up_s or 0:.0f} s"),
            )
            yield Finding(f"{engine.name} does not answer yet", engine.name, seen)


@check("engine.stopped", Severity.INFO, layer="deployment")
def stopped(engines: Engines) -> Iterator[Finding]:
    """An engine was stopped.

    Why: somebody, or a shutdown, ended it; it did not fail. Whoever calls it gets no answer.
    Fix: docker start NAME, or docker rm NAME where it is no longer wanted.
    Source: https://docs.docker.com/reference/cli/docker/container/stop/
    """
    for engine in engines.some:
        if engine.stopped:
            yield Finding(
                f"{engine.name} was stopped", engine.name, (_inspect(engine, "exit code", str(engine.exit_code)),)
            )


@check("engine.restarted", Severity.WARN, layer="engine", after=["engine.not-running", "engine.not-healthy"])
def restarted(engines: Engines) -> Iterator[Finding]:
    """An engine runs, and Docker had to start it again.

    Why: it ended by itself, and its restart policy hid that. Each time requests were lost and the model was loaded
        anew.
    Fix: docker logs NAME holds what it said before it ended; docker inspect NAME when that was.
    Source: https://docs.docker.com/engine/containers/start-containers-automatically/
    """
    for engine in engines.some:
        if engine.up and engine.restarts:
            yield Finding(
                f"{engine.name} was started again {engine.restarts} times",
                engine.name,
                (_inspect(engine, "RestartCount", str(engine.restarts)),),
            )


@check(
    "engine.other-model-served", Severity.FAIL, layer="deployment", after=["engine.not-running", "engine.not-healthy"]
)
def other_model_served(engines: Engines) -> Iterator[Finding]:
    """What answers on an engine's port serves another model than the engine was told to.

    Why: clients name the model in each request and get error 404. Two engines may have taken each other's port.
    Fix: curl http://ADDRESS/v1/models, and compare --served-model-name and the published ports.
    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    """
    for engine in engines.some:
        wanted = engine.option("--served-model-name") or engine.model
        ready = engine.replies.get("/health")
        if wanted and engine.up and ready and ready.status == 200 and wanted not in engine.served:
            seen = (
                _inspect(engine, "told to serve", wanted),
                Seen("serves", ", ".join(engine.served), engine.address + "/v1/models"),
            )
            yield Finding(f"{engine.name} serves {', '.join(engine.served) or 'no model'}", engine.name, seen)


# --- memory -----------------------------------------------------------------------------------------------------------


@check("engine.gpu-memory-taken", Severity.WARN, layer="engine", after=["driver.nvml-fails"])
def gpu_memory_taken(engines: Engines, gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """An engine that is down could not start now: others hold the memory of its GPUs.

    Why: vLLM asks for a share of the whole GPU and refuses to start where less is free.
    Fix: end the process that holds the memory, or lower --gpu-memory-utilization.
    Source: https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
    """
    down = [engine for engine in engines.some if engine.wants_gpu and not engine.up]
    if not down or any(engine.up and engine.wants_gpu for engine in engines.engines):
        raise NotApplicable("no engine waits for the GPUs of this host")
    for gpu in gpus.working:
        if gpu.memory_held_mib > policy.limits.gpu_memory_used_share * gpu.memory_total_mib:
            held = f"{gpu.memory_held_mib} of {gpu.memory_total_mib} MiB"
            seen = (
                Seen("held", held, "NVML"),
                *(Seen("by", f"{p.name or 'process'} {p.pid}", "NVML") for p in gpu.others),
            )
            yield Finding(f"{gpu.subject}: {held} are held, and {down[0].name} is down", gpu.subject, seen)


@check("engine.shared-memory-small", Severity.WARN, layer="deployment", after=["engine.shared-memory-ran-out"])
def shared_memory_small(engines: Engines, policy: Policy) -> Iterator[Finding]:
    """An engine with several GPUs has little shared memory.

    Why: its ranks exchange data by /dev/shm, and Docker gives a container 64 MiB. It ends at the start, or later under
        load.
    Fix: recreate it with --ipc=host or --shm-size=16g.
    Source: https://docs.vllm.ai/en/stable/deployment/docker/; https://github.com/vllm-project/vllm/issues/6574
    """
    for engine in engines.some:
        small = engine.shm_bytes < policy.limits.shm_mib << 20
        if engine.ranks > 1 and engine.ipc != "host" and small:
            seen = (
                _inspect(engine, "ranks", str(engine.ranks)),
                _inspect(engine, "ShmSize", f"{engine.shm_bytes >> 20} MiB"),
                Seen("wanted", f"{policy.limits.shm_mib} MiB", "policy.toml, shm_mib"),
            )
            yield Finding(f"{engine.name}: {engine.shm_bytes >> 20} MiB for {engine.ranks} ranks", engine.name, seen)
