"""A role in; its modules, which run on hosts, imported here, and its variables as Ansible renders them, out."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from ansible.utils.collection_loader import AnsibleCollectionConfig

from lpxdoctor import bundled

ROLES = bundled.PLAYBOOKS / "roles"


def read(file: Path) -> Any:
    """Return what a YAML file holds."""
    return yaml.safe_load(file.read_text())


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write {path below a root: text} and return the root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def program(path: Path, script: str) -> None:
    """Write a program that runs a line of shell."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def loaded(role: str, name: str) -> ModuleType:
    """Return a library module of a role."""
    for directory in (bundled.PLAYBOOKS, ROLES / role):
        _find(directory / "module_utils")
    return _load(f"lpxdoctor_role_{name}", ROLES / role / "library" / f"{name}.py")


def shared(name: str) -> ModuleType:
    """Return one of the module_utils that all roles have."""
    _find(bundled.PLAYBOOKS / "module_utils")
    return importlib.import_module(f"ansible.module_utils.{name}")


def _find(directory: Path) -> None:
    """Let modules be imported from there as from Ansible's own, whichever asks for another first."""
    if str(directory) not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(directory))


def templates(role: str, file: str) -> dict[str, Any]:
    """Return the variables in a file of a role, as Ansible holds them until it needs one."""
    found: dict[str, Any] = DataLoader().load_from_file(str(ROLES / role / file), trusted_as_template=True)
    return found


def rendered(template: Any, variables: Mapping[str, Any]) -> Any:
    """Return what Ansible makes of a template."""
    if not AnsibleCollectionConfig.collection_finder:  # of this process there is one
        init_plugin_loader()
    return Templar(loader=DataLoader(), variables=dict(variables)).template(template)


def _load(name: str, file: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
