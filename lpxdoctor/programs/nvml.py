"""Ask NVML everything that checks need; print one JSON object: what READINGS names for each of "gpus", and an "error".

A reading that the GPU does not offer is null; one that was refused is {"error": NVML's code}, and so is a GPU without a
handle. "error" is null or {"call", "code"}; for a call that hangs or crashes the code is -1 or -2, and what was read
before it stands beside. Python 3.9 syntax and the standard library, and pynvml: installed, or in this file's directory.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, cast

DEADLINE_S = 24.0  # without persistence mode every GPU is brought up first, which takes seconds each
HUNG, CRASHED = -1, -2
COMMAND_CHARACTERS = 200
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}


def main() -> None:
    """Read in a child and print what it said: a driver that hangs or crashes takes only the child."""
    if not find_spec("pynvml"):
        sys.exit("this Python has no pynvml")
    ours, its = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        os.dup2(2, 1)  # nothing that a library prints mixes with the answer
        give_up_loading()
        work(Report(its))
        os._exit(0)
    os.close(its)
    until = time.monotonic() + (float(sys.argv[1]) if sys.argv[1:] else DEADLINE_S)
    call, answer = listen(ours, until)
    code = ended(pid, until)
    if code:
        answer["error"] = {"call": call, "code": code}
    print(json.dumps(answer))


def listen(pipe: int, until: float) -> tuple[str, dict[str, Any]]:
    """Return the call that the child was last in, and the last answer that it gave, once it ends or time is up."""
    call, rest = "the start", b""
    answer: dict[str, Any] = {"gpus": []}
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                answer = json.loads(line)
            else:
                call = line.decode()
    return call, answer


def ended(pid: int, until: float) -> int:
    """Return 0 for a child that ended well, else HUNG or CRASHED; one that cannot be killed is left behind."""
    while time.monotonic() < until:  # its pipe closes a moment before it has ended
        done, status = os.waitpid(pid, os.WNOHANG)
        if done and os.WIFSIGNALED(status):
            return CRASHED
        if done:
            return sys.exit(1) if status else 0  # a defect of this program; the child has printed which
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return HUNG


def give_up_loading() -> None:
    """Give up what loads modules and makes device nodes: NVML does both itself, or lets nvidia-modprobe do it.

    With no_new_privs a child, setuid or root's, gets no capability back that is given up here.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, of the capabilities 0-31 and then 32-63
    if libc.capget(header, sets) == 0:
        for number in range(3):
            sets[number] &= ~(1 << 16 | 1 << 27)  # CAP_SYS_MODULE, CAP_MKNOD
        libc.capset(header, sets)


def module_loaded() -> bool | None:
    """Whether the kernel module is loaded; None where the kernel does not say: gVisor, WSL."""
    if Path("/proc/driver/nvidia/version").exists() or Path("/sys/module/nvidia").is_dir():
        return True
    return None if not Path("/sys/module").is_dir() or Path("/dev/dxg").exists() else False


class Report:
    """The child's end of the pipe: which call comes next, and all that is known so far."""

    def __init__(self, pipe: int) -> None:
        self.pipe = os.fdopen(pipe, "w", encoding="utf-8")
        self.known: dict[str, Any] = {"library": "", "module": module_loaded(), "error": None, "gpus": []}

    def at(self, call: str) -> str:
        """Say which call comes next, and return it."""
        self.pipe.write(call + "\n")
        self.pipe.flush()
        return call

    def tell(self, **more: Any) -> None:
        """Say all that is known."""
        self.known.update(more)
        self.pipe.write(json.dumps(self.known) + "\n")
        self.pipe.flush()


def work(report: Report) -> None:
    """Read everything, telling what is known after each GPU."""
    import pynvml as nvml  # noqa: PLC0415 - in the child alone

    call = report.at("dlopen libnvidia-ml.so.1")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        report.tell(library=next((line.split(maxsplit=5)[-1] for line in maps if "libnvidia-ml.so" in line), ""))
        call = report.at("nvmlInit_v2")
        if report.known["module"] is False and Path("/dev/nvidiactl").exists():
            # Opening the node would make the kernel load the module, whoever opens it; NVML would find it not loaded.
            return report.tell(error={"call": call, "code": nvml.NVML_ERROR_DRIVER_NOT_LOADED})
        nvml.nvmlInit()
        report.tell(driver_version=_text(nvml.nvmlSystemGetDriverVersion()))
        call = report.at("nvmlSystemGetCudaDriverVersion_v2")
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        report.tell(cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}")
        call = report.at("nvmlDeviceGetCount_v2")
        count = nvml.nvmlDeviceGetCount()
    except OSError:
        return report.tell(error={"call": call, "code": nvml.NVML_ERROR_LIBRARY_NOT_FOUND})
    except nvml.NVMLError as error:
        return report.tell(error={"call": call, "code": cast("Any", error).value})
    for index in range(count):
        report.known["gpus"].append(_gpu(nvml, report, index))
        report.tell()
    return None


