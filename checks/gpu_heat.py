"""Each GPU's heat, power and the reasons of its clocks in; what holds it back out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.nvml import Reason
from lpxdoctor.policy import Policy


@check("gpu.hardware-slowdown", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def hardware_slowdown(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's hardware has cut its clocks to protect itself from heat.

    Why: it runs at half its clocks or less until it is cooler; every token takes longer, and a baseline measured now
    says nothing.
    Fix: look at fans, air flow, dust and the room; a card that is hot while its neighbours are not wants its cooler
    looked at.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (clocks event reasons)
    """
    braked = Reason.POWER_BRAKE  # sets HARDWARE_SLOWDOWN too
    yield from _held_back(gpus, Reason.HARDWARE_THERMAL | Reason.HARDWARE_SLOWDOWN, "its hardware slow-down", braked)


@check("gpu.power-brake", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def power_brake(gpus: Gpus) -> Iterator[Finding]:
    """The machine has told a GPU to brake: its power supply is short.

    Why: the power brake is a wire that the server pulls when a supply fails or its budget is passed; the GPU then cuts
    its clocks at once, whatever its own power limit says.
    Fix: look at the power supplies and their event log (ipmitool sel list, ipmitool sensor | grep -i ps).
    Source: https://docs.nvidia.com/deploy/nvml-api/ (clocks event reasons)
    """
    yield from _held_back(gpus, Reason.POWER_BRAKE, "the machine's power brake")


@check("gpu.thermal-slowdown", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.hardware-slowdown"])
def thermal_slowdown(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's clocks are lowered to keep it below its temperature limit (thermal throttling).

    Why: it computes more slowly than it could, and how much changes with the room: numbers measured now do not repeat.
    Fix: better cooling, or a lower power limit that it can hold: nvidia-smi -i N -pl WATTS.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (clocks event reasons)
    """
    yield from _held_back(gpus, Reason.SOFTWARE_THERMAL, "its temperature limit")


@check(
    "gpu.temperature-near-limit", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.hardware-slowdown"]
)
def temperature_near_limit(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """A GPU is within a few degrees of the temperature at which it slows down.

    Why: a little more load or a warmer afternoon, and its clocks fall.
    Fix: look at fans, air flow and dust now.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetMarginTemperature); policy.toml, temperature_margin_c
    """
    for gpu in gpus.working:
        margin = gpu.temperature_margin_c
        if margin is None and gpu.slowdown_c and gpu.temperature_c:
            margin = gpu.slowdown_c - gpu.temperature_c
        if margin is not None and margin <= policy.limits.temperature_margin_c:
            seen = (Seen("temperature", f"{gpu.temperature_c} °C", "NVML"), Seen("left", f"{margin} °C", "NVML"))
            yield Finding(f"{gpu.subject} is {margin} °C below its slow-down", gpu.subject, seen)


@check("gpu.power-limit-lowered", Severity.INFO, layer="hardware", after=["driver.nvml-fails"])
def power_limit_lowered(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's power limit is below its default.

    Why: somebody chose less power, which is often sensible; decoding loses little and prefill more. A profile is only
    comparable with others at the same limit.
    Fix: to take it back: nvidia-smi -i N -pl DEFAULT.
    Source: https://docs.nvidia.com/deploy/nvidia-smi/ (power limit)
    """
    for gpu in gpus.working:
        if gpu.power_limit_w and gpu.power_default_w and gpu.power_limit_w < gpu.power_default_w - 1:
            seen = (
                Seen("limit", f"{gpu.power_limit_w:.0f} W", "NVML"),
                Seen("default", f"{gpu.power_default_w:.0f} W", "NVML"),
            )
            do = (f"sudo nvidia-smi -i {gpu.index} -pl {gpu.power_default_w:.0f}",)
            yield Finding(
                f"{gpu.subject} may draw {gpu.power_limit_w:.0f} of {gpu.power_default_w:.0f} W", gpu.subject, seen, do
            )


def _held_back(gpus: Gpus, reason: Reason, by: str, but_for: Reason | None = None) -> Iterator[Finding]:
    for gpu in gpus.working:
        if gpu.reasons is not None and gpu.reasons & reason and not (but_for and gpu.reasons & but_for):
            seen = [Seen("reason", by, "NVML"), Seen("temperature", f"{gpu.temperature_c} °C", "NVML")]
            if gpu.sm_clock_mhz and gpu.sm_clock_max_mhz:
                seen.append(Seen("SM clock", f"{gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz", "NVML"))
            yield Finding(f"{gpu.subject} is held back by {by}", gpu.subject, tuple(seen))
