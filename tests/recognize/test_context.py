"""What a text says of a host besides its faults: GPU, driver, kernel, upgrades, by programs and by people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.knowledge import names
from lpxdoctor.recognize.context import context

APT = """\
Start-Date: 2024-05-02  06:31
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-compute-550:amd64 (550.54.15-0ubuntu1, 550.67-0ubuntu1)
"""


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (
            "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |",
            {"driver": "550.54.15", "driver_cuda": "12.4", "branch": "550"},
        ),
        ("Nvidia driver version: 570.86.15\n", {"driver": "570.86.15", "driver_cuda": "12.8"}),
        ("driver: 535", {"driver": "535"}),
        ("- Driver: 560.35.03 (open)", {"driver": "560.35.03"}),
        ("我的驱动版本是 545.29.06", {"driver": "545.29.06"}),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release",
            {"module": "580.95.05", "flavour": "open"},
        ),
        ("Linux version 6.8.0-45-generic (buildd@x)", {"kernel": "6.8.0-45-generic"}),
        ("$ uname -r\n5.14.0-427.el9.x86_64", {"kernel": "5.14.0-427.el9.x86_64"}),
        ('PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"', {"os": "Rocky Linux 9.4 (Blue Onyx)"}),
        ("INFO vLLM API server version 0.11.2", {"vllm": "0.11.2"}),
        (
            "docker run vllm/vllm-openai:v0.9.1 --model org/m",
            {"vllm": "0.9.1", "image": "vllm/vllm-openai:v0.9.1", "model": "org/m"},
        ),
        (" Server Version: 28.5.2\n", {"docker": "28.5.2"}),
        ("nvidia-container-toolkit 1.17.8-1", {"toolkit": "1.17.8"}),
        (
            "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-1)",
            {"gpu": "RTX 5090", "sm": "sm_120", "arch": "Blackwell", "open": "required"},
        ),
        ("gpu: Tesla P100, driver: 595.58.03", {"fits": "gpu-too-old"}),
        ("gpu: 8x B200, driver: 550.54.15", {"fits": "gpu-too-new"}),
        ("root=UUID=1 ro rd.driver.blacklist=nouveau", {"cmdline": "early"}),
        ("BOOT_IMAGE=/vmlinuz-6.1 ro nouveau.blacklist=1", {"cmdline": "allows"}),
        (
            "nvidia/550.90.07, 6.8.0-40-generic, x86_64: installed\nuname -r: 6.8.0-45-generic",
            {"dkms": "elsewhere", "dkms_kernels": "6.8.0-40-generic"},
        ),
        ("nvidia-fabricmanager: 550.54.14\ndriver: 550.54.15", {"fabric_fits": "no"}),
        ("nvidia-fabricmanager: 550.54.15\ndriver: 550.54.15", {"fabric_fits": "yes"}),
        (
            APT,
            {"change": "unattended-upgrade moved libnvidia-compute-550 from 550.54.15 to 550.67 on 2024-05-02"},
        ),
    ],
)
def test_what_is_known(text: str, known: dict[str, str]) -> None:
    found = context(text)
    assert {name: found.get(name) for name in known} == known


@pytest.mark.parametrize(
    "text", ["", "hello", "the driver of the bus was 40 years old", "port 8000, 300 requests", "A2 paper"]
)
def test_nothing_is_known_of_what_says_nothing(text: str) -> None:
    assert context(text) == {}


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("0000:65:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)", ("GA100", "8.0")),
        ("2x NVIDIA L40S", ("L40S", "8.9")),
        ("H100 80GB HBM3 MIG 2g.20gb", ("H100 80GB HBM3", "9.0")),
        ("Quadro RTX 8000", ("Quadro RTX 8000", "7.5")),
        ("RTX 6000 Ada", ("RTX 6000 Ada", "8.9")),
        ("Jetson AGX Orin", ("AGX Orin", "8.7")),
        ("Tesla K80", ("Tesla K80", "3.7")),
        ("GPU-A100f-44 and L4xx", ("", "")),
    ],
)
def test_the_name_of_a_gpu_tells_its_compute_capability(line: str, gpu: tuple[str, str]) -> None:
    assert names.gpu_in(line) == gpu


def test_a_gpu_from_before_the_table_is_known_for_its_family() -> None:
    assert names.family("3.7") == ("Kepler", "unsupported")
    assert names.family("99.0") == ("", None)


@given(st.text())
def test_any_text_has_a_context(text: str) -> None:
    assert all(isinstance(value, str) and value for value in context(text).values())
