"""Edits of a daemon.json that somebody wrote by hand: what is not concerned keeps its bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.roles.loading import shared

json_text = shared("json_text")
RUNTIME = {"path": "nvidia-container-runtime", "args": []}
ODD = """{ "log-driver" : "json-file",
      "log-opts":{"max-size":"10m",   "max-file": "3"},

  "labels": [ "a" ]"""
SETS = {
    "nothing": ("", '{\n    "runtimes": {\n        "nvidia": @\n    }\n}\n'),
    "empty": ("{}", '{\n    "runtimes": {\n        "nvidia": @\n    }\n}'),
    "one line": ('{"a":1}', '{"a":1, "runtimes": {"nvidia": @}}'),
    "spaced": ('{ "a" : 1 }\n', '{ "a" : 1, "runtimes": {"nvidia": @} }\n'),
    "tabs": ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"runtimes": {\n\t\t"nvidia": @\n\t}\n}'),
    "windows": ('{\r\n  "a": 1\r\n}\r\n', '{\r\n  "a": 1,\r\n  "runtimes": {\r\n    "nvidia": @\r\n  }\r\n}\r\n'),
    "byte order mark": ('\ufeff{"a":1}', '\ufeff{"a":1, "runtimes": {"nvidia": @}}'),
    "beside another": ('{"runtimes": {"x": {"path": "y"}}}', '{"runtimes": {"x": {"path": "y"}, "nvidia": @}}'),
    "in place of another": ('{"runtimes": {"nvidia":null} , "z":[1,  2]}', '{"runtimes": {"nvidia":@} , "z":[1,  2]}'),
    "the last of two": ('{"runtimes": 1, "runtimes": {}}', '{"runtimes": 1, "runtimes": {"nvidia": @}}'),
    "odd": (ODD + " }", ODD + ',\n\n  "runtimes": {\n    "nvidia": @\n  } }'),
}


@pytest.mark.parametrize(("before", "after"), SETS.values(), ids=SETS)
def test_a_value_is_set_and_the_rest_keeps_its_bytes(before: str, after: str) -> None:
    text = json_text.with_value(before, ["runtimes", "nvidia"], RUNTIME)
    head, tail = after.split("@")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert json.loads(text[len(head) : len(text) - len(tail)]) == RUNTIME
    assert json_text.parsed(text)["runtimes"]["nvidia"] == RUNTIME


REMOVALS = {
    "the only one": ('{ "a": 1 }', "{}"),
    "the first": ('{"a": 1,  "b": 2}', '{"b": 2}'),
    "the middle one": ('{"x": 1,\n "a": {"q": [1]} ,\n "b": 2}', '{"x": 1 ,\n "b": 2}'),
    "the last": ('{\n  "x": 1,\n  "a": 2\n}\n', '{\n  "x": 1\n}\n'),
    "all of its name": ('{"a": 1, "x": {"a": 3}, "a": 2}', '{"x": {"a": 3}}'),
    "none": ('{"x": {"a": 1}}', '{"x": {"a": 1}}'),
    "of nothing": ("", ""),
}


@pytest.mark.parametrize(("before", "after"), REMOVALS.values(), ids=REMOVALS)
def test_a_key_is_taken_out_and_the_rest_keeps_its_bytes(before: str, after: str) -> None:
    assert json_text.without(before, ["a"]).replace("1 ,", "1,") == after.replace("1 ,", "1,")


def test_a_key_within_is_taken_out() -> None:
    assert json_text.without('{"a": {"b": 1, "c": 2}}', ["a", "b"]) == '{"a": {"c": 2}}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.text(), VALUES, st.sampled_from([None, 1, 4, "\t"]))
def test_any_object_takes_any_value_and_gives_it_back(file: dict[str, Any], key: str, value: Any, indent: Any) -> None:
    text = json.dumps(file, indent=indent, ensure_ascii=False)
    more = json_text.with_value(text, [key], value)
    assert json.loads(more) == {**file, key: value}
    assert list(json.loads(more)) == list({**file, key: value})  # and what was there keeps its place
    if key not in file and file:
        assert json_text.without(more, [key]) == text


MENDED = {
    "comments": ('{"a": "http://x#y", // why\n "b": 2 /* so */ # and\n}', {"a": "http://x#y", "b": 2}),
    "surplus commas": ('{"a": [1, 2,], "b": "x,}",\n}', {"a": [1, 2], "b": "x,}"}),
    "a forgotten comma": ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}),
    "a comma forgotten in a list": ('{"a": ["x" "y"]}', {"a": ["x", "y"]}),
}


@pytest.mark.parametrize(("text", "value"), MENDED.values(), ids=MENDED)
def test_a_fault_that_can_mean_one_thing_is_mended(text: str, value: Any) -> None:
    mended, faults = json_text.mended(text)
    assert json_text.parsed(mended) == value
    assert faults


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"a" 1}', "[1]", "null", "{'a': 1}", '{"a": 1}}', '{"a": "\n"}', "[" * 9999]
)
def test_what_could_mean_anything_is_left_alone(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_text.mended(text)
