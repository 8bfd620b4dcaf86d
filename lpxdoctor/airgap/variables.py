"""The roles' variables for a bundle: a YAML file in, a mapping of names that the roles know out."""

from pathlib import Path
from typing import Any

import yaml

from lpxdoctor import bundled
from lpxdoctor.airgap import sources
from lpxdoctor.errors import UsageError


def read(file: Path) -> dict[str, Any]:
    """Return the variables of a file.

    Raises:
        UsageError: it cannot be read, or has a variable that none of the roles knows.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The file of variables {file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"The file of variables {file} is no mapping.\nWrite one variable a line: NAME: VALUE")
    known = known_variables()
    unknown = sorted(str(name) for name in content if name not in known)
    if unknown:
        raise UsageError(f"{file}: {', '.join(unknown)}: unknown.\nKnown are: {', '.join(sorted(known))}.")
    return {str(name): value for name, value in content.items()}


def known_variables() -> frozenset[str]:
    """Return the names that the roles document, and those of the distribution's own mirrors."""
    names = {sources.DISTRIBUTION, sources.SECURITY}
    for file in bundled.PLAYBOOKS.glob("roles/*/meta/argument_specs.yml"):
        names |= set(yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"])
    return frozenset(names)
