"""GPUs in, the Xid errors that they report from then on out: NVML's events, the kernel log where it has none."""

import os
import time
from typing import Any

from lpxdoctor.facts.xid import xids

_KERNEL_LOG = "/dev/kmsg"
_POLL_S = 0.1


class XidWatch:
    """Waits between two samples; source is "NVML", "kernel log", or None where neither can be had."""

    def __init__(self, nvml: Any, handles: list[Any], kernel_log: str = _KERNEL_LOG) -> None:
        self._nvml, self._handles = nvml, handles
        self._events = _registered(nvml, handles)
        self._log = -1 if self._events is not None else _opened(kernel_log)
        self.source = "NVML" if self._events is not None else "kernel log" if self._log >= 0 else None

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return (GPU's index, code) of what was reported, at once when something is, none after the time-out."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            found = self._event(left_s) if self._events is not None else self._logged(left_s)
            if found:
                return found
        return []

    def _event(self, left_s: float) -> list[tuple[int, int]]:
        nvml = self._nvml
        began = time.monotonic()
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, max(1, int(left_s * 1000)))
            return [(nvml.nvmlDeviceGetIndex(event.device), int(event.eventData))]
        except nvml.NVMLError:  # time-out, mostly; another error comes at once and must not make this a busy loop
            time.sleep(max(0.0, min(left_s, _POLL_S) - (time.monotonic() - began)))
            return []

    def _logged(self, left_s: float) -> list[tuple[int, int]]:
        time.sleep(min(left_s, _POLL_S) if self._log >= 0 else left_s)
        lines: list[str] = []
        try:
            while self._log >= 0 and (record := os.read(self._log, 1 << 16)):  # one record of the log a read
                lines += record.decode(errors="replace").splitlines()
        except BlockingIOError:
            pass
        except OSError:  # records were overwritten before they were read: what is there now comes next
            lines.append("")
        places = {index: self._nvml.nvmlDeviceGetPciInfo(handle).busId for index, handle in enumerate(self._handles)}
        return [(index, xid.code) for xid in xids(lines) for index, place in places.items() if xid.on(_short(place))]


def _registered(nvml: Any, handles: list[Any]) -> Any:
    """Return a set of events in which every GPU reports its Xids, None where one cannot."""
    try:
        events = nvml.nvmlEventSetCreate()
    except (nvml.NVMLError, AttributeError):
        return None
    try:
        for handle in handles:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        nvml.nvmlEventSetFree(events)
        return None
    return events


def _opened(path: str) -> int:
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return -1
    return log


def _short(bus_id: Any) -> str:
    """Return an address with the kernel's four digits of domain; NVML writes eight."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    return text.lower()[-12:]
