"""GPUs during a run: the sampler's lines in, what each GPU did over a rung out."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from typing import IO

import msgspec

from lpxdoctor.decode.profile import GpuUse

_BUSY_PERCENT = 5  # a GPU below that over a rung does not serve this model
_END_TIMEOUT_S = 2
_HEAD_TIMEOUT_S = 5
_SILENT_S = 10  # twenty readings: a driver that takes so long hangs
# Clocks event reasons that mean the hardware could not hold its clocks. The software power cap is left out: a busy GPU
# is meant to run into its power limit. Source: NVML API reference, nvmlClocksEventReasons.
_SLOWED = {
    0x08: "hardware slowdown",
    0x20: "temperature, by the driver",
    0x40: "temperature, by the hardware",
    0x80: "power brake",
}


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a GPU's speed; None for what it does not tell."""

    capability: str | None
    memory_clock_mhz: int | None  # the highest
    bus_width_bits: int | None
    cores: int | None


class _Head(msgspec.Struct, frozen=True):
    driver: str | None = None
    names: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    xids_from: str | None = None
    failure: str | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment; None for what it does not tell."""

    utilization: int | None
    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    memory_mib: int | None
    reasons: int | None
    groups: int | None

    @property
    def is_silent(self) -> bool:
        """Whether it told nothing at all, as a GPU that fell off the bus."""
        return all(value is None for value in msgspec.structs.astuple(self))


class _Line(msgspec.Struct, frozen=True):
    at_ns: int
    gpus: tuple[Reading, ...]
    xids: tuple[tuple[int, int], ...] = ()  # GPU's index, code


class Sampler:
    """The sampling process and what it has said; failure tells why it says nothing."""

    def __init__(self, process: "subprocess.Popen[bytes] | None", output: IO[bytes], failure: str | None) -> None:
        self.failure = failure
        self.driver: str | None = None
        self.names: tuple[str, ...] = ()
        self.cards: tuple[Card, ...] = ()
        self.xids_from: str | None = None  # where errors of the GPUs are looked for, None: nowhere
        self._process = process
        self._output = output

    def read_head(self) -> None:
        """Learn the driver and the GPUs' names, or why nothing is sampled; wait for it a little."""
        deadline = time.monotonic() + _HEAD_TIMEOUT_S
        while self.failure is None and not self.names:
            # Asked before reading: one that writes its head and ends has said it.
            ended = self._process is None or self._process.poll() is not None or time.monotonic() > deadline
            lines = self._lines()
            if lines:
                head = msgspec.json.decode(lines[0], type=_Head)
                self.driver, self.names, self.cards = head.driver, head.names, head.cards
                self.xids_from = head.xids_from
                self.failure = head.failure or (None if head.names else "NVML knows no GPU")
            elif ended:
                self.failure = f"the sampler ended, or said nothing within {_HEAD_TIMEOUT_S} s"
            else:
                time.sleep(0.02)

    def used(self, began_ns: int, ended_ns: int) -> tuple[GpuUse, ...]:
        """Return what the busy GPUs did between two moments of the monotonic clock."""
        self.read_head()
        if self.failure is not None:
            return ()
        lines = [msgspec.json.decode(line, type=_Line) for line in self._lines()[1:]]
        during = [line for line in lines if began_ns <= line.at_ns <= ended_ns]
        uses = (
            summary(index, name, [line.gpus[index] for line in during], self._xids(during, index))
            for index, name in enumerate(self.names)
        )
        return tuple(use for use in uses if use is not None)

    def unread(self, began_ns: int, ended_ns: int) -> str:
        """Tell why GPUs that could be read were not to the end of this time; "" where they were, or never could be."""
        if self.failure is not None:
            return ""
        lines = [msgspec.json.decode(line, type=_Line) for line in self._lines()[1:]]
        until = [line for line in lines if line.at_ns <= ended_ns]
        silent_ns = ended_ns - max([began_ns, *(line.at_ns for line in until)])
        if silent_ns > _SILENT_S * 1e9:
            return f"NVML said nothing in the last {silent_ns / 1e9:.0f} s"
        told = zip(until[0].gpus, until[-1].gpus, strict=True) if until else ()
        lost = [str(index) for index, (first, last) in enumerate(told) if not first.is_silent and last.is_silent]
        return f"GPU {', '.join(lost)} no longer tells NVML anything" if lost else ""

    def _xids(self, lines: Sequence[_Line], index: int) -> tuple[int, ...] | None:
        if self.xids_from is None:
            return None
        return tuple(code for line in lines for where, code in line.xids if where == index)

    def _lines(self) -> list[bytes]:
        """Return the complete lines so far; the file's position is the sampler's and stays where it is."""
        number = self._output.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).split(b"\n")[:-1]


@contextlib.contextmanager
def sampled(*, local: bool) -> Generator[Sampler]:
    """Sample this machine's GPUs until the block ends; where the engine runs elsewhere, say so instead."""
    with tempfile.TemporaryFile() as output:
        if not local:
            yield Sampler(None, output, "the engine's address is not this machine's")
            return
        argv = (sys.executable, "-m", "lpxdoctor.decode.sampler")
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield Sampler(process, output, None)
        finally:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:  # in a driver call that does not end: it dies when that does
                process.kill()


def summary(index: int, name: str, readings: Sequence[Reading], xids: tuple[int, ...] | None = None) -> GpuUse | None:
    """Summarise one GPU's readings over a rung; None when it was idle. One that does not tell is not idle.

    xids are the errors that it reported meanwhile, None when they were not looked for.
    """
    utilization = _known([reading.utilization for reading in readings])
    busy = sum(utilization) / len(utilization) if utilization else None
    idle = busy is not None and busy < _BUSY_PERCENT
    if not readings or (idle and not xids):
        return None
    sm, memory = _known([r.sm_mhz for r in readings]), _known([r.memory_mhz for r in readings])
    used = _known([r.memory_mib for r in readings])
    masks = _known([r.reasons for r in readings])
    slowed = Counter(reason for mask in masks for bit, reason in _SLOWED.items() if mask & bit)
    temperature, power = _known([r.temperature_c for r in readings]), [r.power_w for r in readings if r.power_w]
    groups = _known([r.groups for r in readings])
    return GpuUse(
        index=index,
        name=name,
        samples=len(readings),
        utilization_mean=busy,
        sm_clock_mhz=(min(sm), max(sm)) if sm else None,
        memory_clock_mhz=(min(memory), max(memory)) if memory else None,
        temperature_max_c=max(temperature, default=None),
        power_max_w=max(power, default=None),
        memory_mib=(used[0], used[-1]) if used else None,
        slowed_share={reason: count / len(masks) for reason, count in slowed.items()},
        process_groups=max(groups, default=None),
        xids=xids,
    )


def _known(values: Sequence[int | None]) -> list[int]:
    return [value for value in values if value is not None]
