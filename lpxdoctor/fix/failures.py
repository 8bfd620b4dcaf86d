"""Why a playbook did not come to its end on a host: the failed events in, what happened and what to type out."""

import re
from collections.abc import Sequence

from lpxdoctor.deploy import failures
from lpxdoctor.playbook import State, TaskEvent

# What apt, dnf, sudo or Ansible says -> what it means and what to do; the first that matches.
_KNOWN = (
    (
        r"Could not get lock|dpkg frontend lock|Waiting for process with pid|is locked by another process",
        """another program installs packages there now.
Wait until it is done (see: ps -C apt-get,dpkg,unattended-upgrade,dnf), then run the same again.""",
    ),
    (r"No space left on device|(?:not|n't have) enough free space", "its disk is full.\nSee there: df -h"),
    (
        (
            r"Failed to (?:fetch|update apt cache|download metadata)|Could not (?:resolve|connect to)"
            r"|Cannot download repodata|Temporary failure resolving|Unable to locate package|No package matching"
        ),
        """a repository of packages did not answer, or does not have what is needed.
Can the host reach it (proxy, mirror)? Mirrors are variables of the roles: --vars FILE.""",
    ),
    failures.SUDO,
    (
        r"python3?[^\n]*: (?:command )?not found|No such file or directory[^\n]*python|interpreter[^\n]*not found",
        """it has no Python, which Ansible needs there.
Install it there: apt-get install python3""",
    ),
    (
        r"must be (?:run as )?root|Permission denied|Operation not permitted|are you root",
        """the user may not change this there.
Log in as root, or set ansible_become=true in the inventory.""",
    ),
)
AGAIN = "What was done stays. Run the same again: it does what is left."


def explain(events: Sequence[TaskEvent], host: str) -> str:
    """Return what ended a host's run: the task, what it means and what to type, and what the module said."""
    first = events[0]
    if first.state is State.UNREACHABLE:
        said = failures.explain(events[:1], host)
        return f"the connection to it was lost, or never came, in the task: {first.task}\n{said}\n{AGAIN}"
    meaning = next((text for pattern, text in _KNOWN if re.search(pattern, first.message)), "")
    later = "\n".join(event.message for event in events[1:])
    parts = (f"the task failed: {first.task}", meaning, f"It said: {first.message}", later, AGAIN)
    return "\n".join(part for part in parts if part)
