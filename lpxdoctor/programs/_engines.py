"""Docker's address in; every container that looks like an inference engine out, without what is secret in it.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts. It only reads.
"""

from __future__ import annotations

import re
import struct
import threading
from pathlib import Path
from typing import Any

from lpxdoctor.programs import _docker

_OUR_LABEL = "lpxdoctor."  # every label that a roll-out of ours sets starts with it
_AT_MOST = 16  # engines that are described; a host with more is a cluster's business
_LOG_LINES = 200
_LOG_BYTES = 64 << 10
_BODY_CHARS = 4000
_HTTP_TIMEOUT_S = 3.0
_ALL_TIMEOUT_S = 9.0
_PATHS = ("/health", "/v1/models", "/version", "/metrics")
_SECRETS_DIRECTORY = "/run/lpxdoctor/secrets"  # where a roll-out of ours mounts them

# Only these values of the environment are of use; the others are not even looked at.
_ENVIRONMENT = re.compile(r"(?:VLLM|NVIDIA|CUDA|NCCL|HF|TORCH|OMP)_\w+|LD_LIBRARY_PATH")
# A whole word of a name, or TOKENIZERS_PARALLELISM=false would hide every "false".
_SECRET = re.compile(r"(?:^|[_-])(?:api_?)?(?:key|token|secret|passw(?:or)?d|credentials?)(?:$|[_=-])", re.IGNORECASE)
_SHORTEST_SECRET = 4
_PLACES = re.compile(r"--ssl[-_]key")  # a file's name is no secret
# Older engines log every request with its prompt.
_PROMPT = re.compile(r"Received request|prompt(?:_token_ids)?['\"]?\s*[:=]", re.IGNORECASE)
_METRICS = re.compile(r"vllm:(?:num_requests_|num_preemptions|(?:kv|gpu)_cache_usage_perc|cache_config_info)")

_STATE = ("Status", "Running", "Restarting", "OOMKilled", "Dead", "ExitCode", "Error", "StartedAt", "FinishedAt")
_HOST = (
    *("RestartPolicy", "IpcMode", "ShmSize", "NetworkMode", "Privileged", "DeviceRequests", "Devices", "Runtime"),
    *("Ulimits", "Memory", "ReadonlyRootfs", "CapAdd", "SecurityOpt", "PidMode"),
)


def describe_all(address: str) -> list[dict[str, Any]]:
    """Describe all engines at once; one that does not answer in time keeps nobody waiting."""
    listed = [each for each in _docker.get(address, "/containers/json?all=1") if _is_engine(each)][:_AT_MOST]
    described: dict[str, dict[str, Any]] = {}

    def work(identity: str) -> None:
        try:
            described[identity] = describe(address, identity)
        except (OSError, ValueError, KeyError, TypeError) as error:
            described[identity] = {"id": identity, "failure": _docker.why(error)}

    threads = [threading.Thread(target=work, args=(each["Id"],), daemon=True) for each in listed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_ALL_TIMEOUT_S)
    late = {"failure": f"not described within {_ALL_TIMEOUT_S:g} s"}
    return [described.get(each["Id"], {"id": each["Id"], **late}) for each in listed]


def _is_engine(listed: dict[str, Any]) -> bool:
    """Tell by what docker ps shows whether a container is an inference engine."""
    labels = listed.get("Labels") or {}
    words = f"{listed.get('Image')} {listed.get('Command')}".lower()
    return "vllm" in words or any(name.startswith(_OUR_LABEL) for name in labels)


