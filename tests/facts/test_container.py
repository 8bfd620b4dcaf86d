"""Docker's and the toolkit's answers, as they really are, become the container layer's facts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Evidence, Unreadable
from lpxdoctor.facts import container as probes
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.daemon_json import Unit, conflicts, options, settings, unit
from lpxdoctor.facts.fact import known
from lpxdoctor.facts.passthrough import trials
from tests.facts.builders_container import NEWER, OLDER, RECORDED, answer, asked, healthy, live, tried
from tests.facts.given import command

DEBIAN_UNIT = """[Unit]
Description=Docker Application Container Engine
[Service]
Type=notify
EnvironmentFile=-/etc/default/docker
ExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
ExecReload=/bin/kill -s HUP $MAINPID
[Install]
WantedBy=multi-user.target
"""


def test_the_h200_hands_its_gpu_over_by_cdi_alone() -> None:
    facts = healthy()
    assert facts.version == "28.5.2+dfsg4"
    assert facts.working_paths == ("CDI",)
    assert facts.proven
    assert facts.has_cdi
    assert facts.gpus_by_cdi is False  # that came with 29.2
    assert facts.daemon is not None
    assert facts.daemon.flavor == "package"
    assert facts.refused == facts.silent == ""
    assert facts.settings is None
    assert [disk.path for disk in facts.disks] == ["/var/lib/docker"]


def test_gpus_go_by_cdi_from_docker_29_2_on() -> None:
    assert healthy(daemon=live(version="29.2.0")).gpus_by_cdi is True
    assert healthy(daemon=live(version="29.2.0"), specs=()).gpus_by_cdi is False
    assert healthy(daemon=live(version="strange")).gpus_by_cdi is None


def test_no_docker_is_a_fact_and_not_an_unknown() -> None:
    nobody = {
        "server": "unix:/var/run/docker.sock",
        "failure": "absent",
        "reason": "/var/run/docker.sock: No such file",
    }
    facts = Container.parse(asked({probes.DOCKER: nobody}))
    assert facts.daemon is None
    assert facts.version == ""
    assert "No such file" in facts.silent


@pytest.mark.parametrize("failure", ["denied", "timeout", "failed"])
def test_a_docker_that_does_not_let_us_ask_is_unknown(failure: str) -> None:
    closed = {"server": "unix:/var/run/docker.sock", "failure": failure, "reason": "why"}
    facts = Container.parse(asked({probes.DOCKER: closed}))
    with pytest.raises(Unreadable, match="why"):
        assert facts.daemon
    assert facts.refused == ("why" if failure == "denied" else "")
    assert facts.silent == ("why" if failure == "timeout" else "")


def test_a_proof_that_was_left_out_is_said_to_be() -> None:
    without = {key: value for key, value in asked().answers.items() if key != probes.PASSTHROUGH.key}
    facts = Container.parse(Evidence("test", without))
    assert facts.untried == "the container test was left out (--no-container-test)"
    assert facts.trials == ()
    assert not facts.proven
    assert facts.hands_over  # CDI is set up, and that is all that is known


def test_a_proof_that_failed_is_unknown() -> None:
    facts = Container.parse(asked({probes.PASSTHROUGH: Answer(failure="timeout", reason="no answer within 25 s")}))
    with pytest.raises(Unreadable, match="25 s"):
        assert facts.trials
    assert not facts.proven
    broken = {**RECORDED["passthrough"]["works"], "failure": "docker import: no space left", "paths": []}
    with pytest.raises(Unreadable, match="no space left"):
        assert Container.parse(asked({probes.PASSTHROUGH: broken})).working_paths


# --- the trials -------------------------------------------------------------------------------------------------------


def test_each_path_says_what_kept_it() -> None:
    cdi, gpus, runtime = tried("works")
    assert (cdi.label, gpus.label, runtime.label) == ("CDI", "--gpus", "--runtime=nvidia")
    assert cdi.works
    assert cdi.uuids == ("GPU-11111111-2222-3333-4444-555555555555",)
    assert cdi.command.startswith("docker run --rm --network none --device nvidia.com/gpu=all lpxdoctor/probe:")
    assert not gpus.started
    assert gpus.reason == 'could not select device driver "" with capabilities: [[gpu]]'
    assert gpus.known is not None
    assert gpus.known.name == "gpu-hook-unknown"
    assert runtime.known is not None
    assert runtime.known.values == {"runtime": "nvidia"}


@pytest.mark.parametrize("name", ["wrong-uvm", "no-uvm"])
def test_a_specification_without_a_right_uvm_node_ends_in_cuda_error_999(name: str) -> None:
    cdi = tried(name)[0]
    assert cdi.started
    assert not cdi.works
    assert (cdi.call, cdi.code) == ("cuInit", 999)
    assert cdi.reason == "cuInit: CUDA_ERROR_UNKNOWN (999)"


@pytest.mark.parametrize(
    ("name", "error"),
    [("stale", "cdi-path-missing"), ("no-spec", "cdi-device-unknown"), ("nothing-set-up", "cdi-off")],
)
def test_refusals_of_real_dockers_are_known(name: str, error: str) -> None:
    cdi = tried(name)[0]
    assert not cdi.started
    assert cdi.known is not None
    assert cdi.known.name == error


def test_a_program_that_printed_no_json_did_not_work() -> None:
    raw = json.loads(json.dumps(RECORDED["passthrough"]["works"]))
    raw["paths"][2].update(stdout=None, stderr="Segmentation fault", exit=139)
    cdi = trials(raw)[0]
    assert not cdi.started
    assert cdi.reason == "Segmentation fault"


def test_cuda_that_was_not_tried_in_a_container_proves_nothing() -> None:
    raw = json.loads(json.dumps(RECORDED["passthrough"]["works"]))
    raw["paths"][2]["stdout"].update(skipped="nvidia_uvm is not loaded, and trying CUDA would load it", devices=[])
    assert not trials(raw)[0].started


# --- Docker's settings ------------------------------------------------------------------------------------------------


def test_kinds_of_docker() -> None:
    def flavor(**info: Any) -> str:
        facts = Container.parse(asked({probes.DOCKER: answer(**info)}))
        assert facts.daemon is not None
        return facts.daemon.flavor

    assert flavor(SecurityOptions=["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]) == "rootless"
    assert flavor(DockerRootDir="/var/snap/docker/common/var-lib-docker") == "snap"
    assert flavor(OperatingSystem="Docker Desktop") == "desktop"
    podman = answer()
    podman["version"]["Components"][0]["Name"] = "Podman Engine"
    facts = Container.parse(asked({probes.DOCKER: podman}))
    assert facts.daemon is not None
    assert facts.daemon.flavor == "podman"


def test_a_docker_from_before_cdi_has_no_directories_of_it() -> None:
    assert live(OLDER).cdi_dirs == ()


def test_daemon_json_with_a_key_twice_and_a_broken_one() -> None:
    twice = settings("f", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}, "runtimes": {}}')
    assert twice.duplicates == ("runtimes",)
    assert twice.runtimes == {}
    broken = settings("f", '{\n  "debug": true,\n}')
    assert broken.error.startswith("line 3, column 1")
    assert settings("f", "").error == ""
    marked = settings("f", '\ufeff{"features": {"cdi": true}}')
    assert (marked.cdi, marked.marked, twice.marked) == (True, True, False)
    assert settings("f", '["no", "object"]').error == "it is no JSON object"
    assert settings("f", '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}').cgroup_driver == "cgroupfs"


@given(st.text())
def test_any_daemon_json_has_values_or_an_error(text: str) -> None:
    found = settings("f", text)
    assert not (found.values and found.error)
    assert isinstance(found.runtimes, dict)
    assert found.cdi in (True, False, None)
    assert isinstance(found.cgroup_driver, str)


def test_options_of_the_unit_by_their_key_in_daemon_json() -> None:
    started = unit({"/lib/systemd/system/docker.service": DEBIAN_UNIT}, {"DOCKER_OPTS": "--data-root=/srv/docker -D"})
    assert started is not None
    assert started.path == "/lib/systemd/system/docker.service"
    assert started.options == {
        "hosts": ("fd://",),
        "containerd": ("/run/containerd/containerd.sock",),
        "data-root": ("/srv/docker",),
        "debug": ("",),
    }
    assert conflicts(settings("f", '{"hosts": ["tcp://0.0.0.0:2375"], "debug": true}'), started) == ("hosts", "debug")
    assert conflicts(settings("f", '{"hosts": []}'), None) == ()


def test_a_dropin_takes_the_command_line_over() -> None:
    override = (
        "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --exec-opt native.cgroupdriver=systemd \\\n  -l warn\n"
    )
    files = {
        "/lib/systemd/system/docker.service": DEBIAN_UNIT,
        "/etc/systemd/system/docker.service.d/override.conf": override,
        "/etc/systemd/system/docker.service.d/proxy.conf": '[Service]\nEnvironment="HTTPS_PROXY=http://proxy:3128"\n',
    }
    started = unit(files, {})
    assert started is not None
    assert started.options == {"exec-opts": ("native.cgroupdriver=systemd",), "log-level": ("warn",)}
    assert started.path.endswith("override.conf")


def test_runtimes_may_stand_in_both_places() -> None:
    assert options(["dockerd", "--add-runtime", "nvidia=/usr/bin/nvidia-container-runtime"]) == {}


def test_without_systemd_a_unit_says_nothing_about_the_docker_that_runs() -> None:
    files = {probes.UNITS[0]: {"/lib/systemd/system/docker.service": DEBIAN_UNIT}}
    assert Container.parse(asked(files)).unit is None
    with_systemd = Container.parse(
        asked({**files, probes.SYSTEMD: {"/run/systemd/system": {}}, probes.REFRESH: command()})
    )
    assert with_systemd.unit is not None


@given(st.text())
def test_any_text_of_a_unit_is_read_or_refused(text: str) -> None:
    files = {"/etc/systemd/system/docker.service": "[Service]\nExecStart=" + text}
    found: object = known(lambda: unit(files, {"A": text}))  # a quote without its other half is unreadable
    assert found is None or isinstance(found, (Unit, Unreadable))


def test_the_settings_of_the_docker_that_answers() -> None:
    rootless = answer(SecurityOptions=["name=rootless"])
    mine = {"/home/ann/.config/docker/daemon.json": '{"features": {"cdi": true}}'}
    facts = Container.parse(asked({probes.DOCKER: rootless, probes.ROOTLESS_JSON: mine}))
    assert facts.settings is not None
    assert facts.settings.path == "/home/ann/.config/docker/daemon.json"
    snap = answer(DockerRootDir="/var/snap/docker/common/var-lib-docker")
    facts = Container.parse(asked({probes.DOCKER: snap, probes.SNAP_JSON: "{}"}))
    assert facts.settings is not None
    assert facts.settings.path == "/var/snap/docker/current/config/daemon.json"


def test_what_dockerd_says_of_its_own_file() -> None:
    def said(**value: Any) -> str | None:
        return Container.parse(asked({probes.DAEMON_JSON: "{}", probes.VALIDATE: command(**value)})).validation

    assert said(stdout="", stderr="configuration OK") == ""
    error = "unable to configure the Docker daemon with file f: the following directives don't match any: nosuch"
    assert said(code=1, stderr=error) == error
    old = "Status: unknown flag: --validate\nSee 'dockerd --help'., Code: 125"
    assert said(code=1, stderr=old) is None
    assert Container.parse(asked()).validation is None  # no file


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_odd_answers_become_unreadable_fields(value: Any) -> None:
    Container.parse(asked(dict.fromkeys(Container.probes, value)))


def test_newer_version_is_the_one_with_cdi() -> None:
    assert live(NEWER).cdi_dirs == ("/etc/cdi", "/var/run/cdi")
