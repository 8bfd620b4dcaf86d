"""The releases of vLLM agree with CUDA and the pinned images; the survey counts every table, and is printed."""

import datetime
import json
from itertools import pairwise

import msgspec
import pytest
from click.testing import CliRunner
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from lpxdoctor import bundled, knowledge
from lpxdoctor.cli import group
from lpxdoctor.knowledge import images, survey, vllm


def test_releases_rise_and_every_row_says_where_it_is_from() -> None:
    rows = vllm.releases()
    assert len(rows) > 30
    for earlier, later in pairwise(rows):
        assert Version(earlier.version) < Version(later.version)
        assert Version(earlier.torch) <= Version(later.torch)
        assert Version(earlier.cuda) <= Version(later.cuda)
    assert all(len(row.source) > 10 and row.sure for row in rows)


def test_a_release_names_known_cudas_capabilities_and_pythons() -> None:
    known = knowledge.load()
    for row in vllm.releases():
        assert known.toolkit(row.cuda), row
        assert known.toolkit(row.wheel_cuda), row
        assert known.capability(row.min_cc), row
        assert "3.12" in SpecifierSet(row.python), row


def test_a_pinned_image_has_the_cuda_that_its_release_says() -> None:
    for image in images.load():
        row = vllm.release(image.engine)
        assert row, image
        if image.tag == row.image:
            assert image.cuda == row.cuda
            assert min(image.architectures, key=Version) == row.min_cc
        else:
            assert image.tag.removeprefix(row.image) in row.variants


@pytest.mark.parametrize(
    ("text", "cuda"), [("0.19.1", "12.9"), ("0.25.1+cu129", "13.0"), ("99.0", None), ("", None), ("latest", None)]
)
def test_a_release_is_found_by_what_vllm_prints_and_never_guessed(text: str, cuda: str | None) -> None:
    row = vllm.release(text)
    assert (row.cuda if row else None) == cuda


def test_the_survey_has_every_table_once_with_rows_and_days() -> None:
    tables = survey.tables()
    assert {table.file for table in tables} == {path.stem for path in bundled.KNOWLEDGE.glob("*.toml")} | {
        "images/vllm"
    }
    assert len({(table.file, table.name) for table in tables}) == len(tables)
    assert all(table.rows > 0 and table.low <= table.rows and table.oldest <= table.newest for table in tables)
    counted = {(table.file, table.name): table for table in tables}
    toolkits = knowledge.load().toolkits
    assert counted["cuda", "toolkits"].rows == len(toolkits)
    assert counted["cuda", "toolkits"].low == sum(not row.sure for row in toolkits)
    assert counted["cuda", "toolkits"].newest == max(row.date for row in toolkits)


def test_the_command_prints_what_the_survey_has() -> None:
    done = CliRunner().invoke(group, ["knowledge"])
    assert done.exit_code == 0
    newest = survey.newest()
    assert f"driver branch {newest.driver_branch}, CUDA {newest.cuda}, Xid {newest.xid}" in done.output
    assert f"vLLM {newest.vllm} (pinned: {newest.pinned_vllm})" in done.output
    for table in survey.tables():
        assert f"{table.file} " in done.output
        assert f"{table.name} " in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_the_json_is_the_survey() -> None:
    done = CliRunner().invoke(group, ["knowledge", "--format", "json"])
    known = json.loads(done.output)
    assert known["schema"] == 1
    assert known["newest"]["xid"] == max(row.code for row in knowledge.load().xids)
    assert tuple(msgspec.convert(known["tables"], list[survey.Table])) == survey.tables()
    assert datetime.date.fromisoformat(known["tables"][0]["oldest"]).year >= 2023
