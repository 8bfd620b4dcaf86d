"""What Docker, its settings, the Container Toolkit and the CDI specifications say in; the container layer out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.evidence import Command, Evidence, File, Glob, Listing, Probe, Program, Unreadable
from lpxdoctor.facts import cdi, daemon_json, nodes, packages, passthrough, toolkit
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.cdi import Spec
from lpxdoctor.facts.daemon import Daemon, daemon
from lpxdoctor.facts.daemon_json import Settings, Unit
from lpxdoctor.facts.driver import DPKG, NODES, RPM
from lpxdoctor.facts.fact import Fact, NotApplicable, known
from lpxdoctor.facts.nodes import Node
from lpxdoctor.facts.packages import Package
from lpxdoctor.facts.passthrough import Trial
from lpxdoctor.facts.toolkit import Config, Refresh
from lpxdoctor.knowledge import container as releases

DOCKER = Program("docker", timeout_s=20.0)
PASSTHROUGH = Program("passthrough", timeout_s=25.0)
DAEMON_JSON = File("/etc/docker/daemon.json")
SNAP_JSON = File("/var/snap/docker/current/config/daemon.json")
ROOTLESS_JSON = Glob("/home/*/.config/docker/daemon.json")
VALIDATE = Command(("dockerd", "--validate", "--config-file", DAEMON_JSON.path))
UNITS = Glob("/*/systemd/system/docker.service"), Glob("/*/systemd/system/docker.service.d/*.conf")
DEFAULTS = File("/etc/default/docker"), File("/etc/sysconfig/docker")
DOCKERD = Listing("/usr/*bin/dockerd"), Listing("/usr/local/bin/dockerd"), Listing("/snap/bin/docker")
SOCKETS = Listing("/var/run/docker.sock"), Listing("/run/user/*/docker.sock")
PROGRAMS = Listing("/usr/bin/nvidia-c*"), Listing("/usr/local/nvidia/toolkit/nvidia-c*")
CONFIG = File("/etc/nvidia-container-runtime/config.toml")
SPECS = Glob("/etc/cdi/*"), Glob("/var/run/cdi/*")
REFRESH = Command(
    (
        *("systemctl", "show", "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"),
        "--property=Id,LoadState,ActiveState,Result,Before",
    )
)
CHAR_LINKS = Listing("/dev/char/195:*")
PROXIES = File("/etc/environment")
SOURCES = Glob("/etc/apt/sources.list.d/*")
SYSTEMD = Listing("/run/systemd/system")


@dataclass(frozen=True)
class Disk:
    """The room below a directory of Docker's."""

    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class Container(Fact):
    """How this host's containers get their GPUs."""

    probes: ClassVar[tuple[Probe, ...]] = (
        *(DOCKER, PASSTHROUGH, DAEMON_JSON, SNAP_JSON, ROOTLESS_JSON, VALIDATE, *UNITS, *DEFAULTS, *DOCKERD),
        *(*SOCKETS, *PROGRAMS, CONFIG, *SPECS, REFRESH, CHAR_LINKS, PROXIES, SOURCES, SYSTEMD, DPKG, RPM, NODES),
    )

    daemon: Daemon | None  # the Docker that answers; None where nobody does
    refused: str  # why this caller may not ask it, "" where it may
    silent: str  # what was seen where nobody listens, or listens and says nothing, "" where Docker answers
    installed: tuple[str, ...]  # dockerd programs on disk
    sockets: tuple[str, ...]  # where a Docker of this or another user listens
    settings: Settings | None  # the daemon.json of the Docker that answers, None where it has none
    validation: str | None  # what dockerd says against its daemon.json, "" for nothing; None where it cannot tell
    unit: Unit | None  # how systemd starts Docker; None where there is no systemd, or no unit
    programs: Mapping[str, str]  # the toolkit's, {name: path}
    packages: tuple[Package, ...]
    config: Config | None
    specs: tuple[Spec, ...]
    sources: Mapping[str, str]  # {file: key} of apt's sources of the toolkit
    refresh: Refresh | None  # None where there is no systemd
    nodes: tuple[Node, ...]
    char_links: tuple[str, ...]
    disks: tuple[Disk, ...]
    proxies: tuple[str, ...]  # the variables that name one for every login
    untried: str  # why no path was tried, "" where they were
    trials: tuple[Trial, ...]

    @property
    def answering(self) -> Daemon:
        """The Docker that answers, or Podman in its place; raises NotApplicable where neither does."""
        if self.daemon is None:
            raise NotApplicable("no Docker answers on this host")
        return self.daemon

    @property
    def docker(self) -> Daemon:
        """The Docker that answers; raises NotApplicable where none does, or Podman in its place."""
        if self.answering.podman:
            raise NotApplicable("Podman answers in Docker's place")
        return self.answering

    @property
    def version(self) -> str:
        """Docker's version, "" where none answers."""
        return self.daemon.version if self.daemon else ""

    @property
    def release(self) -> Version | None:
        """Docker's version to compare, None where none answers or it is no version."""
        return knowledge.version(self.version)

    @property
    def working_paths(self) -> tuple[str, ...]:
        """The paths by which CUDA started in a container, for people."""
        return tuple(trial.label for trial in self.trials if trial.works)

    @property
    def proven(self) -> bool:
        """Whether a path is known to work; no proof is none."""
        return any(trial.works for trial in self.tried)

    @property
    def tried(self) -> tuple[Trial, ...]:
        """The trials, none where they were not made."""
        try:
            return self.trials
        except Unreadable:
            return ()

    @property
    def hands_over(self) -> bool:
        """Whether Docker can hand a GPU over by some path: it did, or for want of a trial, CDI is set up for it.

        Where it can, what is missing for the other paths keeps nobody from a GPU.
        """
        return any(trial.started for trial in self.tried) if self.tried else self.has_cdi

    @property
    def toolkit(self) -> Version | None:
        """The toolkit's version; None where it is not installed as a package."""
        found = {toolkit.bare(package): toolkit.version(package) for package in self.packages}
        return next((found[name] for name in toolkit.PACKAGES if found.get(name)), None)

    @property
    def gpu_specs(self) -> tuple[Spec, ...]:
        """The specifications of NVIDIA's GPUs that a runtime goes by."""
        return cdi.counting(tuple(spec for spec in self.specs if spec.kind == cdi.KIND and not spec.error))

    @property
    def has_cdi(self) -> bool:
        """Whether this Docker has CDI on and a specification of GPUs to go by."""
        return bool(self.daemon and self.daemon.cdi_dirs and self.gpu_specs)

    @property
    def gpus_by_cdi(self) -> bool | None:
        """Whether --gpus goes by CDI here and not by the toolkit's hook; None where this Docker's version is odd."""
        newer = releases.has("gpus-by-cdi", self.release)
        return newer and self.has_cdi if newer is not None else None

    @property
    def runtime_by_hook(self) -> bool:
        """Whether nvidia-container-runtime hands GPUs over behind runc's back, so that a daemon-reload takes them."""
        mode = self.config.mode if self.config else "auto"
        return mode == "legacy" or (mode == "auto" and releases.has("runtime-by-cdi", self.toolkit) is False)

    @classmethod
    def parse(cls, evidence: Evidence) -> "Container":
        """Return the facts that the answers hold; never raises."""
        live = known(partial(_daemon, evidence))
        return cls(
            daemon=live,
            refused=known(partial(_refused, evidence)),
            silent=known(partial(_silent, evidence)),
            installed=known(lambda: tuple(path for probe in DOCKERD for path in evidence.found(probe))),
            sockets=known(lambda: tuple(path for probe in SOCKETS for path in evidence.found(probe))),
            settings=known(partial(_settings, evidence)),
            validation=known(partial(_validation, evidence)),
            unit=known(partial(_unit, evidence)),
            programs=known(lambda: toolkit.by_name({p: e["mode"] & 0o111 != 0 for p, e in _listed(evidence).items()})),
            packages=known(partial(_packages, evidence)),
            config=known(partial(_config, evidence)),
            specs=known(lambda: cdi.specs({p: t for probe in SPECS for p, t in evidence.found(probe).items()})),
            sources=known(lambda: toolkit.sources(evidence.found(SOURCES))),
            refresh=known(partial(_refresh, evidence)),
            nodes=known(lambda: nodes.nodes(evidence.found(NODES))),
            char_links=known(lambda: tuple(evidence.found(CHAR_LINKS))),
            disks=known(partial(_disks, evidence)),
            proxies=known(partial(_proxies, evidence)),
            untried=known(partial(_untried, evidence)),
            trials=known(partial(_trials, evidence)),
        )


