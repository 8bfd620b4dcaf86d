"""What the role container installs on each system, and which CDI specifications it sets aside."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.roles.loading import ROLES, loaded, read, rendered, templates

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


RENDERED = read(Path(__file__).parent / "container.yml")


@pytest.mark.parametrize("case", RENDERED, ids=lambda case: case["name"])
def test_packages_and_sources_of_each_system(case: dict[str, Any]) -> None:
    said = variables(case["system"], case.get("host"), **case.get("given", {}))
    assert {name: said(name) for name in case["expected"]} == case["expected"]


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
