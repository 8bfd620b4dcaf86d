"""The table of known errors and symptoms: each row is whole, each pattern quick, each meaning a sentence."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.facts import messages
from lpxdoctor.facts.anchors import anchors
from lpxdoctor.facts.messages import Known

ROWS = messages.table()


@pytest.mark.parametrize("known", ROWS, ids=lambda known: known.name)
def test_a_row_is_whole(known: Known) -> None:
    assert [each.name for each in ROWS].count(known.name) == 1
    assert known.meaning[0].islower() or known.meaning.startswith(
        (
            "CUDA",
            "DKMS",
            "Docker",
            "Fabric",
            "GPUs",
            "NCCL",
            "NVIDIA",
            "SELinux",
            "Secure",
            "WSL",
            "Xid",
            "MIG",
            "--",
            "/dev",
            "[",
        )
    )
    assert not known.meaning.endswith(".")
    for pattern in filter(None, (known.pattern, known.heard, *known.when, *known.unless)):
        assert messages.compiled(pattern).search("") is None
    for reading in known.but:
        assert reading.when or reading.unless, "a reading without a condition would hide the row's own"


@pytest.mark.parametrize("known", ROWS, ids=lambda known: known.name)
def test_a_meaning_names_only_what_the_pattern_or_the_context_may_know(known: Known) -> None:
    from_context = {"gpu", "arch", "cc", "sm", "driver", "driver_cuda", "kernel", "vllm", "docker", "toolkit", "change"}
    from_context |= {
        "client",
        "module",
        "cmdline_note",
        "others",
        "dkms_kernels",
        "address",
        "fabric",
        "code",
        "package_versions",
        "runtime_cuda",
        "needs_driver",
        "p2p_told",
    }
    groups = {name.rstrip("0123456789") for name in messages.compiled(known.pattern).groupindex}
    for meaning in (known.meaning, *(reading.meaning for reading in known.but)):
        assert set(re.findall(r"\{(\w+)\}", meaning)) <= groups | from_context


@pytest.mark.parametrize("known", ROWS, ids=lambda known: known.name)
def test_no_line_makes_a_pattern_slow(known: Known) -> None:
    assert any(search_s(known) < 3 for _ in range(3))  # on a busy machine a processor may be slow itself


def search_s(known: Known) -> float:
    """Return the seconds of a processor that looking for a pattern takes in lines made to mislead it."""
    words = messages.needed(known.pattern) or ("x",)
    begun = time.process_time()
    for word in words[:3]:
        for filler in ("a", "/a.b-c_", " ", "1", "[({", f"{word} "):
            list(messages.compiled(known.pattern).finditer(f"{word}{filler * (8192 // len(filler))}{word}"))
    return time.process_time() - begun


def test_anchors_are_words_that_every_match_holds() -> None:
    assert anchors("Error 802\\b|SYSTEM_NOT_READY") == ("error 802", "system_not_ready")
    assert anchors("(?:modprobe|insmod)[^\\n]{0,9} nvidia-uvm?") == (" nvidia-uv",)
    assert anchors("(?P<a>sm_\\d+)? is not compatible") == (" is not compatible",)
    assert anchors("a|long word") == ()
    assert anchors("显存|video memory") == ("video memory", "显存")
    assert anchors(r"(?<!no )Xids? \d+") == ("xid",)


@pytest.mark.parametrize(
    ("meaning", "values", "said"),
    [
        ("it needs {cuda}[, and {driver} has {had}]", {"cuda": "13.0"}, "it needs 13.0"),
        (
            "it needs {cuda}[, and {driver} has {had}]",
            {"cuda": "1", "driver": "2", "had": "3"},
            "it needs 1, and 2 has 3",
        ),
        ("a GPU [({gpu}) ]is lost", {}, "a GPU is lost"),
        ("ls [a-z]* of {name}", {"name": "x"}, "ls [a-z]* of x"),
        ("built by {a} .", {"a": ""}, "built by."),
    ],
)
def test_what_is_not_known_is_left_out_of_a_meaning(meaning: str, values: dict[str, str], said: str) -> None:
    assert messages.filled(meaning, values) == said


def test_conditions_see_the_whole_text_and_the_context() -> None:
    line = 'could not select device driver "" with capabilities: [[gpu]]'
    assert messages.tell(line, {})[0].proves == "container.toolkit-missing"
    assert (
        messages.tell(f"{line}\nii  nvidia-container-toolkit  1.17.4-1", {})[0].proves
        == "container.daemon-not-restarted"
    )
    assert messages.tell("Error 802", {"fabric_fits": "no"})[0].proves == "fabric.manager-version-differs"


@pytest.mark.parametrize(
    "line",
    ["we never had a CUDA out of memory", "without Driver/library version mismatch", "no GPU has fallen off the bus"],
)
def test_a_line_that_denies_an_error_is_none(line: str) -> None:
    assert messages.tell(line, {}) == ()


KNOWN = ("CUDA out of memory", "NVML: Driver/library version mismatch", "GPU has fallen off the bus", "Error 802")


@given(st.lists(st.sampled_from(KNOWN) | st.text(), min_size=1), st.sampled_from(KNOWN))
def test_what_is_told_of_any_text_stands_in_the_line_of_its_number(around: list[str], known: str) -> None:
    lines = "\n".join([*around, known]).split("\n")
    every = messages.tell("\n".join(lines), {})
    assert every
    for number, said in (line for told in every for line in told.lines):
        assert said.split("\n")[0] in "\n".join(lines[number - 1 :])
        assert said


# What people say of a symptom in a sentence of their own -> what they may mean.
HEARD = {
    "the first token takes ages": "decode.first-token-slow",
    "we wait eight seconds for the first word": "decode.first-token-slow",
    "generation is slow": "decode.next-tokens-slow",
    "tokens per second is low": "decode.next-tokens-slow",
    "推理速度慢": "decode.next-tokens-slow",
    "the first request is slow": "decode.start-compiling",
    "显存越来越多": "decode.memory-grows",
    "more requests do not raise the throughput": "decode.gpu-underused",
    "并发上不去": "decode.gpu-underused",
    "P99 latency is unstable": "decode.one-request-slow",
    "it repeats itself": "decode.output-garbled",
    "answers got worse with int4": "decode.accuracy-lost",
    "the GPU is not visible in the container": "container.gpu-not-visible",
    "容器里看不到显卡": "container.gpu-not-visible",
    "containers lose the GPU after some days": "engine.lost-its-gpu",
    "内核升级后驱动没了": "boot.module-missing",
    "black screen since I installed the driver": "driver.nouveau-bound",
    "our GPU runs too hot": "gpu.thermal-slowdown",
    "vllm won't start": "engine.not-running",
    "out of memory": "engine.out-of-gpu-memory",
    "CUDA version mismatch": "engine.driver-too-old",
}


@pytest.mark.parametrize("sentence", HEARD)
def test_a_symptom_in_plain_words_is_understood(sentence: str) -> None:
    assert HEARD[sentence] in {each.proves for each in messages.hear(sentence)}


@pytest.mark.parametrize(
    "sentence", ["", "good morning", "it smells of burnt dust", "Grafana shows nothing", "x " * 9999]
)
def test_other_sentences_mean_nothing(sentence: str) -> None:
    assert messages.hear(sentence) == ()


def test_what_is_only_heard_is_not_read_out_of_a_log() -> None:
    assert messages.hear("the model repeats the question first")
    assert messages.tell("the model repeats the question first", {}) == ()


def test_words_of_a_log_count_before_loose_ones() -> None:
    assert [each.proves for each in messages.hear("our TTFT is high and everything is slow")] == [
        "decode.first-token-slow"
    ]