def _answer(evidence: Evidence) -> dict[str, Any] | None:
    """Return what Docker answered, None where nobody listens; raise Unreadable where it did not let us ask."""
    answer: dict[str, Any] = evidence.value(DOCKER)
    if answer["failure"] == "absent":
        return None
    if answer["failure"]:
        raise Unreadable(f"Docker: {answer['reason']}")
    return answer


def _daemon(evidence: Evidence) -> Daemon | None:
    answer = _answer(evidence)
    return daemon(answer) if answer else None


def _refused(evidence: Evidence) -> str:
    answer = evidence.value(DOCKER)
    return str(answer["reason"]) if answer["failure"] == "denied" else ""


def _silent(evidence: Evidence) -> str:
    answer = evidence.value(DOCKER)
    return str(answer["reason"]) if answer["failure"] in ("absent", "timeout") else ""


def _settings(evidence: Evidence) -> Settings | None:
    """Return the daemon.json that belongs to the Docker that answers, else the system's."""
    live = _daemon(evidence)
    if live and live.flavor == "rootless":
        found = {path: text for path, text in evidence.found(ROOTLESS_JSON).items() if text is not None}
        return next((daemon_json.settings(path, text) for path, text in found.items()), None)
    probe = SNAP_JSON if live and live.flavor == "snap" else DAEMON_JSON
    text = evidence.text_or_none(probe)
    return None if text is None else daemon_json.settings(probe.path, text)


