"""What deploy and undeploy print: the same results as text and as JSON."""

import json
from dataclasses import replace

from lpxdoctor.deploy.rollout import Change, HostResult
from lpxdoctor.deploy.variant import GpuHost, catalogue, choose
from lpxdoctor.deployments import Deployment
from lpxdoctor.report import deploy
from tests.report.schemas import valid

CHOICE = choose(
    GpuHost(driver="580.95.05", cards=(("NVIDIA H200", "9.0"),), cdi=True, on_bus=1, error=None), catalogue()
)
DEPLOYED = Deployment(
    name="q7",
    host="gpu-1",
    url="http://127.0.0.1:8000",
    served_model="m",
    api_key_file="/var/lib/lpxdoctor/engines/q7/key",
    image="sha256:0",
    engine_version="0.30.0",
    arguments=("--model", "/model"),
    model_path="/srv/model",
    ssh=("ssh", "gpu-1"),
    created="2026-11-29T00:00:00+00:00",
)
CHANGES = (
    Change(task="Start the container", diff=({"before": {"command": ["--a"]}, "after": {"command": ["--b"]}},)),
    Change(task="Wait", diff=()),
)


def test_what_was_rolled_out_has_its_deployment() -> None:
    new = HostResult(host="gpu-1", choice=CHOICE, changes=CHANGES, deployment=DEPLOYED, seconds=41.5, exposed=True)
    document = json.loads(deploy.to_json([new], plan=False))
    valid(document, "deploy-1")
    (host,) = document["hosts"]
    assert (host["deployment"]["name"], host["started_s"], host["exposed"]) == ("q7", 41.5, True)
    text = deploy.text([new], plan=False)
    assert text.startswith("q7 on gpu-1: vLLM 0.30.0 serves m; ready after 42 s\n")
    assert "put a proxy before it" in text


def test_a_plan_has_the_lines_that_would_change() -> None:
    planned = HostResult(host="gpu-1", choice=CHOICE, changes=CHANGES, deployment=None, seconds=None)
    document = json.loads(deploy.to_json([planned], plan=True))
    valid(document, "deploy-1")
    (host,) = document["hosts"]
    assert host["changes"][0] == {"task": "Start the container", "lines": ["-command: --a", "+command: --b"]}
    assert (document["plan"], host["deployment"], host["started_s"]) == (True, None, None)
    assert deploy.text([planned], plan=True).splitlines()[1:] == [
        *("  Start the container", "    -command: --a", "    +command: --b", "  Wait"),
    ]


def test_an_image_of_ones_own_is_not_told_as_a_pinned_one() -> None:
    own = replace(CHOICE, own_image="own:1")
    new = HostResult(host="gpu-1", choice=own, changes=CHANGES, deployment=DEPLOYED, seconds=41.5)
    (host,) = json.loads(deploy.to_json([new], plan=False))["hosts"]
    assert host["reason"] == "your own image, started as this variant is"
    assert f"sha256:0 ({own.variant.name}: {host['reason']})" in deploy.text([new], plan=False)
    planned = replace(new, deployment=None, seconds=None)
    assert deploy.text([planned], plan=True).startswith(f"gpu-1: would change; own:1 ({own.variant.name}: your own")


def test_what_is_gone_and_what_was_not_there() -> None:
    changed = {"gpu-1": 3, "gpu-2": 0}
    document = json.loads(deploy.gone_json("q7", changed))
    valid(document, "undeploy-1")
    assert document["hosts"] == [{"host": "gpu-1", "removed": True}, {"host": "gpu-2", "removed": False}]
    assert deploy.gone_text("q7", changed) == "gpu-1: q7 is gone\ngpu-2: there was no q7"