def _gpu(nvml: Any, report: Report, index: int) -> dict[str, Any]:
    try:
        device = Device(nvml, report, index)
    except nvml.NVMLError as error:
        return {"index": index, "error": error.value}
    return {"index": index, **{name: _guarded(nvml, device, read) for name, read in READINGS.items()}}


def _guarded(nvml: Any, device: Device, read: Callable[[Device], Any]) -> Any:
    """Return a reading, null where the GPU does not offer it, or the error that it ended with."""
    try:
        return read(device)
    except nvml.NVMLError as error:
        return None if error.value == nvml.NVML_ERROR_NOT_SUPPORTED else {"error": error.value}
    except AttributeError:  # a binding older than the function
        return {"error": nvml.NVML_ERROR_FUNCTION_NOT_FOUND}


class Device:
    """One GPU's handle."""

    def __init__(self, nvml: Any, report: Report, index: int) -> None:
        self.nvml, self.report, self.index = nvml, report, index
        report.at(f"nvmlDeviceGetHandleByIndex_v2 of GPU {index}")  # brings the GPU up without persistence mode
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(self, what: str, *args: Any) -> Any:
        """Call nvmlDevice… with the handle, saying so first."""
        self.report.at(f"nvmlDevice{what} of GPU {self.index}")
        return getattr(self.nvml, f"nvmlDevice{what}")(self.handle, *args)

    def field(self, number: int) -> int:
        """Return an unsigned field value."""
        value = self.ask("GetFieldValues", [number])[0]
        if value.nvmlReturn:
            raise self.nvml.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    def word(self, what: str, prefix: str) -> str:
        """Return a value as the name that it has among the binding's constants of a prefix."""
        value = self.ask(what)
        names = (name for name in dir(self.nvml) if name.startswith(prefix) and not name.endswith("_COUNT"))
        return next((n[len(prefix) :].lower() for n in names if getattr(self.nvml, n) == value), str(value))


