"""The way through a proxy, as the environment names it: requests arrive, refusals are told, loopback is left alone."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import Endpoint, endpoint
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.proxy import proxy_for
from lpxdoctor.decode.samples import Recording
from lpxdoctor.decode.target import KEY_VARIABLE, reached
from lpxdoctor.decode.workload import Workload
from lpxdoctor.errors import MeasureError, UsageError
from tests.decode.connect_proxy import proxying
from tests.decode.peer import Peer, serving
from tests.decode.script import Script

WORK = Workload(model="peer", input_len=32, output_len=8, nonce="test")
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *(name.upper() for name in VARIABLES), KEY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def named(peer: Peer) -> str:
    """Return the URL of a peer by a name that only the proxy knows."""
    parts = urlsplit(peer.url)
    return f"{parts.scheme}://engine.test:{parts.port}"


def load(there: Endpoint) -> Recording:
    return Loop(there, WORK, 3, 9, timeout_s=10, hooks=Hooks()).run()


def test_requests_go_through_a_proxy_and_the_target_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Script(ttft_s=0.02)) as peer, proxying("user:p%40ss") as proxy:
        proxy.login = "user:p@ss"
        monkeypatch.setenv("http_proxy", proxy.url)
        with reached(named(peer), model=None, key_file=None) as target:
            recording = load(target.endpoint)
            assert target.reached.startswith(f"through the proxy {urlsplit(proxy.url).netloc.split('@')[1]}: ")
            assert not target.is_local
    assert [sample.failure for sample in recording.samples if sample.failure] == []
    assert {len(sample.arrivals_ns) for sample in recording.samples if sample.role.value == "counted"} == {8}
    assert recording.client.kernel_clock
    assert {line.split("/v1")[0] for line in proxy.seen} <= {f"GET {named(peer)}", f"POST {named(peer)}"}
    assert len(proxy.seen) == 1 + 3  # the list of models, and a connection per slot


def test_tls_goes_through_a_tunnel(
    server_side: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(Script(), server_side) as peer, proxying() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        url = named(peer)
        there = endpoint(url)
        assert [model.id for model in engine.models(there) or ()] == ["peer"]
        recording = load(there)
    assert [sample.failure for sample in recording.samples if sample.failure] == []
    assert {sample.tokens for sample in recording.samples if sample.role.value == "counted"} == {8}
    assert set(proxy.seen) == {f"CONNECT {urlsplit(url).netloc}"}


@pytest.mark.parametrize(
    ("refusal", "said"), [(403, r"does not connect to engine.test:\d+ \(HTTP 403\)"), (407, "407")]
)
def test_a_proxy_that_refuses_is_named(refusal: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying(refusal=refusal) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        there = endpoint("https://engine.test:8443")
        with pytest.raises(MeasureError, match=said):
            engine.models(there)
        recording = Loop(there, WORK, 1, 1, timeout_s=5, hooks=Hooks()).run()
    assert {sample.kind for sample in recording.samples} == {"connect"}


def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Script()) as peer:
        monkeypatch.setenv("https_proxy", f"{peer.url}")
        with pytest.raises(MeasureError, match="HTTP 404"):
            engine.models(endpoint("https://engine.test"))


@pytest.mark.parametrize(
    ("url", "environment", "found"),
    [
        (("http", "engine.test", 80), {"http_proxy": "http://p:3128"}, "p:3128"),
        (("http", "engine.test", 80), {"HTTP_PROXY": "p:3128"}, "p:3128"),
        (("https", "engine.test", 443), {"http_proxy": "http://p:3128"}, None),
        (("https", "engine.test", 443), {"ALL_PROXY": "http://p"}, "p:80"),
        (("https", "engine.test", 443), {"https_proxy": "http://[fd00::1]:8"}, "[fd00::1]:8"),
        (("http", "127.0.0.1", 8000), {"http_proxy": "http://p"}, None),
        (("http", "localhost", 8000), {"http_proxy": "http://p"}, None),
        (("http", "::1", 8000), {"http_proxy": "http://p"}, None),
        (("http", "a.engine.test", 80), {"http_proxy": "http://p", "no_proxy": "x, engine.test"}, None),
        (("http", "a.engine.test", 80), {"http_proxy": "http://p", "NO_PROXY": ".engine.test"}, None),
        (("http", "notengine.test", 80), {"http_proxy": "http://p", "no_proxy": "engine.test"}, "p:80"),
        (("http", "engine.test", 80), {"http_proxy": "http://p", "no_proxy": "engine.test:80"}, None),
        (("http", "engine.test", 81), {"http_proxy": "http://p", "no_proxy": "engine.test:80"}, "p:80"),
        (("http", "10.1.2.3", 80), {"http_proxy": "http://p", "no_proxy": "10.0.0.0/8"}, None),
        (("http", "10.1.2.3", 80), {"http_proxy": "http://p", "no_proxy": "*"}, None),
        (("http", "11.1.2.3", 80), {"http_proxy": "http://p", "no_proxy": "10.0.0.0/8,fd00::/8"}, "p:80"),
        (("http", "engine.test", 80), {"http_proxy": "", "no_proxy": ""}, None),
    ],
)
def test_the_environment_names_the_proxy(
    url: tuple[str, str, int], environment: dict[str, str], found: str | None
) -> None:
    proxy = proxy_for(*url, environment)
    assert (proxy.netloc if proxy else None) == found


@pytest.mark.parametrize("value", ["https://p:3128", "socks5://p:1080", "http://", "http://p:port"])
def test_a_proxy_of_another_kind_is_refused_with_the_way_round_it(value: str) -> None:
    with pytest.raises(UsageError, match=r"https_proxy"):
        proxy_for("https", "engine.test", 443, {"https_proxy": value})
