"""What a server tells of itself: counters of new and old names, models, and errors that say what to type."""

import socket

import pytest

from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.errors import MeasureError, UsageError
from tests.beside import beside
from tests.decode.peer import serving
from tests.decode.script import Script

# Shape as vLLM 0.32 writes it: two engines, a histogram, and the cache configuration as labels.
TEXT = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 1.5e+02
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="tiny"} 0.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 10.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="tiny"} 2.0
vllm:request_prefill_time_seconds_count{engine="0",model_name="tiny"} 10.0
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1280.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 64.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",kv_cache_size_tokens="4096",odd="a\\"b,c}",engine="0"} 1.0
vllm:num_preemptions_total{engine="0",model_name="tiny"} NaN?
"""


def test_counters_are_summed_over_engines() -> None:
    found = engine.parse_metrics(TEXT)
    assert found.counters["generation_tokens"] == 250
    assert found.cache_config["kv_cache_size_tokens"] == "4096"
    assert found.cache_config["block_size"] == "16"
    assert "preemptions" not in found.counters


def test_older_names_count_too() -> None:
    old = ("gpu_prefix_cache_hits_total 3", "gpu_prefix_cache_queries_total 12", "time_per_output_token_seconds_sum 1")
    found = engine.parse_metrics("".join(f"vllm:{line}\n" for line in old))
    assert found.counters == {"cache_hits": 3, "cache_queries": 12, "gap_sum": 1}


def test_a_difference_is_over_the_rung_alone() -> None:
    before, after = (
        engine.parse_metrics(TEXT),
        engine.parse_metrics(
            TEXT.replace("} 64.0", "} 192.0")
            .replace("1280", "2560")
            .replace("} 2.0", "} 4.0")
            .replace("} 10.0", "} 20.0")
        ),
    )
    found = engine.delta(before, after, received_tokens=0)
    assert found is not None
    assert found.prefix_cache_hit_rate == pytest.approx(128 / 1280)
    assert found.ttft_mean_ms == found.prefill_mean_ms == pytest.approx(200)
    assert found.generation_tokens == 0
    assert found.inter_token_mean_ms is None
    assert engine.delta(engine.Metrics(), engine.Metrics(), 0) is None


def test_a_server_tells_models_version_and_counters() -> None:
    with serving(Script(models=("a", "b"), max_model_len=512)) as peer:
        there = endpoint(peer.url)
        assert [model.id for model in engine.models(there) or ()] == ["a", "b"]
        assert engine.version(there) == "9.9.9"
        assert engine.metrics(there).counters["generation_tokens"] == 0


def test_a_server_without_metrics_has_no_counters() -> None:
    with serving(Script(has_metrics=False)) as peer:
        assert engine.metrics(endpoint(peer.url)) == engine.Metrics()


def test_the_path_before_v1_is_kept() -> None:
    with serving(Script()) as peer:
        there = endpoint(f"{peer.url}/gateway/v1/")
        assert there.url == f"{peer.url}/gateway"
        assert engine.models(there)


def test_a_key_that_is_missing_or_wrong_is_explained() -> None:
    with serving(Script(api_key="right")) as peer:
        assert engine.models(endpoint(peer.url, "right"))
        with pytest.raises(MeasureError, match=r"asks for an API key.*\n.*--api-key-file"):
            engine.models(endpoint(peer.url))
        with pytest.raises(MeasureError, match="refuses this API key"):
            engine.models(endpoint(peer.url, "wrong"))


def test_nothing_there_is_said_with_what_to_type() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(MeasureError, match=r"models: Connection refused\.\n.*curl"):
            engine.models(endpoint(url))


def test_something_else_that_answers_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n\r\n")

        with beside(greet), pytest.raises(MeasureError, match="does not begin with an HTTP"):
            engine.models(endpoint(f"http://127.0.0.1:{server.getsockname()[1]}"))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://u:p@host",
        "http://host/?q",
        "http://höst",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        endpoint(url)


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(UsageError, match=r"^http://host:8000/v1: only") as refused:
        endpoint("http://me:secret@host:8000/v1")
    assert "secret" not in str(refused.value)


def test_a_counter_that_fell_tells_nothing() -> None:
    before, after = engine.parse_metrics(TEXT), engine.parse_metrics(TEXT.replace("100.0", "10.0"))
    found = engine.delta(before, after, received_tokens=5)
    assert found is not None
    assert found.generation_tokens is None


@pytest.mark.parametrize("url", ["http://[::1]:8000/some/path/v1", "http://[::1]:8000/some/path"])
def test_an_ipv6_address_with_a_path_before_v1(url: str) -> None:
    there = endpoint(url, "key")
    assert (there.connects_to, there.url) == (("::1", 8000), "http://[::1]:8000/some/path")
    head = there.request("POST", "/v1/completions", b"{}").decode()
    assert head.startswith("POST /some/path/v1/completions HTTP/1.1\r\nHost: [::1]:8000\r\n")
    assert "Authorization: Bearer key\r\n" in head


def test_a_key_on_two_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="one line"):
        endpoint("http://127.0.0.1:1", "a\nb")


def test_a_host_without_address_is_said() -> None:
    with pytest.raises(MeasureError, match="no address"):
        endpoint("http://no-such-host.invalid:8000")
