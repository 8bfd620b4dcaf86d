"""What is to be deployed: options and a file of variables in, the variables of the role `engine` out."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lpxdoctor import bundled
from lpxdoctor.deploy.variant import Choice
from lpxdoctor.deployments import Asked
from lpxdoctor.errors import UsageError
from lpxdoctor.files import read_text
from lpxdoctor.knowledge.images import Built

ROLE = bundled.PLAYBOOKS / "roles" / "engine"
# Docker's own rule for container names, without the dot that separates our suffix.
_SECRETS = "engine_secret_env"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A deployment as asked for."""

    name: str
    variables: Mapping[str, Any]  # of the role, as they were given; what is missing has the role's default
    variant: str | None = None
    image: str | None = None  # instead of the variant's

    @property
    def ready_limit_s(self) -> float:
        """Return how long the role waits for the engine."""
        return float(self.variables.get("engine_ready_limit_s", defaults()["engine_ready_limit_s"]))


def asked(request: Request) -> Asked:
    """Return what is kept of a request; secrets are not."""
    kept = {name: value for name, value in request.variables.items() if name != _SECRETS}
    secret = tuple(sorted(request.variables.get(_SECRETS) or {}))
    return Asked(variables=kept, secret_env=secret, variant=request.variant, image=request.image)


def read_variables(file: Path) -> dict[str, Any]:
    """Return the role's variables in a YAML or JSON file.

    Raises:
        UsageError: it cannot be read, or has a variable that the role does not know.
    """
    known = known_variables()
    hint = f"Known are: {', '.join(sorted(known))}.\nWhat each means: {ROLE / 'meta' / 'argument_specs.yml'}"
    return checked_variables(file, known, hint)


def checked_variables(file: Path, known: Collection[str], hint: str) -> dict[str, Any]:
    """Return the variables in a YAML or JSON file.

    Raises:
        UsageError: it cannot be read, is no mapping, or has a variable that is not known; hint says what is.
    """
    try:
        content = yaml.safe_load(read_text(file)) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"The file of variables {file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"The file of variables {file} is no mapping.\nWrite one variable a line: engine_port: 8001")
    unknown = sorted(str(name) for name in content if name not in known)
    if unknown:
        raise UsageError(f"{file}: {', '.join(unknown)}: unknown.\n{hint}")
    return {str(name): value for name, value in content.items()}


def known_variables() -> frozenset[str]:
    """Return the names that the role documents, less those that a deployment sets itself."""
    specification = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return frozenset(specification["argument_specs"]["main"]["options"]) - {"engine_state"}


def defaults() -> dict[str, Any]:
    """Return what the role takes for variables that nobody gives."""
    found: dict[str, Any] = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    return found


def checked_name(name: str) -> str:
    """Return a deployment's name; UsageError when Docker would refuse it."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a name: use letters, digits, - and _, a letter or digit first.")
    return name


def role_variables(request: Request, choice: Choice) -> dict[str, Any]:
    """Return all variables for one host: the variant's where nothing else was asked for."""
    given = dict(request.variables)
    variant = choice.variant
    own: dict[str, Any] = {
        "engine_name": request.name,
        "engine_image": choice.reference,
        "engine_command": list(variant.command),
    }
    if isinstance(variant, Built):
        own |= {"engine_gpu": "none", "engine_image_hint": f"Build it there: {bundled.IMAGES / variant.recipe}"}
    merged = {
        "engine_arguments": [*choice.arguments, *given.pop("engine_arguments", [])],
        "engine_env": {**choice.env, **given.pop("engine_env", {})},
    }
    return {**own, **given, **merged}
