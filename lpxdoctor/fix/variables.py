"""Variables for the roles: a file of them in, a checked mapping out."""

from pathlib import Path
from typing import Any

import yaml

from lpxdoctor import bundled
from lpxdoctor.errors import UsageError


def read(file: str) -> dict[str, Any]:
    """Return the variables in a YAML or JSON file; none where no file is named.

    Raises:
        UsageError: it cannot be read, or has a variable that no role knows.
    """
    if not file:
        return {}
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The file of variables {file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"The file of variables {file} is no mapping.\nWrite one variable a line: NAME: value")
    unknown = sorted(str(name) for name in content if name not in known())
    if unknown:
        raise UsageError(
            f"{file}: no role knows {', '.join(unknown)}.\n"
            f"What there is stands in {bundled.PLAYBOOKS / 'roles'}/*/meta/argument_specs.yml"
        )
    return {str(name): value for name, value in content.items()}


def known() -> frozenset[str]:
    """Return the variables that the roles document."""
    found: set[str] = set()
    for file in (bundled.PLAYBOOKS / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].values():
            found.update(entry.get("options") or ())
    return frozenset(found)
