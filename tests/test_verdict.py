"""An image's CUDA against a driver: native, by minor version, forward, impossible, or not known; and never guessed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.knowledge import images
from lpxdoctor.knowledge.rows import GpuClass
from lpxdoctor.knowledge.verdict import Card, Way, first_that_runs, of_capability, of_driver, of_image

H100 = Card("9.0", "data-center")
RTX4090 = Card("8.9", "geforce")


@pytest.mark.parametrize(
    ("cuda", "driver", "card", "way"),
    [
        ("13.0", "580.65.06", H100, Way.NATIVE),
        ("13.0", "580.65", H100, Way.NATIVE),  # as NVML shortens it
        ("13.0", "620.70.06", RTX4090, Way.NATIVE),
        ("13.0", "570.172.08", H100, Way.FORWARD),
        ("13.0", "570.172.08", RTX4090, Way.IMPOSSIBLE),
        ("13.0", "560.35.05", H100, Way.IMPOSSIBLE),  # the image names no branch 560
        ("13.0", "570.172.08", Card("12.0", None), Way.IMPOSSIBLE),  # a class that is not known is not let in
        ("12.9", "575.51.03", RTX4090, Way.NATIVE),
        ("12.9", "550.163.01", RTX4090, Way.MINOR),
        ("12.9", "525.60.13", H100, Way.MINOR),
        ("12.9", "525.60.12", H100, Way.IMPOSSIBLE),
        ("13.9", "580.95.05", H100, Way.UNKNOWN),
        ("14.0", "999.1", H100, Way.UNKNOWN),
        ("12.8.2", "570.124.06", H100, Way.UNKNOWN),  # that row is not sure enough to fail on
        ("13.0", "N/A", H100, Way.UNKNOWN),
    ],
)
def test_each_way(cuda: str, driver: str, card: Card, way: Way) -> None:
    assert of_driver(cuda, driver, [card]).way is way


def test_errors_are_foretold_and_conditions_judged() -> None:
    assert of_driver("13.0", "570.172.08", [RTX4090]).errors == (804, 803)
    assert of_driver("13.0", "560.35.05", [H100]).errors == (803,)
    assert of_driver("12.9", "570.172.08", [H100]).requirement_met
    assert not of_driver("12.9", "570.172.08", [RTX4090]).requirement_met
    assert not of_driver("12.9", "545.23.08", [H100]).requirement_met
    assert of_driver("12.9", "570.172.08", [H100]).ptx_trap
    assert not of_driver("12.9", "580.95.05", [H100]).ptx_trap


@pytest.mark.parametrize(
    ("capability", "way"),
    [("9.0", Way.NATIVE), ("8.7", Way.NATIVE), ("12.1", Way.NATIVE), ("11.0", Way.MINOR), ("7.0", Way.IMPOSSIBLE)],
)
def test_machine_code_runs_on_later_minors_and_ptx_on_later_majors(capability: str, way: Way) -> None:
    assert of_capability(images.load()[0], capability).way is way


def test_the_worst_of_driver_and_gpus_counts() -> None:
    image = images.load()[0]
    assert of_image(image, "580.95.05", [H100, Card("7.0", "data-center")]).way is Way.IMPOSSIBLE
    assert of_image(image, "580.95.05", [H100]).way is Way.NATIVE


def test_the_first_image_that_runs_is_taken() -> None:
    newest, older = images.load()[:2]
    for driver, expected in (("580.95.05", newest), ("550.163.01", older)):
        taken = first_that_runs(images.load(), driver, [H100])
        assert taken is not None
        assert taken[0] == expected
    assert first_that_runs(images.load(), "470.256.02", [H100]) is None


def test_the_pinned_images_agree_with_the_tables() -> None:
    known = knowledge.load()
    for image in images.load():
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image.digest)
        assert image.reference == f"{image.tag}@{image.digest}"
        floor = known.floor(image.cuda)
        assert floor is not None
        assert floor.driver == image.driver
        assert known.toolkit(image.cuda) is not None
        assert all(known.capability(text) for text in (*image.architectures, *image.ptx))


@given(
    st.sampled_from([row.version for row in knowledge.load().toolkits] + ["12.9", "13.0", "99.1"]),
    st.sampled_from([row.driver for row in knowledge.load().toolkits]),
    st.sampled_from(["data-center", "geforce", "workstation", None]),
)
def test_a_newer_driver_is_never_worse(cuda: str, driver: str, kind: GpuClass | None) -> None:
    card = Card("9.0", kind)
    newest = of_driver(cuda, knowledge.load().toolkits[-1].driver, [card]).way
    assert newest in (Way.NATIVE, Way.UNKNOWN)
    way = of_driver(cuda, driver, [card]).way
    toolkit = knowledge.load().toolkit(cuda)
    if way is Way.NATIVE:
        assert toolkit is not None
        assert Version(driver) >= Version(toolkit.driver)
