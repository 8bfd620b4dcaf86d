"""A deployment's record in, that deployment rolled out again with other arguments out, and in the end as it was.

How it was found is kept in a file from the first change to the last, so that a run that was killed does not take its
own candidate for what was found.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor import deployments, inventory
from lpxdoctor.decode.variables import by_flag
from lpxdoctor.deploy import rollout
from lpxdoctor.deploy.request import Request
from lpxdoctor.deploy.request import asked as asked_of
from lpxdoctor.deployments import Asked, Deployment
from lpxdoctor.errors import DeployError, SetupError, UsageError
from lpxdoctor.files import write_whole
from lpxdoctor.playbook import Canceled
from lpxdoctor.state import content, made
from lpxdoctor.tune.command import without
from lpxdoctor.tune.service import Hints, NotStartedError, Settings, StoppedError


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment as it was before tune changed it, and what tune asked for last."""

    record: Deployment
    last: Asked


@dataclass(kw_only=True)
class Deployed:
    """A service that is a deployment; now is with what settings it runs, None where a run was killed before."""

    name: str
    record: Deployment
    asked: Asked
    limit_s: float
    now: Settings | None

    @property
    def hints(self) -> Hints:
        """Read what the engine was started with; its model where it is on this machine."""
        return Hints(flags=by_flag(self.record.arguments), model=None if self.record.ssh else self.record.model_path)

    def arguments(self, _settings: Settings, /) -> None:
        """Return none: the record has them."""
        return

    @contextmanager
    def running(self, settings: Settings, _is_stopped: Callable[[], bool], /) -> Generator[str]:
        """Roll the engine out with the settings; it runs on when the block ends."""
        try:
            self._roll_out(settings)
        except Canceled:
            raise StoppedError("Interrupted while the engine started.") from None
        except DeployError as error:
            lines = str(error).splitlines()
            last = next((line.strip() for line in reversed(lines) if line.startswith("  ")), "")  # of the engine's log
            said = next((line for line in lines if line.startswith("It said: ")), f"{lines[0]} {last}".strip())
            kept = next((line for line in lines if line.startswith("What the engine said: ")), "")
            raise NotStartedError(said.removeprefix("It said: "), (), kept.partition(": ")[2]) from None
        yield self.name

    def leave(self, settings: Settings, /) -> None:
        """Roll the engine out with these settings unless it runs with them."""
        if self.now != settings:
            self._roll_out(settings)
        _file(self.name).unlink(missing_ok=True)

    def _roll_out(self, settings: Settings) -> None:
        source = inventory.for_hosts({self.record.host: self.record.connection})
        request = request_of(self.name, self.asked, settings, self.limit_s)
        _keep(Found(record=self.record, last=asked_of(request)))
        rollout.deploy(request, source, lambda event: None)  # noqa: ARG005
        self.now = settings  # where it failed, the former engine was put back


def request_of(name: str, asked: Asked, settings: Settings, limit_s: float) -> Request:
    """Return what was asked for with other settings; without any, the very same."""
    variables: dict[str, Any] = dict(asked.variables)
    if settings != Settings():
        own = [str(word) for word in variables.get("engine_arguments", ())]
        variables["engine_arguments"] = [*without(own, settings.removed), *settings.added]
        variables["engine_ready_limit_s"] = round(limit_s)  # Docker takes no fractions
    return Request(name=name, variables=variables, variant=asked.variant, image=asked.image)


def _file(name: str) -> Path:
    return made("tunes") / f"{name}.as-found.json"


def _keep(found: Found) -> None:
    file = _file(found.record.name)
    try:
        write_whole(file, msgspec.json.encode(found))
    except OSError as error:
        raise SetupError(f"How {found.record.name} was found cannot be kept in {file}: {error.strerror}.") from None


def _found(record: Deployment) -> Deployment | None:
    """Return how a run that was killed found this deployment; None where none was, or it was deployed anew since."""
    kept = content(_file(record.name))
    if kept is None:
        return None
    try:
        found = msgspec.json.decode(kept, type=Found)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{_file(record.name)} says how tune found {record.name} when it was ended, and cannot be read: {error}.\n"
            "Run the deployment's own lpxdoctor deploy again, and remove that file."
        ) from None
    return found.record if record.asked in (found.last, found.record.asked) else None


def deployed(name: str, limit_s: float) -> Deployed:
    """Return the service of a deployment on record.

    Raises:
        UsageError: there is none, or it cannot be rolled out again by its record.
    """
    record = deployments.load(name)
    former = None if "@" in name else _found(record)
    was_killed, record = former is not None, former or record
    if "@" in name:
        raise UsageError(f"{name} is one of several hosts of a deployment, and tune needs one that is alone in its.")
    if record.asked is None:
        raise UsageError(
            f"The record of {name} does not tell how it was deployed.\n"
            "Run its lpxdoctor deploy again, which changes nothing else."
        )
    if record.asked.secret_env:
        named = ", ".join(record.asked.secret_env)
        raise UsageError(
            f"{name} was deployed with {named} from the environment, which is not kept: it cannot be deployed again.\n"
            "Tune its command instead: --engine 'vllm serve ... --port {port} {arguments}'"
        )
    return Deployed(
        name=name, record=record, asked=record.asked, limit_s=limit_s, now=None if was_killed else Settings()
    )
