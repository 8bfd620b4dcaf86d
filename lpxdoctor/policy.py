"""A site's numbers and wishes: the bundled policy.toml, overlaid by the site's own, as one typed value."""

import datetime
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor import bundled
from lpxdoctor.errors import UsageError
from lpxdoctor.files import read_text

SITE_POLICY = Path("/etc/lpxdoctor/policy.toml")


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What this site's hosts are meant to be; null where the site has not said."""

    gpus: int | None = None
    driver: str | None = None  # a version ("580.105.08") or a branch ("580")
    engines: tuple[str, ...]  # words in the command line of a process that may hold GPUs


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of checks."""

    min_coverage: float  # share of the applicable checks that must be judged for a host to be called healthy
    image_disk_gib: float  # free space that the engine's image needs below Docker's root
    system_disk_gib: float  # free space that / and /var need to keep working
    boot_disk_mib: int  # free space of a /boot of its own that the next kernel and its initramfs need
    shm_mib: int  # /dev/shm that an engine with several GPUs needs
    engine_start_s: int  # after which an engine that does not answer yet is stuck
    gpu_memory_used_share: float  # of a GPU's memory held by others before the engine starts
    correctable_ecc: int  # correctable errors since boot that are worth a warning
    temperature_margin_c: int  # degrees below the GPU's own slow-down limit
    retired_pages: int  # of a GPU before Ampere, from which on it is to be replaced
    busy_percent: int  # utilization from which on a GPU's PCIe link must have left its idle speed
    driver_end_months: int  # months before the end of a driver branch's support in which to say so


class Ladder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a ladder of concurrencies ends, and what of it is worth a note."""

    errors_share: float  # of a rung's requests that failed: more end the ladder
    latency_growth: float  # median answer time over that of the first rung: more ends the ladder
    memory_growth: float  # of a GPU's memory from the first rung to the last: more is noted


class Compare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When one baseline is slower than another; by metric: tokens_per_s, tpot, ttft."""

    false_alarm: float  # chance that a report calls anything slower when nothing is
    slowdown: float  # that must have been found, had it been there, for a comparison to say that there is none
    matters: dict[str, float]  # least change that is worth a word, as a share
    noise: dict[str, float]  # standard deviation between runs of one set-up, where no repeats tell it


class Tune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a candidate of `tune` is kept."""

    least_gain: float  # of tokens/s, over all concurrencies, as a share
    patience: int  # steps in a row without a gain, after which no further one is tried
    perplexity_rise: float  # the most that the perplexity of the regression set may rise, as a share
    agreement: float  # the least share of greedy tokens before the first other one, where the engine is sure
    sure: float  # geometric mean of the probabilities of greedy tokens from which on it is


class Provision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `provision` asks of an engine before its host counts as done."""

    concurrencies: tuple[int, ...]  # requests at once of the short baseline
    requests: int  # for each of them
    input_len: int  # tokens
    output_len: int  # tokens
    least_share: float  # of the canary's tokens/s


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding that the site accepts until a date, with the reason."""

    id: str
    reason: str
    until: datetime.date
    subject: str = ""  # "" for all


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of policy.toml."""

    expect: Expect
    limits: Limits
    ladder: Ladder
    compare: Compare
    tune: Tune
    provision: Provision
    disabled: tuple[str, ...] = ()
    severity: dict[str, str] = {}
    waivers: tuple[Waiver, ...] = ()


def load(site: Path | None = None) -> Policy:
    """Return the bundled policy overlaid by the site's file, /etc/lpxdoctor/policy.toml where none is named.

    Raises UsageError where a file cannot be read, or has a key or value that is not one.
    """
    merged = _read(bundled.CHECKS / "policy.toml")
    if site is not None or SITE_POLICY.exists():
        merged = _overlaid(merged, _read(site or SITE_POLICY))
    try:
        return msgspec.convert(merged, Policy)
    except msgspec.ValidationError as error:
        raise UsageError(f"{site or SITE_POLICY}: {error}. Compare it with {bundled.CHECKS / 'policy.toml'}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.toml.decode(read_text(path), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no valid TOML: {error}") from None


def _overlaid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return above over below, tables merged key by key."""
    merged = dict(below)
    for key, value in above.items():
        lower = merged.get(key)
        merged[key] = _overlaid(lower, value) if isinstance(lower, dict) and isinstance(value, dict) else value
    return merged
