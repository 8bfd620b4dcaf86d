"""Each check of the container layer fires on its own fault, and is silent where GPUs reach containers by some path."""

import contextlib
from dataclasses import replace

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.facts.container import DOCKER, PASSTHROUGH, SPECS, Container, Disk
from lpxdoctor.facts.daemon_json import settings
from lpxdoctor.facts.daemon_json import unit as docker_unit
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.packages import Package
from tests.checks.container_faults import AROUND, CHECKS, FAULTS, HOOK, NOTHING, REFUSED, SPEC, TOOLKIT, judged
from tests.checks.judging import found
from tests.facts.builders_container import RECORDED, asked, healthy, live, trial, tried
from tests.facts.builders_engine import engines, healthy_engine
from tests.facts.builders_gpu import host_with
from tests.facts.given import only


@pytest.mark.parametrize("id_", FAULTS)
def test_a_check_fires_on_its_fault(id_: str) -> None:
    container, message = FAULTS[id_]
    assert message in "\n".join(judged(id_, container))


@pytest.mark.parametrize("id_", CHECKS)
@pytest.mark.parametrize(
    "host",
    [
        pytest.param(TOOLKIT, id="toolkit and CDI"),
        pytest.param(replace(TOOLKIT, specs=(), trials=(trial("--gpus"), *NOTHING[:1])), id="hook alone"),
        pytest.param(replace(TOOLKIT, untried="left out", trials=()), id="proof left out"),
        pytest.param(healthy(trials=tried("works")[:1]), id="CDI alone, no toolkit"),
        pytest.param(healthy(daemon=None, silent="", trials=(), untried="no Docker"), id="unasked"),
    ],
)
def test_a_host_whose_gpus_get_through_is_left_alone(id_: str, host: Container) -> None:
    with contextlib.suppress(NotApplicable):
        assert judged(id_, host) == []


@pytest.mark.parametrize("id_", CHECKS)
def test_a_gpu_host_without_docker_is_at_most_told_so(id_: str) -> None:
    nobody = {
        "server": "unix:/var/run/docker.sock",
        "failure": "absent",
        "reason": "/var/run/docker.sock: No such file",
    }
    proof = {**RECORDED["passthrough"]["works"], "failure": "No such file or directory", "paths": []}
    without = Container.parse(asked({DOCKER: nobody, PASSTHROUGH: proof, SPECS[0]: {}}))
    with contextlib.suppress(NotApplicable):
        assert judged(id_, without) == [] or id_ == "container.docker-not-installed"


@pytest.mark.parametrize("id_", CHECKS)
def test_a_host_with_podman_is_at_most_told_so(id_: str) -> None:
    podman = healthy(
        daemon=live(podman=True, cdi_dirs=()),
        programs=HOOK,
        specs=(SPEC,),
        trials=(),
        untried="Podman answers at Docker's socket",
    )
    with contextlib.suppress(NotApplicable):
        assert judged(id_, podman) == [] or id_ == "container.docker-is-podman"


def test_every_check_has_a_firing_test() -> None:
    elsewhere = {"option-set-twice", "security-denials", "reload-loses-gpus", "device-links-missing", "reload-lost-gpu"}
    elsewhere |= {"cdi-stale", "cdi-late-at-boot"}
    elsewhere |= {"cdi-off", "ldconfig-missing", "toolkit-before-cgroups", "image-not-pulled"}  # test_told.py
    assert set(CHECKS) == FAULTS.keys() | {f"container.{name}" for name in elsewhere}


# --- Docker's settings ------------------------------------------------------------------------------------------------


def test_what_dockerd_says_against_its_file_is_found_and_a_double_option_is_not_said_twice() -> None:
    file = settings("/etc/docker/daemon.json", '{"nosuch": 1}')
    refused = (
        "unable to configure the Docker daemon: the following directives don't match any configuration option: nosuch"
    )
    assert "nosuch" in judged("container.daemon-json-invalid", healthy(settings=file, validation=refused))[0]
    twice = "the following directives are specified both as a flag and in the configuration file: hosts"
    assert judged("container.daemon-json-invalid", healthy(settings=file, validation=twice)) == []


def test_a_byte_order_mark_ends_an_older_docker_alone() -> None:
    file = settings("f", '\ufeff{"debug": true}')
    older = healthy(daemon=live(version="20.10.24+dfsg1"), settings=file)
    assert "byte order mark" in judged("container.daemon-json-invalid", older)[0]
    assert judged("container.daemon-json-invalid", healthy(settings=file)) == []
    down = healthy(daemon=None, silent="Connection refused", settings=file, validation=None)
    assert "byte order mark" in judged("container.daemon-json-invalid", down)[0]


