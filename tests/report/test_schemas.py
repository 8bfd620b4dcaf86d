"""The schemas that are published are today's; that real output is valid against them, the tests of each command say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from lpxdoctor.report.schemas import DOCUMENTS, text
from tests.report.schemas import PUBLISHED, valid

HOW = "python -m lpxdoctor.report.schemas docs/schema"


def test_each_document_is_published_and_nothing_else() -> None:
    assert {path.stem for path in PUBLISHED.iterdir()} == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_published_is_todays(name: str) -> None:
    assert (PUBLISHED / f"{name}.json").read_text(encoding="utf-8") == text(name), HOW
    document = json.loads(text(name))
    jsonschema.Draft202012Validator.check_schema(document)
    kind = DOCUMENTS[name][1].__name__
    assert document["$ref"].endswith(f"/{kind}")
    root = document["$defs"][kind]
    assert "schema" in root["required"]
    assert str(root["properties"]["schema"].get("enum", [1])) == f"[{name.rpartition('-')[2]}]"
    for told in document["$defs"].values():
        assert all(re.fullmatch("[a-z][a-z0-9_]*", key) for key in told.get("properties", {})), told


def test_the_module_writes_them(tmp_path: Path) -> None:
    subprocess.run((sys.executable, *HOW.split()[1:-1], tmp_path), check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"{name}.json": text(name) for name in DOCUMENTS
    }


def test_what_the_schema_does_not_tell_of_is_found() -> None:
    document = {"schema": 1, "verdict": "same"}
    with pytest.raises(jsonschema.ValidationError, match="required"):
        valid(document, "compare-1")
    row = {"host": "a", "deployment": None, "status": 0, "more": 1}
    with pytest.raises(jsonschema.ValidationError, match="more"):
        valid({"schema": 1, "rows": [row]}, "baselines-1")
