"""Ask many hosts at once, each in one round trip: hosts and probes in, evidence or the reason for none of each out."""

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lpxdoctor import bundled
from lpxdoctor.collect import LIMIT_S
from lpxdoctor.errors import SetupError
from lpxdoctor.evidence import Evidence, Probe, from_json
from lpxdoctor.fleet.inventories import FleetHost
from lpxdoctor.fleet.payload import Payload, pack
from lpxdoctor.fleet.reach import argv_of
from lpxdoctor.fleet.refusals import NoAnswer, refusal

FORKS = 20
# Beyond the collector's own limit: connecting, sending it, starting Python on a busy host, and the answer's way back.
MARGIN_S = 30.0
CAP_BYTES = 64 << 20  # of one host's answer, as it comes and unpacked
_SAID_BYTES = 64 << 10
_TICK_S = 0.1
_GRACE_S = 2.0

Row = tuple[str, "Evidence | NoAnswer"]


def collect(
    hosts: Sequence[FleetHost],
    probes: Iterable[Probe],
    *,
    container_test: bool,
    reload_test: bool = False,
    forks: int = FORKS,
    limit_s: float = LIMIT_S,
    on_host: Callable[[str, Evidence | NoAnswer], None] | None = None,
) -> Mapping[str, Evidence | NoAnswer]:
    """Return what every host answered, or why it did not: as many rows as hosts, in their order.

    Args:
        hosts: whom to ask; ansible_connection=local is asked without SSH.
        probes: what to ask.
        container_test: whether to prove GPU passthrough by starting containers.
        reload_test: whether to make systemd reload, and see whether a container loses its GPU by that.
        forks: how many hosts are asked at once.
        limit_s: seconds that a host may take to answer its probes; MARGIN_S more for the way there and back.
        on_host: called as each host's row is known.

    Raises:
        SetupError: this machine has no ssh.
    """
    rows: dict[str, Evidence | NoAnswer] = {}
    tests = {"container_test": container_test, "reload_test": reload_test}
    for name, row in answers(hosts, probes, **tests, forks=forks, limit_s=limit_s):
        rows[name] = row
        if on_host:
            on_host(name, row)
    return {host.name: rows[host.name] for host in hosts}


def answers(
    hosts: Sequence[FleetHost],
    probes: Iterable[Probe],
    *,
    container_test: bool,
    reload_test: bool = False,
    forks: int = FORKS,
    limit_s: float = LIMIT_S,
) -> Generator[Row]:
    """Yield each host's row as it comes, so that the evidence of a large fleet need not be held; else as collect."""
    unwanted = bundled.unwanted(container_test=container_test, reload_test=reload_test)
    payload = pack(probes, unwanted=unwanted, limit_s=limit_s, mark=secrets.token_hex(8))
    waiting = deque(hosts)
    loop = _Loop(payload, limit_s + MARGIN_S)
    try:
        while waiting or loop.talks:
            while waiting and len(loop.talks) < forks:
                host = waiting.popleft()
                refused = loop.start(host)
                if refused:
                    yield host.name, refused
            yield from loop.turn()
    finally:
        loop.end_all()


@dataclass
class _Talk:
    """One host that is being asked."""

    host: FleetHost
    process: "subprocess.Popen[bytes]"
    deadline: float
    to_send: memoryview
    out: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)
    row: Evidence | NoAnswer | None = None

    @property
    def address(self) -> str:
        told = self.host.variables
        user, host = told.get("ansible_user"), told.get("ansible_host", self.host.name)
        port = told.get("ansible_port")
        return (f"-p {port} " if port else "") + (f"{user}@{host}" if user else str(host))


def _started(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
    # In a session of its own: Ctrl-C is for us, who then end it in order. LC_ALL: what is said is read.
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )


class _Loop:
    """The conversations under way, in one thread: collecting forks, which threads would not survive."""

    def __init__(self, payload: Payload, limit_s: float) -> None:
        self.talks: list[_Talk] = []
        self._ending: list[tuple[subprocess.Popen[bytes], float]] = []  # and until when they may take
        self._payload = payload
        self._limit_s = limit_s
        self._selector = selectors.DefaultSelector()

    def start(self, host: FleetHost) -> NoAnswer | None:
        """Begin to ask a host; return why it cannot be asked."""
        argv = argv_of(host, self._payload.start)
        if isinstance(argv, NoAnswer):
            return argv
        try:
            process = _started(argv)
        except FileNotFoundError:
            raise SetupError(
                f"There is no {argv[0]} on this machine, by which {host.name} is reached.\n"
                "Install it: apt-get install openssh-client sudo"
            ) from None
        except OSError as error:  # too many processes or open files
            return NoAnswer(f"ssh could not be started here: {error.strerror}", "Lower --forks.")
        talk = _Talk(host, process, time.monotonic() + self._limit_s, memoryview(self._payload.body))
        for pipe, event in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
            (process.stderr, selectors.EVENT_READ),
        ):
            assert pipe
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event, talk)
        self.talks.append(talk)
        return None

    def turn(self) -> Generator[Row]:
        """Do what can be done now, and yield the rows of the hosts that are done with."""
        for key, _ in self._selector.select(_TICK_S):
            talk: _Talk = key.data
            if talk.row is not None:
                continue
            if key.fileobj is talk.process.stdin:
                self._send(talk)
            else:
                self._read(talk, key.fd, talk.out if key.fileobj is talk.process.stdout else talk.said)
        now = time.monotonic()
        for talk in list(self.talks):
            talk.row = talk.row or self._judge(talk, now)
            if talk.row is not None:
                self._end(talk)
                yield talk.host.name, talk.row
        self._reap()

    def _send(self, talk: _Talk) -> None:
        """Send what fits. The pipe stays open then: its end tells the host that nobody waits any more."""
        pipe = talk.process.stdin
        assert pipe
        with contextlib.suppress(BlockingIOError):
            try:
                talk.to_send = talk.to_send[os.write(pipe.fileno(), talk.to_send) :]
            except BrokenPipeError:  # it ended; what it said tells why
                talk.to_send = talk.to_send[:0]
        if not talk.to_send:
            self._selector.unregister(pipe)

    def _read(self, talk: _Talk, fd: int, into: bytearray) -> None:
        data = os.read(fd, 1 << 17)
        if not data:
            self._selector.unregister(fd)
        into.extend(data)
        if into is talk.said:
            del into[:-_SAID_BYTES]

    def _judge(self, talk: _Talk, now: float) -> Evidence | NoAnswer | None:
        """Return a host's row once it is known."""
        _, found, rest = talk.out.partition(b"\n" + self._payload.mark + b" ")
        size, line_end, body = rest.partition(b"\n") if found else (b"", b"", b"")
        if line_end and len(body) >= int(size):
            return _evidence(bytes(body[: int(size)]), talk.host.name)
        if len(talk.out) > CAP_BYTES:
            return NoAnswer(f"its answer is longer than {CAP_BYTES >> 20} MiB", "See what it prints at log-in.")
        if now > talk.deadline:
            return self._late(talk)
        status = talk.process.poll()
        if status is None or self._unread(talk):
            return None
        # A log-in that is refused may say so on standard output.
        said = talk.out.partition(self._payload.mark)[0][-_SAID_BYTES:] + b"\n" + talk.said
        return refusal(said.decode("utf-8", "replace"), talk.address, status)

    def _late(self, talk: _Talk) -> NoAnswer:
        stage = "it took the connection and" if not talk.to_send else "it"
        return NoAnswer(
            f"{stage} did not answer within {self._limit_s:g} s",
            f"See whether it hangs: ssh {talk.address} uptime. A slow host: raise --limit.",
        )

    def _unread(self, talk: _Talk) -> bool:
        """Read what is left after the end of ssh; a master connection that stays behind may keep a pipe open."""
        for pipe, into in ((talk.process.stdout, talk.out), (talk.process.stderr, talk.said)):
            assert pipe
            with contextlib.suppress(BlockingIOError):
                data = os.read(pipe.fileno(), 1 << 17)
                into.extend(data)
                if data:
                    return True
        return False

    def _end(self, talk: _Talk) -> None:
        """Close the conversation: the host's end of it ends by itself, and ssh with it."""
        self.talks.remove(talk)
        for pipe in (talk.process.stdin, talk.process.stdout, talk.process.stderr):
            assert pipe
            with contextlib.suppress(KeyError):
                self._selector.unregister(pipe)
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._ending.append((talk.process, time.monotonic() + _GRACE_S))

    def _reap(self) -> None:
        """Wait for ssh processes that are done with; kill those that do not end."""
        for process, until in list(self._ending):
            if process.poll() is None:
                if time.monotonic() < until:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._ending.remove((process, until))

    def end_all(self) -> None:
        """End every conversation, after Ctrl-C too, and wait until this machine's end of them is gone."""
        for talk in list(self.talks):
            self._end(talk)
        while self._ending:
            self._reap()
            time.sleep(_TICK_S / 10)
        self._selector.close()


def _evidence(packed: bytes, name: str) -> Evidence | NoAnswer:
    """Return the evidence under the name that the inventory gives the host: two may call themselves the same."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, CAP_BYTES)
        if unpacking.unconsumed_tail:
            return NoAnswer(f"its evidence is longer than {CAP_BYTES >> 20} MiB", "See it there: lpxdoctor collect")
        return replace(from_json(text.decode()), host=name)
    except (zlib.error, ValueError) as error:
        return NoAnswer(f"its answer is damaged: {error}", "Try again; if it stays, please report it.")
