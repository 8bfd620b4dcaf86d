"""What apt, dnf, sudo and Ansible say when a playbook fails on a host, and what a person is told then."""

import pytest

from lpxdoctor.fix import failures
from lpxdoctor.playbook import State, TaskEvent

SAID = {
    "apt's lock": (
        "Failed to lock apt for exclusive operation: E:Could not get lock /var/lib/apt/lists/lock. It is held by",
        "another program installs packages there now",
    ),
    "dpkg's lock": (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (unattended-upgr)",
        "another program installs packages there now",
    ),
    "apt's disk": (
        "E: You don't have enough free space in /var/cache/apt/archives/.",
        "its disk is full",
    ),
    "a disk": ("OSError: [Errno 28] No space left on device: '/root/.ansible/tmp/x'", "its disk is full"),
    "apt's repository": (
        "Failed to update apt cache after 2 retries: W:Failed to fetch http://x/InRelease  Could not connect",
        "a repository of packages did not answer",
    ),
    "dnf's repository": (
        "Failed to download metadata for repo 'baseos': Cannot download repomd.xml",
        "a repository of packages did not answer",
    ),
    "sudo": ("Task failed: Missing sudo password", "sudo wants a password there"),
    "sudo without a terminal": ("sudo: a password is required", "sudo wants a password there"),
    "no Python": ("/bin/sh: 1: /usr/bin/python3: not found", "it has no Python"),
    "no rights": (
        "This command has to be run under the root user. are you root?",
        "the user may not change this there",
    ),
}


def event(message: str, state: State = State.FAILED) -> TaskEvent:
    return TaskEvent(state=state, task="Install it", action="apt", host="gpu-1", result={"msg": message})


@pytest.mark.parametrize("name", SAID)
def test_what_was_said_is_told_with_its_meaning_and_what_to_type(name: str) -> None:
    said, meaning = SAID[name]
    first, told, *more = failures.explain([event(said)], "gpu-1").splitlines()
    assert first == "the task failed: Install it"
    assert meaning in told
    assert more[0]  # what to do
    assert any(said in line for line in more)
    assert more[-1] == failures.AGAIN


def test_a_connection_that_is_lost_in_the_middle_is_told_with_the_hosts_state() -> None:
    lost = event("Failed to connect to the host via ssh: Connection closed by 10.0.0.1 port 22", State.UNREACHABLE)
    told = failures.explain([lost], "gpu-1")
    assert "the connection to it was lost, or never came, in the task: Install it" in told
    assert told.endswith(failures.AGAIN)
