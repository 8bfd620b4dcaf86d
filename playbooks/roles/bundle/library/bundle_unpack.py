#!/usr/bin/python
"""Unpack a bundle: an archive in; a directory with exactly its files, each of its hash, out."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bundle_archive import BundleError, read_manifest, unpack

DOCUMENTATION = r"""
module: bundle_unpack
short_description: Verify and unpack a bundle
options:
  archive: {description: The archive on the host., type: path, required: true}
  path: {description: Where to unpack it; replaced when all was verified., type: path, required: true}
  manifest_sha256: {description: Of the manifest that the archive must have., type: str, required: true}
author: lpxdoctor
"""


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "manifest_sha256": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    archive = Path(given["archive"])
    try:
        _, digest = read_manifest(archive)
        if digest != given["manifest_sha256"]:
            module.fail_json(msg=f"{archive} is another bundle than the one that was read before. Nothing was changed.")
        unpack(archive, Path(given["path"]))
    except BundleError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
