#!/usr/bin/python
"""What a bundle is for: an archive in; its target, its size and what it is to install out."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bundle_archive import BundleError, read_manifest, unpacked_bytes

DOCUMENTATION = r"""
module: bundle_read
short_description: Read the manifest of a bundle
options:
  archive: {description: The archive., type: path, required: true}
author: lpxdoctor
"""


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    archive = Path(module.params["archive"])
    try:
        manifest, digest = read_manifest(archive)
    except BundleError as error:
        module.fail_json(msg=str(error))
        return
    module.exit_json(
        manifest_sha256=digest,
        target=manifest["target"],
        install=manifest["install"],
        images=manifest["images"],
        archive_bytes=archive.stat().st_size,
        unpacked_bytes=unpacked_bytes(manifest),
    )


if __name__ == "__main__":
    main()
