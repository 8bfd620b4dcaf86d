#!/usr/bin/python
"""Mirrors of the distribution's own archive in; a host whose sources name them, or what they named before, out."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils import apt_sources, text_file
from ansible.module_utils.apt_sources import Span
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: sources_archive
short_description: Point apt or dnf to mirrors of the distribution's own archive, or back to what they had
description:
  - The sources that the host has are edited in place; what each named before stands above it as a comment, from which
    an empty value puts it back. A value that is not given leaves everything as it is.
options:
  apt: {description: 'Mirror of the archive, for apt.', type: str}
  security: {description: 'Mirror of its security updates, for apt.', type: str}
  rpm: {description: 'Mirror with the directories RELEASE/BaseOS, AppStream, CRB and extras, for dnf.', type: str}
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

MARK = "# before lpxdoctor: "
SECTION = re.compile(r"^\[([^\]\n]+)\][^\n]*\n", re.MULTILINE)
# Of Rocky, AlmaLinux and CentOS Stream. RHEL's are written by subscription-manager, again and again.
DIRECTORIES = {"baseos": "BaseOS", "appstream": "AppStream", "crb": "CRB", "extras": "extras"}
PLACES = re.compile(r"^(?:mirrorlist|metalink|baseurl)[ \t]*=[^\n]*\n", re.MULTILINE)
URL = re.compile(r"[a-z][a-z0-9+]*:/\S*")
Texts = dict[Path, str]


class Refused(Exception):  # noqa: N818 - it is an answer
    """A mirror cannot be used; the message says why and what to do."""


def codename(root: Path) -> str:
    """Return the release's name."""
    found = re.search(r"(?m)^VERSION_CODENAME=[\"']?(\w+)", (root / "etc/os-release").read_text())
    return found[1] if found else ""


def apt(root: Path, archive: str | None, security: str | None) -> Texts:
    """Return apt's files with the mirrors in them."""
    texts: Texts = apt_sources.files(root)
    release = codename(root)
    found = apt_sources.of_archive(texts, release)
    for name, wish in (("mirror_apt_distribution", archive), ("mirror_apt_security", security)):
        if wish and not any(one.is_security() == (wish is security) for rows in found.values() for one in rows):
            raise Refused(
                f"{name}: apt has no source of {release} that it could stand for: see /etc/apt/sources.list.d"
            )
    for path, rows in found.items():
        edits: list[Span] = []
        for one in rows:
            wish = security if one.is_security() else archive
            edits += [] if wish is None else pointed(texts[path], one, wish)
        texts[path] = apt_sources.edited(texts[path], edits)
    return texts


def pointed(text: str, entry: apt_sources.Entry, mirror: str) -> list[Span]:
    """Return the edits by which an entry names a mirror; of an empty one, what it named before."""
    above = text.rfind("\n", 0, max(entry.line - 1, 0)) + 1
    line = text[above : entry.line].rstrip("\n")
    kept = line[len(MARK) :] if line.startswith(MARK) else None
    wanted = mirror or kept or entry.uris.text
    edits = [] if wanted == entry.uris.text else [entry.uris._replace(text=wanted)]
    if kept is not None and wanted == kept:
        edits.append(Span(above, entry.line, ""))
    elif kept is None and edits:
        edits.append(Span(entry.line, entry.line, f"{MARK}{entry.uris.text}\n"))
    return edits


def dnf(root: Path, mirror: str) -> Texts:
    """Return dnf's files with the mirror in them, or with what they had before."""
    texts = {path: text_file.read(path) for path in sorted((root / "etc/yum.repos.d").glob("*.repo"))}
    known = {path: [one for one in sections(text) if one[0] in DIRECTORIES] for path, text in texts.items()}
    if mirror and not any(known.values()):
        raise Refused(
            f"mirror_rpm_distribution: dnf has none of the repositories {', '.join(DIRECTORIES)}.\n"
            "On RHEL the mirror is a matter of subscription-manager: subscription-manager config --rhsm.baseurl=URL"
        )
    places = {name: f"{mirror}/{{}}/{part}" if mirror else "" for name, part in DIRECTORIES.items()}
    return {
        path: apt_sources.edited(
            text,
            [body._replace(text=section(body.text, places[name].format(release(text)))) for name, body in known[path]],
        )
        for path, text in texts.items()
    }


def sections(text: str) -> list[tuple[str, Span]]:
    """Return the repositories in a file: name and settings."""
    heads = list(SECTION.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [(head[1], Span(head.end(), end, text[head.end() : end])) for head, end in zip(heads, ends)]


def release(text: str) -> str:
    """Return how a distribution's directories are called: CentOS Stream has a variable of its own."""
    return "$stream" if "$stream" in text else "$releasever"


def section(body: str, place: str) -> str:
    """Return a repository's settings with one place, or with those that it had before."""
    own = re.compile(rf"((?:^{re.escape(MARK)}[^\n]*\n)+)baseurl=[^\n]*\n", re.MULTILINE)
    before = own.sub(lambda match: match[1].replace(MARK, ""), body)
    line = f"baseurl={place}/$basearch/os/\n"
    named = PLACES.findall(before)
    if not place or named == [line]:
        return before
    kept = "".join(MARK + each for each in named) or f"{MARK}\n"
    return kept + line + PLACES.sub("", before)


def wanted(root: Path, given: Mapping[str, Any]) -> Texts:
    """Return what has to be written."""
    for name, value in given.items():
        if value and not URL.fullmatch(value):
            raise Refused(f"{value} is no URL of a mirror ({name}): give it as https://HOST/DIRECTORY")
    if is_apt(root):
        after, before = apt(root, given["apt"], given["security"]), apt_sources.files(root)
        return {path: text for path, text in after.items() if text != before[path]}
    after = dnf(root, given["rpm"].rstrip("/")) if given["rpm"] is not None else {}
    return {path: text for path, text in after.items() if text != text_file.read(path)}


def is_apt(root: Path) -> bool:
    """Tell whether this is a host of apt's."""
    return (root / "usr/bin/apt-get").exists()


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "apt": {"type": "str"},
            "security": {"type": "str"},
            "rpm": {"type": "str"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    root, given = Path(module.params["root"]), {name: module.params[name] for name in ("apt", "security", "rpm")}
    try:
        edits = wanted(root, given)
        said = text_file.printable
        diff = [
            {"before": said(text_file.read(path)), "after": said(text), "before_header": str(path)}
            for path, text in edits.items()
        ]
        for path, text in edits.items() if not module.check_mode else ():
            text_file.write(path, text)
    except Refused as refused:
        module.fail_json(msg=f"{refused}\nNothing was changed.")
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be read or changed: {error.strerror}.")
    module.exit_json(
        changed=bool(edits),
        files=sorted(map(str, edits)),
        manager="apt" if is_apt(root) else "dnf",
        # Ansible's apt cannot tell in a trial run what it would do without it; in a real one it installs it.
        python_apt=importlib.util.find_spec("apt") is not None,
        diff=diff,
    )


if __name__ == "__main__":
    main()
