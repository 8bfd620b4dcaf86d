#!/usr/bin/python
"""The CDI specifications of this host: what nvidia-ctk says now in; one specification that says the same out."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path

from ansible.module_utils import dockerd
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: cdi_specs
short_description: Keep one CDI specification of the GPUs, as nvidia-ctk writes it now, and set others aside
description:
  - Compares what nvidia-ctk generates with the file, and writes only where they differ.
  - Other files that name nvidia.com/gpu, and files that no runtime can read, are renamed so that none reads them.
options:
  path: {description: The one specification., type: path, required: true}
  ctk: {description: 'Where nvidia-ctk is; empty where nothing can be generated.', type: str, required: true}
  broken: {description: Files found to be no specifications., type: list, elements: path, required: true}
author: lpxdoctor
"""

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
SUFFIXES = (".json", ".yaml", ".yml")
KIND = re.compile(r"""^\s*["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*,?\s*$""", re.MULTILINE)
LIMIT_S = 60


def files() -> list[Path]:
    """Return the specifications that runtimes read."""
    found = [path for directory in DIRECTORIES for path in sorted(Path(directory).glob("*"))]
    return [path for path in found if path.suffix in SUFFIXES and path.is_file()]


def names_gpus(path: Path) -> bool:
    """Tell whether a file is a specification of NVIDIA's GPUs."""
    text = path.read_text(errors="replace")
    try:
        return bool(json.loads(text)["kind"] == "nvidia.com/gpu")
    except (ValueError, TypeError, KeyError):
        return bool(KIND.search(text))


def surplus(keep: Path, broken: list[str], generates: bool) -> list[Path]:
    """Return the files to set aside; where nothing can be generated the one that counts stays."""
    known = [path for path in files() if str(path) not in broken]
    gpus = [path for path in known if names_gpus(path)]
    if not generates and gpus and keep not in gpus:
        keep = gpus[-1]  # of the two directories the second counts
    return [path for path in files() if str(path) in broken and path != keep] + [path for path in gpus if path != keep]


def aside(path: Path) -> str:
    """Rename a file so that no runtime reads it, and return its new name."""
    kept = f"{path}.aside-{time.strftime('%Y%m%d-%H%M%S')}"
    path.replace(kept)
    return kept


def generated(ctk: str) -> tuple[str, str]:
    """Return what nvidia-ctk generates now, and why it does not."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "nvidia.yaml")
        status, said = dockerd.ask(ctk, "cdi", "generate", f"--output={file}", limit_s=LIMIT_S)
        if status != 0 or not file.exists():
            return "", said or f"it ended with {status}"
        return file.read_text(), ""


def write(path: Path, text: str) -> None:
    """Put the text into the file, whole or not at all."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(path)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "ctk": {"type": "str", "required": True},
            "broken": {"type": "list", "elements": "path", "required": True},
        },
        supports_check_mode=True,
    )
    path, ctk = Path(module.params["path"]), module.params["ctk"]
    text, reason = generated(ctk) if ctk else ("", "")
    if reason:
        module.fail_json(msg=f"nvidia-ctk cannot describe this host's GPUs, so {path} is as it was:\n{reason}")
    away = surplus(path, module.params["broken"], bool(ctk))
    if not text and str(path) in module.params["broken"]:
        away.append(path)
    writes = bool(text) and (not path.exists() or path.read_text(errors="replace") != text)
    kept = [str(each) for each in away]
    if not module.check_mode:
        try:
            if writes:
                write(path, text)
            kept = [aside(each) for each in away]
        except OSError as error:
            module.fail_json(msg=f"{path} could not be written, and is as it was: {error}")
    module.exit_json(changed=bool(away) or writes, written=str(path) if writes else "", aside=kept)


if __name__ == "__main__":
    main()
