"""Checks of CDI specifications, and of what came of trying CUDA in containers: each fires and each is silent."""

from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Evidence, Unreadable
from lpxdoctor.facts.cdi import Node as CdiNode
from lpxdoctor.facts.container import PASSTHROUGH, Container
from lpxdoctor.facts.cuda import CudaError
from lpxdoctor.facts.nodes import Node
from tests.checks.container_faults import AROUND, SPEC, TOOLKIT, judged
from tests.checks.judging import found
from tests.facts.builders_container import REFRESHING, asked, healthy, trial, tried
from tests.facts.builders_cuda import tried as cuda_tried
from tests.facts.builders_engine import engines, healthy_engine
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus

# --- CDI --------------------------------------------------------------------------------------------------------------

UNPROVEN: dict[str, Any] = {"trials": (), "untried": "left out"}


def stale(**changes: Any) -> list[str]:
    """Return what is seen of a specification with these changes, where no trial says that it works."""
    container = healthy(specs=(replace(SPEC, **changes),), **UNPROVEN)
    return [
        f"{seen.what} {seen.value}" for each in found("container.cdi-stale", *AROUND, container) for seen in each.seen
    ]


def test_a_specification_that_fits() -> None:
    assert stale() == []
    assert stale(mounts=("/usr/local/nvidia",)) == []  # no version in its names
    with pytest.raises(NotApplicable):
        judged("container.cdi-stale", healthy(specs=()))


def test_a_specification_of_another_driver() -> None:
    said = stale(mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07",))
    assert said == ["driver in the specification 535.161.07", "driver that is loaded 580.159.04"]


def test_a_specification_with_other_nodes() -> None:
    wrong = (CdiNode("/dev/nvidia0", 195, 0), CdiNode("/dev/nvidia-uvm", 510, 0))
    assert stale(nodes=wrong) == ["/dev/nvidia-uvm 510:0 in /var/run/cdi/nvidia.yaml, 238:0 on this host"]
    gone = (*SPEC.nodes, CdiNode("/dev/nvidia7"))
    assert stale(nodes=gone) == ["/dev/nvidia7 named, and not on this host"]
    assert stale(nodes=SPEC.nodes[:1]) == [
        "/dev/nvidia-uvm on this host, and not in the specification: cuInit needs it"
    ]


def test_a_specification_of_other_gpus() -> None:
    assert stale(devices=("0", "GPU-strange", "all")) == ["GPU-strange named, and no GPU of this host"]
    second = Node("/dev/nvidia1", 195, 1, 0o666, 0, 0)
    more = healthy(specs=(SPEC,), nodes=(*healthy().nodes, second), **UNPROVEN)
    seen = found("container.cdi-stale", *AROUND, more)[0].seen
    assert [(each.what, each.value) for each in seen] == [("GPUs that it leaves out", "/dev/nvidia1")]


def test_a_specification_by_which_cuda_starts_is_not_stale() -> None:
    odd = replace(SPEC, mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07",))
    assert judged("container.cdi-stale", healthy(specs=(odd,), trials=(trial("CDI"),))) == []


def test_a_watch_that_is_off_and_a_host_without_the_unit() -> None:
    off = healthy(refresh=replace(REFRESHING, watching=False))
    assert judged("container.cdi-refresh-failed", off) == ["it does not watch for a new driver"]
    for refresh in (None, replace(REFRESHING, installed=False)):
        with pytest.raises(NotApplicable):
            judged("container.cdi-refresh-failed", healthy(refresh=refresh))


def test_a_specification_that_comes_after_docker() -> None:
    late = replace(TOOLKIT, refresh=replace(REFRESHING, before_docker=False))
    assert (
        "starts with Docker and needs CDI" in judged("container.cdi-late-at-boot", late, engines(healthy_engine()))[0]
    )
    kept = replace(late, specs=(replace(SPEC, path="/etc/cdi/nvidia.yaml"),))
    assert judged("container.cdi-late-at-boot", kept, engines(healthy_engine())) == []
    assert judged("container.cdi-late-at-boot", late, engines(healthy_engine(restart_policy="no"))) == []


# --- the proof --------------------------------------------------------------------------------------------------------

PROOF = ["container.gpu-not-visible", "container.cuda-init-fails", "container.gpus-differ", "container.gpus-flag-fails"]


@pytest.mark.parametrize("id_", PROOF)
def test_a_proof_that_was_left_out_is_not_applicable(id_: str) -> None:
    answers = {key: value for key, value in asked().answers.items() if key != PASSTHROUGH.key}
    with pytest.raises(NotApplicable, match="--no-container-test"):
        judged(id_, Container.parse(Evidence("test", answers)))


@pytest.mark.parametrize("id_", PROOF)
def test_a_proof_that_failed_is_unknown(id_: str) -> None:
    container = replace(healthy(), trials=Unreadable("no container could be tried"))  # type: ignore[arg-type]
    with pytest.raises(Unreadable, match="could be tried"):
        judged(id_, container)


@pytest.mark.parametrize(
    ("name", "message", "do"),
    [
        ("nothing-set-up", "this Docker has CDI switched off", '"features": {"cdi": true}'),
        ("no-spec", "no CDI specification that can be read names nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
        ("stale", "which is no longer on this host", "nvidia-ctk cdi generate"),
    ],
)
def test_what_docker_said_becomes_the_cause_and_what_to_type(name: str, message: str, do: str) -> None:
    finding = found("container.gpu-not-visible", *AROUND, healthy(trials=tried(name)))[0]
    assert message in finding.message
    assert do in finding.do[0]
    assert [seen.what for seen in finding.seen] == ["CDI", "--gpus", "--runtime=nvidia"]
    assert finding.seen[0].where.startswith("docker run --rm")


def test_the_same_gpus_in_the_container_as_on_the_host() -> None:
    two = healthy_gpus(healthy_gpu(0), healthy_gpu(1))
    uuids = tuple(gpu.uuid for gpu in two.gpus)
    fewer = healthy(trials=(trial("CDI", uuids=uuids), trial("--gpus", uuids=uuids[:1])))
    finding = found("container.gpus-differ", *AROUND, two, fewer)[0]
    assert finding.message == "--gpus: 1 of 2 GPUs"
    assert finding.seen[-1].value == uuids[1]
    mig = healthy_gpus(healthy_gpu(mig=(True, True)))
    with pytest.raises(NotApplicable):
        judged("container.gpus-differ", fewer, mig)


def test_cuda_that_fails_on_the_host_too_is_not_the_containers_fault() -> None:
    broken = cuda_tried(error=CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN"))
    with pytest.raises(NotApplicable):
        judged("container.cuda-init-fails", healthy(trials=tried("wrong-uvm")), broken)
    assert judged("container.cuda-init-fails", healthy()) == []


@pytest.mark.parametrize("id_", PROOF)
def test_cuda_that_was_not_tried_proves_nothing(id_: str) -> None:
    skipped = (trial("CDI", skipped="nvidia_uvm is not loaded", uuids=()),)
    with pytest.raises(NotApplicable, match="nvidia_uvm is not loaded"):
        judged(id_, healthy(trials=skipped))
