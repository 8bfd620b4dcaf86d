#!/usr/bin/python
"""Wait for an engine: a container and its URL in; seconds and version, or why it is not ready with its log, out."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, container, log_tail

DOCUMENTATION = r"""
module: engine_ready
short_description: Wait until an engine answers /health, or fail with its log when it died or takes too long
options:
  container: {description: The container's name., type: str, required: true}
  url: {description: Where the engine answers on this host., type: str, required: true}
  limit_s: {description: Seconds to wait., type: int, required: true}
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
author: lpxdoctor
"""

POLL_S = 1.0
LOG_LINES = 400
State = dict[str, Any]


def answer(url: str, path: str) -> tuple[int, bytes] | None:
    """Return status and body of a GET, None while nothing answers; no proxy of the environment is used."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def version(url: str) -> str:
    """Return the engine's version, empty when it does not tell."""
    told = answer(url, "/version")
    try:
        return str(json.loads(told[1])["version"]) if told else ""
    except (ValueError, KeyError, TypeError):
        return ""


def death(inspected: State | None, restarts_before: int) -> str | None:
    """Return why the container is dead, None while it lives."""
    if inspected is None:
        return "The container is gone: something else removed it."
    state = inspected["State"]
    if state["Running"] and not state["Restarting"] and inspected["RestartCount"] <= restarts_before:
        return None
    if state["OOMKilled"]:
        return "The container was killed because it ran out of memory (host memory, not GPU memory)."
    if state["Error"]:
        return f"The container could not run: {state['Error']}"
    if state["Running"]:
        return "The container ended and was started again while the engine was starting."
    return f"The container ended with exit code {state['ExitCode']} while the engine was starting."


def wait(given: State) -> tuple[str | None, float]:
    """Poll until the engine is ready; return the reason why it is not, and the seconds it took."""
    began = time.monotonic()
    first = container(given["docker_socket"], given["container"])
    restarts_before = int(first["RestartCount"]) if first else 0
    while True:
        reason = death(container(given["docker_socket"], given["container"]), restarts_before)
        waited_s = time.monotonic() - began
        if reason is not None:
            return reason, waited_s
        health = answer(given["url"], "/health")
        if health is not None and health[0] == 200:
            return None, waited_s
        if waited_s > given["limit_s"]:
            said = f"answered {health[0]}" if health else "did not answer"
            return (
                f"The engine was not ready after {given['limit_s']} s: {given['url']}/health {said}.\n"
                "The container was running. If it was still loading or compiling, give it more with --timeout."
            ), waited_s
        time.sleep(POLL_S)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "container": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "limit_s": {"type": "int", "required": True},
            "docker_socket": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False)
    try:
        reason, waited_s = wait(module.params)
        log = log_tail(module.params["docker_socket"], module.params["container"], LOG_LINES) if reason else []
    except DockerError as error:
        module.fail_json(msg=str(error))
    if reason is not None:
        module.fail_json(msg=reason, log=log)
    module.exit_json(changed=False, seconds=round(waited_s, 1), version=version(module.params["url"]))


if __name__ == "__main__":
    main()
