"""The engine's gauges: read as they are written, sampled beside the client, and missing ones are no zeros."""

import time

import pytest

from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.gauges import Reading, parse, summary, watched
from tests.decode.peer import serving
from tests.decode.script import Script

# As vLLM 0.32 writes them.
PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 4.0
vllm:num_requests_running{engine="1",model_name="a b"} 3.0
vllm:num_requests_waiting{engine="0",model_name="a b"} 2.0
vllm:num_requests_waiting{engine="1",model_name="a b"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a b",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="a b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a b"} 0.75
"""


def test_replicas_are_added_up_and_the_fullest_cache_counts() -> None:
    assert parse(PAGE, 7) == Reading(at_ns=7, running=7.0, waiting=2.0, kv_cache=0.75)


def test_older_names_are_known() -> None:
    old = parse(PAGE.replace(b"kv_cache_usage_perc", b"gpu_cache_usage_perc"), 0)
    assert old is not None
    assert old.kv_cache == 0.75


@pytest.mark.parametrize("page", [b"", b"\xff", b"vllm:num_requests_running 1", PAGE.replace(b" 2.0\n", b" many\n")])
def test_what_is_not_told_is_not_nought(page: bytes) -> None:
    found = parse(page, 0)
    assert found is None or found.waiting == 0.0
    assert parse(b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n", 0) == Reading(
        at_ns=0, running=1.0, waiting=0.0, kv_cache=None
    )


def test_readings_become_a_load() -> None:
    rows = [(4, 0, 0.1), (4, 3, 0.5), (3, 4, None)]
    load = summary([Reading(at_ns=0, running=run, waiting=wait, kv_cache=cache) for run, wait, cache in rows])
    assert load is not None
    assert (load.samples, load.running_p50, load.running_max) == (3, 4, 4)
    assert (load.waiting_p50, load.waiting_share) == (3, 2 / 3)
    assert (load.kv_cache_p50, load.kv_cache_max) == (0.3, 0.5)
    assert summary([]) is None


def test_a_process_of_its_own_reads_while_the_client_measures() -> None:
    with (
        serving(Script(gauges=(4, 12, 0.5), api_key="secret")) as peer,
        watched(endpoint(peer.url, "secret")) as watcher,
    ):
        began = time.monotonic_ns()
        deadline = time.monotonic() + 60
        while (load := watcher.during(began, time.monotonic_ns())) is None or load.samples < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (load.running_max, load.waiting_p50, load.kv_cache_max) == (4.0, 12.0, 0.5)
        assert watcher.during(0, began) is None


def test_a_server_without_gauges_is_asked_once() -> None:
    with serving(Script()) as peer, watched(endpoint(peer.url)) as watcher:
        deadline = time.monotonic() + 60
        while not peer.pages:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1.2)
        assert peer.pages == ["/metrics"]
        assert watcher.during(0, time.monotonic_ns()) is None


def test_an_engine_without_gauges_is_not_asked() -> None:
    with watched(None) as watcher:
        assert watcher.during(0, 1 << 62) is None
