"""What engines that do not run said before they ended in; what is wrong with what they were given out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check, logged
from lpxdoctor.facts.engine import Engines

_NOT_FOUND = ("model-not-found", "hub-unreachable", "vocabulary-not-downloaded", "mount-source-missing")
_REFUSED = (
    *("argument-unknown", "argument-refused", "architecture-unknown", "tokenizer-class-unknown", "weights-do-not-fit"),
    *("port-from-service", "sequences-exceed-states", "items-per-request"),
    *("context-longer-than-model", "batch-smaller-than-context", "quantization-does-not-fit", "lora-rank-too-large"),
)


@check("engine.model-gated", Severity.FAIL, layer="deployment")
def model_gated(engines: Engines) -> Iterator[Finding]:
    """An engine may not read its model's repository.

    Why: the repository is gated: its licence has to be accepted on its page, and a token of that account be sent along.
    Fix: accept the licence, then hand the token over in a file: --env-file with HF_TOKEN=... and mode 0600. Error 401
        is no token or a wrong one, 403 a token without access.
    Source: https://huggingface.co/docs/hub/models-gated
    """
    for engine, cause in engines.ended("model-gated"):
        token = "given" if "HF_TOKEN" in engine.environment else "not given"
        yield logged(
            engine, cause, Seen("model", engine.model), Seen("HF_TOKEN", token, f"docker inspect {engine.name}")
        )


@check("engine.model-not-found", Severity.FAIL, layer="deployment")
def model_not_found(engines: Engines) -> Iterator[Finding]:
    """An engine does not find its model.

    Why: a path is looked up in the container, not on the host: a directory that is not mounted does not exist for it,
        and vLLM then takes the path for the name of a repository. A repository is fetched from a hub, which a host
        without a network or behind a proxy does not reach.
    Fix: mount the directory (-v /models/NAME:/models/NAME:ro) and give --model the path that it has in the container;
        for a repository compare the name with the one on its page. Without the hub: bring the files here and set
        HF_HUB_OFFLINE=1, or name a mirror (HF_ENDPOINT) or the proxy (HTTPS_PROXY).
    Source: https://github.com/vllm-project/vllm/issues/8262
    """
    for engine, cause in engines.ended(*_NOT_FOUND):
        mounts = ", ".join(mount.target for mount in engine.mounts) or "none"
        yield logged(
            engine, cause, Seen("model", engine.model), Seen("mounts", mounts, f"docker inspect {engine.name}")
        )


@check("engine.port-in-use", Severity.FAIL, layer="deployment")
def port_in_use(engines: Engines) -> Iterator[Finding]:
    """An engine's port is taken by another program.

    Why: the model loads, and then the server cannot listen and everything ends; or Docker refuses to publish the port.
    Fix: sudo ss -ltnp names the other program. End it (a service comes back by itself: systemctl stop NAME), or give
        the engine another --port or -p. Where it is the same engine, started at boot, there is nothing to start.
        VLLM_PORT is for the engine's own processes and must not be the port of its API.
    Source: https://github.com/vllm-project/vllm/issues/8638
    """
    for engine, cause in engines.ended("port-in-use"):
        yield logged(engine, cause, do=("sudo ss -ltnp",))


@check("engine.arguments-refused", Severity.FAIL, layer="deployment")
def arguments_refused(engines: Engines) -> Iterator[Finding]:
    """An engine refused what it was told, or does not know the model's architecture.

    Why: arguments and architectures come and go with versions. Images from 0.11.1 on start with vllm serve themselves:
        repeated in the command it is an unknown argument too.
    Fix: compare with docker run --rm IMAGE --help; for a new architecture take a newer image.
    Source: https://docs.vllm.ai/en/latest/cli/serve.html; https://docs.vllm.ai/en/latest/models/supported_models.html
    """
    for engine, cause in engines.ended(*_REFUSED):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.disk-full", Severity.FAIL, layer="deployment")
def disk_full(engines: Engines) -> Iterator[Finding]:
    """An engine ended because a disk is full.

    Why: models, compiled kernels and logs grow. In a read-only container it may be a tmpfs that is too small.
    Fix: df -h and docker system df show which; docker image prune frees images that nothing uses.
    Source: https://docs.docker.com/engine/manage-resources/pruning/
    """
    for engine, cause in engines.ended("disk-full"):
        yield logged(engine, cause, do=("df -h", "docker system df"))
