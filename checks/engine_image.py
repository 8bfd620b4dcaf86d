"""Facts of the engines in containers in: whether the image and the model are what they were meant to be, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.engine import Engine, Engines
from lpxdoctor.knowledge import images

_HUB_CACHE = ("/root/.cache", "/home/vllm/.cache")


def _inspect(engine: Engine, what: str, value: str) -> Seen:
    return Seen(what, value, f"docker inspect {engine.name}")


@check("engine.image-not-pinned", Severity.WARN, layer="deployment")
def image_not_pinned(engines: Engines) -> Iterator[Finding]:
    """An engine's image is named by a tag, which may mean another image tomorrow.

    Why: a tag can be moved by whoever made it. The next host, or this one after a clean-up, then gets another vLLM,
        with another CUDA, under the same name, and no measurement compares with an earlier one.
    Fix: name it by digest: docker inspect --format '{{index .RepoDigests 0}}' IMAGE, and use what that prints.
    Source: https://docs.docker.com/build/building/best-practices/#pin-base-image-versions
    """
    for engine in engines.some:
        if engine.digests and not engine.pinned:
            seen = (
                _inspect(engine, "image", engine.image),
                Seen("its digest", engine.digests[0], "docker image inspect"),
            )
            yield Finding(f"{engine.name} runs {engine.image}", engine.name, seen)


@check("engine.image-moved", Severity.WARN, layer="deployment")
def image_moved(engines: Engines) -> Iterator[Finding]:
    """An engine runs another image than its tag means now.

    Why: somebody pulled or built the tag anew. The next time that the engine is recreated it becomes another version.
    Fix: recreate it now, at a time that you choose, or pin the image that it runs by digest.
    Source: https://docs.docker.com/reference/cli/docker/container/inspect/
    """
    for engine in engines.some:
        if engine.tag_id and engine.tag_id != engine.image_id:
            seen = (
                _inspect(engine, "runs", engine.image_id[:19]),
                Seen(f"{engine.image} is", engine.tag_id[:19], "docker image inspect"),
            )
            yield Finding(f"{engine.image} has moved since {engine.name} was made", engine.name, seen)


@check("engine.image-not-the-pinned", Severity.WARN, layer="deployment")
def image_not_the_pinned(engines: Engines) -> Iterator[Finding]:
    """An engine runs another image than the one that lpxdoctor pins under the same tag.

    Why: the digest is what was looked at and measured. Another one under the same tag was built later, or is not what
        it says.
    Fix: lpxdoctor deploy rolls the pinned one out. Where the new digest is meant, images/pin.py takes it over.
    Source: images/vllm.toml
    """
    pinned = {image.tag: image.digest for image in images.load()}
    for engine in engines.some:
        digest = pinned.get(engine.image.partition("@")[0])
        if digest and engine.digests and not any(each.endswith(digest) for each in engine.digests):
            seen = (Seen("runs", engine.digests[0], "docker image inspect"), Seen("pinned", digest, "images/vllm.toml"))
            yield Finding(f"{engine.name}: {engine.image} is not the pinned image", engine.name, seen)


@check("engine.model-not-kept", Severity.WARN, layer="deployment")
def model_not_kept(engines: Engines) -> Iterator[Finding]:
    """An engine would download its model again each time that it is recreated.

    Why: the model comes from a hub, and the directory that it is put into lies in the container. It takes minutes, and
        fails when the hub cannot be reached.
    Fix: mount a directory of the host: -v /srv/huggingface:/root/.cache/huggingface; or keep the model in a directory
        with its revision, and mount that.
    Source: https://docs.vllm.ai/en/stable/deployment/docker/
    """
    for engine in engines.some:
        from_hub = bool(engine.model) and not engine.model.startswith(("/", ".", "~"))
        places = (
            *_HUB_CACHE,
            *(value for name, value in engine.environment.items() if name in ("HF_HOME", "HF_HUB_CACHE")),
        )
        kept = any(
            place.startswith(mount.target.rstrip("/") or "/") or mount.target.startswith(place)
            for mount in engine.mounts
            for place in places
        )
        if from_hub and not kept:
            mounts = ", ".join(mount.target for mount in engine.mounts) or "none"
            yield Finding(
                f"{engine.name} keeps {engine.model} inside the container",
                engine.name,
                (_inspect(engine, "mounts", mounts),),
            )
