"""A role and the name of one of its modules in; the module as Python's, which else runs on hosts, out."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from lpxdoctor import bundled


def loaded(role: str, name: str) -> ModuleType:
    """Return a library module of a role."""
    for file in bundled.PLAYBOOKS.glob("module_utils/*.py"):
        shared(file.stem)
    for file in (bundled.PLAYBOOKS / "roles" / role).glob("module_utils/*.py"):
        _load(f"ansible.module_utils.{file.stem}", file)
    return _load(f"lpxdoctor_role_{name}", bundled.PLAYBOOKS / "roles" / role / "library" / f"{name}.py")


def shared(name: str) -> ModuleType:
    """Return one of the module_utils that all roles have."""
    known = sys.modules.get(f"ansible.module_utils.{name}")
    return known or _load(f"ansible.module_utils.{name}", bundled.PLAYBOOKS / "module_utils" / f"{name}.py")


def _load(name: str, file: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
