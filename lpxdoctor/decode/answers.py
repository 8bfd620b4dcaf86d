"""The answers of a rung in, why their numbers are not those of a stream of the length asked for out; pure."""

from collections.abc import Iterator, Sequence

from lpxdoctor.decode.samples import Sample

# So many chunks within so short a time were not generated then: that is 16,000 tokens per second of one request.
_CHUNKS, _AT_ONCE_NS = 16, 1_000_000


def answer_reasons(good: Sequence[Sample], output_len: int) -> Iterator[str]:
    """Yield what makes these answers incomparable; output_len is how many tokens were asked for."""
    longer = sum(sample.tokens > output_len for sample in good)
    if longer:
        yield (
            f"{longer} of {len(good)} answers have more than {output_len} tokens: the server does not keep to what is "
            "asked for, or counts wrongly"
        )
    held = sum(_came_at_once(sample) for sample in good)
    if 2 * held > len(good):
        yield f"{held} of {len(good)} answers came all at once: something on the way, like a proxy, holds streams back"


def _came_at_once(sample: Sample) -> bool:
    arrivals = sample.arrivals_ns
    return len(arrivals) >= _CHUNKS and arrivals[-1] - arrivals[0] < _AT_ONCE_NS
