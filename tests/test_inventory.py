"""Which hosts: what is typed or written in a file, and how ssh reaches what Ansible reached."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

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


NAME = st.text("abz019.-_", min_size=1).filter(lambda name: not name.startswith("-") and not Path(name).exists())


@given(st.text() | st.text("ab1@:,[]-. \n\0"))
def test_any_text_is_hosts_that_ssh_takes_for_hosts_or_is_told(text: str) -> None:
    source: inventory.Source = {"all": {"hosts": {}}}
    with suppress(UsageError):
        source = inventory.parse(text)
    if isinstance(source, Path):
        assert source.exists()
        return
    for name, told in source["all"]["hosts"].items():
        for word in (name, told["ansible_host"], told.get("ansible_user", "root")):
            assert word
            assert not word.startswith("-")
            assert not any(letter.isspace() for letter in word)


@given(
    st.lists(st.tuples(NAME, st.none() | NAME, st.none() | st.integers(1, 65535)), min_size=1, unique_by=lambda e: e[0])
)
def test_what_is_typed_is_what_is_reached(entries: list[tuple[str, str | None, int | None]]) -> None:
    typed = [f"{user}@" * bool(user) + host + f":{port}" * bool(port) for host, user, port in entries]
    wanted = {host: {"ansible_host": host, "ansible_user": user, "ansible_port": port} for host, user, port in entries}
    source = inventory.parse(",".join(typed))
    assert not isinstance(source, Path)
    assert source["all"]["hosts"] == {
        host: {key: value for key, value in told.items() if value is not None} for host, told in wanted.items()
    }


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
TREES = st.recursive(
    SCALARS, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(), t, max_size=3), max_leaves=8
)


class Reader(yaml.SafeLoader):
    """Reads !unsafe as the text that it is, as Ansible does."""


Reader.add_constructor("!unsafe", lambda _, node: str(node.value))


@given(st.dictionaries(st.text(), TREES, max_size=4))
def test_variables_come_back_as_they_were_and_no_text_is_a_template(variables: dict[str, Any]) -> None:
    text = inventory.to_yaml(variables)
    assert yaml.load(text, Loader=Reader) == variables
