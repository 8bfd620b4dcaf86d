"""Which hosts an inventory of any kind names, and how each of them is reached."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import fleet, inventory
from lpxdoctor.errors import UsageError
from lpxdoctor.fleet import FleetHost, NoAnswer, inventories
from lpxdoctor.fleet.reach import argv_of

INI = """
[gpu_servers]
gpu-1 ansible_host=10.0.0.1 ansible_user=op ansible_become=true
gpu-[2:3]

[gpu_servers:vars]
ansible_port=2222
ansible_password=secret
unrelated=1
"""
YAML = """
all:
  children:
    gpu_servers:
      vars: {domain: example.net}
      hosts:
        gpu-1: {ansible_host: "{{ inventory_hostname }}.{{ domain }}"}
        gpu-2: {ansible_host: "{{ lookup('env', 'HOME') }}"}
"""
# A host in two groups, a group of groups, and a host that is named again with other variables.
NESTED = """
[rack1]
gpu-1 ansible_port=2201
gpu-2
[rack2]
gpu-3
gpu-1
[row:children]
rack1
rack2
[all_rows:children]
row
[all_rows:vars]
ansible_user=op
[spare]
gpu-1 ansible_port=2202
"""
SCRIPT = """#!/bin/sh
echo '{"gpu": {"hosts": ["b", "a"]}, "_meta": {"hostvars": {"a": {"ansible_host": "::1"}}}}'
"""


def written(file: Path, text: str, mode: int = 0o644) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_an_ini_inventory(tmp_path: Path) -> None:
    found = fleet.hosts(inventory.parse(str(written(tmp_path / "hosts", INI))))
    assert [host.name for host in found] == ["gpu-1", "gpu-2", "gpu-3"]
    assert found[0].variables == {
        "ansible_host": "10.0.0.1",
        "ansible_user": "op",
        "ansible_become": "true",  # an INI file has only text
        "ansible_port": 2222,
    }
    assert found[2].variables == {"ansible_port": 2222}


def test_templates_of_the_inventory_itself_are_computed_and_others_told(tmp_path: Path) -> None:
    found = fleet.hosts(written(tmp_path / "hosts.yml", YAML))
    assert found[0].variables == {"ansible_host": "gpu-1.example.net"}
    refused = argv_of(found[1], "start")
    assert isinstance(refused, NoAnswer)
    assert refused.reason == "its ansible_host in the inventory is a template or a vault that only Ansible can read"


def test_a_host_of_many_groups_is_one_row(tmp_path: Path) -> None:
    found = fleet.hosts(inventory.parse(str(written(tmp_path / "hosts", NESTED))))
    assert [host.name for host in found] == ["gpu-1", "gpu-2", "gpu-3"]
    assert found[0].variables == {"ansible_port": 2202, "ansible_user": "op"}  # as Ansible: what comes later counts
    assert found[2].variables == {"ansible_user": "op"}


def test_a_dynamic_inventory_and_a_directory(tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    written(tmp_path / "inventory/cloud", SCRIPT, 0o755)
    written(tmp_path / "inventory/static.ini", "c\n")
    found = fleet.hosts(tmp_path / "inventory")
    assert [host.name for host in found] == ["c", "b", "a"]
    assert found[2].variables == {"ansible_host": "::1"}


def test_typed_hosts_start_no_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/none")
    assert fleet.hosts(inventory.parse("op@gpu-1:2222,gpu-2")) == (
        FleetHost("gpu-1", {"ansible_host": "gpu-1", "ansible_user": "op", "ansible_port": 2222}),
        FleetHost("gpu-2", {"ansible_host": "gpu-2"}),
    )


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("[gpu_servers]\n", 0o644, "names no host"),
        ("x: [\n", 0o644, "cannot be read as an Ansible inventory"),
        ("#!/bin/sh\nexit 3\n", 0o755, "exit code 3"),
        ("#!/bin/sh\necho 'the cloud is down' >&2; exit 1\n", 0o755, "the cloud is down"),
        ("#!/bin/sh\necho '{'\n", 0o755, "cannot be read as an Ansible inventory"),
        ("#!/bin/sh\necho '{}'\n", 0o755, "names no host"),
        ("[a:children]\nb\n[b:children]\na\n", 0o644, "cannot be read as an Ansible inventory"),
    ],
)
def test_what_is_no_inventory_is_told(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(UsageError) as error:
        fleet.hosts(written(tmp_path / "hosts", text, mode))
    assert said in str(error.value)
    assert "Traceback" not in str(error.value)


def test_an_ssh_that_shares_our_standard_input_does_no_harm(tmp_path: Path) -> None:
    """It makes what it reads from not block, for all who have it; Ansible starts with no such input."""
    mine, (other, _) = os.dup(0), os.pipe()
    os.set_blocking(other, False)
    try:
        os.dup2(other, 0)
        assert [host.name for host in fleet.hosts(written(tmp_path / "hosts", "gpu-1\n"))] == ["gpu-1"]
    finally:
        os.dup2(mine, 0)


def test_a_program_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventories, "READ_LIMIT_S", 3.0)
    with pytest.raises(UsageError, match="gave no list of hosts within 3 s"):
        fleet.hosts(written(tmp_path / "hosts", "#!/bin/sh\nexec sleep 60\n", 0o755))


def ssh_of(**variables: Any) -> tuple[str, ...]:
    argv = argv_of(FleetHost("gpu-1", variables), "start")
    assert not isinstance(argv, NoAnswer)
    return argv


def test_ssh_is_told_what_the_inventory_says() -> None:
    argv = ssh_of(
        ansible_host="10.0.0.5",
        ansible_port=2222,
        ansible_user="op",
        ansible_ssh_private_key_file="~/k",
        ansible_ssh_common_args="-o UserKnownHostsFile='/a b'",
        ansible_ssh_extra_args="-4",
        ansible_timeout=3,
    )
    options = argv[argv.index("ConnectTimeout=3") :]
    assert options[1:-1] == (
        *("-p", "2222", "-i", "~/k", "-l", "op", "-o", "UserKnownHostsFile=/a b", "-4", "--", "10.0.0.5"),
    )
    assert not any("StrictHostKeyChecking" in word for word in argv)
    assert {"-T", "BatchMode=yes", "RemoteCommand=none"} <= set(argv)


def test_privileges_come_by_sudo_and_only_where_the_inventory_says_so() -> None:
    assert "sudo" not in shlex.split(ssh_of(ansible_become="false")[-1])
    command = shlex.split(ssh_of(ansible_become="yes", ansible_become_user="svc")[-1])
    assert command[:6] == ["sudo", "-n", "-u", "svc", "sh", "-c"]
    assert command[-1] == "start"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ansible_connection": "docker"}, "the inventory reaches it by docker"),
        ({"ansible_become": True, "ansible_become_method": "su"}, "gets privileges there by su"),
        ({"ansible_ssh_common_args": "-o 'x"}, "cannot be understood: No closing quotation"),
        ({"ansible_timeout": "soon"}, "cannot be understood: invalid literal"),
        ({"ansible_user": {"__ansible_vault": "x"}}, "its ansible_user in the inventory is a template or a vault"),
    ],
)
def test_ways_that_are_not_known_are_told(variables: dict[str, Any], said: str) -> None:
    refused = argv_of(FleetHost("gpu-1", variables), "start")
    assert isinstance(refused, NoAnswer)
    assert said in refused.reason


def test_this_machine_is_asked_without_ssh() -> None:
    (host,) = fleet.hosts(inventory.local())
    argv = argv_of(host, "start")
    assert not isinstance(argv, NoAnswer)
    assert argv[0] == "sh"
    assert sys.executable in argv[2]
