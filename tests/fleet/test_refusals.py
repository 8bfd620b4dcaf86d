"""What ssh, sudo, shells and the collector say when a host gives no evidence, and what a person is told then."""

import pytest

from lpxdoctor.fleet.refusals import refusal

# As printed by OpenSSH 9.2, sudo 1.9.13 and dash 0.5.12 of Debian 12, and by what is sent.
SAID = {
    "changed": (
        (
            "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
            "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.\r\n"
        ),
        "its SSH host key is not the one that is known here",
        "ssh-keygen -R",
    ),
    "unknown key": (
        (
            "No ED25519 host key is known for gpu-1 and you have requested strict checking.\r\n"
            "Host key verification failed.\r\n"
        ),
        "its SSH host key is not known here",
        "ssh op@gpu-1",
    ),
    "key": (
        (
            "Warning: Identity file /none not accessible: No such file or directory.\n"
            "op@gpu-1: Permission denied (publickey,password).\r\n"
        ),
        "SSH does not accept the key or the user (it offers: publickey,password)",
        "ssh-copy-id op@gpu-1",
    ),
    "open key": (
        (
            "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\n"
            'Load key "/k": bad permissions\r\nop@gpu-1: Permission denied (publickey).\r\n'
        ),
        "others can read it",
        "chmod 600",
    ),
    "name": (
        "ssh: Could not resolve hostname gpu-1: Name or service not known\r\n",
        "no address is known for its name gpu-1",
        "ansible_host",
    ),
    "refused": ("ssh: connect to host gpu-1 port 22: Connection refused\r\n", "nothing listens for SSH", "SSH server"),
    "time": (
        "ssh: connect to host gpu-1 port 22: Connection timed out\r\n",
        "it does not answer at its address",
        "firewall",
    ),
    "banner": ("Connection timed out during banner exchange\r\n", "it does not answer at its address", "ssh op@gpu-1"),
    "route": ("ssh: connect to host gpu-1 port 22: No route to host\r\n", "there is no way to its address", "ping"),
    "startups": (
        "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 10.0.0.1 port 22\r\n",
        "its SSH server closed the connection",
        "--forks",
    ),
    "cut off": (
        "Connection to 10.0.0.5 closed by remote host.\n",
        "the connection to it was lost in the middle",
        "ssh op@gpu-1 uptime",
    ),
    "reset": ("client_loop: send disconnect: Broken pipe\n", "was lost in the middle", "uptime"),
    "read": ("Read from remote host gpu-1: Connection reset by peer\n", "was lost in the middle", "uptime"),
    "silent": ("Timeout, server 10.0.0.5 not responding.\n", "was lost in the middle", "uptime"),
    "sudo": ("sudo: a password is required\n", "sudo wants a password there", "NOPASSWD"),
    "sudoers": (
        "Sorry, user op is not allowed to execute '/bin/sh' as root on gpu-1.\n",
        "op may not do this by sudo there",
        "sudoers",
    ),
    "no sudo": ("bash: line 1: sudo: command not found\n", "there is no sudo", "ansible_become=false"),
    "no sudo in dash": ("sh: 1: sudo: not found\n", "there is no sudo", "apt-get install sudo"),
    "tty": ("sudo: sorry, you must have a tty to run sudo\n", "requiretty", "requiretty"),
    "old": ("lpxdoctor: too old: python3 /usr/libexec/platform-python\n", "its Python is too old", "python3.11"),
    "no python": (
        "lpxdoctor: no python at python3 python3.14 python3.9 /usr/libexec/platform-python\n",
        "it has no Python (python3)",
        "apt-get install python3",
    ),
    "no such python": ("lpxdoctor: no python at /opt/python\n", "it has no Python (/opt/python)", "interpreter"),
    "no room": (
        "lpxdoctor: no room: /dev/shm: No space left on device, /tmp: No space left on device\n",
        "there is no room for the collector (/dev/shm: No space left on device, /tmp: No space left on device)",
        "Free",
    ),
    "defect": (
        "lpxdoctor: the collector failed: KeyError: 'x'\n",
        "the collector failed there: KeyError: 'x'",
        "report",
    ),
    "nologin": ("This account is currently not available.\n", "its user may not log in", "ansible_user"),
    "unheard-of": ("some noise\nthe fridge is open\n", "exit status 255: the fridge is open", "ssh op@gpu-1 true"),
    "nothing": ("", "exit status 255: it said nothing", "ssh op@gpu-1 true"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_was_said_becomes_a_reason_and_what_to_do(name: str) -> None:
    said, reason, do = SAID[name]
    row = refusal(said, "op@gpu-1", 255)
    assert reason in row.reason
    assert do in row.do
    assert "{" not in row.reason + row.do
    assert "\n" not in row.reason + row.do
