"""Which hosts: what is typed or written in a file, and how ssh reaches what Ansible reached."""

from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import inventory
from lpxdoctor.deploy.reach import connection, ssh
from lpxdoctor.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-1", {"gpu-1": {"ansible_host": "gpu-1"}}),
        (
            "root@10.0.0.5:2222",
            {"10.0.0.5": {"ansible_host": "10.0.0.5", "ansible_user": "root", "ansible_port": 2222}},
        ),
        ("a@h1,h2,", {"h1": {"ansible_host": "h1", "ansible_user": "a"}, "h2": {"ansible_host": "h2"}}),
        ("[fe80::1]:22", {"fe80::1": {"ansible_host": "fe80::1", "ansible_port": 22}}),
    ],
)
def test_hosts_are_read_as_they_are_typed(text: str, expected: dict[str, Any]) -> None:
    assert inventory.parse(text) == {"all": {"hosts": expected}}


def test_more_hosts_than_a_file_name_has_letters_are_hosts() -> None:
    names = [f"10.0.0.{number}" for number in range(250)]
    parsed = inventory.parse(",".join(f"root@{name}" for name in names))
    assert not isinstance(parsed, Path)
    assert list(parsed["all"]["hosts"]) == names


# --yes: what follows -i when its value was forgotten.
@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "h:port",
        "u@",
        ",",
        "/none/hosts.yml",
        "hosts.yml",
        "--yes",
        "-oProxyCommand=x",
        "-u@h",
        "a,b,a",
        "h:1,h:2",
    ],
)
def test_what_is_no_host_is_told(text: str) -> None:
    with pytest.raises(UsageError):
        inventory.parse(text)


def test_an_inventory_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "hosts").touch()
    assert inventory.parse(str(tmp_path / "hosts")) == tmp_path / "hosts"


def test_ssh_reaches_what_ansible_reached() -> None:
    told = {
        "ansible_connection": "ssh",
        "ansible_host": "10.0.0.5",
        "ansible_port": 2222,
        "ansible_user": "op",
        "ansible_ssh_private_key_file": "/k",
        "ansible_ssh_common_args": "-o UserKnownHostsFile='/a b'",
        "ansible_ssh_extra_args": "",
        "ansible_become": True,
        "ansible_python_interpreter": "",
    }
    kept = connection(told)
    assert "ansible_ssh_extra_args" not in kept
    assert ssh(kept) == (
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-p", "2222", "-i", "/k"),
        *("-o", "UserKnownHostsFile=/a b", "op@10.0.0.5", "sudo", "-n"),
    )
    assert ssh({"ansible_host": "h"})[-1] == "h"
    assert ssh({"ansible_connection": "local", "ansible_host": "h"}) == ()


def test_variables_that_look_like_templates_are_none() -> None:
    text = inventory.to_yaml({"all": {"vars": {"a": "{{ x }}", "b": "plain", "c": ["{% if %}", "{# no #}"]}}})
    assert text.count("!unsafe") == 3
    assert "b: plain" in text
