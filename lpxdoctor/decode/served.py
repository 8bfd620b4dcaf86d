"""A target, and what was typed for its model's config, in; the model that it serves out."""

from pathlib import Path
from typing import TYPE_CHECKING

from lpxdoctor.decode.target import Target
from lpxdoctor.errors import SetupError, UsageError

if TYPE_CHECKING:
    from lpxdoctor.sizing.model import Model

_TYPE_IT = "name its directory with --model-config"


def model_of(target: Target, typed: str | None) -> "tuple[Model, str] | str":
    """Return the model and where its config was read, or why it is not known.

    Its directory is the one typed, else the deployment's on record, else what the engine itself calls its root.

    Raises:
        UsageError: there is no model where one was typed.
        SetupError: the hub cannot be asked.
    """
    path = typed
    if path is None:
        if not target.is_local:
            return f"the model's config is on the engine's host: {_TYPE_IT}"
        path = target.deployment.model_path if target.deployment else target.model.root
        if path is None or not Path(path, "config.json").is_file():
            return f"the model's config was not found here: {_TYPE_IT}"
    from lpxdoctor.sizing.source import load  # noqa: PLC0415 - most runs end before

    try:
        return load(path), path
    except (UsageError, SetupError) as error:
        if typed is not None:
            raise
        return f"the model's config tells too little: {error}"
