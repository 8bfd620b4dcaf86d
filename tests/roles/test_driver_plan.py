"""What the role driver chooses for a host and its wishes, without installing it: packages, their source, streams."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from docs import gpu_table
from lpxdoctor.facts.packages import Package
from tests.roles.loading import ROLES, loaded, read, rendered, templates

FIXTURES = Path(__file__).parent
WISHES = {"branch": "", "version": "", "flavour": "auto", "source": "auto", "modules": "auto", "fabric": "auto"}
H200 = {"kind": "gpu", "address": "0000:06:00.0", "device": "2335", "driver": ""}


def test_what_the_role_knows_of_gpus_is_what_lpxdoctor_knows() -> None:
    assert (ROLES / "driver/vars/main/gpus.yml").read_text() == gpu_table.page()


def variables() -> dict[str, Any]:
    """Return the variables of the role driver that stand for facts."""
    return {**read(ROLES / "driver/vars/main/catalogue.yml"), **read(ROLES / "driver/vars/main/gpus.yml")}


def host(name: str, **more: Any) -> dict[str, Any]:
    """Return a recorded host with one H200 and no driver, or with what is given."""
    recorded = read(FIXTURES / "hosts.yml")[name]
    return {"guest": False, "gpus": [H200], "switches": 0, "packages": {}, **recorded, **more}


def plan(of: dict[str, Any], **wishes: Any) -> dict[str, Any]:
    """Return what driver_plan chooses."""
    facts = variables()
    given = {
        "host": of,
        "wishes": {**WISHES, "require_gpu": True, **wishes},
        "catalogue": facts["driver_catalogue"],
        "gpus": facts["driver_gpus"],
        "ranges": facts["driver_ranges"],
        "lts": facts["driver_lts"],
        "open_rules": facts["driver_open_rules"],
    }
    chosen: dict[str, Any] = loaded("driver", "driver_plan").plan(given)
    return chosen


@pytest.mark.parametrize("case", read(FIXTURES / "plans.yml"), ids=lambda case: case["name"])
def test_the_plan_for_a_distribution(case: dict[str, Any]) -> None:
    chosen = plan(host(case["host"], **case.get("with", {})), **case.get("wishes", {}))
    assert {key: chosen[key] for key in case["expect"]} == case["expect"]


@pytest.mark.parametrize("case", read(FIXTURES / "refusals.yml"), ids=lambda case: case["name"])
def test_what_no_driver_fits_is_refused_with_a_reason(case: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=re.escape(case["says"])) as caught:
        plan(host(case["host"], **case.get("with", {})), **case.get("wishes", {}))
    assert type(caught.value).__name__ == "Refused"


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.0-50-amd64", "amd64"),
        ("6.1.0-50-cloud-amd64", "cloud-amd64"),
        ("6.12.48+deb13-cloud-amd64", "cloud-amd64"),
        ("6.12.48+deb13-amd64", "amd64"),
        ("6.8.0-85-generic", "generic"),
        ("6.8.0-1040-aws", "aws"),
    ],
)
def test_a_kernels_flavour_is_read_from_its_release_where_no_package_follows_it(release: str, flavour: str) -> None:
    of = host(
        "debian12", kernels=[{"release": release, "headers": False, "module": False}], running=release, flavours=[]
    )
    assert f"linux-headers-{flavour}" in plan(of, branch="535")["kernels"]


def test_the_roles_call_a_package_the_drivers_as_the_checks_do() -> None:
    loaded("driver", "driver_plan")
    ours = sys.modules["ansible.module_utils.driver_packages"]
    names = re.findall(r"[\w.+-]+(?==)|(?<==)[\w.+-]+", (FIXTURES / "plans.yml").read_text())
    names += [
        "nvidia-container-toolkit",
        "nvidia-driver-pinning-580",
        "nvidia-modprobe",
        "libnvidia-ml1",
        "nvidia-settings",
    ]
    for name in names:
        for version in ("580.159.04-0ubuntu1", "1:535.161.07-1~deb12u1", "1.20.0-1"):
            assert ours.of_driver(name, version) == Package(name, version).of_driver, name


def test_signed_modules_are_not_held_with_the_driver() -> None:
    loaded("driver", "driver_plan")
    ours = sys.modules["ansible.module_utils.driver_packages"]
    packages = {
        "libnvidia-compute-580-server": {"version": "580.159.04-0ubuntu0.24.04.1", "held": False},
        "libcuda1:i386": {"version": "535.261.03-1", "held": False},
        "linux-modules-nvidia-580-server-open-generic": {"version": "6.8.0-85.85", "held": False},
        "nvidia-container-toolkit": {"version": "1.20.0-1", "held": False},
    }
    assert ours.to_hold(packages) == ["libcuda1:i386", "libnvidia-compute-580-server"]


# As dnf 4.14 prints it.
STREAMS = """x
Name          Stream       Profiles    Summary
nvidia-driver 580-dkms [d] default [d] NVIDIA
nvidia-driver 580-open [e] default     NVIDIA

Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled
"""


@pytest.mark.parametrize(
    ("stream", "said", "differs"),
    [
        ("580-open", STREAMS, False),
        ("580-dkms", STREAMS, True),
        ("580-dkms", STREAMS.replace("[d] default", "[d][e] default"), False),
        ("580", STREAMS, True),
        ("580-open", "", False),  # a directory of packages has none
    ],
)
def test_whether_another_stream_of_the_driver_is_to_be_chosen(stream: str, said: str, differs: bool) -> None:
    expression = templates("driver", "vars/main/main.yml")["driver_stream_differs"]
    assert rendered(expression, {"driver_streams": {"stdout": said}, "driver_plan": {"stream": stream}}) is differs
