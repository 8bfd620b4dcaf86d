"""A program of its own: samples every GPU through NVML, one JSON line per sample, until its parent is gone.

A library that hangs or crashes takes only this process with it. The first line tells the driver and what the GPUs
are, or why nothing is sampled.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_INTERVAL_S = 0.5
# PROC_PID_INIT_INO: only in the first PID namespace do NVML's process ids mean what /proc shows.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def main() -> int:
    """Sample until the parent process ends."""
    try:
        import pynvml  # noqa: PLC0415 - its absence is an answer
    except ImportError as error:
        return _say({"failure": f"the NVML binding is missing: {error}"})
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except nvml.NVMLError as error:
        return _say({"failure": f"NVML: {error}"})
    from lpxdoctor.decode.xid_watch import XidWatch  # noqa: PLC0415 - where there is no GPU it costs more than the rest

    watch = XidWatch(nvml, handles)
    cards = [_card(nvml, handle) for handle in handles]
    _say({"driver": driver, "names": names, "cards": cards, "xids_from": watch.source})
    parent, xids = os.getppid(), list[tuple[int, int]]()
    while os.getppid() == parent:
        gpus = [_sample(nvml, handle) for handle in handles]
        _say({"at_ns": time.monotonic_ns(), "gpus": gpus, "xids": xids})
        xids = watch.wait(_INTERVAL_S)
    return 0


def _ask(nvml: Any, handle: Any, name: str, *argv: Any) -> Any:
    """Return what NVML says, None where it does not."""
    try:
        return getattr(nvml, name)(handle, *argv)
    except (nvml.NVMLError, AttributeError):
        return None


def _card(nvml: Any, handle: Any) -> dict[str, Any]:
    """Read what bounds a GPU's speed; integrated ones tell neither clock nor width."""
    capability = _ask(nvml, handle, "nvmlDeviceGetCudaComputeCapability")
    return {
        "capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "memory_clock_mhz": _ask(nvml, handle, "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        "bus_width_bits": _ask(nvml, handle, "nvmlDeviceGetMemoryBusWidth"),
        "cores": _ask(nvml, handle, "nvmlDeviceGetNumGpuCores"),
    }


def _sample(nvml: Any, handle: Any) -> dict[str, Any]:
    """Read one GPU; what it cannot tell is None."""

    def ask(name: str, *argv: Any) -> Any:
        return _ask(nvml, handle, name, *argv)

    utilization = ask("nvmlDeviceGetUtilizationRates")
    memory = ask("nvmlDeviceGetMemoryInfo")
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # the name before driver 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    power_mw = ask("nvmlDeviceGetPowerUsage")
    return {
        "utilization": utilization.gpu if utilization else None,
        "sm_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "power_w": power_mw / 1000 if power_mw is not None else None,
        "memory_mib": memory.used >> 20 if memory else None,
        "reasons": reasons,
        "groups": _groups(ask("nvmlDeviceGetComputeRunningProcesses")),
    }


def _groups(processes: Any) -> int | None:
    """Count the unrelated groups among processes: those of one container, or of one session, belong together."""
    try:
        if processes is None or str(Path("/proc/self/ns/pid").readlink()) != _FIRST_PID_NAMESPACE:
            return None
        return len({_group(process.pid) for process in processes})
    except OSError:
        return None


def _group(pid: int) -> tuple[str, str]:
    process = Path(f"/proc/{pid}")
    session = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[3]
    return (process / "cgroup").read_text(encoding="utf-8"), session


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _say(content: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
