"""The traps that other tools of this field fell into, one test each."""

import ast
import copy
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from packaging.version import Version

from lpxdoctor import bundled, catalog, policy
from lpxdoctor.check import NotApplicable, Severity
from lpxdoctor.cli import run
from lpxdoctor.evaluate import State, Verdict, evaluate, probes_of
from lpxdoctor.evidence import Answer, Command, Evidence, from_json, to_json
from lpxdoctor.facts.gpu import gpu
from lpxdoctor.knowledge import container, verdict
from tests.checks.judging import bundled_policy, found
from tests.facts.builders_boot import healthy_boot
from tests.facts.builders_cuda import fabric, tried
from tests.facts.builders_driver import healthy_driver
from tests.facts.builders_gpu import bridge, healthy_gpus, host_with, pci_gpu
from tests.facts.given import H200

ROOT = Path(__file__).resolve().parent.parent
CHECKS = catalog.load(None)
HEALTHY = from_json((ROOT / "tests/hosts/h200-cdi/evidence.json").read_text(encoding="utf-8"))
PLAYBOOKS = sorted(path for path in bundled.PLAYBOOKS.rglob("*.yml") if path.name != "requirements.yml")
WILDCARD = re.compile(r"\b(?:purge|remove|autoremove|erase|uninstall|rm)\b[^\n]*[\w.-]\*")


def h200(**readings: Any) -> Any:
    """Return an H200 as it answered, with other values of NVML."""
    return healthy_gpus(gpu({**copy.deepcopy(H200["nvml"]["gpus"][0]), **readings}))


@pytest.mark.parametrize(
    ("readings", "check_id"),
    [
        ({"remapped_rows": [0, 0, 0, 1]}, "gpu.row-remap-failed"),
        ({"remapped_rows": [0, 0, 1, 0]}, "gpu.row-remap-pending"),
        ({"remapped_rows": [9, 9, 0, 0]}, ""),
        ({"ecc_errors": [0, 0, 1, 1]}, "gpu.ecc-uncorrectable"),
        ({"ecc_errors": [1, 1, 0, 0]}, ""),
        ({"ecc_errors": [0, 0, 0, 1]}, ""),  # ever, and not since the driver was loaded
    ],
)
def test_each_counter_is_read_from_its_own_place(readings: dict[str, Any], check_id: str) -> None:
    ids = ("gpu.row-remap-failed", "gpu.row-remap-pending", "gpu.ecc-uncorrectable")
    gpus, host = h200(**readings), host_with(virtualization="")
    assert [id_ for id_ in ids if found(id_, gpus, host)] == ([check_id] if check_id else [])


def started(*directories: str) -> dict[str, set[str]]:
    """Return {file:line: names of the arguments} of all that starts a program."""
    return {
        f"{path.relative_to(ROOT)}:{call.lineno}": {ast.unparse(call.func), *(word.arg or "" for word in call.keywords)}
        for directory in directories
        for path in sorted((ROOT / directory).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"subprocess.run", "subprocess.Popen"}
    }


def test_every_program_is_given_its_own_standard_input() -> None:
    """Ours may be closed, may not block, or may hold what is for somebody else."""
    all_started = started("lpxdoctor")
    assert len(all_started) > 10
    assert [place for place, named in all_started.items() if not named & {"stdin", "input"}] == []


def test_no_program_is_waited_for_without_a_limit() -> None:
    """What a probe starts ends with the probe, at its deadline (tests/test_collect.py)."""
    waited = {place: named for place, named in started("lpxdoctor", "playbooks").items() if "subprocess.run" in named}
    assert len(waited) > 8
    unlimited = [place for place, named in waited.items() if "timeout" not in named]
    assert [place for place in unlimited if not place.startswith("lpxdoctor/programs/")] == []


def test_versions_are_compared_as_versions() -> None:
    assert verdict.of_driver("12.9", "1000.10.10").way is verdict.Way.NATIVE  # as text, below 575
    assert verdict.of_driver("13.0", "99.1").way is not verdict.Way.NATIVE  # as text, above 580
    assert container.has("cgroup-v2", Version("1.17.4"))  # as text, below 1.8.0


