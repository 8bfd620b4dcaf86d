"""Variables for the roles: a file of them in, a checked mapping out."""

from pathlib import Path
from typing import Any

import yaml

from lpxdoctor import bundled
from lpxdoctor.deploy.request import checked_variables


def read(file: str) -> dict[str, Any]:
    """Return the variables in a YAML or JSON file; none where no file is named.

    Raises:
        UsageError: it cannot be read, or has a variable that no role knows.
    """
    if not file:
        return {}
    hint = f"What there is stands in {bundled.PLAYBOOKS / 'roles'}/*/meta/argument_specs.yml"
    return checked_variables(Path(file), known(), hint)


def known() -> frozenset[str]:
    """Return the variables that the roles document."""
    found: set[str] = set()
    for file in (bundled.PLAYBOOKS / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].values():
            found.update(entry.get("options") or ())
    return frozenset(found)
