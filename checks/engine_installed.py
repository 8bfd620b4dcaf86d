"""What engines that do not run said before they ended in; faults of their build, their start and their files out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check, logged
from lpxdoctor.facts.engine import Engines

_PASSTHROUGH = "container.gpu-not-visible"

_MIXED = (
    *("installation-mixed", "triton-backend-missing", "architecture-not-inspected", "kernels-not-compiled"),
    "transformers-of-other-age",
)


# --- how it is built --------------------------------------------------------------------------------------------------


@check("engine.installation-mixed", Severity.FAIL, layer="engine")
def installation_mixed(engines: Engines) -> Iterator[Finding]:
    """The parts of an engine's installation do not go together.

    Why: vLLM's compiled part is made for one version of torch and one CUDA. Another torch, a second CUDA in the same
        environment or an older C library ends in an undefined symbol or a library that is not found.
    Fix: take the published image, unchanged; in an environment of your own install vLLM into a fresh one and let it
        bring its torch (pip install vllm, nothing before it).
    Source: https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    """
    for engine, cause in engines.ended(*_MIXED):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.compiler-missing", Severity.FAIL, layer="engine")
def compiler_missing(engines: Engines) -> Iterator[Finding]:
    """An engine compiles kernels at its start and finds no compiler.

    Why: Triton, torch.compile and FlashInfer build kernels for this GPU when they are first needed. Slim images have no
        gcc, no nvcc or no headers of Python.
    Fix: take the published image; else install build-essential and python3-dev, and for FlashInfer the CUDA toolkit of
        torch's version with CUDA_HOME set.
    Source: https://docs.vllm.ai/en/latest/usage/troubleshooting.html
    """
    for engine, cause in engines.ended("compiler-missing"):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.image-of-other-architecture", Severity.FAIL, layer="deployment")
def image_of_other_architecture(engines: Engines) -> Iterator[Finding]:
    """An engine's image is for another processor than this host's.

    Why: an image for amd64 does not run on a Grace or Jetson host, nor one for arm64 on a PC; the start ends with "exec
        format error".
    Fix: pull the image for this platform (docker pull --platform linux/arm64 or linux/amd64), or one that exists for
        it.
    Source: https://docs.docker.com/build/building/multi-platform/
    """
    for engine, cause in engines.ended("image-of-other-architecture"):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.nvml-not-on-jetson", Severity.FAIL, layer="engine")
def nvml_not_on_jetson(engines: Engines) -> Iterator[Finding]:
    """An engine asks NVML for its GPU, which a Jetson does not have in full.

    Why: the GPU of a Jetson is part of its processor: CUDA works on it and NVML answers most questions with "not
        supported". Versions of vLLM that detect CUDA by NVML alone then find no platform, or stumble.
    Fix: take a build of the engine for Jetson (dusty-nv's jetson-containers, NVIDIA's own images), or a version that
        falls back to CUDA itself.
    Source: https://github.com/vllm-project/vllm/issues/9728
    """
    for engine, cause in engines.ended("nvml-not-on-jetson"):
        yield logged(engine, cause, Seen("image", engine.image))


# --- which GPU it is given --------------------------------------------------------------------------------------------


@check("engine.mig-uuid-not-understood", Severity.FAIL, layer="engine", after=[_PASSTHROUGH])
def mig_uuid_not_understood(engines: Engines) -> Iterator[Finding]:
    """An engine takes the UUID in CUDA_VISIBLE_DEVICES for a number.

    Why: CUDA accepts UUIDs of GPUs and of MIG slices there; versions of vLLM turn each entry into an integer and end
        before the model is loaded.
    Fix: let the container have that one device only (--gpus '"device=MIG-..."', or its CDI name), and set
        CUDA_VISIBLE_DEVICES=0 or leave it away; or take a version that maps UUIDs.
    Source: https://github.com/vllm-project/vllm/issues/41848
    """
    for engine, cause in engines.ended("mig-uuid-not-understood"):
        visible = engine.environment.get("CUDA_VISIBLE_DEVICES", "not set")
        yield logged(engine, cause, Seen("CUDA_VISIBLE_DEVICES", visible, f"docker inspect {engine.name}"))


@check("engine.gpu-id-unknown", Severity.FAIL, layer="deployment", after=[_PASSTHROUGH])
def gpu_id_unknown(engines: Engines) -> Iterator[Finding]:
    """An engine asks for a GPU that this host does not have.

    Why: the number is too high, or the UUID is that of a card which was replaced or of a MIG slice that was made anew.
        Docker then refuses to start the container.
    Fix: nvidia-smi -L lists what there is; recreate the container with one of these.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    for engine, cause in engines.ended("gpu-id-unknown"):
        yield logged(engine, cause)


