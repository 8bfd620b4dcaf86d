#!/usr/bin/python
"""Engines that were drained: the host's record in; the engines started and the record gone out."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, ask

DOCUMENTATION = r"""
module: engine_resume
short_description: Start the engines that were drained on this host
options:
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
  record: {description: Where it is kept which engines were stopped., type: path, required: true}
  unless: {description: A file; while it is there nothing is started., type: path, required: true}
author: lpxdoctor
"""


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "docker_socket": {"type": "path", "required": True},
            "record": {"type": "path", "required": True},
            "unless": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    record = Path(module.params["record"])
    names = json.loads(record.read_text()) if record.exists() else []
    if not names or Path(module.params["unless"]).exists():
        module.exit_json(changed=False, started=[])
    if module.check_mode:
        module.exit_json(changed=True, started=names)
    left, reasons = [], []
    for name in names:
        try:
            status, body = ask(module.params["docker_socket"], f"/containers/{quote(name)}/start", "POST", timeout_s=60)
        except DockerError as error:
            status, body = 0, str(error).encode()
        # 404: somebody has removed it meanwhile.
        if status not in (204, 304, 404):
            left.append(name)
            reasons.append(f"{name}: {body.decode(errors='replace').strip()}")
    if left:
        record.write_text(json.dumps(left))
        module.fail_json(msg="These engines were drained and do not start again:\n" + "\n".join(reasons))
    record.unlink()
    module.exit_json(changed=True, started=names)


if __name__ == "__main__":
    main()
