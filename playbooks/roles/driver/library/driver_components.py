#!/usr/bin/python
"""apt's sources of the distribution's own archive in; the components that a driver needs added to them, out."""

from __future__ import annotations

import re
from pathlib import Path

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

LINE = re.compile(r"^(deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(\S+)\s+)(main\b[^#\n]*)", re.MULTILINE)
STANZA = re.compile(r"\n[ \t]*\n")


def completed(words: str, components: list[str]) -> str:
    """Return "main contrib" with what is missing."""
    there = words.split()
    return " ".join([*there, *(one for one in components if one not in there)])


def of_release(suites: str, codename: str) -> bool:
    """Tell whether suites are the release, its updates or its security archive; a backport is another version."""
    return any(re.fullmatch(rf"{codename}(-updates|-security|/updates)?", suite) for suite in suites.split())


def lines_with(text: str, components: list[str], codename: str) -> str:
    """Return a one-line-style file with the components."""
    return LINE.sub(
        lambda m: m[0] if not of_release(m[2], codename) else m[1] + completed(m[3], components) + trailing(m[3]), text
    )


def trailing(words: str) -> str:
    """Return the blanks that words end with, before a remark."""
    return words[len(words.rstrip()) :]


def stanzas_with(text: str, components: list[str], codename: str) -> str:
    """Return a deb822-style file with the components."""

    def one(stanza: str) -> str:
        suites = re.search(r"^Suites:\s*(.+)$", stanza, re.MULTILINE)
        listed = re.search(r"^Components:\s*(.+)$", stanza, re.MULTILINE)
        if not suites or not listed or "main" not in listed[1].split() or not of_release(suites[1], codename):
            return stanza
        return stanza[: listed.start(1)] + completed(listed[1], components) + stanza[listed.end(1) :]

    parts = STANZA.split(text)
    after = [one(part) for part in parts]
    return text if after == parts else "\n\n".join(after)


def wanted(root: Path, components: list[str], codename: str) -> tuple[dict[Path, str], bool]:
    """Return what has to be written, and whether any source of the archive was found."""
    edits: dict[Path, str] = {}
    seen = False
    lists = [root / "etc/apt/sources.list", *sorted((root / "etc/apt/sources.list.d").glob("*.list"))]
    for path in (path for path in lists if path.is_file()):
        text = path.read_text()
        seen = seen or any(of_release(match[2], codename) for match in LINE.finditer(text))
        after = lines_with(text, components, codename)
        edits.update({path: after} if after != text else {})
    for path in sorted((root / "etc/apt/sources.list.d").glob("*.sources")):
        text = path.read_text()
        seen = seen or any(
            of_release(suites, codename) for suites in re.findall(r"^Suites:\s*(.+)$", text, re.MULTILINE)
        )
        after = stanzas_with(text, components, codename)
        edits.update({path: after} if after != text else {})
    return edits, seen


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
    edits, seen = wanted(Path(given["root"]), given["components"], given["codename"])
    if not seen:
        module.fail_json(
            msg=f"apt has no source of {given['codename']} with the component main.\n"
            "Name the distribution's archive or a mirror of it in /etc/apt/sources.list.d, or use offline_repository."
        )
    backups = []
    for path, text in edits.items() if not module.check_mode else ():
        backups.append(module.backup_local(str(path)))
        path.write_text(text)
    module.exit_json(changed=bool(edits), files=sorted(map(str, edits)), backups=backups)


if __name__ == "__main__":
    main()
