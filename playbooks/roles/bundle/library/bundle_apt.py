#!/usr/bin/python
"""An apt that knows one source: an unpacked bundle in; a configuration for APT_CONFIG out."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bundle_apt
short_description: Write a configuration with which apt sees only a bundle's packages
description:
  - The host's own sources and package lists stay as they are; only a process with APT_CONFIG is bound to the bundle.
options:
  path: {description: Its directory of packages, the roles' offline_repository., type: path, required: true}
author: lpxdoctor
"""


def contents(own: Path) -> dict[Path, str]:
    """Return the files of the configuration."""
    settings = {
        "Dir::Etc::sourcelist": own / "apt/sources.list",
        "Dir::Etc::sourceparts": own / "apt/none.d",
        "Dir::State::lists": own / "apt/lists",
        # The host's caches are of its own lists.
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
    }
    return {
        # Every file was compared with the manifest's hash while it was unpacked.
        own / "apt/sources.list": f"deb [trusted=yes] file:{own} ./\n",
        own / "apt.conf": "".join(f'{name} "{value}";\n' for name, value in settings.items()),
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    own = Path(module.params["path"])
    changed = False
    for file, text in contents(own).items():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        changed = True
        if not module.check_mode:
            for place in ("apt", "apt/lists", "apt/lists/partial", "apt/none.d"):
                (own / place).mkdir(exist_ok=True)
                (own / place).chmod(0o755)  # apt's own user reads it
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)
    module.exit_json(changed=changed, configuration=str(own / "apt.conf"))


if __name__ == "__main__":
    main()
