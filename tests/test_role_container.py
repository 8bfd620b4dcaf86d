"""The roles container, drain and lock without a host: tags, packages and sources of each system, modules on files."""

import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from lpxdoctor import bundled, catalog
from lpxdoctor.fix import catalogue
from tests.role_modules import loaded, rendered, shared, templates

ROLES = bundled.PLAYBOOKS / "roles"
DOCKERD = shared("dockerd")


@lru_cache(maxsize=1)
def tasks() -> Sequence[catalogue.Task]:
    """Return the tasks of the playbook with all their tags."""
    return catalogue.load()["container"]


# --- what puts which check's illness right ----------------------------------------------------------------------------


@pytest.mark.parametrize("id_", sorted(check.id for check in catalog.load(None) if check.fix == "container"))
def test_every_check_that_names_the_role_has_tasks_that_change_a_host(id_: str) -> None:
    assert [task.name for task in tasks() if id_ in task.tags and task.changes]


def test_no_tag_is_of_a_check_that_is_gone() -> None:
    known = {check.id for check in catalog.load(None)}
    tags = {tag for task in tasks() for tag in task.tags if "." in tag}
    assert tags <= known


def test_a_restart_of_docker_is_said_to_interrupt() -> None:
    restarts = [task for task in tasks() if task.name.startswith("Restart Docker")]
    assert restarts
    assert all("interrupts" in task.tags for task in restarts)


# --- what is installed on which system --------------------------------------------------------------------------------

SYSTEMS = {
    "debian12": ("Debian", "Debian", "bookworm", "12", "12.11"),
    "debian13": ("Debian", "Debian", "trixie", "13", "13.1"),
    "ubuntu2204": ("Ubuntu", "Debian", "jammy", "22", "22.04"),
    "ubuntu2404": ("Ubuntu", "Debian", "noble", "24", "24.04"),
    "rhel9": ("RedHat", "RedHat", "Plow", "9", "9.6"),
    "rocky9": ("Rocky", "RedHat", "Blue Onyx", "9", "9.6"),
    "debian11": ("Debian", "Debian", "bullseye", "11", "11.9"),
    "fedora42": ("Fedora", "RedHat", "", "42", "42"),
}
NOTHING: dict[str, Any] = {
    "packages": {},
    "dockerd": "",
    "docker_version": "",
    "snap": False,
    "lists": [],
    "python_apt": True,
    "programs": {},
    "driver": False,
    "refresh": False,
    "links": False,
    "specs": {},
    "cdi_refused": False,
    "runtimes_gone": [],
    "default_runtime": "",
}


def variables(system: str, host: dict[str, Any] | None = None, **given: object) -> Any:
    """Return a function that says what a variable of the role is on a system."""
    found = {**templates("container", "defaults/main.yml"), **templates("container", "vars/main.yml")}
    distribution, family, release, major, version = SYSTEMS[system]
    facts = {"distribution": distribution, "os_family": family, "distribution_release": release}
    found["ansible_facts"] = {**facts, "distribution_major_version": major, "distribution_version": version}
    known = {**found, "container_host": {**NOTHING, **(host or {})}, **given}
    return lambda name: rendered(found[name], known)


RENDERED = yaml.safe_load((Path(__file__).parent / "roles" / "container.yml").read_text())


@pytest.mark.parametrize("case", RENDERED, ids=lambda case: case["name"])
def test_packages_and_sources_of_each_system(case: dict[str, Any]) -> None:
    said = variables(case["system"], case.get("host"), **case.get("given", {}))
    assert {name: said(name) for name in case["expected"]} == case["expected"]


# --- dockerd ----------------------------------------------------------------------------------------------------------

UNIT = """# /lib/systemd/system/docker.service
[Service]
EnvironmentFile=-/nowhere/docker
Environment="DOCKER_OPTS=--log-level=warn -D"
ExecStart=/usr/sbin/dockerd -H fd:// \\
    --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
# /etc/systemd/system/docker.service.d/more.conf
[Service]
Environment=MORE=--label=a=b
[Unit]
ExecStart=no
"""


def test_what_the_unit_starts_dockerd_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DOCKERD, "ask", lambda *_: (0, UNIT))
    words = DOCKERD.arguments()
    assert words == ["-H", "fd://", "--containerd=/run/containerd/containerd.sock", "--log-level=warn", "-D"]
    assert DOCKERD.keys(words) == ["hosts", "containerd", "log-level", "debug"]
    overridden = UNIT + "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --add-runtime=x=/y ${MORE}\n"
    monkeypatch.setattr(DOCKERD, "ask", lambda *_: (0, overridden))
    assert DOCKERD.arguments() == ["--add-runtime=x=/y", "--label=a=b"]
    assert DOCKERD.keys(DOCKERD.arguments()) == ["labels"]


