"""A URL in, what one short rung against it leaves behind out."""

from collections import Counter
from collections.abc import Sequence

from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.samples import Recording, Role, Sample
from lpxdoctor.decode.workload import Workload

WORK = Workload(model="peer", input_len=32, output_len=8, nonce="test")


def load(
    url: str,
    concurrency: int = 2,
    requests: int = 6,
    work: Workload = WORK,
    timeout_s: float = 60,
    hooks: Hooks | None = None,
) -> Recording:
    return Loop(endpoint(url), work, concurrency, requests, timeout_s=timeout_s, hooks=hooks or Hooks()).run()


def counted(recording: Recording) -> list[Sample]:
    return [sample for sample in recording.samples if sample.role is Role.COUNTED]


def kinds(samples: Sequence[Sample]) -> Counter[str]:
    return Counter(sample.kind for sample in samples)
