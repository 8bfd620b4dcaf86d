#!/usr/bin/python
"""Docker's daemon.json: values to be set in; the file with only these changed, backed up and valid, out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils import dockerd, json_text
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: docker_settings
short_description: Set values in Docker's daemon.json and leave every other byte of it
description:
  - A file that is no JSON is mended where its fault can mean one thing only (comments, surplus or forgotten commas,
    UTF-16), else it is set aside and named.
  - A key that dockerd does not know, or that its unit sets too, is taken out, for dockerd ends at it.
  - dockerd validates the outcome before the file is replaced; the former one stays beside it.
options:
  path: {description: The file., type: path, required: true}
  set:
    description:
      - 'Values as {path: [KEY, KEY], value: VALUE}; with keep: true only where there is none yet.'
      - 'With named: NAME=VALUE in place of value the path is a list of such options, and the others stay.'
    type: list
    elements: dict
    required: true
  remove: {description: 'Values to take out, as {path: [KEY, KEY]}.', type: list, elements: dict, required: true}
  pending:
    description: File that says that Docker has not read the change yet, and which backup is the former one.
    type: path
    required: true
author: lpxdoctor
"""


class Outcome(NamedTuple):
    """What the file is to be, and what happened to it on the way."""

    text: str
    said: list[str]
    aside: bool


def text_of(raw: bytes) -> str:
    """Return a file's text; Docker takes UTF-8 alone, and Windows tools write UTF-16."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16")
    return raw.decode("utf-8")


def readable(raw: bytes, *, takes_mark: bool) -> Outcome:
    """Return a text that is a JSON object: the file's own, the mended one, or an empty one.

    takes_mark: whether this dockerd reads a file that begins with a byte order mark.
    """
    try:
        text = text_of(raw)
        said = ["it was UTF-16"] if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else []
        if text.startswith("\ufeff") and not takes_mark:
            text = text[1:]
            said.append("its byte order mark taken out")
        try:
            json_text.parsed(text)
        except ValueError:
            text, faults = json_text.mended(text)
            said += [f"taken out or put right: {', '.join(faults)}"]
    except ValueError as error:
        return Outcome("{}\n", [f"it cannot be read as JSON ({error})"], True)
    return Outcome(text, said, False)


def wanted(given: dict[str, Any], start: Outcome, words: list[str], unknown: list[str]) -> Outcome:
    """Return the text with all values as they are wanted."""
    text, said = start.text, list(start.said)
    for edit in given["set"]:
        now = value_at(json_text.parsed(text), edit["path"])
        value = named_once(now, edit["named"]) if "named" in edit else edit["value"]
        if now != value and not (now is not None and edit.get("keep")):
            text = json_text.with_value(text, edit["path"], value)
            said.append(f"{'.'.join(edit['path'])} = {json.dumps(value)}")
    asked = [list(edit["path"]) for edit in given["remove"]]
    twice = [[key] for key in dict.fromkeys(dockerd.keys(words))]
    for path, why in (
        *((path, "not wanted") for path in asked),
        *(([key], "no option of this dockerd") for key in unknown),
        *((path, "set on dockerd's command line too") for path in twice),
    ):
        if value_at(json_text.parsed(text), path) is not None:
            dropped = json.dumps(value_at(json_text.parsed(text), path))
            text = json_text.without(text, path)
            said.append(f"{'.'.join(path)} taken out ({why}); it was {dropped}")
    return Outcome(text, said, start.aside)


def named_once(now: Any, option: str) -> list[Any]:
    """Return a list of NAME=VALUE options in which this one stands, and no other of its name."""
    name = option.partition("=")[0]
    others = [each for each in now if str(each).partition("=")[0] != name] if isinstance(now, list) else []
    return [*others, option]


def value_at(value: Any, path: list[str]) -> Any:
    """Return the value at a path of keys, None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def trial(text: str, directory: Path, words: list[str]) -> str:
    """Return what dockerd says against a text."""
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".daemon.json.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return str(dockerd.refusal(name, words)).replace(name, "daemon.json")
    finally:
        Path(name).unlink()


def unknown_in(text: str, directory: Path, words: list[str]) -> list[str]:
    """Return the keys of a text that this dockerd knows nothing of."""
    # Its own complaint about what is in both places comes first and would hide the other.
    alone = text
    for key in dockerd.keys(words):
        alone = json_text.without(alone, [key])
    return list(dockerd.unknown_keys(trial(alone, directory, words)))


def replace(path: Path, text: str, pending: Path, aside: bool) -> str:
    """Put the text into the file and return the name of the former one, "" for none."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    backup = path.with_name(f"{path.name}.{'broken' if aside else 'before'}-{stamp}")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".daemon.json.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        had = path.exists()
        if had:
            shutil.copy2(path, backup)
            for copy in (name, backup):
                os.chown(copy, path.stat().st_uid, path.stat().st_gid)
        Path(name).chmod(path.stat().st_mode & 0o777 if had else 0o644)
        # A file that was broken is nothing to go back to.
        note(pending, {"path": str(path), "backup": str(backup) if had and not aside else "", "had": had})
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise
    return str(backup) if had else ""


def note(pending: Path, what: dict[str, Any]) -> None:
    """Say for a later run what Docker has not read yet; of several changes the first backup counts."""
    pending.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not pending.exists() or pending.stat().st_mtime < dockerd.started_at_s():
        pending.write_text(json.dumps(what))


def settle(module: AnsibleModule, path: Path) -> dict[str, Any]:
    """Bring the file to what is wanted, and return the module's answer."""
    words = dockerd.arguments()
    raw = path.read_bytes() if path.exists() else b""
    # From 23.0 on; tried with 20.10 and 26.1.
    start = readable(raw, takes_mark=int(dockerd.version().partition(".")[0] or 0) >= 23)
    directory = path.parent if path.parent.is_dir() else Path(tempfile.gettempdir())
    end = wanted(module.params, start, words, unknown_in(start.text, directory, words))
    if end.text.encode() == raw or (not raw and not json_text.parsed(end.text)):
        return {"changed": False, "due": False, "said": [], "backup": ""}
    said = trial(end.text, directory, words)
    if said:
        module.fail_json(
            msg=f"dockerd would refuse {path} with {'; '.join(end.said) or 'what stands in it'}:\n{said}\n"
            f"Nothing was changed. Put it right by hand and check it: dockerd --validate --config-file {path}"
        )
    backup = "" if module.check_mode else replace(path, end.text, Path(module.params["pending"]), end.aside)
    if start.aside:
        kept = backup or f"{path}.broken-TIME"
        module.warn(f"{path}: {start.said[0]}; it was set aside as {kept}, with all its settings.")
    difference = {"before": raw.decode(errors="replace"), "after": end.text}
    named = {"before_header": str(path), "after_header": str(path)}
    return {"changed": True, "due": True, "said": end.said, "backup": backup, "diff": {**difference, **named}}


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "set": {"type": "list", "elements": "dict", "required": True},
            "remove": {"type": "list", "elements": "dict", "required": True},
            "pending": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"]).resolve()
    try:
        answer = settle(module, path)
    except OSError as error:
        module.fail_json(msg=f"{path} could not be changed, and is as it was: {error}")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
