"""Why a host gave no evidence: what ssh, sudo, the shell or the collector said in, a reason and what to type out."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class NoAnswer:
    """A host that gave no evidence: the reason, as one sentence part without a full stop, and what to do about it."""

    reason: str
    do: str


# The first that matches counts; {host} is the name in the inventory, {1} and so on are what the pattern found.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its SSH host key is not the one that is known here: the host was made anew, or another one answers",
        "Ask who runs it for the fingerprint. If it is the new one: ssh-keygen -R {address}, then ssh {address}",
    ),
    (
        r"Host key verification failed",
        "its SSH host key is not known here",
        "Log in once and compare the fingerprint: ssh {address}",
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE",
        "ssh does not use the private key, because others can read it",
        "chmod 600 the key file",
    ),
    (
        r"Permission denied \(([^)]*)\)",
        "SSH does not accept the key or the user (it offers: {1})",
        "ssh-copy-id {address}, or set ansible_user and ansible_ssh_private_key_file; passwords are not asked for",
    ),
    (
        r"Could not resolve hostname ([^:\s]+)",
        "no address is known for its name {1}",
        "Correct the name, or set ansible_host to an address.",
    ),
    (
        r"Connection refused",
        "nothing listens for SSH at its address and port",
        "Start its SSH server, or set ansible_port.",
    ),
    (
        r"(?:Connection|Operation) timed out",
        "it does not answer at its address",
        "See that it runs and that no firewall is between: ssh {address}",
    ),
    (
        r"No route to host|Network is unreachable|Host is down",
        "there is no way to its address",
        "See that it runs and that this network reaches it: ping {address}",
    ),
    (
        (
            r"Connection to \S+ closed by remote host|client_loop: send disconnect|Read from remote host"
            r"|Timeout, server \S+ not responding"
        ),
        "the connection to it was lost in the middle",
        "See whether it was rebooted or its network failed, and ask again: ssh {address} uptime",
    ),
    (
        r"kex_exchange_identification|Connection (?:closed|reset) by|Session open refused",
        "its SSH server closed the connection",
        "It may take few log-ins at a time (MaxStartups, MaxSessions): lower --forks, or see its log for sshd.",
    ),
    (
        r"sudo: (?:a|no) (?:terminal|password)[^\n]*|sudo: interactive authentication is required",
        "sudo wants a password there, or does not know the user",
        "Let the user run sudo without one (NOPASSWD in sudoers), or set ansible_user=root and ansible_become=false.",
    ),
    (
        r"(\S+) is not (?:in the sudoers file|allowed to (?:execute|run sudo))",
        "{1} may not do this by sudo there",
        "Allow it in sudoers, or set ansible_user=root and ansible_become=false.",
    ),
    (
        r"sudo: sorry, you must have a tty",
        "sudo wants a terminal there (requiretty)",
        "Remove requiretty from its sudoers for this user.",
    ),
    (
        r"sudo:[^\n]*not found",
        "there is no sudo",
        "apt-get install sudo there, or set ansible_user=root and ansible_become=false.",
    ),
    (
        r"lpxdoctor: too old: ([^\n]+)",
        "its Python is too old ({1}): 3.9 or newer is needed",
        "Install a newer one beside it, such as python3.11, or name it by ansible_python_interpreter.",
    ),
    (
        r"lpxdoctor: no python at '?([^'\n]+?)'?(?: python3\.\d[^\n]*)?\s*$",
        "it has no Python ({1})",
        "Install one there (apt-get install python3, dnf install python3.11), or set ansible_python_interpreter.",
    ),
    (
        r"lpxdoctor: no room: ([^\n]+)",
        "there is no room for the collector ({1})",
        "Free 1 MB in one of these places.",
    ),
    (
        r"lpxdoctor: the collector failed: ([^\n]+)",
        "the collector failed there: {1}",
        "This is a defect of lpxdoctor: please report it with this line.",
    ),
    (r"This account is (?:currently )?not available", "its user may not log in", "Set ansible_user to one that may."),
)


def refusal(said: str, address: str, status: int | None) -> NoAnswer:
    """Return why a host gave no evidence.

    Args:
        said: what came on standard output and standard error.
        address: the host as a person would type it to ssh.
        status: what the process ended with.
    """
    for pattern, reason, do in _KNOWN:
        match = re.search(pattern, said)
        if match:
            found = (match[0], *match.groups(""))
            return NoAnswer(reason.format(*found), do.format(address=address))
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = lines[-1] if lines else "it said nothing"
    return NoAnswer(
        f"the connection ended with exit status {status}: {words}", f"See what it says to: ssh {address} true"
    )