@check("engine.forked-after-cuda", Severity.FAIL, layer="engine")
def forked_after_cuda(engines: Engines) -> Iterator[Finding]:
    """An engine's workers were forked from a process that had used CUDA.

    Why: CUDA does not survive a fork. It happens when a program touches the GPU before it makes an LLM object.
    Fix: -e VLLM_WORKER_MULTIPROC_METHOD=spawn, and the program's start under `if __name__ == "__main__":`.
    Source: https://docs.vllm.ai/en/latest/usage/troubleshooting.html
    """
    for engine, cause in engines.ended("forked-after-cuda"):
        yield logged(engine, cause)


@check("engine.kernel-fault", Severity.FAIL, layer="engine")
def kernel_fault(engines: Engines) -> Iterator[Finding]:
    """A kernel of an engine touched memory that it must not.

    Why: an illegal address or a failed assertion ends the process and nothing else (Xid 13, 31). It is a flaw of the
        engine, or an input that it does not expect, far more often than the card.
    Fix: update the engine within its series; see whether the same prompt does it again; on one GPU alone and with any
        program it is the card after all.
    Source: https://docs.nvidia.com/deploy/xid-errors/ (13, 31)
    """
    for engine, cause in engines.ended("kernel-fault"):
        yield logged(engine, cause, Seen("image", engine.image))


# --- its files --------------------------------------------------------------------------------------------------------


@check("engine.weights-broken", Severity.FAIL, layer="deployment")
def weights_broken(engines: Engines) -> Iterator[Finding]:
    """A file of the model's weights is broken or missing.

    Why: a download was cut off, or git cloned the repository without its large files and left pointers of some hundred
        bytes.
    Fix: fetch the model anew (hf download MODEL --revision REVISION), and compare sizes and checksums with its page.
    Source: https://huggingface.co/docs/safetensors; https://git-lfs.com
    """
    for engine, cause in engines.ended("weights-broken"):
        yield logged(engine, cause, Seen("model", engine.model))


@check("engine.directory-closed", Severity.FAIL, layer="deployment")
def directory_closed(engines: Engines) -> Iterator[Finding]:
    """An engine may not write where it must, or its image does not know its user.

    Why: a mounted directory keeps the host's owner, and the container's user is another one; or the file system is
        read-only. The cache of models and of compiled kernels is what it writes. torch asks for the user's name too,
        which a UID that is not in the image's /etc/passwd does not have.
    Fix: give the directory to the container's user (chown -R UID), or mount a volume of its own there, or set HF_HOME,
        VLLM_CACHE_ROOT and HOME to a writable one.
    Source: https://docs.docker.com/engine/storage/bind-mounts/
    """
    for engine, cause in engines.ended("directory-closed", "user-unknown"):
        yield logged(engine, cause, Seen("user", engine.user or "root", f"docker inspect {engine.name}"))


@check("engine.model-wants-own-code", Severity.FAIL, layer="deployment")
def model_wants_own_code(engines: Engines) -> Iterator[Finding]:
    """The model brings code that the engine does not run unasked.

    Why: its repository holds Python files for its architecture or tokenizer. Whoever can change that repository runs
        code in your engine.
    Fix: read the files, pin the revision (--revision), and add --trust-remote-code; or take an engine version that
        knows the architecture itself.
    Source: https://huggingface.co/docs/transformers/custom_models
    """
    for engine, cause in engines.ended("wants-own-code"):
        yield logged(engine, cause, Seen("model", engine.model))


@check("engine.too-many-open-files", Severity.FAIL, layer="deployment")
def too_many_open_files(engines: Engines) -> Iterator[Finding]:
    """An engine ran into its limit of open files.

    Why: every connection and every file of a model counts. Docker 29 lowered what containers get by default to 1024.
    Fix: recreate it with --ulimit nofile=65536:65536, or set default-ulimits in daemon.json.
    Source: https://docs.docker.com/engine/release-notes/29/
    """
    for engine, cause in engines.ended("too-many-open-files"):
        yield logged(engine, cause)
