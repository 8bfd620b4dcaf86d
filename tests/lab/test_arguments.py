"""Every argument that plan or tune may propose, given to the real vLLM's own parser: each is known, with its value."""

import json
from itertools import product

from lpxdoctor.tune.candidates import candidates
from lpxdoctor.tune.situation import Situation
from tests.lab.engine import docker
from tests.sizing.test_plan import made, model
from tests.tune.test_candidates import held_up, profile

PARSER = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
refused = []
for argv in json.load(sys.stdin):
    try:
        parser.parse_args(["--model", "m", *argv])
    except SystemExit:
        refused.append(argv)
print(json.dumps(refused))
"""
MODELS = ("QWEN_25_7B", "LLAMA_31_70B", "DEEPSEEK_V2_LITE", "GPT_OSS_20B", "QWEN_3_NEXT_80B")
GPUS = ("NVIDIA L4", "NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA B200", "Tesla V100-SXM2-32GB")


def of_plans() -> set[tuple[str, ...]]:
    found = set[tuple[str, ...]]()
    for name, gpu, parallel, kv_format in product(MODELS, GPUS, (1, 2), ("auto", "fp8")):
        planned = made(model(name), gpu, tensor_parallel=parallel, kv_format=kv_format, context=4096, concurrency=4)
        found.add(tuple(word for one in planned.arguments for word in (one.flag, one.value)))
        found.update(option.precision.arguments for option in planned.options)
    return found


def of_tune() -> set[tuple[str, ...]]:
    """Return what every rule yields, of whatever situation makes it yield most."""
    small = {"--max-num-seqs": "16", "--max-num-batched-tokens": "1024"}
    slow = {"--enforce-eager": "", "--no-async-scheduling": ""}
    firsts = (held_up(by=0.2), profile("0.30.0", 11.7), profile("0.32.0", 1.0, 256), profile("0.12.0"))
    plans = [made(model("QWEN_25_7B"), gpu) for gpu in ("NVIDIA H200", "NVIDIA B200")]
    found = [
        candidate
        for first, flags, sizing in product(firsts, ({}, small, slow), plans)
        for candidate in candidates(
            Situation(first=first, flags=flags, plan=sizing, unique_prompts=True, speculate=("ngram",))
        )
    ]
    return {one.settings.added for one in found} | {one.settings.removed for one in found}


def test_the_pinned_engine_knows_every_argument_that_is_proposed(cpu_image: str) -> None:
    argvs = [*sorted(of_plans() | of_tune()), ("--no-such-argument",), ("--linear-backend", "none-such")]
    words = {word for argv in argvs for word in argv}
    assert {
        "--max-num-seqs",
        "--quantization",
        "--compilation-config",
        "--linear-backend",
        "--stream-interval",
    } <= words
    command = ("run", "--rm", "--interactive", "--network", "none", "--entrypoint", "python3", cpu_image, "-c", PARSER)
    refused = json.loads(docker(*command, timeout_s=600, stdin=json.dumps(argvs).encode()).splitlines()[-1])
    assert refused == [["--no-such-argument"], ["--linear-backend", "none-such"]]
