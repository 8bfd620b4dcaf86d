"""Playbooks as anybody runs them, without lpxdoctor: hosts and variables in; exit status, changes and output out."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpxdoctor import bundled
from tests.lab.hosts import Host, write_inventory


@dataclass(frozen=True)
class Played:
    """A run that came to its end."""

    status: int
    changed: int  # tasks, by Ansible's recap
    output: str

    def well(self) -> "Played":
        """Return itself; fail the test where the run failed."""
        assert self.status == 0, self.output
        return self


@dataclass(frozen=True)
class Player:
    """What runs playbooks on one host."""

    inventory: Path
    collections: Path

    def __call__(self, name: str, *argv: str, **variables: Any) -> Played:
        """Run playbooks/NAME.yml with the settings that lie beside it."""
        extra = ("--extra-vars", json.dumps(variables)) if variables else ()
        command = (sys.executable, "-m", "ansible", "playbook", "-i", str(self.inventory), f"{name}.yml", *argv, *extra)
        environment: Mapping[str, str] = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            command, cwd=bundled.PLAYBOOKS, env=environment, capture_output=True, text=True, timeout=1500, check=False
        )
        counted = re.search(r"^\S+ +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE)
        return Played(done.returncode, int(counted[1]) if counted else -1, done.stdout + done.stderr)


def player(host: Host, directory: Path, collections: Path) -> Player:
    """Return what runs playbooks on a host, its inventory in the directory."""
    return Player(write_inventory(directory / f"{host.name}.yml", [host]), collections)
