"""Each check of the container layer fires on its own fault, and is silent where GPUs reach containers by some path."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Evidence, Unreadable
from lpxdoctor.facts.cdi import Node as CdiNode
from lpxdoctor.facts.cdi import Spec
from lpxdoctor.facts.container import DOCKER, PASSTHROUGH, SPECS, Container, Disk
from lpxdoctor.facts.cuda import CudaError
from lpxdoctor.facts.daemon_json import settings
from lpxdoctor.facts.daemon_json import unit as docker_unit
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.nodes import Node
from lpxdoctor.facts.packages import Package
from lpxdoctor.facts.reload import Reload, Survival
from lpxdoctor.facts.toolkit import Config
from tests.checks.judging import by_id, found
from tests.facts.builders_container import OLDER, RECORDED, REFRESHING, asked, healthy, live, trial, tried
from tests.facts.builders_cuda import tried as cuda_tried
from tests.facts.builders_engine import engines, healthy_engine
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus, host_with
from tests.facts.given import only

DRIVER = only(Driver, loaded="580.159.04")
GPUS = healthy_gpus(healthy_gpu(uuid="GPU-11111111-2222-3333-4444-555555555555"))
KEPT = Reload(asked=True, skipped="", paths=(Survival("CDI", "", ("/dev/nvidia0",), ()),))
AROUND = (DRIVER, GPUS, engines(), host_with(), cuda_tried(), KEPT)
CHECKS = [id_ for id_ in by_id() if id_.startswith("container.")]

HOOK = {
    name: f"/usr/bin/{name}" for name in ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-ctk")
}
REGISTERED = settings("/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
NOTHING = tried("nothing-set-up")
SPEC = Spec(
    path="/var/run/cdi/nvidia.yaml",
    version="0.7.0",
    kind="nvidia.com/gpu",
    devices=("0", "GPU-11111111-2222-3333-4444-555555555555", "all"),
    nodes=(CdiNode("/dev/nvidia0", 195, 0), CdiNode("/dev/nvidia-uvm", 238, 0), CdiNode("/dev/nvidiactl")),
    mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",),
)
# A host where Docker is plain and the toolkit is there, as a manual leaves it.
TOOLKIT = healthy(
    daemon=live(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"}, cgroup_driver="systemd"),
    settings=REGISTERED,
    programs=HOOK,
    packages=tuple(Package(name, "1.18.1-1") for name in ("nvidia-container-toolkit", "libnvidia-container1")),
    config=Config(path="/etc/nvidia-container-runtime/config.toml"),
    specs=(SPEC,),
    refresh=REFRESHING,
    trials=(trial("CDI"), trial("--gpus"), trial("--runtime")),
)
# And the same where nothing gets through.
REFUSED = replace(TOOLKIT, specs=(), daemon=live(OLDER), settings=None, trials=NOTHING)
STARTED = trial("--gpus", call="cuInit", code=999, name="CUDA_ERROR_UNKNOWN", uuids=())


def judged(id_: str, container: Container, *more: Any) -> list[str]:
    return [finding.message for finding in found(id_, *AROUND, container, *more)]


# One line a check: a host that has this fault, and what the finding must say.
FAULTS: dict[str, tuple[Container, str]] = {
    "container.docker-not-installed": (healthy(daemon=None, silent="no such file", installed=()), "no Docker Engine"),
    "container.docker-socket-denied": (healthy(refused="Permission denied"), "closed to you"),
    "container.daemon-json-invalid": (healthy(settings=settings("f", "{,}")), "f: line 1, column 2"),
    "container.docker-not-answering": (
        healthy(daemon=None, silent="/var/run/docker.sock: Connection refused", installed=("/usr/bin/dockerd",)),
        "does not answer",
    ),
    "container.docker-is-podman": (healthy(daemon=live(podman=True)), "Podman"),
    "container.daemon-json-duplicate-key": (
        healthy(settings=settings("f", '{"a": 1, "a": 2}')),
        '"a" stands more than',
    ),
    "container.daemon-not-restarted": (replace(REFUSED, settings=REGISTERED), 'does not know the runtime "nvidia"'),
    "container.settings-not-live": (
        healthy(settings=settings("f", '{"data-root": "/srv"}')),
        "data-root: /srv on disk",
    ),
    "container.runtime-program-missing": (
        healthy(daemon=live(default_runtime="nvidia", runtimes={"nvidia": "/usr/bin/nvidia-container-runtime"})),
        "/usr/bin/nvidia-container-runtime is not on this host",
    ),
    "container.gpus-for-everybody": (healthy(daemon=live(default_runtime="nvidia")), "default runtime is nvidia"),
    "container.disk-too-small": (healthy(disks=(Disk("/var/lib/docker", 9 << 30, 99 << 30),)), "9.0 GiB are free"),
    "container.proxy-unknown-to-docker": (healthy(proxies=("https_proxy",)), "not for Docker"),
    "container.docker-from-snap": (healthy(daemon=live(root_dir="/var/snap/docker/x"), trials=NOTHING), "no path"),
    "container.docker-desktop": (healthy(daemon=live(operating_system="Docker Desktop"), trials=NOTHING), "no path"),
    "container.cgroups-closed-to-rootless": (
        replace(REFUSED, daemon=live(security=("name=rootless",))),
        "no-cgroups is not set",
    ),
    "container.cgroups-left-alone": (
        replace(TOOLKIT, config=Config(path="c", no_cgroups=True), trials=(STARTED,)),
        "no-cgroups is set",
    ),
    "container.toolkit-missing": (healthy(specs=(), trials=NOTHING), "nvidia-container-toolkit is not on this host"),
    "container.runtime-not-registered": (REFUSED, 'no runtime "nvidia" is registered'),
    "container.toolkit-mixed": (
        healthy(
            packages=(Package("nvidia-container-toolkit", "1.18.1-1"), Package("libnvidia-container1", "1.17.8-1"))
        ),
        "differ",
    ),
    "container.toolkit-flawed": (
        healthy(packages=(Package("nvidia-container-toolkit", "1.16.2-1"),)),
        "1.16.2: a container",
    ),
    "container.toolkit-forerunner": (
        healthy(packages=(Package("nvidia-docker2", "2.13.0-1"),)),
        "nvidia-docker2 2.13.0-1",
    ),
    "container.toolkit-source-twice": (healthy(sources={"a.list": "/k/a.gpg", "b.list": ""}), "2 files"),
    "container.toolkit-config-invalid": (healthy(config=Config(path="c", error="line 3: no value")), "line 3"),
    "container.cdi-missing": (replace(TOOLKIT, specs=(), trials=NOTHING), "no CDI specification"),
    "container.cdi-invalid": (
        healthy(specs=(Spec(path="/etc/cdi/x.yaml", error="line 1"),)),
        "/etc/cdi/x.yaml: line 1",
    ),
    "container.cdi-named-twice": (
        healthy(specs=(SPEC, replace(SPEC, path="/etc/cdi/nvidia.yaml"))),
        "nvidia.com/gpu=0, nvidia.com/gpu=GPU-11111111-2222-3333-4444-555555555555, nvidia.com/gpu=all in 2 files",
    ),
    "container.cdi-refresh-failed": (healthy(refresh=replace(REFRESHING, result="exit-code")), "ended with exit-code"),
    "container.gpu-not-visible": (healthy(trials=tried("stale")), "the CDI specification is stale: it names"),
    "container.cuda-init-fails": (
        healthy(trials=tried("wrong-uvm")),
        "CUDA_ERROR_UNKNOWN (999) in a container, by CDI",
    ),
    "container.gpus-differ": (healthy(trials=(trial("CDI", uuids=("GPU-0", "GPU-9")),)), "CDI: 2 of 1 GPUs"),
    "container.gpus-flag-fails": (healthy(), "use CDI, not --gpus: could not select device driver"),
}


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
        daemon=live(podman=True, cdi_dirs=(), cdi_devices=None),
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


# --- CDI --------------------------------------------------------------------------------------------------------------

UNPROVEN: dict[str, Any] = {"trials": (), "untried": "left out"}


def stale(**changes: Any) -> list[str]:
    """Return what is seen of a specification with these changes, where no trial says that it works."""
    container = healthy(specs=(replace(SPEC, **changes),), **UNPROVEN)
    return [
        f"{seen.what} {seen.value}" for each in found("container.cdi-stale", *AROUND, container) for seen in each.seen
    ]


def test_a_specification_that_fits() -> None:
    assert stale() == []
    assert stale(mounts=("/usr/local/nvidia",)) == []  # no version in its names
    with pytest.raises(NotApplicable):
        judged("container.cdi-stale", healthy(specs=()))


def test_a_specification_of_another_driver() -> None:
    said = stale(mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07",))
    assert said == ["driver in the specification 535.161.07", "driver that is loaded 580.159.04"]


def test_a_specification_with_other_nodes() -> None:
    wrong = (CdiNode("/dev/nvidia0", 195, 0), CdiNode("/dev/nvidia-uvm", 510, 0))
    assert stale(nodes=wrong) == ["/dev/nvidia-uvm 510:0 in /var/run/cdi/nvidia.yaml, 238:0 on this host"]
    gone = (*SPEC.nodes, CdiNode("/dev/nvidia7"))
    assert stale(nodes=gone) == ["/dev/nvidia7 named, and not on this host"]
    assert stale(nodes=SPEC.nodes[:1]) == [
        "/dev/nvidia-uvm on this host, and not in the specification: cuInit needs it"
    ]


def test_a_specification_of_other_gpus() -> None:
    assert stale(devices=("0", "GPU-strange", "all")) == ["GPU-strange named, and no GPU of this host"]
    second = Node("/dev/nvidia1", 195, 1, 0o666, 0, 0, readable=True, writable=True)
    more = healthy(specs=(SPEC,), nodes=(*healthy().nodes, second), **UNPROVEN)
    seen = found("container.cdi-stale", *AROUND, more)[0].seen
    assert [(each.what, each.value) for each in seen] == [("GPUs that it leaves out", "/dev/nvidia1")]


def test_a_specification_by_which_cuda_starts_is_not_stale() -> None:
    odd = replace(SPEC, mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07",))
    assert judged("container.cdi-stale", healthy(specs=(odd,), trials=(trial("CDI"),))) == []


def test_a_watch_that_is_off_and_a_host_without_the_unit() -> None:
    off = healthy(refresh=replace(REFRESHING, watching=False))
    assert judged("container.cdi-refresh-failed", off) == ["it does not watch for a new driver"]
    for refresh in (None, replace(REFRESHING, installed=False)):
        with pytest.raises(NotApplicable):
            judged("container.cdi-refresh-failed", healthy(refresh=refresh))


def test_a_specification_that_comes_after_docker() -> None:
    late = replace(TOOLKIT, refresh=replace(REFRESHING, before_docker=False))
    assert (
        "starts with Docker and needs CDI" in judged("container.cdi-late-at-boot", late, engines(healthy_engine()))[0]
    )
    kept = replace(late, specs=(replace(SPEC, path="/etc/cdi/nvidia.yaml"),))
    assert judged("container.cdi-late-at-boot", kept, engines(healthy_engine())) == []
    assert judged("container.cdi-late-at-boot", late, engines(healthy_engine(restart_policy="no"))) == []


# --- the proof --------------------------------------------------------------------------------------------------------

PROOF = ["container.gpu-not-visible", "container.cuda-init-fails", "container.gpus-differ", "container.gpus-flag-fails"]


@pytest.mark.parametrize("id_", PROOF)
def test_a_proof_that_was_left_out_is_not_applicable(id_: str) -> None:
    answers = {key: value for key, value in asked().answers.items() if key != PASSTHROUGH.key}
    with pytest.raises(NotApplicable, match="--no-container-test"):
        judged(id_, Container.parse(Evidence("test", answers)))


@pytest.mark.parametrize("id_", PROOF)
def test_a_proof_that_failed_is_unknown(id_: str) -> None:
    container = replace(healthy(), trials=Unreadable("no container could be tried"))  # type: ignore[arg-type]
    with pytest.raises(Unreadable, match="could be tried"):
        judged(id_, container)


@pytest.mark.parametrize(
    ("name", "message", "do"),
    [
        ("nothing-set-up", "this Docker has CDI switched off", '"features": {"cdi": true}'),
        ("no-spec", "no CDI specification that can be read names nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
        ("stale", "which is no longer on this host", "nvidia-ctk cdi generate"),
    ],
)
def test_what_docker_said_becomes_the_cause_and_what_to_type(name: str, message: str, do: str) -> None:
    finding = found("container.gpu-not-visible", *AROUND, healthy(trials=tried(name)))[0]
    assert message in finding.message
    assert do in finding.do[0]
    assert [seen.what for seen in finding.seen] == ["CDI", "--gpus", "--runtime=nvidia"]
    assert finding.seen[0].where.startswith("docker run --rm")


def test_the_same_gpus_in_the_container_as_on_the_host() -> None:
    two = healthy_gpus(healthy_gpu(0), healthy_gpu(1))
    uuids = tuple(gpu.uuid for gpu in two.gpus)
    fewer = healthy(trials=(trial("CDI", uuids=uuids), trial("--gpus", uuids=uuids[:1])))
    finding = found("container.gpus-differ", *AROUND, two, fewer)[0]
    assert finding.message == "--gpus: 1 of 2 GPUs"
    assert finding.seen[-1].value == uuids[1]
    mig = healthy_gpus(healthy_gpu(mig=(True, True)))
    with pytest.raises(NotApplicable):
        judged("container.gpus-differ", fewer, mig)


def test_cuda_that_fails_on_the_host_too_is_not_the_containers_fault() -> None:
    broken = cuda_tried(error=CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN"))
    with pytest.raises(NotApplicable):
        judged("container.cuda-init-fails", healthy(trials=tried("wrong-uvm")), broken)
    assert judged("container.cuda-init-fails", healthy()) == []


@pytest.mark.parametrize("id_", PROOF)
def test_cuda_that_was_not_tried_proves_nothing(id_: str) -> None:
    skipped = (trial("CDI", skipped="nvidia_uvm is not loaded", uuids=()),)
    with pytest.raises(NotApplicable, match="nvidia_uvm is not loaded"):
        judged(id_, healthy(trials=skipped))
