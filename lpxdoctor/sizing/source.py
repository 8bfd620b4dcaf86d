"""What was typed for MODEL in: a directory, a config.json or a hub id; the model, from its config and headers, out."""

import json
import re
from pathlib import Path
from typing import Any

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing import hub, safetensors
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.model import Model, describe

_CONFIG_MOST_BYTES = 20_000_000
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def load(typed: str) -> Model:
    """Return the model.

    Raises:
        UsageError: where nothing of the name is there, or what is there is no model.
        SetupError: where the hub cannot be asked.
    """
    path = Path(typed)
    try:
        if path.is_dir():
            return of_directory(path)
        if path.is_file():
            _refuse_others(path)
            fields = Fields(_config(path), str(path))
            return describe(fields, (), name=path.parent.resolve().name or typed, served=str(path.parent))
    except (OSError, ValueError) as error:  # a name too long, or with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{typed[:80]!r} cannot be read: {reason}.") from None
    if _HUB_ID.fullmatch(typed):
        found = hub.fetch(typed)
        return describe(Fields(_config(found.config), typed), found.tensors, name=typed.split("/")[1], served=typed)
    raise UsageError(f"{typed[:80]}: no such file or directory, and no hub id, which is written OWNER/NAME")


def of_directory(directory: Path) -> Model:
    """Return the model of a directory; its weights from its files where it has any."""
    config = directory / "config.json"
    if not config.is_file():
        for other in sorted(directory.iterdir()):
            _refuse_others(other)
        raise UsageError(f"{directory} has no config.json: it is not the directory of a model")
    fields = Fields(_config(config), str(config))
    tensors = safetensors.of_directory(directory)
    return describe(fields, tensors, name=directory.resolve().name, served=str(directory))


def _refuse_others(path: Path) -> None:
    """Raise for a file of weights: one of llama.cpp, which is another engine's, or one that was typed for its model."""
    if path.suffix == ".gguf":
        raise UsageError(
            f"{path} is a GGUF file, which llama.cpp serves: its quantizations and memory are not vLLM's. "
            "Type the model that it was made from: its directory with config.json and safetensors files, or its hub id"
        )
    if path.suffix in _WEIGHTS:
        raise UsageError(f"{path} holds weights and no config: type the directory with its config.json")


def _config(path: Path) -> dict[str, Any]:
    """Return the object in a config.json."""
    try:
        if path.stat().st_size > _CONFIG_MOST_BYTES:
            raise UsageError(f"{path} has {path.stat().st_size} bytes: that is no config.json")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # undecodable bytes, no JSON, or nested without end
        raise UsageError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no object, so it is not the config.json of a model")
    return value
