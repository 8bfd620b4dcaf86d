"""The trial of a daemon-reload on this machine's Docker, with a device that needs no GPU."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from images.probe import build, passthrough, reload
from lpxdoctor.programs import _docker
from tests.lab.engine import docker
from tests.lab.test_passthrough import nothing_stays

pytestmark = pytest.mark.xdist_group("engine")  # nothing else may use the probe image meanwhile
NODE = "/dev/fuse"  # a device that Docker gives to no container by itself, and that exists wherever the lab runs
GIVEN: dict[str, Any] = {"Devices": [{"PathOnHost": NODE, "PathInContainer": NODE, "CgroupPermissions": "rwm"}]}
PATHS: tuple[tuple[str, tuple[str, ...], dict[str, Any], tuple[str, ...]], ...] = (
    ("CDI", (), GIVEN, ()),
    ("--gpus", (), {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}, ()),
)


def tried(act: Any) -> list[reload.Trial]:
    address = _docker.server()
    image, interpreter, _ = build.ensure(address)
    return reload.tried(address, image, interpreter, PATHS, NODE, act)


@pytest.fixture(autouse=True)
def device(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "READY_S", 120.0)
    if not Path(NODE).exists():
        pytest.skip(f"no {NODE} here to lose")


def test_a_device_that_stays_is_kept_and_a_path_that_is_refused_says_so() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU, so --gpus may work")
    kept, refused = tried(lambda: None)
    assert kept.before == kept.after == {NODE: 0}
    assert kept.error == ""
    assert refused.error
    nothing_stays()


def test_a_device_that_is_closed_meanwhile_is_seen_as_lost() -> None:
    """As systemd does it: the rules of the container's cgroup are written anew, without the device."""

    def close() -> None:
        identity = docker("ps", "--quiet", "--filter", "label=lpxdoctor-probe")
        number = Path(NODE).stat().st_rdev
        full = docker("inspect", "--format", "{{.Id}}", identity)
        (deny,) = Path("/sys/fs/cgroup/devices").rglob(f"*{full}*/devices.deny")
        deny.write_text(f"c {os.major(number)}:{os.minor(number)} rwm")

    if not Path("/sys/fs/cgroup/devices").exists():
        pytest.skip("cgroup v2 keeps its device rules in programs, which nobody but their owner replaces")
    lost, _ = tried(close)
    assert lost.before == {NODE: 0}
    assert lost.after == {NODE: 1}  # EPERM
    nothing_stays()


def test_a_machine_without_systemd_or_without_a_gpu_is_not_made_to_reload() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    answer = json.loads(json.dumps(reload.prove()))
    assert answer["skipped"] == "there is no NVIDIA GPU to hand over"
    assert passthrough.nothing_to_try(_docker.server())
    if not Path("/run/systemd/system").exists():
        assert "systemd does not run here" in reload.unwise(_docker.server())