def test_what_could_not_be_read_never_turns_a_check_to_pass_nor_hides_behind_one() -> None:
    site = policy.load()
    before = {result.check.id: result.state for result in evaluate(CHECKS, HEALTHY, site).results}
    denied = Answer(failure="denied", reason="not allowed")
    for key, answer in HEALTHY.answers.items():
        if answer.failure:
            continue
        judged = evaluate(CHECKS, replace(HEALTHY, answers={**HEALTHY.answers, key: denied}), site)
        passed = {result.check.id for result in judged.of(State.PASS)}
        turned = {id_ for id_ in passed if before[id_] in (State.FOUND, State.UNKNOWN)}
        assert not turned, key
        assert not judged.of(State.CRASHED), key


def test_one_unknown_beside_passes_is_told_and_too_many_are_no_health() -> None:
    nothing = Evidence("h", {key: Answer(failure="denied", reason="no") for key in HEALTHY.answers}, uid=0)
    assert evaluate(CHECKS, nothing, policy.load()).verdict is Verdict.UNKNOWN
    few = {key: answer for key, answer in HEALTHY.answers.items() if "nvml" not in key and "cuda" not in key}
    assert evaluate(CHECKS, replace(HEALTHY, answers=few), policy.load()).verdict is not Verdict.HEALTHY


def test_acs_that_is_found_is_a_warning() -> None:
    pair = (pci_gpu(0), pci_gpu(1))
    bridges = (bridge(0, acs=0x1D), bridge(1, acs=0x1D))
    (finding,) = found("host.acs-redirects", host_with(*pair, bridges=bridges))
    assert "2 of 2 bridges" in finding.message
    assert next(check for check in CHECKS if check.id == "host.acs-redirects").severity is Severity.WARN
    with pytest.raises(NotApplicable):
        found("host.acs-redirects", host_with(*pair, bridges=bridges, virtualization="kvm"))


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA B200", "NVIDIA A100-SXM4-80GB"])
def test_no_name_of_a_gpu_asks_for_fabric_manager(name: str) -> None:
    none = fabric(unit=None, version=None)
    with pytest.raises(NotApplicable):
        found("fabric.manager-not-installed", host_with(), h200(name=name, fabric=None), none, tried())


def test_playbooks_ignore_no_failure_that_nobody_looks_at_afterwards() -> None:
    for path in PLAYBOOKS:
        text = path.read_text(encoding="utf-8")
        assert "ignore_errors" not in text, path
        for task in _tasks(yaml.safe_load(text)):
            if task.get("failed_when") is False:
                assert f"{task['register']}." in text.split(f"register: {task['register']}", 1)[1], path


def _tasks(node: Any) -> list[dict[str, Any]]:
    """Return every mapping of a playbook, blocks and all."""
    if isinstance(node, list):
        return [task for item in node for task in _tasks(item)]
    if isinstance(node, dict):
        return [node, *_tasks(list(node.values()))]
    return []


@pytest.mark.parametrize("system", ["Ubuntu 24.04.3 LTS", "Debian GNU/Linux 12 (bookworm)", "Rocky Linux 9.6"])
@pytest.mark.parametrize("runfile", [False, True])
def test_a_missing_blacklist_is_found_however_the_driver_was_installed(system: str, runfile: bool) -> None:
    bare = healthy_boot(settings=(), effective=())
    host, driver = host_with(os_name=system), healthy_driver(runfile=runfile, packages=())
    assert found("boot.nouveau-not-blocked", bare, host, driver)
    assert not found("boot.nouveau-not-blocked", healthy_boot(), host, driver)


def test_a_host_that_we_do_not_know_is_no_success(tmp_path: Path) -> None:
    def status(answers: dict[str, Answer]) -> int:
        evidence = replace(HEALTHY, answers=answers)
        (tmp_path / "e.json").write_text(to_json(evidence), encoding="utf-8")
        return run(["check", "--from", str(tmp_path / "e.json"), "--no-site-checks"])

    assert status(dict(HEALTHY.answers)) == 0
    assert status({}) == 3
    silent = {key: answer for key, answer in HEALTHY.answers.items() if "nvml" not in key and "cuda" not in key}
    assert status(silent) == 3
    assert status(dict(_recorded("no-gpu").answers)) == 2