def test_what_dockerd_says_against_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DOCKERD, "program", lambda: "/usr/sbin/dockerd")
    said = "unable to configure it with file /x: the following directives don't match any configuration option: "
    for status, answer, refused in (
        (0, "configuration OK", ""),
        (125, "unknown flag: --validate", ""),  # before 23.0
        (1, said + "runtime, foo", said + "runtime, foo"),
    ):
        monkeypatch.setattr(DOCKERD, "ask", lambda *_, told=(status, answer): told)
        assert DOCKERD.refusal("/x", []) == refused
    assert DOCKERD.unknown_keys(said + "runtime, foo") == ["runtime", "foo"]


# --- daemon.json ------------------------------------------------------------------------------------------------------

SETTINGS = loaded("container", "docker_settings")
RUNTIME = {"path": ["runtimes", "nvidia"], "value": {"path": "nvidia-container-runtime", "args": []}, "keep": True}


def edited(raw: bytes, words: tuple[str, ...] = (), unknown: tuple[str, ...] = (), **given: object) -> Any:
    parameters = {"set": [], "remove": [], **given}
    return SETTINGS.wanted(parameters, SETTINGS.readable(raw), list(words), list(unknown))


def test_nothing_to_do_changes_nothing() -> None:
    raw = b'{ "runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime"}} }'
    assert edited(raw, set=[RUNTIME]).text.encode() == raw
    assert edited(raw, set=[RUNTIME]).said == []


def test_what_the_unit_sets_too_is_taken_out_and_said() -> None:
    end = edited(b'{"debug": true, "hosts": ["tcp://127.0.0.1:2375"]}', ("-H", "fd://"))
    assert end.text == '{"debug": true}'
    assert end.said == ['hosts taken out (set on dockerd\'s command line too); it was ["tcp://127.0.0.1:2375"]']


def test_what_dockerd_does_not_know_is_taken_out() -> None:
    assert edited(b'{"defualt-runtime": "x", "debug": true}', unknown=("defualt-runtime",)).text == '{"debug": true}'


def test_a_named_option_of_a_list_replaces_its_namesake() -> None:
    wish = {"path": ["exec-opts"], "named": "native.cgroupdriver=cgroupfs"}
    end = edited(b'{"exec-opts": ["native.cgroupdriver=systemd", "x=y"]}', set=[wish])
    assert json.loads(end.text) == {"exec-opts": ["x=y", "native.cgroupdriver=cgroupfs"]}


@pytest.mark.parametrize(
    ("raw", "text", "aside"),
    [
        (b'{"a": 1,}', '{"a": 1}', False),
        ("{}".encode("utf-16"), "{}", False),
        (b'\xef\xbb\xbf{"a": 1}', '\ufeff{"a": 1}', False),  # which Docker takes
        (b'{"a": ', "{}\n", True),
        (b"\xff\xff\x00", "{}\n", True),
        (b"", "", False),
    ],
)
def test_a_broken_file_is_mended_or_set_aside(raw: bytes, text: str, aside: bool) -> None:
    start = SETTINGS.readable(raw)
    assert (start.text, start.aside) == (text, aside)


def test_the_former_file_stays_beside_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS.dockerd, "started_at_s", lambda: 0.0)
    file, pending = tmp_path / "daemon.json", tmp_path / "run" / "pending.json"
    file.write_text("{}")
    file.chmod(0o600)
    backup = Path(SETTINGS.replace(file, '{"a": 1}', pending, aside=False))
    assert backup.read_text() == "{}"
    assert file.read_text() == '{"a": 1}'
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(pending.read_text()) == {"path": str(file), "backup": str(backup), "had": True}
    time.sleep(0.01)
    SETTINGS.note(pending, {"backup": "later"})
    assert json.loads(pending.read_text())["backup"] == str(backup)  # of several changes the first counts
    monkeypatch.setattr(SETTINGS.dockerd, "started_at_s", time.time)  # Docker has read it meanwhile
    SETTINGS.note(pending, {"backup": "later"})
    assert json.loads(pending.read_text())["backup"] == "later"


# --- a restart of Docker ----------------------------------------------------------------------------------------------

RESTART = loaded("container", "docker_restart")


def due(tmp_path: Path, file: dict[str, Any], live: dict[str, Any] | None, *, wanted: bool = False) -> list[str]:
    """Return why a Docker that was started half a minute ago has to be restarted."""
    (tmp_path / "daemon.json").write_text(json.dumps(file))
    given = {"path": str(tmp_path / "daemon.json"), "pending": str(tmp_path / "pending.json"), "wanted": wanted}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RESTART.dockerd, "started_at_s", lambda: time.time() - 30)
        patch.setattr(RESTART.dockerd, "version", lambda: "26.1.5")
        patch.setattr(RESTART, "HOOK", tmp_path / "hook")
        return list(RESTART.reasons(given, live))


