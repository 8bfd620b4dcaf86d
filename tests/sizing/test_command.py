"""lpxdoctor plan as it is typed: its answer as JSON and text, and its exit statuses."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from lpxdoctor.cli import run
from lpxdoctor.cli.plan import command
from lpxdoctor.evidence import to_json
from lpxdoctor.report import plan as report
from tests.sizing import checkpoints, configs
from tests.sizing.hosts import L4, evidence, process
from tests.sizing.test_plan import QWEN, made
from tests.sizing.test_source import SMALL

BUSY = {
    **L4,
    "memory_mib": {"total": 23034, "free": 22263, "used": 771},
    "processes": [process(1423, "Xorg", 300)],
}


@pytest.fixture
def qwen(tmp_path: Path) -> str:
    return str(checkpoints.directory(tmp_path / "Qwen2.5-7B-Instruct", configs.QWEN_25_7B))


def answered(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = run(["plan", *argv, "--format", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_json_has_what_programs_ask_for(qwen: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = answered(qwen, "--gpu", "NVIDIA H200", "--context", "8192", capsys=capsys)
    assert status == 0
    assert answer["schema"] == 1
    assert answer["weights_bytes"] == 15_231_233_024
    assert answer["kv_cache"]["bytes_per_token"] == 57_344
    assert answer["kv_cache"]["bytes_per_request"] == 448 << 20
    assert answer["kv_cache"]["tokens"] == pytest.approx(2_063_088, rel=0.02)  # measured on a real one
    assert answer["max_concurrency"] == answer["kv_cache"]["tokens"] // 8192
    assert answer["ceiling_tokens_per_s"] == pytest.approx(339.4, abs=0.1)  # 14.14 GB a step, 4.8 TB/s
    assert answer["fits"] is True
    assert answer["arguments"][:2] == ["--max-model-len", "8192"]
    assert set(answer["reasons"]) == set(answer["arguments"][::2])
    assert (
        sum(answer["budget"][f"{name}_bytes"] for name in ("weights", "activations", "graphs", "runtime", "kv_room"))
        == (answer["budget"]["requested_bytes"])
    )


def test_a_refusal_is_status_2_and_json_still(qwen: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = answered(qwen, "--gpu", "RTX 3060", capsys=capsys)
    assert (status, answer["fits"], answer["arguments"]) == (2, False, [])
    assert "does not fit" in answer["refusal"]
    assert answer["ways_out"]


def test_a_model_from_evidence_of_a_host(qwen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(to_json(evidence(BUSY)))
    status, answer = answered(qwen, "--from", str(file), "--concurrency", "4", capsys=capsys)
    assert status == 0
    assert answer["gpu"]["holders"] == ["Xorg (pid 1423, 300 MiB)"]
    assert answer["gpu"]["bandwidth_bytes_per_s"] == 6251 * 10**6 * 2 * 192 // 8
    assert answer["arguments"][2:4] == ["--max-num-seqs", "4"]


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["/nowhere", "--gpu", "L4"], 64, "no such file or directory"),
        (["MODEL", "--gpu", "L99"], 64, "Near it: "),
        (["MODEL", "--gpu", "2x NVIDIA L4"], 64, 'type --gpu "NVIDIA L4" --tensor-parallel 2'),
        (["MODEL", "--gpu", "L4", "--from", "x.json"], 64, "type one of them"),
        (["MODEL", "--from", "/nowhere.json"], 64, "/nowhere.json"),
        (["MODEL", "--gpu", "L4", "--context", "0"], 64, "--context"),
        (["MODEL", "--gpu", "L4", "--context", "99999"], 64, "knows 32768 positions"),
        (["MODEL", "--gpu", "L4", "--concurrency", "-1"], 64, "--concurrency"),
        (["MODEL", "--gpu", "L4", "--precision", "fp2"], 64, "--precision"),
        (["MODEL", "--gpu", "A10", "--precision", "fp8"], 64, "weights in fp8 gain nothing there"),
        (["MODEL", "--gpu", "L4", "--tensor-parallel", "3"], 64, "28 heads"),
        (["MODEL", "--gpu", "L4", "--kv-cache-dtype", "fp8_ds_mla"], 64, "fp8_ds_mla holds"),
    ],
)
def test_wrong_use_is_one_clear_error(
    qwen: str, capsys: pytest.CaptureFixture[str], argv: list[str], status: int, said: str
) -> None:
    assert run(["plan", *(qwen if word == "MODEL" else word for word in argv)]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_evidence_that_tells_of_no_gpu_is_status_3(
    qwen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(to_json(evidence()))
    assert run(["plan", qwen, "--from", str(file)]) == 3
    assert '--gpu "NVIDIA L4"' in capsys.readouterr().err


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_gpu_says_so_and_what_to_type(qwen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", qwen]) == 3
    assert '--gpu "NVIDIA L4"' in capsys.readouterr().err


def text(planned: Any, *, encoding: str = "utf-8") -> str:
    console = Console(width=80, record=True, file=(Path("/dev/null").open("w", encoding=encoding)))  # noqa: SIM115
    with console.file:
        report.render(planned, console)
    return console.export_text()


def test_the_text_fits_a_terminal_and_its_command_is_one_line() -> None:
    lines = text(made(QWEN, "NVIDIA L4")).rstrip().splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[0] == "QWEN_25_7B on NVIDIA L4 (22.1 GiB, 300 GB/s, compute capability 8.9)"
    assert lines[-1] == "vllm serve /models/QWEN_25_7B --max-model-len 8192 --max-num-seqs 10"


def test_the_text_is_the_one_that_is_documented() -> None:
    shown = text(made(replace(QWEN, name="Qwen2.5-7B-Instruct", served="Qwen2.5-7B-Instruct"), "NVIDIA L4"))
    documented = (Path(__file__).resolve().parents[2] / "docs/plan.md").read_text(encoding="utf-8")
    assert "\n".join(line.rstrip() for line in shown.splitlines()) in documented


def test_the_text_has_a_column_for_each_precision_and_says_which_need_a_checkpoint() -> None:
    shown = text(made(QWEN, "NVIDIA L4"))
    assert re.search(r"bf16 +fp8 +int8\* +int4\*\n", shown)
    assert re.search(r"weights +14\.2 GiB +8\.1 GiB +8\.1 GiB +5\.2 GiB\n", shown)
    assert re.search(r"computed in +bf16 +fp8 +int8 +16 bit\n", shown)
    assert "* from a checkpoint of its own: int8 W8A8, int4 AWQ or GPTQ" in shown
    assert re.search("Next: fp8, 1.9. the ceiling", shown)
    assert "Quantization is not always faster" in shown


def test_the_bar_shows_all_of_the_memory() -> None:
    lines = text(made(QWEN, "NVIDIA L4")).splitlines()
    bar = next(line for line in lines if line.startswith("█"))
    assert (len(bar), bar[-1]) == (78, "|")
    legend = " ".join(lines[lines.index(bar) + 1 : lines.index(bar) + 3])
    sizes = [float(number) for number in re.findall(r"\d+\.\d", legend)]
    assert sum(sizes) == pytest.approx(22.1, abs=0.3)


def test_a_refused_plan_has_its_reason_first_and_no_command() -> None:
    shown = text(made(QWEN, "RTX 3060"))
    assert shown.index("✗ QWEN_25_7B (bf16) does not fit") < shown.index("computed in")
    assert "→ more GPUs: --tensor-parallel 2" in shown
    assert "vllm serve" not in shown


def test_a_terminal_without_our_signs_gets_others() -> None:
    for planned in (made(QWEN, "NVIDIA L4"), made(QWEN, "RTX 3060"), made(QWEN, "NVIDIA H200", tensor_parallel=2)):
        assert text(planned, encoding="ascii").isascii()


def test_who_holds_the_memory_is_shown(qwen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(to_json(evidence(BUSY, {**BUSY, "memory_mib": {"total": 23034, "free": 5000, "used": 18034}})))
    assert run(["plan", qwen, "--from", str(file)]) == 0
    assert "GPU 0, the emptiest of 2: held by others now: 300 MiB: Xorg (pid 1423, 300 MiB)" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_directory_is_quoted_in_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = checkpoints.directory(tmp_path / "my model; rm", SMALL, checkpoints.llama(SMALL))
    assert run(["plan", str(odd), "--gpu", "L4"]) == 0
    assert f"vllm serve '{odd}'" in capsys.readouterr().out.replace("\n", "")


def test_help_names_every_exit_status() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "Exit status: 0 it fits, 2 it cannot fit, 3 the GPU or the hub cannot be read, 64" in " ".join(shown.split())
