"""A hub id in; its config.json and the headers of its safetensors files out, through huggingface_hub where installed.

From the local cache where it is complete, and from it alone with HF_HUB_OFFLINE=1; no weights are downloaded.
"""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.sizing import safetensors
from lpxdoctor.sizing.safetensors import Tensor


@dataclass(frozen=True)
class Found:
    """What the hub has of a model: where its config lies now, and its tensors; none where it has no safetensors."""

    config: Path
    tensors: tuple[Tensor, ...]


def fetch(repository: str) -> Found:
    """Return what the hub, or its local cache, has of a model.

    Raises:
        SetupError: without the library, or where the hub does not answer.
        UsageError: for a model that is not there, or not for everybody.
    """
    library = _library(repository)
    config = Path(_asked(library, repository, lambda: library.hf_hub_download(repository, "config.json")))
    if any(config.parent.glob("*.safetensors")):
        try:
            return Found(config, safetensors.of_directory(config.parent))
        except UsageError:
            if library.constants.HF_HUB_OFFLINE:  # nowhere else to look
                raise
    if library.constants.HF_HUB_OFFLINE:
        return Found(config, ())
    return Found(config, _headers(library, repository))


def _library(repository: str) -> Any:
    try:
        return import_module("huggingface_hub")
    except ImportError:
        raise SetupError(
            f"{repository} is no directory here, and to ask the hub for it needs huggingface_hub.\n"
            f"Type: {sys.executable} -m pip install huggingface_hub\nOr download the model and type its directory."
        ) from None


def _headers(library: Any, repository: str) -> tuple[Tensor, ...]:
    """Return the tensors by the headers alone, which the library reads with range requests."""
    try:
        metadata = library.HfApi().get_safetensors_metadata(repository)
    except library.errors.NotASafetensorsRepoError:
        return ()
    except (library.errors.SafetensorsParsingError, *_failures(library)) as error:
        raise _said(library, repository, error) from None
    return tuple(
        Tensor(
            name,
            str(info.dtype),
            int(info.parameter_count),
            len(info.shape),
            info.data_offsets[1] - info.data_offsets[0],
        )
        for file in metadata.files_metadata.values()
        for name, info in file.tensors.items()
    )


def _asked(library: Any, repository: str, ask: Any) -> Any:
    try:
        return ask()
    except _failures(library) as error:
        raise _said(library, repository, error) from None


def _failures(library: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises: its own errors, those of files and names, and of the HTTP library below it."""
    own = (library.errors.HfHubHTTPError, library.errors.LocalEntryNotFoundError, OSError, ValueError)
    return (*own, import_module("httpx").HTTPError) if find_spec("httpx") else own  # before 1.0 it was requests'


def _said(library: Any, repository: str, error: Exception) -> SetupError | UsageError:
    errors = library.errors
    if isinstance(error, errors.GatedRepoError):
        return UsageError(f"{repository} is gated: accept its terms on the hub, then type: hf auth login")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(f"The hub has no model {repository}, or not for everybody: then type: hf auth login")
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return UsageError(f"{repository} has no config.json: it is not a model that vLLM serves")
    first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return SetupError(
        f"The hub does not tell of {repository}, nor does its local cache: {first.partition('. ')[0]}.\n"
        "Show the way to it (https_proxy, or HF_ENDPOINT for a mirror), or download the model and type its directory."
    )
