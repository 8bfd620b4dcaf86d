"""GPUs during a run: readings become a summary, and where nothing can be sampled the reason is kept."""

import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from lpxdoctor.decode.gpu import Reading, Sampler, sampled, summary
from lpxdoctor.decode.xid_watch import XidWatch


def reading(**changes: Any) -> Reading:
    values: dict[str, Any] = {
        "utilization": 90, "sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 60, "power_w": 500.0,
        "memory_mib": 1000, "reasons": 0, "groups": 1, **changes,
    }  # fmt: skip
    return Reading(**values)


def test_a_busy_gpu_is_summarised() -> None:
    readings = [reading(), reading(sm_mhz=1500, reasons=0x44, temperature_c=88), reading(reasons=0x8, memory_mib=1040)]
    use = summary(2, "NVIDIA L4", [*readings, reading(reasons=0x4, groups=2)])
    assert use is not None
    assert (use.index, use.name, use.samples) == (2, "NVIDIA L4", 4)
    assert use.sm_clock_mhz == (1500, 1980)
    assert use.temperature_max_c == 88
    assert use.memory_mib == (1000, 1000)
    assert use.process_groups == 2
    # 0x4 alone is the software power cap: where a busy GPU is meant to be.
    assert use.slowed_share == {"temperature, by the hardware": 0.25, "hardware slowdown": 0.25}


def test_an_idle_gpu_is_left_out() -> None:
    assert summary(0, "NVIDIA L4", [reading(utilization=0), reading(utilization=4)]) is None
    assert summary(0, "NVIDIA L4", []) is None


def test_an_idle_gpu_with_an_error_is_not_left_out() -> None:
    use = summary(0, "NVIDIA L4", [reading(utilization=0)], (79,))
    assert use is not None
    assert use.xids == (79,)
    assert summary(0, "NVIDIA L4", [reading(utilization=0)], ()) is None


def test_errors_are_read_from_the_kernel_log_where_nvml_has_no_events(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:65:00): 79, an old one\n")
    watch = XidWatch(Library(has_events=False), [0, 1], str(log))
    assert watch.source == "kernel log"
    with log.open("a") as line:
        line.write("4,2,2,-;NVRM: Xid (PCI:0000:B3:00): 48, pid=7, name=python3, DBE\n4,3,3,-;usb 1-1: new device\n")
    assert watch.wait(5) == [(1, 48)]
    assert watch.wait(0.15) == []


def test_errors_come_from_nvml_where_it_has_events() -> None:
    library = Library(has_events=True)
    watch = XidWatch(library, [0, 1], "/dev/null")
    assert watch.source == "NVML"
    assert watch.wait(0.15) == []
    library.events.append((1, 94))
    began = time.monotonic()
    assert watch.wait(60) == [(1, 94)]
    assert time.monotonic() - began < 30


def test_where_nobody_tells_errors_nothing_is_claimed(tmp_path: Path) -> None:
    watch = XidWatch(Library(has_events=False), [0], str(tmp_path / "none"))
    assert watch.source is None
    assert watch.wait(0.05) == []


class Library:
    """What NVML's events look like to a program; there is no GPU here whose driver could report one."""

    class NVMLError(Exception):
        pass

    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - its own name

    def __init__(self, *, has_events: bool) -> None:
        self.has_events = has_events
        self.events: list[tuple[int, int]] = []

    def nvmlEventSetCreate(self) -> str:  # noqa: N802
        return "set"

    def nvmlEventSetFree(self, _events: str) -> None:  # noqa: N802
        return None

    def nvmlDeviceRegisterEvents(self, _handle: int, kinds: int, _events: str) -> None:  # noqa: N802
        if not self.has_events or kinds != 8:
            raise self.NVMLError("Not Supported")

    def nvmlEventSetWait_v2(self, _events: str, timeout_ms: int) -> SimpleNamespace:  # noqa: N802
        if not self.events:
            time.sleep(timeout_ms / 1000)
            raise self.NVMLError("Timeout")
        device, code = self.events.pop()
        return SimpleNamespace(device=device, eventData=code)

    def nvmlDeviceGetIndex(self, device: int) -> int:  # noqa: N802
        return device

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=(b"00000000:65:00.0", b"00000000:B3:00.0")[handle])


def test_what_a_gpu_does_not_tell_is_null() -> None:
    silent = reading(
        utilization=None,
        sm_mhz=None,
        memory_mhz=None,
        temperature_c=None,
        power_w=None,
        memory_mib=None,
        reasons=None,
        groups=None,
    )
    use = summary(0, "GB10", [silent])
    assert use is not None
    assert (use.sm_clock_mhz, use.memory_mib, use.power_max_w, use.process_groups) == (None, None, None, None)
    assert use.slowed_share == {}


SILENT = dict.fromkeys(Reading.__struct_fields__)


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([(0, {}), (19, {})], ""),
        ([(0, {}), (8, {})], "NVML said nothing in the last 12 s"),
        ([], "NVML said nothing in the last 20 s"),
        ([(0, {}), (19, SILENT)], "GPU 0 no longer tells NVML anything"),
        ([(0, SILENT), (19, SILENT)], ""),  # one that never told anything
        ([(0, {}), (19, {}), (25, SILENT)], ""),  # later
    ],
)
def test_a_driver_that_stops_answering_is_seen(readings: list[tuple[int, dict[str, Any]]], said: str) -> None:
    second = 1_000_000_000
    lines: list[dict[str, Any]] = [{"driver": "580.95.05", "names": ["NVIDIA H200"], "cards": []}]
    lines += [
        {"at_ns": at * second, "gpus": [msgspec.to_builtins(reading(**changes))], "xids": []}
        for at, changes in readings
    ]
    with tempfile.TemporaryFile() as output:
        output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        output.flush()
        sampler = Sampler(None, output, None)
        sampler.read_head()
        assert sampler.failure is None
        assert sampler.unread(0, 20 * second) == said


def test_what_a_sampler_said_before_its_end_counts() -> None:
    with tempfile.TemporaryFile() as output:

        class Ending:
            def poll(self) -> int:
                output.write(b'{"driver":"580.95.05","names":["NVIDIA L4"],"cards":[],"xids_from":"","failure":null}\n')
                output.flush()
                return 0

        sampler = Sampler(cast("subprocess.Popen[bytes]", Ending()), output, None)
        sampler.read_head()
        assert (sampler.failure, sampler.names) == (None, ("NVIDIA L4",))


def test_an_engine_elsewhere_is_not_sampled_here() -> None:
    with sampled(local=False) as sampler:
        sampler.read_head()
        assert sampler.failure == "the engine's address is not this machine's"
        assert sampler.used(0, 1) == ()


def test_this_machines_gpus_are_sampled_or_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.decode.gpu._HEAD_TIMEOUT_S", 60)
    with sampled(local=True) as sampler:
        sampler.read_head()
        assert (sampler.failure is None) == (sampler.driver is not None) == bool(sampler.names)
        assert len(sampler.cards) == len(sampler.names)
        if sampler.failure is not None:
            assert sampler.failure.startswith("NVML")
            assert sampler.used(0, 1 << 62) == ()
