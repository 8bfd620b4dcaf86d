"""Evidence of hosts with GPUs for tests: what NVML answers, in the shape in which programs/nvml.py writes it."""

from typing import Any

from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.facts.gpu import NVML

L4: dict[str, Any] = {
    "name": "NVIDIA L4",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "bus_id": "0000:00:03.0",
    "device_id": 0x27B8,
    "brand": "nvidia",
    "compute_capability": "8.9",
    "memory_mib": {"total": 23034, "free": 22563, "used": 471},
    "bus_width_bits": 192,
    "memory_clock_max_mhz": 6251,
    "mig_mode": None,
    "processes": [],
}
# NVML on a real one, 2026-11-29: 3201 MHz and 6016 bit, for one slice of 128 bit is off.
H200: dict[str, Any] = {
    **L4,
    "name": "NVIDIA H200",
    "device_id": 0x2335,
    "compute_capability": "9.0",
    "memory_mib": {"total": 143771, "free": 143166, "used": 605},
    "bus_width_bits": 6016,
    "memory_clock_max_mhz": 3201,
    "mig_mode": [False, False],
}


def process(pid: int, name: str, memory_mib: int | None) -> dict[str, Any]:
    return {"pid": pid, "kind": "compute", "comm": name, "cmdline": f"/usr/bin/{name}", "memory_mib": memory_mib}


def evidence(*gpus: dict[str, Any], error: dict[str, Any] | None = None) -> Evidence:
    """Return evidence of a host with these GPUs."""
    answer = {
        "library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
        "module": True,
        "error": error,
        "driver_version": "580.159.04",
        "cuda_version": "13.0",
        "gpus": [{"index": index, **gpu} for index, gpu in enumerate(gpus)],
    }
    return Evidence(host="gpu-1", answers={NVML.key: Answer(answer)}, collected_at="2026-11-29T12:00:00Z")