def describe(address: str, identity: str) -> dict[str, Any]:
    """Return one engine.

    id, name, created, restarts, image (what it was started from), image_id; tag_id, what that name means now, ""
    for nothing; digests; entrypoint, arguments, environment {name: value, *** or ""}, labels, user, healthcheck;
    state, health, host (of HostConfig), mounts, ports as Docker has them; log, its last lines, null with log_reason;
    http {path: {"status", "body"} or {"failure"}} of what the engine answers on this host, address "" where nowhere;
    guarded, whether it asks for a key, null where it does not answer.
    """
    found = _docker.get(address, f"/containers/{identity}/json")
    config, host, state = found["Config"], found["HostConfig"], found["State"]
    keys = _keys(found)
    secrets = sorted({*secrets_of(config), *keys}, key=len, reverse=True)
    image = _image(address, found["Image"])
    named = _image(address, config["Image"])
    log, log_reason = _log(address, identity, tty=bool(config.get("Tty")))
    where = _address(found)
    up = bool(state.get("Running")) and not state.get("Restarting")
    return {
        "id": identity,
        "failure": "",
        "name": found["Name"].lstrip("/"),
        "created": found["Created"],
        "restarts": found.get("RestartCount", 0),
        "image": config["Image"],
        "image_id": found["Image"],
        "tag_id": named.get("Id", ""),
        "digests": image.get("RepoDigests") or [],
        "entrypoint": without(secrets, config.get("Entrypoint") or []),
        "arguments": without(secrets, config.get("Cmd") or []),
        "environment": environment(config),
        "labels": {k: v for k, v in (config.get("Labels") or {}).items() if k.startswith(_OUR_LABEL)},
        "user": config.get("User", ""),
        "healthcheck": config.get("Healthcheck") or (image.get("Config") or {}).get("Healthcheck"),
        "state": {key: state.get(key) for key in _STATE},
        "health": (state.get("Health") or {}).get("Status", ""),
        "host": {key: host.get(key) for key in _HOST},
        "mounts": found.get("Mounts") or [],
        "ports": (found.get("NetworkSettings") or {}).get("Ports") or {},
        "log": without(secrets, log),
        "log_reason": log_reason,
        "address": where,
        **without(secrets, _asked(where, keys) if up and where else {"http": {}, "guarded": None}),
    }


def _image(address: str, name: str) -> dict[str, Any]:
    """Return what Docker knows of an image, nothing of one that is no longer there."""
    try:
        found: dict[str, Any] = _docker.get(address, f"/images/{name}/json")
    except ValueError:
        return {}
    return found


# --- what is secret ---------------------------------------------------------------------------------------------------


def environment(config: dict[str, Any]) -> dict[str, str]:
    """Return the names of all variables, with the values that are of use and no secret."""
    found = {}
    for entry in config.get("Env") or []:
        name, _, value = entry.partition("=")
        hidden = _SECRET.search(name) or not _ENVIRONMENT.fullmatch(name)
        found[name] = value if not hidden else "***" if value else ""
    return found


def secrets_of(config: dict[str, Any]) -> list[str]:
    """Return every value that must not leave the host: of variables and of options whose name says so."""
    found = [
        value for name, _, value in (entry.partition("=") for entry in config.get("Env") or []) if _SECRET.search(name)
    ]
    arguments = [*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])]
    for number, argument in enumerate(arguments):
        option, joined, value = argument.partition("=")
        if not option.startswith("--") or not _SECRET.search(option) or _PLACES.match(option):
            continue
        if joined:
            found.append(value)
            continue
        for value in arguments[number + 1 :]:  # --api-key takes several
            if value.startswith("-"):
                break
            found.append(value)
    return [value for value in found if len(value) >= _SHORTEST_SECRET]


def _keys(found: dict[str, Any]) -> list[str]:
    """Return the API keys of an engine, to ask it with: without one it does not say which model it serves."""
    config = found["Config"]
    keys = [entry.partition("=")[2] for entry in config.get("Env") or [] if entry.startswith("VLLM_API_KEY=")]
    keys.append(_option([*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])], "--api-key"))
    for mount in found.get("Mounts") or []:
        if mount.get("Destination") == _SECRETS_DIRECTORY:
            try:
                keys.append(Path(mount["Source"], "VLLM_API_KEY").read_text(encoding="utf-8").strip())
            except OSError:  # it is root's
                continue
    return [key for key in keys if key]


