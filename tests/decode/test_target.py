"""A URL or a deployment's name leads to a server, a model and a key, or to what to type instead."""

from pathlib import Path

import pytest

from lpxdoctor import deployments
from lpxdoctor.decode.target import KEY_VARIABLE, reached
from lpxdoctor.deployments import Deployment
from lpxdoctor.errors import DoctorError, MeasureError, UsageError
from tests.decode.peer import serving
from tests.decode.script import Script


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def recorded(url: str, name: str = "vllm-a", key: Path | None = None, ssh: tuple[str, ...] = ()) -> Deployment:
    deployment = Deployment(
        name=name,
        host="localhost",
        url=url,
        served_model="peer",
        api_key_file=str(key) if key else None,
        image="vllm@sha256:00",
        engine_version="0.32.0",
        arguments=("--dtype", "bfloat16"),
        model_path="/srv/model",
        ssh=ssh,
        created="2026-11-29T00:00:00Z",
    )
    deployments.save(deployment)
    return deployment


def refusal(kind: type[DoctorError], text: str, model: str | None = None, key_file: Path | None = None) -> str:
    with pytest.raises(kind) as caught, reached(text, model=model, key_file=key_file):
        pytest.fail("reached")
    return str(caught.value)


def test_the_only_model_needs_no_name() -> None:
    with serving(Script()) as peer, reached(peer.url, model=None, key_file=None) as target:
        assert target.model.id == "peer"
        assert target.model.max_model_len == 4096
        assert target.is_local
        assert target.reached == "over loopback"


def test_of_several_models_one_has_to_be_named() -> None:
    with serving(Script(models=("a", "b"))) as peer:
        with reached(peer.url, model="b", key_file=None) as target:
            assert target.model.id == "b"
        assert "--model: a, b" in refusal(UsageError, peer.url)


def test_a_model_that_is_not_served_is_answered_with_those_that_are() -> None:
    with serving(Script(models=("a", "b"))) as peer:
        assert "It serves: a, b" in refusal(MeasureError, peer.url, model="c")


def test_a_deployment_is_reached_by_its_name_with_its_own_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    with serving(Script(api_key="secret")) as peer:
        recorded(peer.url, key=key)
        with reached("vllm-a", model=None, key_file=None) as target:
            assert target.deployment is not None
            assert "secret" not in repr(target)


def test_a_key_on_another_host_is_read_there(tmp_path: Path) -> None:
    key = tmp_path / "the key"
    key.write_text("secret\n")
    with serving(Script(api_key="secret")) as peer:
        url = peer.url.replace("127.0.0.1", "127.0.0.2")  # not a loopback name that would need a tunnel
        recorded(url, key=key, ssh=("sh", "-c"))
        assert "No answer from http" in refusal(MeasureError, "vllm-a")  # the key was read; nothing listens there
        recorded(url, key=tmp_path / "none", ssh=("sh", "-c"))
        assert "could not be read" in refusal(MeasureError, "vllm-a")


@pytest.mark.parametrize("way", ["file", "variable"])
def test_a_key_comes_from_a_file_or_the_environment(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("secret\n")
    if way == "variable":
        monkeypatch.setenv(KEY_VARIABLE, "secret")
    named = file if way == "file" else None
    with serving(Script(api_key="secret")) as peer, reached(peer.url, model=None, key_file=named) as target:
        assert target.endpoint.api_key == "secret"


def test_a_key_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    assert KEY_VARIABLE in refusal(UsageError, "http://x", key_file=tmp_path / "none")


def test_what_is_neither_url_nor_deployment_is_answered_with_what_there_is() -> None:
    recorded("http://127.0.0.1:1")
    assert "Recorded here: vllm-a" in refusal(UsageError, "other")
    assert "did you mean http://gpu-1:8000" in refusal(UsageError, "gpu-1:8000")


def test_a_tunnel_that_cannot_be_made_is_said() -> None:
    recorded("http://127.0.0.1:8000", ssh=("ssh", "-o", "BatchMode=yes", "-p", "1", "127.0.0.1"))
    said = refusal(MeasureError, "vllm-a")
    assert "tunnel to localhost ended" in said
    assert "refused" in said
    recorded("http://127.0.0.1:8000", ssh=("/no/such/ssh",))
    assert "could not be started" in refusal(MeasureError, "vllm-a")