def _recorded(name: str) -> Evidence:
    return from_json((ROOT / f"tests/hosts/{name}/evidence.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("expected", "loaded"), [("580", "1580.95.05"), ("580.10", "580.105.08"), ("95.05", "580.95.05")]
)
def test_a_part_of_a_version_is_not_the_version(expected: str, loaded: str) -> None:
    pinned = msgspec.structs.replace(
        bundled_policy(), expect=msgspec.structs.replace(bundled_policy().expect, driver=expected)
    )
    assert found("driver.not-the-expected-version", healthy_driver(loaded=loaded), healthy_boot(), pinned)


def test_nothing_asks_for_nvcc() -> None:
    assert not [probe.key for probe in probes_of(CHECKS) if "nvcc" in probe.key]
    for path in [*bundled.PROGRAMS.glob("*.py"), *(bundled.IMAGES / "probe").glob("*.py")]:
        assert "nvcc" not in path.read_text(encoding="utf-8"), path


def test_no_playbook_writes_dockers_settings() -> None:
    writing = {"copy", "template", "lineinfile", "blockinfile", "replace", "file"}
    for path in PLAYBOOKS:
        for task in _tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for module, arguments in task.items():
                if str(module).rpartition(".")[2] in writing:
                    assert "/etc/docker" not in str(arguments), path


def test_nothing_removes_packages_by_a_wildcard() -> None:
    texts = {check.id: check.cure for check in CHECKS}
    texts |= {str(path): path.read_text(encoding="utf-8") for path in PLAYBOOKS}
    texts |= {str(path): path.read_text(encoding="utf-8") for path in bundled.KNOWLEDGE.glob("*.toml")}
    assert WILDCARD.search("sudo apt-get purge 'cuda*'")
    assert not {name for name, text in texts.items() if WILDCARD.search(text)}


# --- a check that looks must not act ------------------------------------------------------------------------------

# Every file that is opened to be written and every change of a directory, in the collector and all of its forks.
WATCH = """
import os, sys
LOG = sys.argv[1]
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink",
           "os.truncate", "os.utime", "os.setxattr", "shutil.rmtree", "shutil.copyfile"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
inside = False
def hook(event, values):
    global inside
    if inside:
        return
    wrote = event == "open" and isinstance(values[2], int) and values[2] & WRITES and isinstance(values[0], str)
    started = event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system")
    if wrote or started or event in CHANGES:
        inside = True
        with open(LOG, "a") as file:
            file.write(repr(["started" if started else "wrote", event, *map(str, values[:2])]) + "\\n")
        inside = False
sys.addaudithook(hook)
from lpxdoctor import catalog
from lpxdoctor.cli._host import ask
from lpxdoctor.evaluate import probes_of
evidence = ask(probes_of(catalog.load(None)), container_test=False, limit_s=30)
print(sum(not answer.failure for answer in evidence.answers.values()))
open(LOG + ".control", "w").close()
"""
# What may be started, all of it only reads: program -> how its arguments begin.
ONLY_READ: dict[str, tuple[str, ...]] = {
    "systemd-detect-virt": (),
    "dmesg": (),
    "df": (),
    "dpkg-query": ("-W",),
    "rpm": ("-qa",),
    "systemctl": ("show",),
    "mokutil": ("--list-enrolled",),
    "nv-fabricmanager": ("--version",),
    "dockerd": ("--validate",),
    "ldconfig": ("-p",),
    "modprobe": ("--showconfig",),
    "modinfo": (),
    "dkms": ("status",),
    "nvidia-smi": (),
    "dcgmi": ("diag", "--run", "1"),  # libraries, permissions and health fields; no load
}


def test_asking_a_host_changes_nothing_on_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = [sys.executable, "-B", "-c", WATCH, str(log)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) > 50
    lines = [ast.literal_eval(line) for line in log.read_text(encoding="utf-8").splitlines()]
    wrote = [line for line in lines if line[0] == "wrote" and line[2] != "/dev/null"]
    assert [line[2] for line in wrote] == [f"{log}.control"]
    started = {line[2]: ast.literal_eval(line[3]) for line in lines if line[0] == "started"}
    assert "ldconfig" in started  # by a program: its fork is watched too
    for name, argv in started.items():
        assert tuple(argv[1 : 1 + len(ONLY_READ[name])]) == ONLY_READ[name], argv


def test_every_command_that_is_asked_only_reads() -> None:
    commands = [probe for probe in probes_of(CHECKS) if isinstance(probe, Command)]
    assert commands
    for command in commands:
        start = ONLY_READ[command.argv[0]]
        assert command.argv[1 : 1 + len(start)] == start, command.argv


def test_a_check_has_nothing_to_act_with() -> None:
    forbidden = re.compile(r"^\s*(?:import|from) (?:os|subprocess|shutil|pathlib|socket|ctypes)\b", re.MULTILINE)
    for path in bundled.CHECKS.glob("*.py"):
        assert not forbidden.search(path.read_text(encoding="utf-8")), path