def _validation(evidence: Evidence) -> str | None:
    if evidence.absent(VALIDATE) or evidence.absent(DAEMON_JSON):
        return None
    value = evidence.value(VALIDATE)
    if value["exit"] == 0:
        return ""
    said = (value["stderr"] or value["stdout"]).strip()
    # Engines before 23.0 have no such option.
    return None if "unknown flag" in said else said.rpartition("\n")[2]


def _unit(evidence: Evidence) -> Unit | None:
    if not evidence.found(SYSTEMD):
        return None
    environment: dict[str, str] = {}
    for probe in DEFAULTS:
        environment.update(assignments(evidence.text_or_none(probe) or ""))
    return daemon_json.unit({p: t for probe in UNITS for p, t in evidence.found(probe).items()}, environment)


def _listed(evidence: Evidence) -> dict[str, Any]:
    return {path: entry for probe in PROGRAMS for path, entry in evidence.found(probe).items()}


def _packages(evidence: Evidence) -> tuple[Package, ...]:
    found: list[Package] = []
    if not evidence.absent(DPKG):  # it ends with 1 where a pattern fits nothing
        found += packages.dpkg(evidence.value(DPKG)["stdout"])
    if not evidence.absent(RPM):
        found += packages.rpm(evidence.text(RPM))
    return tuple(found)


def _config(evidence: Evidence) -> Config | None:
    text = evidence.text_or_none(CONFIG)
    return None if text is None else toolkit.config(CONFIG.path, text)


def _refresh(evidence: Evidence) -> Refresh | None:
    return toolkit.refresh(evidence.text(REFRESH)) if evidence.found(SYSTEMD) else None


def _disks(evidence: Evidence) -> tuple[Disk, ...]:
    answer = _answer(evidence)
    found = answer["disks"] if answer else {}
    return tuple(Disk(path, room["free_bytes"], room["total_bytes"]) for path, room in found.items())


def _proxies(evidence: Evidence) -> tuple[str, ...]:
    variables = assignments(evidence.text_or_none(PROXIES) or "")
    return tuple(name for name in variables if name.lower() in ("http_proxy", "https_proxy"))


def _untried(evidence: Evidence) -> str:
    if PASSTHROUGH.key not in evidence.answers:
        return "the container test was left out (--no-container-test)"
    return str(evidence.value(PASSTHROUGH)["skipped"])


def _trials(evidence: Evidence) -> tuple[Trial, ...]:
    if _untried(evidence):
        return ()
    answer = evidence.value(PASSTHROUGH)
    if answer["failure"]:
        raise Unreadable(f"no container could be tried: {answer['failure']}")
    return passthrough.trials(answer)
