#!/usr/bin/python
"""apt's sources of the distribution's own archive in; the components that a driver needs added to them, out."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils import apt_sources, text_file
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_components
short_description: Add components to the sources of the distribution's archive, in either format, keeping the mirror
options:
  components: {description: Such as non-free., type: list, elements: str, required: true}
  codename: {description: The release's name., type: str, required: true}
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""


def completed(words: str, components: list[str]) -> str:
    """Return "main contrib" with what is missing."""
    there = words.split()
    return " ".join([*there, *(one for one in components if one not in there)])


def wanted(root: Path, components: list[str], codename: str) -> tuple[dict[Path, str], bool]:
    """Return what has to be written, and whether any source of the archive was found; a backport is another version."""
    texts = apt_sources.files(root)
    found = apt_sources.of_archive(texts, codename)
    rows = {path: [one for one in rows if not one.suites[0].endswith("-backports")] for path, rows in found.items()}
    after = {
        path: apt_sources.edited(
            text, [one.components._replace(text=completed(one.components.text, components)) for one in rows[path]]
        )
        for path, text in texts.items()
    }
    return {path: text for path, text in after.items() if text != texts[path]}, any(rows.values())


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "str", "required": True},
            "codename": {"type": "str", "required": True},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        edits, seen = wanted(Path(given["root"]), given["components"], given["codename"])
        backups = []
        for path, text in edits.items() if not module.check_mode else ():
            backups.append(module.backup_local(str(path)))
            text_file.write(path, text)
    except OSError as error:
        module.fail_json(msg=f"apt's sources cannot be changed: {error}. Each is as it was, or whole.")
    if not seen:
        module.fail_json(
            msg=f"apt has no source of {given['codename']} with the component main.\n"
            "Name the distribution's archive in /etc/apt/sources.list.d, or use offline_repository."
        )
    module.exit_json(changed=bool(edits), files=sorted(map(str, edits)), backups=backups)


if __name__ == "__main__":
    main()
