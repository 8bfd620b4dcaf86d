"""Directories of a model and of a draft of it in; whether their tokens are the same out."""

import json
from collections.abc import Mapping
from pathlib import Path


def unlike(model: str | None, draft: str) -> str:
    """Return why a draft model's tokens are not the model's, "" where both have the same vocabulary."""
    if model is None:
        return "the recipe does not tell the model, so the draft's tokenizer cannot be compared with it"
    one, other = _vocabulary(model), _vocabulary(draft)
    for typed, found in ((model, one), (draft, other)):
        if isinstance(found, str):
            return f"{typed}: {found}, so the tokenizers cannot be compared"
    return "" if one == other else f"{draft} has another tokenizer than {model}: a draft must share it"


def _vocabulary(directory: str) -> Mapping[str, int] | str:
    """Return the words of a tokenizer with their ids, or why they cannot be read."""
    try:
        content = json.loads((Path(directory) / "tokenizer.json").read_text(encoding="utf-8"))
        added = {one["content"]: int(one["id"]) for one in content.get("added_tokens", ())}
        vocabulary = content["model"]["vocab"]
        listed = vocabulary if isinstance(vocabulary, dict) else {one[0]: n for n, one in enumerate(vocabulary)}
    except OSError as error:
        return f"its tokenizer.json cannot be read ({error.strerror})"
    except (ValueError, LookupError, TypeError):
        return "its tokenizer.json has no vocabulary"
    return {**listed, **added}