def without(secrets: list[str], value: Any) -> Any:
    """Return a value with every secret in it replaced by ***."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, dict):
        return {key: without(secrets, item) for key, item in value.items()}
    if isinstance(value, list):
        return [without(secrets, item) for item in value]
    return value


# --- its log ----------------------------------------------------------------------------------------------------------


def _log(address: str, identity: str, *, tty: bool) -> tuple[str | None, str]:
    """Return (the last lines without the users' prompts, ""), or (None, why they cannot be read)."""
    try:
        path = f"/containers/{identity}/logs?stdout=1&stderr=1&tail={_LOG_LINES}"
        status, body = _docker.request(address, "GET", path)
    except (OSError, ValueError) as error:
        return None, _docker.why(error)
    if status != 200:
        return None, _docker.message(body)
    text = (body if tty else unframed(body)).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if not _PROMPT.search(line)]
    return "\n".join(lines)[-_LOG_BYTES:], ""


def unframed(body: bytes) -> bytes:
    """Return the bytes of both streams in Docker's framing: a stream's number, three zeros, a length, the bytes."""
    parts, at = [], 0
    while at + 8 <= len(body):
        (length,) = struct.unpack_from(">I", body, at + 4)
        parts.append(body[at + 8 : at + 8 + length])
        at += 8 + length
    return b"".join(parts)


# --- what it answers --------------------------------------------------------------------------------------------------


def _address(found: dict[str, Any]) -> str:
    """Return "address:port" where this host reaches the engine, "" where nothing says it."""
    arguments = [*(found["Config"].get("Entrypoint") or []), *(found["Config"].get("Cmd") or [])]
    port = _option(arguments, "--port") or "8000"
    networks = found.get("NetworkSettings") or {}
    if found["HostConfig"].get("NetworkMode") == "host":
        host = _option(arguments, "--host") or ""
        return f"{'127.0.0.1' if host in ('', '0.0.0.0', '::', 'localhost') else host}:{port}"  # noqa: S104
    published = (networks.get("Ports") or {}).get(f"{port}/tcp") or []
    if published:
        host = published[0].get("HostIp") or ""
        return f"{'127.0.0.1' if host in ('', '0.0.0.0', '::') else host}:{published[0]['HostPort']}"  # noqa: S104
    inside = [each.get("IPAddress") for each in (networks.get("Networks") or {}).values() if each.get("IPAddress")]
    return f"{inside[0]}:{port}" if inside else ""


def _option(arguments: list[str], name: str) -> str:
    """Return an option's value, "" where it is not given."""
    for number, argument in enumerate(arguments):
        if argument == name and number + 1 < len(arguments):
            return arguments[number + 1]
        if argument.startswith(name + "="):
            return argument[len(name) + 1 :]
    return ""


def _asked(where: str, keys: list[str]) -> dict[str, Any]:
    """Return what the engine itself answers, and whether it does so for a key only."""
    http = {path: _get(where, path) for path in _PATHS}
    status = http["/v1/models"].get("status")
    guarded = False if status == 200 else True if status in (401, 403) else None
    if guarded and keys:
        http["/v1/models"] = _get(where, "/v1/models", keys[0])
    return {"http": http, "guarded": guarded}


def _get(where: str, path: str, key: str = "") -> dict[str, Any]:
    headers = (f"Authorization: Bearer {key}",) if key else ()
    try:
        with _docker.connected(where, _HTTP_TIMEOUT_S) as connection:
            _docker.send(connection, "GET", path, headers=headers)
            status, body = _docker.received(connection)
    except (OSError, ValueError) as error:
        return {"failure": _docker.why(error)}
    text = body.decode("utf-8", "replace")
    if path == "/metrics":
        return {"status": status, "body": "\n".join(line for line in text.splitlines() if _METRICS.match(line))}
    return {"status": status, "body": text[:_BODY_CHARS]}
