"""What docker inspect says of a container in; the words of its command and how it asks for GPUs out."""

import datetime
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def words(command: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command; one that starts vllm by a shell (bash -c "vllm serve ...") is taken apart."""
    for word in command:
        yield from _taken_apart(word) if re.search(r"\bvllm\b.*\s-", word) else (word,)


def _taken_apart(word: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(word))
    except ValueError:  # a quote without its other half
        return (word,)


def gpu_requests(host: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a container asks for GPUs."""
    for request in host["DeviceRequests"] or ():
        if request.get("Driver") == "cdi":
            if any(str(device).startswith("nvidia.com/") for device in request.get("DeviceIDs") or ()):
                yield "cdi"
        else:
            yield "gpus"
    if "nvidia" in (host["Runtime"] or ""):
        yield "runtime"
    if any(re.match(r"/dev/nvidia\d", str(device.get("PathOnHost"))) for device in host["Devices"] or ()):
        yield "device"


def seconds_between(since: str, until: str) -> float:
    """Return the seconds between two times as Docker and evidence write them, both in UTC."""
    begin, end = (datetime.datetime.fromisoformat(stamp[:19]) for stamp in (since, until))
    return (end - begin).total_seconds()
