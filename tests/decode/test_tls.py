"""https gives the same numbers by the same clock, and a certificate that does not fit is refused."""

import ssl
from pathlib import Path

import pytest

from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.workload import Workload
from lpxdoctor.errors import MeasureError
from tests.decode.peer import serving
from tests.decode.script import Script

WORK = Workload(model="peer", input_len=32, output_len=8, nonce="test")


def test_a_trusted_server_is_measured_by_the_kernels_clock(
    server_side: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(Script(), server_side) as peer:
        there = endpoint(peer.url)
        assert [model.id for model in engine.models(there) or ()] == ["peer"]
        recording = Loop(there, WORK, 3, 9, timeout_s=10, hooks=Hooks()).run()
    assert [sample.failure for sample in recording.samples if sample.failure] == []
    assert {sample.tokens for sample in recording.samples if sample.role.value == "counted"} == {8}
    assert recording.client.kernel_clock


def test_prompts_larger_than_a_tls_record_arrive(
    server_side: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    work = Workload(model="peer", input_len=100_000, output_len=4, nonce="test")
    with serving(Script(), server_side) as peer:
        recording = Loop(endpoint(peer.url), work, 1, 1, timeout_s=10, hooks=Hooks()).run()
    assert [sample.prompt_tokens for sample in recording.samples] == [100_000, 100_000]


def test_a_certificate_that_nobody_vouches_for_is_refused(server_side: ssl.SSLContext) -> None:
    with serving(Script(), server_side) as peer, pytest.raises(MeasureError, match="certificate verify failed"):
        engine.models(endpoint(peer.url))


def test_http_spoken_to_a_tls_server_is_said(server_side: ssl.SSLContext) -> None:
    with serving(Script(), server_side) as peer, pytest.raises(MeasureError, match="No answer"):
        engine.models(endpoint(peer.url.replace("https", "http")))
