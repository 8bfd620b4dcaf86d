"""What the role container makes of Docker's settings: dockerd's command line, daemon.json, reasons for a restart."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.roles.loading import loaded, shared

DOCKERD = shared("dockerd")
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


SETTINGS = loaded("container", "docker_settings")
RUNTIME = {"path": ["runtimes", "nvidia"], "value": {"path": "nvidia-container-runtime", "args": []}, "keep": True}


def edited(raw: bytes, words: tuple[str, ...] = (), unknown: tuple[str, ...] = (), **given: object) -> Any:
    parameters = {"set": [], "remove": [], **given}
    return SETTINGS.wanted(parameters, SETTINGS.readable(raw, takes_mark=True), list(words), list(unknown))


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
        (b'\xef\xbb\xbf{"a": 1}', '\ufeff{"a": 1}', False),
        (b'{"a": ', "{}\n", True),
        (b"\xff\xff\x00", "{}\n", True),
        (b"", "", False),
    ],
)
def test_a_broken_file_is_mended_or_set_aside(raw: bytes, text: str, aside: bool) -> None:
    start = SETTINGS.readable(raw, takes_mark=True)
    assert (start.text, start.aside) == (text, aside)


@pytest.mark.parametrize(("encoding", "said"), [("utf-8-sig", "its byte order mark taken out"), ("utf-16", "it was")])
def test_a_mark_that_an_older_docker_does_not_take_is_taken_out(encoding: str, said: str) -> None:
    start = SETTINGS.readable('{"a":  1}'.encode(encoding), takes_mark=False)
    assert start.text == '{"a":  1}'
    assert said in start.said[0]


def test_the_former_file_stays_beside_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS.dockerd, "started_at_s", lambda: 0.0)
    file, pending = tmp_path / "daemon.json", tmp_path / "run" / "pending.json"
    file.write_text("{}")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 12, 34)
    owner = file.stat().st_uid, file.stat().st_gid
    backup = Path(SETTINGS.replace(file, '{"a": 1}', pending, aside=False))
    assert backup.read_text() == "{}"
    assert file.read_text() == '{"a": 1}'
    for each in (file, backup):  # which is what comes back where Docker does not
        assert (each.stat().st_mode & 0o777, each.stat().st_uid, each.stat().st_gid) == (0o640, *owner)
    assert json.loads(pending.read_text()) == {"path": str(file), "backup": str(backup), "had": True}
    time.sleep(0.01)
    SETTINGS.note(pending, {"backup": "later"})
    assert json.loads(pending.read_text())["backup"] == str(backup)  # of several changes the first counts
    monkeypatch.setattr(SETTINGS.dockerd, "started_at_s", time.time)  # Docker has read it meanwhile
    SETTINGS.note(pending, {"backup": "later"})
    assert json.loads(pending.read_text())["backup"] == "later"


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
