"""Container layers as values: what Docker really answered on two machines, for tests to change."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.facts import container as probes
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.daemon import Daemon, daemon
from lpxdoctor.facts.driver import DPKG, NODES, RPM
from lpxdoctor.facts.passthrough import Trial, trials
from lpxdoctor.facts.toolkit import Refresh
from tests.facts.given import command, evidence

# Docker 28.5.2 with a CDI specification on a machine with one H200, Docker 20.10.24 on one without a GPU, and what came
# of the three paths there: as they are, with a wrong number or no node of nvidia-uvm in the specification, with a mount
# of another driver's library, without a specification.
RECORDED: Mapping[str, Any] = json.loads((Path(__file__).parent / "data" / "docker.json").read_text(encoding="utf-8"))

REFRESHING = Refresh(installed=True, watching=True, result="success", before_docker=True)
NEWER, OLDER = "28.5.2", "20.10.24"
CHARACTER = {"kind": "char", "mode": 0o666, "uid": 0, "gid": 0, "readable": True, "writable": True}
H200_NODES = {
    "/dev/nvidia0": {**CHARACTER, "major": 195, "minor": 0},
    "/dev/nvidiactl": {**CHARACTER, "major": 195, "minor": 255},
    "/dev/nvidia-uvm": {**CHARACTER, "major": 238, "minor": 0},
    "/dev/nvidia-uvm-tools": {**CHARACTER, "major": 238, "minor": 1},
}


def answer(recorded: str = NEWER, **changes: Any) -> dict[str, Any]:
    """Return what programs/docker.py printed, with changes to what Docker's /info says."""
    raw: dict[str, Any] = copy.deepcopy(RECORDED["docker"][recorded])
    raw["info"].update(changes)
    return raw


def answers() -> dict[Any, Any]:
    """Return the answers to all of the container layer's probes on the H200, {probe: value or Answer}."""
    absent = Answer(failure="absent", reason="No such file or directory")
    return {
        probes.DOCKER: answer(),
        probes.PASSTHROUGH: RECORDED["passthrough"]["works"],
        probes.DAEMON_JSON: absent,
        probes.SNAP_JSON: absent,
        probes.ROOTLESS_JSON: {},
        probes.VALIDATE: command(code=1, stderr="open /etc/docker/daemon.json: no such file or directory"),
        probes.CONFIG: absent,
        probes.REFRESH: absent,
        probes.PROXIES: absent,
        probes.CHAR_LINKS: {},
        probes.SOURCES: {},
        probes.SYSTEMD: {},
        DPKG: command(),
        RPM: absent,
        NODES: H200_NODES,
        **dict.fromkeys(probes.DEFAULTS, absent),
        **{probe: {} for probe in (*probes.UNITS, *probes.DOCKERD, *probes.SOCKETS, *probes.PROGRAMS)},
        probes.SPECS[0]: {"/etc/cdi/nvidia.json": json.dumps(RECORDED["cdi"])},
        probes.SPECS[1]: {},
    }


def asked(changes: Mapping[Any, Any] | None = None) -> Evidence:
    """Return the evidence of the H200's container layer, with some answers changed."""
    return evidence({**answers(), **(changes or {})})


def healthy(**changes: Any) -> Container:
    """Return the container layer of the H200: Docker 28.5.2, CDI works, no toolkit."""
    return replace(Container.parse(asked()), **changes)


def live(recorded: str = NEWER, **changes: Any) -> Daemon:
    """Return a Docker that answers, with changes to its fields."""
    return replace(daemon(answer(recorded)), **changes)


def tried(name: str) -> tuple[Trial, ...]:
    """Return how the paths ended in one of the recorded trials."""
    return trials(RECORDED["passthrough"][name])


def trial(path: str, **changes: Any) -> Trial:
    """Return a trial that works, by one path, with changes."""
    works = next(each for each in tried("works") if each.works)
    return replace(works, path=path, **changes)
