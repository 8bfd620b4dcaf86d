"""Why a host failed, for people: the event that ended it in, what happened and what to type out."""

import re
from collections.abc import Sequence

from lpxdoctor.playbook import State, TaskEvent

TAIL_LINES = 15
TAIL_WIDTH = 200

# What ssh says -> what it means and what to do; the first that matches.
_SSH = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        (
            "its host key is not the one that is known here: another machine answers, or it was installed anew.\n"
            "If you know why: ssh-keygen -R {address}, connect once by hand, and compare the fingerprint."
        ),
    ),
    (
        r"Host key verification failed",
        (
            "its host key is not known here.\n"
            "Connect once by hand (ssh {address}), compare the fingerprint with the host's own, and accept it."
        ),
    ),
    (
        # What is silent for so long that ssh gives it up is told without a word.
        r"server \S+ not responding|closed by remote host|Broken pipe|Connection reset|via ssh:\s*$",
        "the connection was cut off in the middle.\nWas it rebooted, or did its network fail? Try: ssh {address}",
    ),
    (
        r"timed out|Timeout|timeout",
        "it did not answer within 10 s.\nIs it on, is the address right, does a firewall drop SSH? Try: ssh {address}",
    ),
    (
        r"Connection refused",
        "nothing listens for SSH there.\nIs the port right (ansible_port), and does sshd run? Try: ssh {address}",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "no address is known for its name.\nCorrect the name, or give ansible_host in the inventory.",
    ),
    (
        r"No route to host|Network is unreachable",
        "no network leads to it.\nIs the address right? Try: ssh {address}",
    ),
    (
        r"Permission denied",
        "it does not accept the key or user.\nInstall your key there: ssh-copy-id {address}",
    ),
)

# What Ansible or sudo says where a user may not become root without being asked, and what to do.
SUDO = (
    r"Missing sudo password|sudo: (?:a|no) (?:password|terminal)|interactive authentication is required",
    """sudo wants a password there.
Let the user run sudo without one, or set ansible_become_password in a vault.""",
)
# What Docker or its modules say -> what it means and what to do.
_DOCKER = (
    (
        r"could not select device driver",
        (
            "Docker has no NVIDIA support there, so no container gets a GPU.\n"
            "Install the NVIDIA Container Toolkit, then: nvidia-ctk runtime configure --runtime=docker, "
            "and systemctl restart docker. lpxdoctor check shows what is missing."
        ),
    ),
    (
        r"unresolvable CDI devices|CDI device injection failed",
        (
            "The host's CDI specification does not have the GPU asked for.\n"
            "Write it anew: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        ),
    ),
    (
        r"unsatisfied condition: cuda",
        (
            "The image's CUDA is newer than the host's driver allows.\n"
            "Take an older variant with --variant, or update the driver: lpxdoctor check names the version."
        ),
    ),
    (
        r"port is already allocated|address already in use",
        "The port was taken while the container started.\nDeploy on another one with --port.",
    ),
    (
        r"no space left on device",
        "The disk is full there.\nSee: docker system df, and df -h /var/lib/docker",
    ),
)
_ERROR_LINE = re.compile(r"\w*(?:Error|Exception): .+")
# These point at the cause, which an earlier line has.
_NOT_A_CAUSE = re.compile(r"Engine core initialization failed|See (root cause|stack trace)")


def explain(events: Sequence[TaskEvent], host: str) -> str:
    """Return what ended a host's run, from all that failed there in order: the first is the cause.

    What failed after it, failed while things were put back, or says what is left.
    """
    first, *later = events
    told = _unreachable(first.message, host) if first.state is State.UNREACHABLE else f"{host}: {_cause_of(first)}"
    return "\n".join((told, *(event.message for event in later)))


def _cause_of(event: TaskEvent) -> str:
    if event.action.endswith("docker_image_pull"):
        return (
            f"the image could not be pulled: {event.message}\n"
            "Can the host reach the registry (proxy, mirror)? Or bring it: docker save IMAGE | ssh HOST docker load, "
            "and name it with --image."
        )
    if event.action.endswith("package"):
        return (
            f"python3-requests, which the Docker modules import, could not be installed: {event.message}\n"
            "Install it there as root: apt-get install python3-requests"
        )
    known = _matching((SUDO,), event.message)
    if known:
        return f"{known}\nIt said: {event.message}"
    known = _matching(_DOCKER, event.message)
    if known:
        return f"{known}\nDocker said: {event.message}"
    return "\n".join((event.message, *log_summary(engine_log(event))))


def engine_log(event: TaskEvent) -> list[str]:
    """Return the last lines of the container, empty where it was not the engine that failed."""
    return [str(line) for line in event.result.get("log", ())]


def log_summary(log: Sequence[str]) -> list[str]:
    """Return the error that a log names and its last lines, indented."""
    if not log:
        return []
    cause = error_in(log)
    tail = [f"  {line[:TAIL_WIDTH]}" for line in log[-TAIL_LINES:]]
    return [*([f"It said: {cause}"] if cause else []), "Its last lines:", *tail]


def error_in(log: Sequence[str]) -> str:
    """Return the last error that a log names and that is a cause, "" where it names none."""
    for number in range(len(log) - 1, -1, -1):
        found = _ERROR_LINE.search(log[number])
        if found and not _NOT_A_CAUSE.search(log[number]):
            # pydantic's errors have their substance on the next, indented line.
            following = log[number + 1].strip() if re.search(r"\d validation error", found.group()) else ""
            return f"{found.group()} {following}".strip()
    return ""


def _unreachable(message: str, host: str) -> str:
    known = _matching(_SSH, message)
    # Ansible repeats itself: "Task failed: Failed to connect to the host via ssh: ssh: Could not resolve …"
    said = re.sub(
        r"^(Task failed: )?(Failed to connect to the host via ssh:\s*)?",
        "",
        message.splitlines()[-1] if message else "",
    )
    if known:
        told = f"{host} cannot be reached by SSH: {known.format(address=_address(message) or host)}"
        return f"{told}\nssh said: {said}" if said else told
    return f"{host} cannot be reached: {message}"


def _address(message: str) -> str:
    """Return the address that ssh names, which the inventory's name need not be, as ssh takes it; "" for none."""
    port = re.search(r"connect to host (\S+) port (\d+)", message)
    if port:
        return port[1] if port[2] == "22" else f"-p {port[2]} {port[1]}"
    user = re.search(r"(\S+@\S+): Permission denied", message)
    return user[1] if user else ""


def _matching(table: Sequence[tuple[str, str]], message: str) -> str:
    return next((text for pattern, text in table if re.search(pattern, message)), "")
