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
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SPACES = st.text(" \t\r\n", max_size=3)
KEYS = st.text("ab", max_size=1)  # so few that they meet, and stand twice
PATHS = st.lists(KEYS, min_size=1, max_size=3)


@st.composite
def written(draw: Any, depth: int = 3) -> str:
    """Return an object as text, spaced in any way, with keys that stand twice."""

    def member() -> str:
        inner = depth and draw(st.booleans())
        value = draw(written(depth - 1)) if inner else json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans()))
        key = json.dumps(draw(KEYS), ensure_ascii=draw(st.booleans()))
        return f"{draw(SPACES)}{key}{draw(SPACES)}:{draw(SPACES)}{value}{draw(SPACES)}"

    return "{" + (",".join(member() for _ in range(draw(st.integers(0, 3)))) or draw(SPACES)) + "}"


TEXTS = st.builds("{}{}{}{}".format, st.sampled_from(["", "\ufeff"]), SPACES, written(), SPACES)


def placed(value: Any, path: list[str], new: Any) -> Any:
    """Return an object with a value at a path."""
    if not path:
        return new
    inside = value if isinstance(value, dict) else {}
    return {**inside, path[0]: placed(inside.get(path[0]), path[1:], new)}


def taken_out(value: Any, path: list[str]) -> Any:
    """Return an object without what is at a path."""
    if not isinstance(value, dict):
        return value
    if len(path) == 1:
        return {key: each for key, each in value.items() if key != path[0]}
    return {key: taken_out(each, path[1:]) if key == path[0] else each for key, each in value.items()}


def alike(one: str, other: str) -> int:
    """Return how many letters two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def lost(before: str, after: str) -> str:
    """Return what of a text is not there any more, where it was changed in one place."""
    head = alike(before, after)
    return before[head : len(before) - alike(before[head:][::-1], after[head:][::-1])]


@given(TEXTS, PATHS, VALUES)
def test_any_text_takes_any_value_and_keeps_the_rest(text: str, path: list[str], value: Any) -> None:
    before = json_text.parsed(text)
    more = json_text.with_value(text, path, value)
    assert json_text.parsed(more) == placed(before, path, value)
    assert list(json_text.parsed(more)) == list(placed(before, path, value))  # and what was there keeps its place
    if path[0] not in before:
        assert not lost(text, more).strip()


@given(TEXTS, PATHS)
def test_from_any_text_a_value_is_taken_out_however_often_it_is_there(text: str, path: list[str]) -> None:
    assert json_text.parsed(json_text.without(text, path)) == taken_out(json_text.parsed(text), path)


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=5), st.text(), VALUES, st.sampled_from([None, 1, "\t"]))
def test_what_was_set_and_is_taken_out_leaves_no_trace(file: dict[str, Any], key: str, value: Any, indent: Any) -> None:
    text = json.dumps(file, indent=indent, ensure_ascii=False)
    if key not in file:
        assert json_text.without(json_text.with_value(text, [key], value), [key]) == text


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
