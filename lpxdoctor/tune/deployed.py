"""A deployment's record in, that deployment rolled out again with other arguments out, and in the end as it was."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lpxdoctor import deployments, inventory
from lpxdoctor.decode.variables import by_flag
from lpxdoctor.deploy import rollout
from lpxdoctor.deploy.request import Request
from lpxdoctor.deployments import Asked, Deployment
from lpxdoctor.errors import DeployError, UsageError
from lpxdoctor.playbook import Canceled
from lpxdoctor.tune.command import without
from lpxdoctor.tune.service import Hints, NotStartedError, Settings, StoppedError


@dataclass(kw_only=True)
class Deployed:
    """A service that is a deployment; now is with what settings it runs."""

    name: str
    record: Deployment
    asked: Asked
    limit_s: float
    now: Settings = field(default_factory=Settings)

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

    def _roll_out(self, settings: Settings) -> None:
        source = inventory.for_hosts({self.record.host: self.record.connection})
        request = request_of(self.name, self.asked, settings, self.limit_s)
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


def deployed(name: str, limit_s: float) -> Deployed:
    """Return the service of a deployment on record.

    Raises:
        UsageError: there is none, or it cannot be rolled out again by its record.
    """
    record = deployments.load(name)
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
    return Deployed(name=name, record=record, asked=record.asked, limit_s=limit_s)
