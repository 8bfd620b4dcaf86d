"""Engines in containers as values: real ones of vLLM 0.32.0 on the CPU, and an engine on a GPU, for tests to change."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpxdoctor.facts.engine import Engine, Engines, Mount, Reply, engine

# As programs/docker.py described them: ok serves and wants a key; nomodel, badarg and context ended by themselves; port
# and gpus were refused by Docker; oom was killed by the kernel for its container's memory limit.
RECORDED: Mapping[str, Any] = json.loads((Path(__file__).parent / "data" / "engines.json").read_text(encoding="utf-8"))
COLLECTED_AT = "2026-11-29T15:46:09Z"
# What the kernel logged when it killed oom.
OOM_KILL = (
    "[ 3643.996135] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,"
    "oom_memcg=/docker/{id},task_memcg=/docker/{id},task=python3,pid=20167,uid=0"
)
DIGEST = "vllm/vllm-openai@sha256:8a69ffad015f138d7170c4ddc429e230a3bc1c1719f67e14324749df200a4b90"


def recorded(which: str, **changes: Any) -> Engine:
    """Return one of the recorded engines."""
    return replace(engine(RECORDED[which], COLLECTED_AT), **changes)


def healthy_engine(**changes: Any) -> Engine:
    """Return a vLLM that serves from one GPU by CDI, pinned, guarded, on loopback, watched and restarted."""
    serving = recorded(
        "ok",
        name="vllm",
        image=f"vllm/vllm-openai:v0.30.0@{DIGEST.partition('@')[2]}",
        tag_id=RECORDED["ok"]["image_id"],
        digests=(DIGEST,),
        command=("vllm", "serve", "/models/q7", "--served-model-name", "tiny", "--max-model-len", "8192"),
        environment={"VLLM_API_KEY": "***", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        healthcheck=True,
        health="healthy",
        restart_policy="unless-stopped",
        gpu_requests=("cdi",),
        mounts=(Mount("/srv/models", "/models"),),
        shm_bytes=16 << 30,
    )
    return replace(serving, **changes)


def ended(log: str, **changes: Any) -> Engine:
    """Return an engine on a GPU that ended by itself after these lines."""
    down = {"status": "exited", "exit_code": 1, "up_s": None, "replies": {}, "guarded": None, "health": ""}
    return healthy_engine(**{**down, "log": log, **changes})


def engines(*found: Engine) -> Engines:
    """Return what a host with these engines has."""
    return Engines(engines=found)


def silent(body: str = "Connection refused") -> dict[str, Reply]:
    """Return what an engine that does not listen yet answers."""
    return {"/health": Reply(None, body), "/v1/models": Reply(None, body)}
