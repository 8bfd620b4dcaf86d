"""Which pinned image runs on a driver is told before it is pulled, with the error that the others would end with."""

import datetime
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.knowledge import images
from tests.checks.judging import by_id, found
from tests.facts.builders_cuda import tried
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus, host_with

IMAGE_CHECKS = (
    *("cuda.capability-not-in-image", "cuda.no-image-runs", "cuda.image-newer-than-driver"),
    *("cuda.forward-compat-impossible", "cuda.ptx-newer-than-driver", "cuda.image-requirement-unmet"),
    *("cuda.only-ptx-for-gpu", "cuda.capability-unknown", "cuda.driver-newer-than-known"),
)
BRANCH_CHECKS = ("cuda.driver-branch-ended", "cuda.driver-branch-ends-soon")
GEFORCE = {"device_id": 0x2684, "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9"}


def on(driver: str, cuda: str = "13.0", **gpu: Any) -> Gpus:
    return healthy_gpus(healthy_gpu(**gpu), driver_version=driver, cuda_version=cuda)


def firing(gpus: Gpus) -> set[str]:
    """Return the image checks that find something."""
    return {check_id for check_id in IMAGE_CHECKS if found(check_id, gpus, tried(), host_with())}


def test_all_is_well_on_the_real_h200() -> None:
    assert firing(healthy_gpus()) == set()


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        # A data-centre card one branch below: the CUDA 12 image runs, by minor-version compatibility.
        (on("570.172.08", "12.8"), {"cuda.image-newer-than-driver", "cuda.ptx-newer-than-driver"}),
        # The same driver under a GeForce card: nothing can bring CUDA 13 to it, and the image's condition is not met.
        (
            on("570.172.08", "12.8", **GEFORCE),
            {"cuda.forward-compat-impossible", "cuda.ptx-newer-than-driver", "cuda.image-requirement-unmet"},
        ),
        # 575 carries CUDA 12.9 itself.
        (on("575.57.08", "12.9", **GEFORCE), {"cuda.forward-compat-impossible"}),
        (on("470.256.02", "11.4"), {"cuda.no-image-runs", "cuda.forward-compat-impossible"}),
        (on("580.159.04", device_id=0x1DB5, compute_capability="7.0"), {"cuda.capability-not-in-image"}),
        # Machine code for 12.0 runs on 12.1; for 9.x nothing below 9.0 does.
        (on("620.70.06", "13.5", device_id=0x2E12, compute_capability="12.1"), set()),
        (on("620.70.06", "13.5", device_id=0xFFFF, compute_capability="11.0"), {"cuda.only-ptx-for-gpu"}),
        (
            on("999.10.01", "14.0", device_id=0xFFFF, compute_capability="15.0"),
            {"cuda.driver-newer-than-known", "cuda.capability-unknown", "cuda.only-ptx-for-gpu"},
        ),
    ],
)
def test_each_host_has_its_own_verdict(gpus: Gpus, expected: set[str]) -> None:
    assert firing(gpus) == expected


def test_the_errors_are_named_in_advance() -> None:
    (geforce,) = found("cuda.forward-compat-impossible", on("570.172.08", "12.8", **GEFORCE))
    assert "804" in geforce.message
    (volta,) = found("cuda.capability-not-in-image", on("580.159.04", compute_capability="7.0"))
    assert "209" in volta.message


def test_what_would_run_instead_is_named() -> None:
    (finding,) = found("cuda.image-newer-than-driver", on("570.172.08", "12.8"))
    first, second = images.load()[:2]
    assert finding.message == f"{first.name} does not run on 570.172.08; {second.name} does"


def test_a_branch_is_judged_on_the_day_that_the_host_was_asked() -> None:
    def ended(driver: str, day: str) -> bool:
        cuda = tried(asked_on=datetime.date.fromisoformat(day))
        return bool(found("cuda.driver-branch-ended", on(driver), cuda))

    assert ended("535.261.03", "2026-11-29")
    assert not ended("535.261.03", "2026-01-15")
    assert not ended("580.159.04", "2026-11-29")
    assert ended("580.159.04", "2028-07-01")
    assert ended("590.48.01", "2026-11-29")  # no month is published, and it is over


def test_the_end_of_a_branch_is_told_some_months_before() -> None:
    near = tried(asked_on=datetime.date(2028, 2, 1))
    (finding,) = found("cuda.driver-branch-ends-soon", on("580.159.04"), near)
    assert "ends in 4 months" in finding.message
    assert found("cuda.driver-branch-ends-soon", on("580.159.04"), tried()) == []
    with pytest.raises(NotApplicable):
        found("cuda.driver-branch-ends-soon", on("590.48.01"), near)


def test_an_unknown_branch_is_not_judged() -> None:
    with pytest.raises(NotApplicable, match="not in the tables"):
        found("cuda.driver-branch-ended", on("999.10.01"), tried())


def test_every_check_of_images_is_tested_here() -> None:
    here = {check_id for check_id in by_id() if by_id()[check_id].function.__module__.endswith("cuda_image")}
    assert here == {*IMAGE_CHECKS, *BRANCH_CHECKS}
