"""What Docker and the engines themselves say in; every inference engine in a container of this host out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from lpxdoctor.evidence import Evidence, Probe, Unreadable
from lpxdoctor.facts import docker_inspect, messages
from lpxdoctor.facts.container import DOCKER
from lpxdoctor.facts.fact import Fact, NotApplicable, known
from lpxdoctor.facts.messages import Match

_SIGKILL, _SIGTERM = 137, 143  # exit codes of a container whose first process ended by that signal
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Mount:
    """A directory or volume of the host in a container."""

    source: str
    target: str


@dataclass(frozen=True)
class Reply:
    """What an engine answered to one question; status is None where it did not, and body says why."""

    status: int | None
    body: str


@dataclass(frozen=True, kw_only=True)
class Engine(Fact):
    """One container with an inference engine."""

    id: str
    name: str
    image: str  # what it was started from: a tag, a tag with a digest, or an id
    image_id: str
    tag_id: str  # the image that this name means now, "" where it means none
    digests: tuple[str, ...]  # of the image in the registries that it came from; () for one that was built here
    command: tuple[str, ...]  # entry point and arguments
    environment: Mapping[str, str]  # *** where the value is of no use or secret
    labels: Mapping[str, str]
    user: str
    healthcheck: bool
    status: str  # Docker's: created, running, paused, restarting, exited, dead
    exit_code: int
    oom_killed: bool
    docker_error: str
    restarts: int
    up_s: float | None  # since it was last started; None where it does not run
    health: str  # of Docker's health check: starting, healthy, unhealthy, "" for none
    restart_policy: str
    ipc: str
    shm_bytes: int
    network: str
    privileged: bool
    gpu_requests: tuple[str, ...]  # how it asks for GPUs: "cdi", "gpus", "runtime", "device"
    mounts: tuple[Mount, ...]
    published: tuple[tuple[str, str], ...]  # (host address, host port)
    log: str  # Unreadable where Docker keeps none
    address: str  # where this host reaches it, "" where nothing says it
    replies: Mapping[str, Reply]
    guarded: bool | None  # whether it asks for a key, None where it did not answer

    @property
    def up(self) -> bool:
        """Whether its process runs."""
        return self.status in ("running", "paused")

    @property
    def stopped(self) -> bool:
        """Whether it ended in order, as it does at docker stop."""
        return (
            self.status == "exited" and self.exit_code in (0, _SIGTERM) and not (self.oom_killed or self.docker_error)
        )

    @property
    def killed(self) -> bool:
        """Whether somebody or something killed it; Docker does not always notice that it was the kernel, for memory."""
        return self.status == "exited" and self.exit_code == _SIGKILL and not self.oom_killed

    @property
    def ill(self) -> bool:
        """Whether it runs and does not serve: by Docker's health check, or by what it answers to /health."""
        reply = self.replies.get("/health")
        return self.up and (self.health == "unhealthy" or (reply is not None and reply.status not in (None, 200)))

    @property
    def fails(self) -> bool:
        """Whether it is ill, or down without having been stopped, or starts again and again."""
        return self.ill if self.up else not (self.stopped or self.killed)

    @property
    def wants_gpu(self) -> bool:
        """Whether it asks for a GPU."""
        return bool(self.gpu_requests)

    @property
    def pinned(self) -> bool:
        """Whether its image is named by what is in it."""
        return "@sha256:" in self.image or self.image.startswith("sha256:")

    @property
    def ours(self) -> bool:
        """Whether lpxdoctor rolled it out."""
        return "lpxdoctor.engine" in self.labels

    def option(self, *names: str) -> str:
        """Return the value of an argument given by one of its names, "" where it is not given."""
        for number, word in enumerate(self.command):
            name, joined, value = word.partition("=")
            if name in names:
                follows = self.command[number + 1] if number + 1 < len(self.command) else ""
                return value if joined else follows
        return ""

    def has(self, name: str) -> bool:
        """Tell whether an argument is given."""
        return any(word.partition("=")[0] == name for word in self.command)

    @property
    def model(self) -> str:
        """The model that it is told to serve: a directory or a repository; "" where no argument names one."""
        named = self.option("--model")
        if named:
            return named
        after = [self.command[n + 1 :] for n, word in enumerate(self.command) if word == "serve"]
        return next((words[0] for words in after if words and not words[0].startswith("-")), "")

    @property
    def ranks(self) -> int:
        """How many GPUs it is told to use."""
        sizes = (
            self.option("--tensor-parallel-size", "-tp"),
            self.option("--pipeline-parallel-size", "-pp"),
            self.option("--data-parallel-size", "-dp"),
        )
        product = 1
        for size in sizes:
            product *= int(size) if size.isdigit() and int(size) else 1
        return product

    @property
    def exposed(self) -> tuple[str, ...]:
        """The addresses beyond this host at which it can be reached; an empty one means all."""
        if self.network == "host":
            host = self.option("--host")
            port = self.option("--port") or "8000"
            return () if host in _LOOPBACK else (f"{host or '0.0.0.0'}:{port}",)  # noqa: S104
        return tuple(f"{host or '0.0.0.0'}:{port}" for host, port in self.published if host not in _LOOPBACK)  # noqa: S104

    @property
    def served(self) -> tuple[str, ...]:
        """The names of models that it says it serves; raises Unreadable where it did not say."""
        reply = self.replies.get("/v1/models")
        if reply is None or reply.status != 200:
            said = "it does not run" if reply is None else f"{reply.status or ''} {reply.body}".strip()
            raise Unreadable(f"{self.name} did not say which model it serves: {said}")
        try:
            return tuple(str(each["id"]) for each in json.loads(reply.body)["data"])
        except (ValueError, KeyError, TypeError):
            raise Unreadable(f"{self.name} answers /v1/models with no list of models: {reply.body[:100]}") from None

    @cached_property
    def cause(self) -> Match | None:
        """The deepest of the known errors in what Docker says of it, else in its log; None where there is none."""
        refusals = messages.find(self.docker_error)
        return refusals[0] if refusals else next(iter(messages.find(self.log)), None)

    @property
    def unexplained(self) -> bool:
        """Whether no known error says why it fails; a log that cannot be read says nothing."""
        try:
            return self.cause is None
        except Unreadable:
            return True

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of its log, for people; none where it cannot be read."""
        try:
            return tuple(line[:200] for line in self.log.splitlines() if line.strip())[-3:]
        except Unreadable as reason:
            return (str(reason),)


@dataclass(frozen=True, kw_only=True)
class Engines(Fact):
    """All engines in containers of the Docker that answers."""

    probes: ClassVar[tuple[Probe, ...]] = (DOCKER,)

    engines: tuple[Engine, ...]

    @property
    def some(self) -> tuple[Engine, ...]:
        """The engines, at least one; raises NotApplicable where there is none."""
        if not self.engines:
            raise NotApplicable("no engine is in a container of this host")
        return self.engines

    def ended(self, *causes: str) -> Iterator[tuple[Engine, Match]]:
        """Yield each engine that fails for a cause of one of these names; raise NotApplicable where there is none."""
        for engine in self.some:
            if engine.fails and engine.cause and engine.cause.name in causes:
                yield engine, engine.cause

    @classmethod
    def parse(cls, evidence: Evidence) -> "Engines":
        """Return the facts that the answers hold; never raises."""
        return cls(engines=known(partial(_engines, evidence)))


def _engines(evidence: Evidence) -> tuple[Engine, ...]:
    answer = evidence.value(DOCKER)
    if answer["failure"] == "absent":
        return ()
    if answer["failure"]:
        raise Unreadable(f"Docker: {answer['reason']}")
    if answer["engines"] is None:
        raise Unreadable(f"Docker did not list its containers: {answer['engines_reason']}")
    failures = [each["failure"] for each in answer["engines"] if each["failure"]]
    if failures:
        raise Unreadable(f"a container could not be looked into: {failures[0]}")
    return tuple(engine(each, evidence.collected_at) for each in answer["engines"])


def engine(raw: Mapping[str, Any], collected_at: str) -> Engine:
    """Return one engine of programs/docker.py's answer."""
    state, host = raw["state"], raw["host"]
    running = state["Status"] in ("running", "paused")
    return Engine(
        id=raw["id"],
        name=raw["name"],
        image=raw["image"],
        image_id=raw["image_id"],
        tag_id=raw["tag_id"],
        digests=tuple(raw["digests"]),
        command=tuple(docker_inspect.words((*raw["entrypoint"], *raw["arguments"]))),
        environment=raw["environment"],
        labels=raw["labels"],
        user=raw["user"],
        healthcheck=bool(raw["healthcheck"]) and (raw["healthcheck"].get("Test") or ["NONE"])[0] != "NONE",
        status=state["Status"],
        exit_code=int(state["ExitCode"]),
        oom_killed=bool(state["OOMKilled"]),
        docker_error=state["Error"] or "",
        restarts=int(raw["restarts"]),
        up_s=known(partial(docker_inspect.seconds_between, state["StartedAt"], collected_at)) if running else None,
        health=raw["health"],
        restart_policy=(host["RestartPolicy"] or {}).get("Name") or "no",
        ipc=host["IpcMode"] or "",
        shm_bytes=int(host["ShmSize"] or 0),
        network=host["NetworkMode"] or "",
        privileged=bool(host["Privileged"]),
        gpu_requests=tuple(dict.fromkeys(docker_inspect.gpu_requests(host))),
        mounts=tuple(Mount(m.get("Source") or m.get("Name") or "", m["Destination"]) for m in raw["mounts"]),
        published=tuple(
            (binding.get("HostIp") or "", binding["HostPort"])
            for each in raw["ports"].values()
            for binding in each or ()
        ),
        log=known(partial(_log, raw)),
        address=raw["address"],
        replies={
            path: Reply(said.get("status"), said.get("body", said.get("failure", "")))
            for path, said in raw["http"].items()
        },
        guarded=raw["guarded"],
    )


def _log(raw: Mapping[str, Any]) -> str:
    if raw["log"] is None:
        raise Unreadable(f"the log of {raw['name']}: {raw['log_reason']}")
    return str(raw["log"])
