"""What a text has shown in; what to look at next, by the order in which a fault is narrowed down, out."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """Something to look at: the layer of the search, what is asked, and the command whose output answers it."""

    layer: str
    ask: str
    command: str
    answered_by: tuple[str, ...] = ()  # what of the context makes it needless, all of it


# The order is that of a search: what is seen, what went in, what it runs on, how it is set, what it can do at all.
_ALL = (
    Question(
        "symptom",
        "What exactly happens: an error (in which words), the first token slow or the later ones, always or sometimes, "
        "memory that runs out or a GPU that idles?",
        "docker logs --tail 200 ENGINE",
    ),
    Question(
        "input",
        "Is the input longer or odder than usual: prompt tokens of a slow request, characters, the longest of a batch?",
        "curl -s localhost:8000/metrics | grep -e prompt_tokens -e time_to_first_token -e num_requests",
    ),
    Question(
        "environment",
        "Does the driver answer, which CUDA does it carry, and who else uses the GPUs?",
        "nvidia-smi",
        ("driver", "gpu"),
    ),
    Question("environment", "What does the kernel say of the GPUs?", "sudo dmesg | grep -i -e NVRM -e Xid | tail -20"),
    Question(
        "environment",
        "How does Docker hand GPUs over: which version, runtimes, cgroup driver and CDI directories?",
        "docker info",
        ("docker",),
    ),
    Question(
        "parameters",
        "How is the engine started: concurrency, context, max_tokens, quantization, memory share?",
        "docker inspect ENGINE --format '{{json .Args}}'",
        ("model",),
    ),
    Question(
        "tool limits",
        "Which version of the engine on which GPU?",
        "docker inspect ENGINE --format '{{.Config.Image}}'; nvidia-smi --query-gpu=name,compute_cap --format=csv",
        ("vllm", "gpu"),
    ),
)
_AT_ONCE = 3


def questions(about: Mapping[str, str], *, shown: bool) -> tuple[Question, ...]:
    """Return the next questions; shown tells that the text shows a symptom already."""
    open_ones = [each for each in _ALL if not (each.answered_by and all(about.get(name) for name in each.answered_by))]
    return tuple(each for each in open_ones if not (shown and each.layer == "symptom"))[:_AT_ONCE]
