"""GPUs during a run: readings become a summary, and where nothing can be sampled the reason is kept."""

from typing import Any

from lpxdoctor.decode.gpu import Reading, sampled, summary


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


def test_an_engine_elsewhere_is_not_sampled_here() -> None:
    with sampled(local=False) as sampler:
        sampler.read_head()
        assert sampler.failure == "the engine's address is not this machine's"
        assert sampler.used(0, 1) == ()


def test_this_machines_gpus_are_sampled_or_the_reason_is_kept() -> None:
    with sampled(local=True) as sampler:
        sampler.read_head()
        assert (sampler.failure is None) == (sampler.driver is not None) == bool(sampler.names)
        assert len(sampler.cards) == len(sampler.names)
        if sampler.failure is not None:
            assert sampler.failure.startswith("NVML")
            assert sampler.used(0, 1 << 62) == ()