def _text(value: str | bytes) -> str:  # some functions of the binding give bytes
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _bus_id(device: Device) -> str:
    domain, _, rest = _text(device.ask("GetPciInfo").busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"  # as /sys writes it


def _memory(device: Device) -> dict[str, int]:
    info = device.ask("GetMemoryInfo", device.nvml.nvmlMemory_v2)  # the first form counts the driver's own as used
    return {name: getattr(info, name) >> 20 for name in ("total", "reserved", "free", "used")}


def _sram_threshold_exceeded(device: Device) -> bool:
    status = device.nvml.c_nvmlEccSramErrorStatus_v1_t()
    device.ask("GetSramEccErrorStatus", ctypes.byref(status))
    return bool(status.bThresholdExceeded)


def _fabric(device: Device) -> dict[str, Any]:
    info = device.nvml.c_nvmlGpuFabricInfo_v2_t()
    try:
        device.ask("GetGpuFabricInfoV", ctypes.byref(info))
    except device.nvml.NVMLError as error:
        if error.value != device.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        info = device.nvml.c_nvmlGpuFabricInfo_t()  # a driver older than the health mask
        device.ask("GetGpuFabricInfo", ctypes.byref(info))
    health = getattr(info, "healthMask", 0)
    return {"state": info.state, "status": info.status, "clique": info.cliqueId, "health": health}


def _processes(device: Device) -> list[dict[str, Any]]:
    """Return who holds memory: compute and graphics processes, each once."""
    found: dict[int, dict[str, Any]] = {}
    for kind in ("Compute", "Graphics"):
        for process in device.ask(f"Get{kind}RunningProcesses"):
            used = None if process.usedGpuMemory is None else process.usedGpuMemory >> 20
            said = {name: _of_process(process.pid, name)[:COMMAND_CHARACTERS] for name in ("comm", "cmdline")}
            found[process.pid] = {"pid": process.pid, "kind": kind.lower(), "memory_mib": used, **said}
    return list(found.values())


def _of_process(pid: int, file: str) -> str:
    """Return a file of a process as one line, "" where it is not ours to see: another's namespace, or gone."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.replace("\0", " ").strip()


READINGS: dict[str, Callable[[Device], Any]] = {
    "name": lambda d: _text(d.ask("GetName")),
    "uuid": lambda d: _text(d.ask("GetUUID")),
    "serial": lambda d: _text(d.ask("GetSerial")),
    "bus_id": _bus_id,
    "device_id": lambda d: d.ask("GetPciInfo").pciDeviceId >> 16,
    "brand": lambda d: d.word("GetBrand", "NVML_BRAND_"),
    "compute_capability": lambda d: ".".join(map(str, d.ask("GetCudaComputeCapability"))),
    "gsp_firmware": lambda d: _text(d.ask("GetGspFirmwareVersion")),
    "virtualization": lambda d: d.word("GetVirtualizationMode", "NVML_GPU_VIRTUALIZATION_MODE_"),
    "addressing_mode": lambda d: d.word("GetAddressingMode", "NVML_DEVICE_ADDRESSING_MODE_"),
    "memory_mib": _memory,
    "bar1_mib": lambda d: d.ask("GetBAR1MemoryInfo").bar1Total >> 20,
    "bus_width_bits": lambda d: d.ask("GetMemoryBusWidth"),
    "memory_clock_mhz": lambda d: d.ask("GetClockInfo", 2),
    "memory_clock_max_mhz": lambda d: d.ask("GetMaxClockInfo", 2),
    "sm_clock_mhz": lambda d: d.ask("GetClockInfo", 1),
    "sm_clock_max_mhz": lambda d: d.ask("GetMaxClockInfo", 1),
    "utilization_percent": lambda d: d.ask("GetUtilizationRates").gpu,
    "persistence": lambda d: bool(d.ask("GetPersistenceMode")),
    "compute_mode": lambda d: COMPUTE_MODES.get(d.ask("GetComputeMode"), "unknown"),
    "ecc_mode": lambda d: list(map(bool, d.ask("GetEccMode"))),  # now, and after the next reset
    # Corrected errors since the driver was loaded, and ever; then uncorrected ones likewise.
    "ecc_errors": lambda d: [d.ask("GetTotalEccErrors", kind, span) for kind in (0, 1) for span in (0, 1)],
    "sram_threshold_exceeded": _sram_threshold_exceeded,
    "remapped_rows": lambda d: list(d.ask("GetRemappedRows")),  # correctable, uncorrectable, pending, failure
    "retired_pages": lambda d: [
        len(d.ask("GetRetiredPages", cause)) for cause in (0, 1)
    ],  # many corrected, uncorrectable
    "retired_pending": lambda d: bool(d.ask("GetRetiredPagesPendingStatus")),
    "recovery_action": lambda d: d.field(230),
    "clocks_event_reasons": lambda d: d.ask("GetCurrentClocksThrottleReasons"),  # the name that old drivers have too
    "temperature_c": lambda d: d.ask("GetTemperature", 0),
    "temperature_margin_c": lambda d: d.ask("GetMarginTemperature"),
    "slowdown_c": lambda d: d.ask("GetTemperatureThreshold", 1),
    "shutdown_c": lambda d: d.ask("GetTemperatureThreshold", 0),
    "power_w": lambda d: d.ask("GetPowerUsage") / 1000,
    "power_limit_w": lambda d: d.ask("GetEnforcedPowerLimit") / 1000,
    "power_default_w": lambda d: d.ask("GetPowerManagementDefaultLimit") / 1000,
    "pcie_generation": lambda d: d.ask("GetCurrPcieLinkGeneration"),
    "pcie_generation_max": lambda d: d.ask("GetMaxPcieLinkGeneration"),
    "pcie_width": lambda d: d.ask("GetCurrPcieLinkWidth"),
    "pcie_width_max": lambda d: d.ask("GetMaxPcieLinkWidth"),
    "pcie_replays": lambda d: d.ask("GetPcieReplayCounter"),
    "mig_mode": lambda d: list(map(bool, d.ask("GetMigMode"))),
    "nvlinks": lambda d: [bool(d.ask("GetNvLinkState", link)) for link in range(d.field(91))],
    "fabric": _fabric,
    "inforom_valid": lambda d: d.ask("ValidateInforom") is None,  # or error 14
    "processes": _processes,
}

if __name__ == "__main__":
    main()