def test_docker_is_restarted_for_a_reason_only(tmp_path: Path) -> None:
    file = {"runtimes": {"nvidia": {"path": "x"}}, "features": {"cdi": True}}
    live = {"Runtimes": {"nvidia": {}, "runc": {}}, "CDISpecDirs": ["/etc/cdi"]}
    assert due(tmp_path, file, live) == []
    assert due(tmp_path, file, live, wanted=True) == ["its settings change"]
    assert due(tmp_path, file, None) == ["it does not answer"]
    assert due(tmp_path, file, {**live, "CDISpecDirs": None}) == ["CDI is on in its file and off in it"]
    assert due(tmp_path, file, {**live, "Runtimes": {"runc": {}}}) == [
        "it does not know the runtime nvidia of its file"
    ]


def test_what_an_interrupted_run_wrote_and_what_came_after_docker_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "pending.json").write_text("{}")
    assert due(tmp_path, {}, {}) == ["it has not read its changed daemon.json"]
    (tmp_path / "pending.json").unlink()
    (tmp_path / "hook").write_text("")
    assert due(tmp_path, {}, {}) == ["the NVIDIA toolkit was installed after it had started"]
    assert due(tmp_path, {}, {"Runtimes": {"nvidia": {}}}) == []  # then it was an upgrade


# --- CDI --------------------------------------------------------------------------------------------------------------

SPECS = loaded("container", "cdi_specs")
GPU = 'cdiVersion: "0.7.0"\nkind: nvidia.com/gpu\ndevices:\n- name: all\n'


def test_which_specifications_are_broken() -> None:
    namespace: dict[str, Any] = {}
    exec((ROLES / "container/filter_plugins/cdi.py").read_text(), namespace)  # as Ansible does, by path
    broken = namespace["FilterModule"]().filters()["container_cdi_broken"]
    good = json.dumps({"cdiVersion": "0.6.0", "kind": "x/y", "devices": [{"name": "0"}]})
    texts = {"good.json": good, "good.yaml": GPU, "list.yaml": "- a", "cut.yaml": GPU + "  - {", "empty.yaml": ""}
    texts["nameless.yaml"] = "cdiVersion: 0.7.0\nkind: x/y\ndevices: [{}]\n"
    assert broken(texts) == ["list.yaml", "cut.yaml", "empty.yaml", "nameless.yaml"]


def test_which_specifications_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, run = tmp_path / "etc", tmp_path / "run"
    monkeypatch.setattr(SPECS, "DIRECTORIES", (str(etc), str(run)))
    for file, text in {
        etc / "nvidia.yaml": GPU,
        etc / "other.yaml": GPU.replace("nvidia.com/gpu", "example.com/nic"),
        etc / "broken.json": "{",
        etc / "old.aside": GPU,
        run / "nvidia.json": json.dumps({"kind": "nvidia.com/gpu"}),
        run / "nvidia.yaml": GPU,
    }.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    keep, broken = run / "nvidia.yaml", [str(etc / "broken.json")]
    away = [etc / "broken.json", etc / "nvidia.yaml", run / "nvidia.json"]
    assert SPECS.surplus(keep, broken, generates=True) == away
    keep.unlink()
    # Where nothing can be generated, the one that counts stays.
    assert SPECS.surplus(keep, broken, generates=False) == [etc / "broken.json", etc / "nvidia.yaml"]
    assert Path(SPECS.aside(etc / "nvidia.yaml")).suffix not in SPECS.SUFFIXES


# --- work on GPUs -----------------------------------------------------------------------------------------------------

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


# --- one run at a time ------------------------------------------------------------------------------------------------

LOCK = loaded("lock", "host_lock")


def asked(path: Path, run: str, *, node: str = "here", state: str = "held", dead: str = "", limit_s: int = 60) -> Any:
    holder = {"run": run, "node": node, "pid": 1, "host": "ctl", "user": "op"}
    given = {"path": str(path), "state": state, "holder": holder, "limit_s": limit_s}
    other = LOCK.take({**given, "dead": {"run": dead} if dead else None})
    return other and other["run"]


def test_one_run_has_the_lock_until_it_leaves_it(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock.json"
    assert asked(file, "one") is None
    assert asked(file, "one") is None  # the next playbook of the same run
    assert asked(file, "two") == "one"
    assert asked(file, "two", state="free") is None  # which leaves the other's alone
    assert asked(file, "two") == "one"
    assert asked(file, "one", state="free") is None
    assert asked(file, "two") is None


def test_a_dead_runs_lock_is_taken_over_and_a_strangers_expires(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    assert asked(file, "one", node="elsewhere") is None
    assert asked(file, "two", dead="other") == "one"
    assert asked(file, "two", dead="one") is None
    assert asked(file, "three", node="elsewhere", limit_s=-1) is None
    assert asked(file, "four", node="elsewhere", limit_s=-1) == "three"  # of one's own node only its end counts
    file.write_text('{"run": "th')  # cut off by a full disk
    assert asked(file, "five") is None