def test_an_option_set_twice() -> None:
    started = docker_unit({"/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd -H fd://"}, {})
    both = healthy(settings=settings("f", '{"hosts": ["fd://"]}'), unit=started)
    finding = found("container.option-set-twice", *AROUND, both)[0]
    assert finding.subject == "hosts"
    assert [seen.where for seen in finding.seen] == ["f", "/lib/systemd/system/docker.service"]
    assert judged("container.option-set-twice", healthy(settings=settings("f", '{"debug": true}'), unit=started)) == []


def test_a_docker_that_hangs_does_not_answer() -> None:
    hangs = healthy(silent="/var/run/docker.sock: no answer in time", installed=("/usr/bin/dockerd",))
    assert judged("container.docker-not-answering", hangs) == ["Docker does not answer"]
    only_a_client = healthy(daemon=None, silent="/var/run/docker.sock: No such file", installed=())
    assert judged("container.docker-not-answering", only_a_client) == []


def test_cdi_on_in_the_file_only_and_a_hook_that_came_after_docker() -> None:
    off = replace(REFUSED, settings=settings("f", '{"features": {"cdi": true}}'))
    assert "CDI is on in the file" in judged("container.daemon-not-restarted", off)[0]
    late = replace(REFUSED, trials=tried("works")[1:])
    assert "has not seen it" in judged("container.daemon-not-restarted", late)[0]
    # Where another way hands GPUs over, nobody misses it.
    assert judged("container.daemon-not-restarted", replace(late, trials=tried("works"))) == []


def test_a_runtime_somewhere_else_may_well_be_there() -> None:
    elsewhere = live(default_runtime="nvidia", runtimes={"nvidia": "/opt/nvidia/nvidia-container-runtime"})
    assert judged("container.runtime-program-missing", healthy(daemon=elsewhere)) == []


def test_an_image_that_is_there_needs_no_room() -> None:
    full = healthy(disks=(Disk("/var/lib/docker", 1 << 30, 99 << 30),))
    with pytest.raises(NotApplicable):
        judged("container.disk-too-small", full, engines(healthy_engine()))


def test_denials_of_security_modules() -> None:
    line = '[12.3] audit: type=1400 avc:  denied  { read } for pid=1 comm="nvidia-smi" name="nvidia0" tclass=chr_file'
    said = judged("container.security-denials", healthy(), host_with(kernel_log=("quiet", line)))
    assert said == ["1 denials name nvidia"]
    assert judged("container.security-denials", healthy()) == []


# --- the toolkit ------------------------------------------------------------------------------------------------------


def test_a_release_that_is_flawed_on_some_hosts_is_judged_by_the_trial() -> None:
    flawed = healthy(packages=(Package("nvidia-container-toolkit", "1.19.1-1"),))
    assert judged("container.toolkit-flawed", flawed) == []
    assert "nvidia-uvm" in judged("container.toolkit-flawed", replace(flawed, trials=tried("wrong-uvm")))[0]


def test_a_reload_is_a_risk_only_to_what_the_hook_gave() -> None:
    by_gpus = engines(healthy_engine(gpu_requests=("gpus",)))
    assert "through the toolkit's hook" in judged("container.reload-loses-gpus", TOOLKIT, by_gpus)[0]
    newer = replace(TOOLKIT, daemon=live(version="29.2.0", cgroup_driver="systemd"))
    assert judged("container.reload-loses-gpus", newer, by_gpus) == []
    assert judged("container.reload-loses-gpus", replace(TOOLKIT, daemon=live()), by_gpus) == []  # cgroupfs
    by_runtime = engines(healthy_engine(gpu_requests=("runtime",)))
    assert judged("container.reload-loses-gpus", TOOLKIT, by_runtime) == []  # 1.18 generates CDI for each container
    older = replace(TOOLKIT, packages=(Package("nvidia-container-toolkit", "1.17.8-1"),))
    assert judged("container.reload-loses-gpus", older, by_runtime)
    assert (
        judged("container.reload-loses-gpus", TOOLKIT, engines(healthy_engine(gpu_requests=("gpus", "device")))) == []
    )


def test_links_of_device_numbers_matter_to_older_drivers() -> None:
    old = only(Driver, loaded="525.60.13")
    assert judged("container.device-links-missing", TOOLKIT, old) == ["no link in /dev/char leads to a GPU"]
    assert judged("container.device-links-missing", TOOLKIT) == []
    assert judged("container.device-links-missing", replace(TOOLKIT, char_links=("/dev/char/195:0",)), old) == []
