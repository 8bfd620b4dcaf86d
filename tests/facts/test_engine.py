"""What Docker and real engines said becomes typed engines; known error texts are found in what programs print."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.container import DOCKER
from lpxdoctor.facts.docker_inspect import gpu_requests, words
from lpxdoctor.facts.engine import Engines, Reply, engine
from lpxdoctor.programs import _docker, _engines
from tests.facts.builders_container import answer
from tests.facts.builders_engine import COLLECTED_AT, RECORDED, healthy_engine, recorded
from tests.facts.given import evidence


def test_an_engine_that_serves() -> None:
    found = recorded("ok")
    assert found.up
    assert not found.fails
    assert found.guarded
    assert found.served == ("tiny",)
    assert found.model == "/model"
    assert found.option("--max-model-len") == "1024"
    assert found.has("--enforce-eager")
    assert found.environment["VLLM_API_KEY"] == "***"
    assert found.environment["OMP_NUM_THREADS"] == "1"
    assert found.published == (("127.0.0.1", "18444"),)
    assert found.exposed == ()
    assert not found.wants_gpu
    assert not found.pinned
    assert found.digests == ()
    assert (found.up_s or 0) > 100
    assert "sk-test" not in json.dumps(RECORDED)


@pytest.mark.parametrize(
    ("name", "cause", "values"),
    [
        ("nomodel", "model-not-found", {"model": "/models/nothing-here"}),
        ("badarg", "argument-unknown", {"arguments": "--no-such-flag"}),
        ("context", "context-longer-than-model", {"asked": "1024000"}),
        ("port", "port-in-use", {"port": "18444"}),
        ("gpus", "gpu-hook-unknown", {}),
    ],
)
def test_an_engine_that_ended_says_why(name: str, cause: str, values: dict[str, str]) -> None:
    found = recorded(name)
    assert found.fails
    assert not found.stopped
    assert found.cause is not None
    assert found.cause.name == cause
    assert found.cause.values == values
    assert not found.unexplained


def test_a_killed_engine_is_neither_stopped_nor_failed() -> None:
    found = recorded("oom")
    assert found.exit_code == 137
    assert not found.oom_killed  # Docker 20.10 did not notice
    assert found.killed
    assert not found.fails
    assert recorded("ok", status="exited", exit_code=143, up_s=None).stopped
    assert not recorded("ok", status="exited", exit_code=0, oom_killed=True, up_s=None).stopped


def test_a_log_that_cannot_be_read_is_unknown() -> None:
    raw = {**RECORDED["nomodel"], "log": None, "log_reason": "configured logging driver does not support reading"}
    found = engine(raw, COLLECTED_AT)
    assert found.unexplained
    assert "does not support reading" in found.last_lines[0]
    with pytest.raises(Unreadable, match="does not support reading"):
        assert found.cause


def test_an_engine_that_does_not_say_its_model_is_unknown() -> None:
    with pytest.raises(Unreadable, match="401"):
        assert recorded("ok", replies={"/v1/models": Reply(401, '{"error":"Unauthorized"}')}).served
    with pytest.raises(Unreadable, match="no list of models"):
        assert recorded("ok", replies={"/v1/models": Reply(200, "<html>")}).served


def test_where_an_engine_can_be_reached() -> None:
    assert healthy_engine(published=(("0.0.0.0", "8000"), ("127.0.0.1", "8001"))).exposed == ("0.0.0.0:8000",)
    on_host = healthy_engine(network="host", published=())
    assert on_host.exposed == ("0.0.0.0:8000",)
    assert replace(on_host, command=(*on_host.command, "--host", "127.0.0.1")).exposed == ()


def test_how_many_gpus_an_engine_uses() -> None:
    assert healthy_engine(command=("vllm", "serve", "m", "-tp", "4", "--pipeline-parallel-size=2")).ranks == 8
    assert healthy_engine(command=("vllm", "serve", "m", "-tp")).ranks == 1


def test_the_words_of_a_command_in_a_shell() -> None:
    command = ("bash", "-c", "vllm serve org/model --port 8000")
    assert tuple(words(command)) == ("bash", "-c", "vllm", "serve", "org/model", "--port", "8000")
    assert tuple(words(("sh", "-c", "exec vllm serve 'half --x"))) == ("sh", "-c", "exec vllm serve 'half --x")
    assert healthy_engine(command=tuple(words(command))).model == "org/model"


def test_how_a_container_asks_for_gpus() -> None:
    def asks(**host: Any) -> list[str]:
        return list(gpu_requests({"DeviceRequests": None, "Runtime": "runc", "Devices": None, **host}))

    assert asks() == []
    assert asks(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]) == ["cdi"]
    assert asks(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["vendor.com/net=0"]}]) == []
    assert asks(DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}], Runtime="nvidia") == [
        "gpus",
        "runtime",
    ]
    assert asks(Devices=[{"PathOnHost": "/dev/nvidia0"}]) == ["device"]


def test_engines_of_a_docker() -> None:
    raw = {**answer(), "engines": [RECORDED["ok"], RECORDED["oom"]]}
    assert [each.name for each in Engines.parse(evidence({DOCKER: raw})).engines] == ["engine-ok", "engine-oom"]
    nobody = {"server": "", "failure": "absent", "reason": "no such file"}
    assert Engines.parse(evidence({DOCKER: nobody})).engines == ()
    for unknown in (
        {"server": "", "failure": "denied", "reason": "Permission denied"},
        {**answer(), "engines": None, "engines_reason": "Permission denied"},
        {**answer(), "engines": [{"id": "x", "failure": "Permission denied"}]},
    ):
        with pytest.raises(Unreadable, match="Permission denied"):
            assert Engines.parse(evidence({DOCKER: unknown})).engines


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_odd_answers_become_unreadable(value: Any) -> None:
    Engines.parse(evidence({DOCKER: value}))
    Engines.parse(evidence({DOCKER: {**answer(), "engines": [{**RECORDED["ok"], "state": value}]}}))


# --- what the program drops on the host -------------------------------------------------------------------------------


def test_secrets_do_not_leave_the_host() -> None:
    config = {
        "Env": ["VLLM_API_KEY=sk-1234567", "HF_TOKEN=hf_aaaa", "TOKENIZERS_PARALLELISM=false", "DB=postgres://u:p@h"],
        "Cmd": [
            "--model",
            "m",
            "--api-key",
            "first-key",
            "second-key",
            "--ssl-keyfile",
            "/etc/ssl/key.pem",
            "--port=1",
        ],
        "Entrypoint": ["vllm", "serve"],
    }
    secrets = _engines.secrets_of(config)
    assert set(secrets) == {"sk-1234567", "hf_aaaa", "first-key", "second-key"}
    hidden = _engines.without(secrets, {"log": "key sk-1234567", "argv": config["Cmd"]})
    assert hidden["log"] == "key ***"
    assert hidden["argv"] == [
        "--model",
        "m",
        "--api-key",
        "***",
        "***",
        "--ssl-keyfile",
        "/etc/ssl/key.pem",
        "--port=1",
    ]
    assert _engines.environment(config) == {
        "VLLM_API_KEY": "***",
        "HF_TOKEN": "***",
        "TOKENIZERS_PARALLELISM": "***",
        "DB": "***",
    }


def test_docker_frames_and_http_chunks() -> None:
    framed = b"\x01\x00\x00\x00\x00\x00\x00\x03out\x02\x00\x00\x00\x00\x00\x00\x04err\n"
    assert _engines.unframed(framed) == b"outerr\n"
    assert _docker.unchunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n") == b"abcde"
    assert _docker.unchunked(b"") == b""


# --- known error texts ------------------------------------------------------------------------------------------------
