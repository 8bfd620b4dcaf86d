"""A profile in, sentences out: its knee, service target and ceiling, and what it has to say of its lines."""

from collections.abc import Iterator

from lpxdoctor.decode.profile import Ceiling, Knee, Profile, Rung, Slo

_GIGA = 1e9


def conclusions(profile: Profile) -> Iterator[tuple[bool, str]]:
    """Yield (whether it is the head of what follows, the sentence)."""
    if profile.ladder and profile.ladder.stopped:
        yield False, f"The ladder ended: {profile.ladder.stopped}."
    if profile.knee:
        yield from _knee(profile.knee)
    if profile.slo:
        yield from _slo(profile.slo)
    yield from _ceiling(profile)


def _knee(knee: Knee) -> Iterator[tuple[bool, str]]:
    sure = f"{knee.confidence} confidence"
    if knee.concurrency is None:
        yield True, f"Knee: {knee.cause}, up to where it was measured"
    else:
        yield True, f"Knee: {knee.concurrency} at once, by {knee.cause} ({sure})"
    yield from ((False, f"  {line}") for line in knee.evidence)
    yield from ((False, f"  to move it: {line}") for line in knee.advice)


def _slo(slo: Slo) -> Iterator[tuple[bool, str]]:
    target = " and ".join(f"{name} within {value:g} ms" for name, value in slo.targets_ms.items())
    if slo.concurrency is None:
        yield True, f"No line holds the target: {slo.percentile} of {target}"
    else:
        sure = "with 95% confidence" if slo.confident else "as far as so few requests tell: more with --requests"
        yield True, f"Target: {slo.concurrency} at once hold {slo.percentile} of {target}, {sure}"
    told = [rung for rung in slo.rungs if slo.concurrency is None or rung.concurrency >= slo.concurrency]
    if slo.concurrency is None:
        told = told[:1]
    yield from ((False, f"  {rung.concurrency} at once: {rung.because}") for rung in told[:2])


def _ceiling(profile: Profile) -> Iterator[tuple[bool, str]]:
    basis = profile.ceiling
    if basis is None:
        why = profile.unknown.get("ceiling")
        if why:
            yield False, f"Ceiling not known: {why}."
        return
    one = basis.replicas * basis.bytes_per_s / basis.weights_bytes
    gpus = f" on each of {basis.tensor_parallel} GPUs" if basis.tensor_parallel > 1 else ""
    step = f"{basis.weights_bytes / _GIGA:.1f} GB a step{gpus} at {basis.bytes_per_s / _GIGA:,.0f} GB/s"
    yield True, f"Ceiling of one stream: {one:,.0f} tokens/s, {step}"
    yield False, f"  weights from {basis.weights_from} in {basis.model}; bandwidth {basis.bandwidth_from}"
    yield from ((False, f"  assumed: {line}") for line in basis.assumed)
    known = [rung for rung in profile.rungs if rung.ceiling and rung.ceiling.step_ms is not None and rung.valid]
    knee = profile.knee.concurrency if profile.knee else None
    ends = {rung.concurrency: rung for rung in known if rung in (known[0], known[-1]) or rung.concurrency == knee}
    yield from ((False, f"  {_gap(rung, rung.ceiling)}") for rung in ends.values() if rung.ceiling)
    if ends:
        yield False, "  besides: scheduling, launching kernels, prompts in between"


def _gap(rung: Rung, ceiling: Ceiling) -> str:
    """Say what a step's time goes into."""
    arithmetic = f", arithmetic {ceiling.compute_ms:.2f}" if ceiling.compute_ms is not None else ""
    peaks = f"weights {ceiling.weights_ms:.2f}, KV cache {ceiling.kv_cache_ms:.2f}{arithmetic}"
    rest = max(ceiling.rest_ms or 0.0, 0.0)
    return f"{rung.concurrency} at once: {ceiling.step_ms:.2f} ms a step: at their peaks {peaks}; {rest:.2f} besides"


def remarks(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield (kind, sentence): "wrong" with "more" of it below, "note", "fine" or "dim"."""
    yield "dim", f"Milliseconds; measured {profile.reached}, by {_clock(profile)}."
    for rung in profile.rungs:
        if rung.invalid_because:
            yield "wrong", f"{rung.concurrency} at once: {rung.invalid_because}"
        for kind, example in rung.error_examples.items():
            yield "more", f"{rung.errors_by_kind.get(kind, 0)} x {example}"
        for note in rung.notes:
            yield "note", f"{rung.concurrency} at once: {note}"
    yield from (("note", note) for note in profile.notes)
    if profile.interrupted:
        yield "wrong", "Interrupted: this is what was measured until then."
    elif profile.is_valid:
        yield "fine", f"Every line can be compared: no errors, {_surroundings(profile)}."


def _surroundings(profile: Profile) -> str:
    """Say what was seen besides the requests, and what could not be."""
    rates = [rung.engine.prefix_cache_hit_rate if rung.engine else None for rung in profile.rungs]
    known = [rate for rate in rates if rate is not None]
    told = len(known) == len(rates)
    cache = f"prefix-cache hits {max(known):.1%} at most" if told else "prefix-cache hits not told by the server"
    sampled = "no GPU slowed down" + ("" if profile.notes or not profile.ladder else ", memory flat")
    gpus = sampled if profile.gpu else f"GPUs not sampled ({profile.unknown.get('gpu')})"
    return f"{cache}, {gpus}"


def _clock(profile: Profile) -> str:
    kernel = all(rung.client.clock == "kernel" for rung in profile.rungs)
    return "the kernel's receive times" if kernel else "this program's clock, which is later than the arrival"
