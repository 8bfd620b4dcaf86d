"""What the role drain sees of work on GPUs: open devices, whose process it is, requests of an engine."""

import os
from pathlib import Path

import pytest

from tests.roles.loading import loaded

WORK = loaded("drain", "gpu_work")
DRAIN = loaded("drain", "engine_drain")


def test_which_devices_are_open_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    for number, target in enumerate(
        (
            "/dev/nvidia0",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-caps/nvidia-cap1",
            "/dev/nvidia0",
            "/dev/null",
        )
    ):
        (tmp_path / "fd" / str(number)).symlink_to(target)
    found = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
    assert WORK.devices_of(tmp_path) == found


def test_a_process_is_told_with_its_container(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    identity = "ab" * 32
    (tmp_path / "7" / "cgroup").write_text(f"0::/system.slice/docker-{identity}.scope\n")
    each = WORK.work(tmp_path / "7", "python3", ("/dev/nvidia0",), {identity: "vllm"})
    user = WORK.pwd.getpwuid(os.getuid()).pw_name
    assert WORK.sentence(each) == f"process 7 (python3 of {user} in container vllm) has /dev/nvidia0 open"


def test_requests_are_counted_over_all_of_an_engines_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\nvllm:num_requests_running{engine="1"} 4.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0"} 9.0\n'
    )
    assert sum(map(float, DRAIN.REQUESTS.findall(text))) == 7


def test_where_an_engine_takes_requests() -> None:
    bridge = {"Config": {"Labels": {}}, "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.2"}}}}
    assert DRAIN.door(bridge) == ("172.17.0.2", 8000, False)
    labels = {"lpxdoctor.network": "host", "lpxdoctor.port": "8001"}
    host = {"Config": {"Labels": labels}, "NetworkSettings": {}, "Args": ["serve", "--host", "0.0.0.0"]}
    assert DRAIN.door(host) == ("127.0.0.1", 8001, True)
    assert DRAIN.door({**bridge, "NetworkSettings": {"Networks": {}}}) is None
