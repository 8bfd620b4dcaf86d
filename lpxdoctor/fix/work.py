"""What runs on a host's GPUs: its evidence in, the engines and processes that a change would interrupt out."""

from dataclasses import dataclass

from lpxdoctor.evidence import Evidence, Probe, Unreadable
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.engine import Engine, Engines
from lpxdoctor.facts.gpu import Gpus

PROBES: tuple[Probe, ...] = (*Driver.probes, *Engines.probes, *Gpus.probes)


@dataclass(frozen=True)
class GpuWork:
    """Engines and processes on the GPUs, as a person calls them; unseen: why not all of them may be known, or ""."""

    running: tuple[str, ...] = ()
    unseen: str = ""


def gpu_work(evidence: Evidence) -> GpuWork:
    """Return what runs on the GPUs; the evidence must answer PROBES."""
    engines, unseen = _engines(Engines.parse(evidence))
    running = [f"{engine.name} (engine)" for engine in engines]
    try:
        if not Driver.parse(evidence).loaded:
            return GpuWork(tuple(running), unseen)  # nothing can run on a GPU without the module
        for gpu in Gpus.parse(evidence).gpus:
            running += [str(process) for process in gpu.others] if gpu.error is None else []
    except Unreadable as reason:
        unseen = unseen or str(reason)
    return GpuWork(tuple(dict.fromkeys(running)), unseen)


def _engines(engines: Engines) -> tuple[tuple[Engine, ...], str]:
    """Return the engines that run and asked for a GPU, and why there may be more."""
    try:
        return tuple(engine for engine in engines.engines if engine.up and engine.wants_gpu), ""
    except Unreadable as reason:
        return (), str(reason)
