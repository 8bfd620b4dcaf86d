"""How a host of a fleet is reached: its connection variables in, the argv that runs a program there out."""

import shlex
import sys
from collections.abc import Mapping

from lpxdoctor.fleet.inventories import FleetHost, is_template
from lpxdoctor.fleet.refusals import NoAnswer

CONNECT_S = 10
_AUTOMATIC = ("", "auto", "auto_legacy", "auto_silent", "auto_legacy_silent")
# python3 first, as a person would; where it is too old, newer ones that the distribution has beside it.
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 8, -1)), "/usr/libexec/platform-python")
TOO_OLD = 86  # what the start line ends with in a Python that cannot run the collector
# $0 is the start line. -I -S: neither the user's nor the site's modules can stand in for the standard library's.
_TRY = (
    'for p in {pythons}; do command -v "$p" >/dev/null 2>&1 || continue; '
    '"$p" -I -S -c "$0"; s=$?; [ $s = {too_old} ] || exit $s; old="$old $p"; done; '
    'echo "lpxdoctor: ${{old:+too old:}}${{old:-no python at {pythons}}}" >&2; exit {too_old}'
)
# No terminal, forwarding or command of the user's ssh_config: the channel carries bytes, many times at once.
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "RemoteCommand=none"),
    *("-o", "ClearAllForwardings=yes", "-o", "ForwardX11=no", "-o", "ForwardAgent=no"),
)


def argv_of(host: FleetHost, start: str) -> tuple[str, ...] | NoAnswer:
    """Return the argv that runs the Python line start on the host, or why there is none."""
    told = host.variables
    other = next((name for name, value in told.items() if is_template(value) or isinstance(value, Mapping)), "")
    if other:
        return NoAnswer(
            f"its {other} in the inventory is a template or a vault that only Ansible can read",
            f"Write the value of {other} into the inventory.",
        )
    kind = str(told.get("ansible_connection", "ssh"))
    if kind not in ("ssh", "smart", "local"):
        return NoAnswer(
            f"the inventory reaches it by {kind}", "Only ssh and local can be asked: set ansible_connection=ssh."
        )
    method = str(told.get("ansible_become_method", "sudo"))
    become = _true(told.get("ansible_become", False))
    if become and method.rpartition(".")[2] != "sudo":
        return NoAnswer(f"the inventory gets privileges there by {method}", "Set ansible_become_method=sudo.")
    local = kind == "local"
    python = str(told.get("ansible_python_interpreter", sys.executable if local else ""))
    pythons = " ".join(_PYTHONS) if python in _AUTOMATIC else shlex.quote(python)
    command = (
        *(("sudo", "-n", "-u", str(told.get("ansible_become_user", "root"))) if become else ()),
        *("sh", "-c", _TRY.format(pythons=pythons, too_old=TOO_OLD), start),
    )
    try:
        return command if local else (*_ssh(host), shlex.join(command))
    except ValueError as error:  # a time that is no number, a quotation that does not end
        return NoAnswer(f"how the inventory reaches it cannot be understood: {error}", "Correct its SSH variables.")


def _ssh(host: FleetHost) -> tuple[str, ...]:
    told = host.variables
    user = told.get("ansible_user", told.get("ansible_ssh_user"))
    port = told.get("ansible_port", told.get("ansible_ssh_port"))
    key = told.get("ansible_ssh_private_key_file", told.get("ansible_private_key_file"))
    return (
        *_SSH,
        *("-o", f"ConnectTimeout={int(told.get('ansible_timeout', CONNECT_S))}"),
        *(("-p", str(port)) if port else ()),
        *(("-i", str(key)) if key else ()),
        *(("-l", str(user)) if user else ()),
        *shlex.split(str(told.get("ansible_ssh_common_args") or "")),
        *shlex.split(str(told.get("ansible_ssh_extra_args") or "")),
        *("--", str(told.get("ansible_host", told.get("ansible_ssh_host", host.name)))),
    )


def _true(value: object) -> bool:
    """Read a truth value as Ansible does: an INI inventory has only text."""
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")
