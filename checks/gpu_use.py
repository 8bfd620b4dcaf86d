"""The processes and the modes of each GPU in; what an engine would meet there out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.gpu import Gpu, Gpus, on_or_off
from lpxdoctor.facts.nvml import Process
from lpxdoctor.policy import Policy


@check("gpu.memory-taken", Severity.WARN, layer="deployment", after=["driver.nvml-fails", "gpu.lost"])
def memory_taken(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """Programs other than an inference engine hold a good part of a GPU's memory.

    Why: vLLM asks for a share of the whole memory when it starts, and stops with "free memory is less than desired"
    where others already hold it; what they take later ends in an out-of-memory error while serving.
    Fix: stop the program, or lower the engine's --gpu-memory-utilization to what is left.
    Source: https://docs.vllm.ai/en/latest/configuration/conserving_memory/; policy.toml, gpu_memory_used_share
    """
    for gpu in gpus.working:
        if _taken_by_others(gpu, policy):
            share = gpu.memory_held_mib / gpu.memory_total_mib
            seen = [Seen("held", f"{gpu.memory_held_mib} of {gpu.memory_total_mib} MiB", "NVML")]
            seen += [Seen("by", str(process), "NVML") for process in gpu.holders]
            yield Finding(f"{share:.0%} of {gpu.subject}'s memory is taken", gpu.subject, tuple(seen))


@check("gpu.other-programs", Severity.INFO, layer="deployment", after=["driver.nvml-fails", "gpu.lost"])
def other_programs(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """A program that is no inference engine computes on a GPU.

    Why: it takes time from the engine whenever it runs, and spoils a baseline measured meanwhile.
    Fix: stop it before you measure; keep engines on GPUs of their own.
    Source: policy.toml, [expect] engines
    """
    for gpu in gpus.working:
        others = [process for process in gpu.others if process.kind == "compute" and not _is_engine(process, policy)]
        if others and not _taken_by_others(gpu, policy):
            yield Finding(
                f"{len(others)} other program{'s' * (len(others) > 1)} on {gpu.subject}",
                gpu.subject,
                tuple(Seen("program", str(process), "NVML") for process in others),
            )


@check("gpu.graphics-session", Severity.INFO, layer="deployment", after=["driver.nvml-fails", "gpu.lost"])
def graphics_session(gpus: Gpus) -> Iterator[Finding]:
    """A graphical session runs on a GPU.

    Why: it holds memory and takes turns with the engine, which shows as single slow tokens.
    Fix: on a server, boot without it: sudo systemctl set-default multi-user.target, then reboot.
    Source: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html (graphics processes)
    """
    for gpu in gpus.working:
        sessions = [process for process in gpu.others if process.kind == "graphics"]
        if sessions:
            seen = tuple(Seen("session", str(process), "NVML") for process in sessions)
            yield Finding(f"{len(sessions)} graphical programs on {gpu.subject}", gpu.subject, seen)


@check("gpu.mig-on", Severity.INFO, layer="deployment", after=["driver.nvml-fails"])
def mig_on(gpus: Gpus) -> Iterator[Finding]:
    """A GPU is split into MIG slices.

    Why: an engine sees one slice (instance) of it, with a part of its memory and bandwidth; the whole GPU is not to be
        had.
    Fix: plan for the slice, or switch MIG off: nvidia-smi -i N -mig 0, and reset.
    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    for gpu in gpus.working:
        if gpu.mig and gpu.mig[0]:
            yield Finding(f"{gpu.subject} is in MIG mode", gpu.subject, (Seen("MIG", "on", "NVML"),))


@check("gpu.mig-change-pending", Severity.WARN, layer="deployment", after=["driver.nvml-fails"])
def mig_change_pending(gpus: Gpus) -> Iterator[Finding]:
    """MIG will be switched at a GPU's next reset.

    Why: after the next reset or reboot the GPU is another one: its UUIDs change, and an engine that names them does not
    start.
    Fix: reset it now, or take the change back: nvidia-smi -i N -mig 0|1.
    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    for gpu in gpus.working:
        if gpu.mig and gpu.mig[0] != gpu.mig[1]:
            seen = (
                Seen("MIG now", on_or_off(gpu.mig[0]), "NVML"),
                Seen("after the next reset", on_or_off(gpu.mig[1]), "NVML"),
            )
            yield Finding(
                f"{gpu.subject}: MIG will be {on_or_off(gpu.mig[1])}", gpu.subject, seen, (gpu.reset_command,)
            )


@check("gpu.compute-mode-prohibited", Severity.FAIL, layer="driver", after=["driver.nvml-fails"])
def compute_mode_prohibited(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's compute mode forbids CUDA programs.

    Why: every program that asks for it is told that the device is unavailable.
    Fix: sudo nvidia-smi -i N -c 0
    Source: https://docs.nvidia.com/deploy/nvidia-smi/ (compute mode)
    """
    for gpu in gpus.working:
        if gpu.compute_mode == "prohibited":
            do = (f"sudo nvidia-smi -i {gpu.index} -c 0",)
            yield Finding(
                f"{gpu.subject} is closed to CUDA", gpu.subject, (Seen("compute mode", "prohibited", "NVML"),), do
            )


@check("gpu.compute-mode-exclusive", Severity.INFO, layer="driver", after=["driver.nvml-fails"])
def compute_mode_exclusive(gpus: Gpus) -> Iterator[Finding]:
    """A GPU admits one CUDA process at a time.

    Why: an engine that starts a process for each GPU is fine with it; a second engine, a profiler or a health check on
    the same GPU is refused.
    Fix: sudo nvidia-smi -i N -c 0 lets several in.
    Source: https://docs.nvidia.com/deploy/nvidia-smi/ (compute mode)
    """
    for gpu in gpus.working:
        if gpu.compute_mode and gpu.compute_mode.startswith("exclusive"):
            seen = (Seen("compute mode", gpu.compute_mode, "NVML"),)
            yield Finding(
                f"{gpu.subject} admits one process", gpu.subject, seen, (f"sudo nvidia-smi -i {gpu.index} -c 0",)
            )


@check("gpu.persistence-off", Severity.INFO, layer="driver", after=["driver.nvml-fails"])
def persistence_off(gpus: Gpus) -> Iterator[Finding]:
    """A GPU is shut down whenever nothing uses it.

    Why: without persistence the driver brings the GPU up anew for the next program, which takes a second or more each
    time, and settings such as a power limit are lost in between.
    Fix: sudo systemctl enable --now nvidia-persistenced
    Source: https://docs.nvidia.com/deploy/driver-persistence/
    """
    off = [gpu for gpu in gpus.working if gpu.persistence is False]
    if off:
        names = ", ".join(str(gpu.index) for gpu in off)
        yield Finding(
            f"persistence is off on GPU {names}",
            off[0].subject if len(off) == 1 else "",
            (Seen("persistence mode", "off", "NVML"),),
            ("sudo systemctl enable --now nvidia-persistenced",),
        )


def _is_engine(process: Process, policy: Policy) -> bool:
    text = f"{process.name} {process.command}".lower()
    return any(word in text for word in policy.expect.engines)


def _taken_by_others(gpu: Gpu, policy: Policy) -> bool:
    """Whether more of its memory is held than the policy allows, and no engine is among the holders."""
    if gpu.mig and gpu.mig[0]:  # what is held then is held in slices
        return False
    taken = gpu.memory_held_mib > policy.limits.gpu_memory_used_share * gpu.memory_total_mib
    return taken and not any(_is_engine(process, policy) for process in gpu.others)
