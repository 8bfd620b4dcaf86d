"""The driver, the GPUs and the pinned engine images in; which image runs here, by which way, and what would not out."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.gpu import Gpu, Gpus
from lpxdoctor.knowledge import images
from lpxdoctor.knowledge.images import Image
from lpxdoctor.knowledge.verdict import Card, Verdict, Way, first_that_runs, of_capability, of_driver
from lpxdoctor.policy import Policy

_NVML = ("driver.nvml-fails", "gpu.lost")
_TABLE = "images/vllm.toml"


@check("cuda.capability-not-in-image", Severity.FAIL, layer="engine", after=_NVML)
def capability_not_in_image(gpus: Gpus) -> Iterator[Finding]:
    """No pinned image has code for this GPU.

    Why: the engine starts, loads the weights for minutes and then ends with "no kernel image is available for execution
    on the device" (error 209).
    Fix: an older engine release still built for it (CUDA 12 images before vLLM 0.20 for Volta), or a newer one for a
    newer GPU: pin it in images/vllm.toml with images/pin.py.
    Source: https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    """
    for gpu in _each(gpus):
        verdicts = [of_capability(image, gpu.compute_capability) for image in images.load()]
        if all(verdict.way is Way.IMPOSSIBLE for verdict in verdicts):
            have = sorted({text for image in images.load() for text in image.architectures}, key=float)
            seen = (Seen(gpu.name, gpu.compute_capability, "NVML"), Seen("images have", ", ".join(have), _TABLE))
            message = f"no image has code for compute capability {gpu.compute_capability} ({_errors(verdicts[0])})"
            yield Finding(message, gpu.subject, seen)


@check(
    "cuda.no-image-runs",
    Severity.FAIL,
    layer="engine",
    after=[*_NVML, "cuda.capability-not-in-image", "gpu.dropped-by-driver"],
    fix="driver",
)
def no_image_runs(gpus: Gpus) -> Iterator[Finding]:
    """The driver is too old for every pinned image.

    Why: told before the pull: the container would start and end with "CUDA driver version is insufficient" (error 35),
    or Container Toolkit would refuse it ("unsatisfied condition: cuda>=").
    Fix: install a driver of a supported branch. On data-centre cards an image's own newer libcuda may do:
    VLLM_ENABLE_CUDA_COMPATIBILITY=1.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/; https://github.com/vllm-project/vllm/issues/30633
    """
    judged = [(image, of_driver(image.cuda, gpus.driver_version, _cards(gpus))) for image in images.load()]
    if any(verdict.runs or verdict.way is Way.UNKNOWN for _, verdict in judged):
        return
    yield Finding(
        f"driver {gpus.driver_version} runs none of the {len(judged)} pinned images",
        seen=(Seen("driver", gpus.driver_version, "NVML"), *(_told(image, verdict) for image, verdict in judged)),
    )


@check(
    "cuda.image-newer-than-driver", Severity.INFO, layer="engine", after=[*_NVML, "cuda.no-image-runs"], fix="driver"
)
def image_newer_than_driver(gpus: Gpus) -> Iterator[Finding]:
    """The preferred image is too new for this driver; another pinned one runs.

    Why: deploy takes the other one by itself. On these cards the newer one would run too, its own newer libcuda put in
    front; without that it ends with "CUDA driver version is insufficient" (error 35).
    Fix: nothing; or a newer driver; or VLLM_ENABLE_CUDA_COMPATIBILITY=1 in the container's environment.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/; images/vllm.toml
    """
    preferred = images.load()[0]
    verdict = of_driver(preferred.cuda, gpus.driver_version, _cards(gpus))
    instead = _chosen(gpus)
    if verdict.way is Way.FORWARD and instead:
        seen = (_told(preferred, verdict), _told(*instead))
        yield Finding(f"{preferred.name} does not run on {gpus.driver_version}; {instead[0].name} does", seen=seen)


@check("cuda.forward-compat-impossible", Severity.INFO, layer="engine", after=[*_NVML, "cuda.no-image-runs"])
def forward_compat_impossible(gpus: Gpus) -> Iterator[Finding]:
    """A newer CUDA cannot be brought to this driver by forward compatibility.

    Why: putting an image's compat libraries in front (VLLM_ENABLE_CUDA_COMPATIBILITY, LD_LIBRARY_PATH) is offered for
    data-centre and some professional cards and over certain driver branches alone; elsewhere it turns a clear message
    into error 803 or 804.
    Fix: an image of an older CUDA, or a newer driver.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    preferred = images.load()[0]
    verdict = of_driver(preferred.cuda, gpus.driver_version, _cards(gpus))
    if verdict.way is Way.IMPOSSIBLE:
        yield Finding(f"{preferred.name}: {verdict.reason} ({_errors(verdict)})", seen=(_told(preferred, verdict),))


@check("cuda.ptx-newer-than-driver", Severity.WARN, layer="engine", after=[*_NVML, "cuda.no-image-runs"], fix="driver")
def ptx_newer_than_driver(gpus: Gpus) -> Iterator[Finding]:
    """The image that runs here is built by a newer CUDA than the driver's: what it compiles while running may fail.

    Why: minor-version compatibility covers machine code. Kernels that arrive as PTX, such as those that Triton and
    FlashInfer make while the engine starts, may be newer than the compiler in the driver, which then refuses them with
    error 222 (unsupported PTX version).
    Fix: a driver of the image's own level; where the engine starts and computes, it is safe to waive this.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html;
    https://github.com/noonghunna/club-3090/issues/633
    """
    chosen = _chosen(gpus)
    if chosen and of_driver(chosen[0].cuda, gpus.driver_version, _cards(gpus)).ptx_trap:
        row = knowledge.load().toolkit(chosen[0].cuda)
        seen = (
            Seen("driver", f"{gpus.driver_version} (CUDA {gpus.cuda_version})", "NVML"),
            Seen("image", f"{chosen[0].name} (CUDA {chosen[0].cuda})", _TABLE),
            *((Seen("driver of the image's level", row.driver, row.source),) if row else ()),
        )
        message = f"{chosen[0].name} (CUDA {chosen[0].cuda}) on a driver of CUDA {gpus.cuda_version}"
        yield Finding(message, seen=seen)


@check(
    "cuda.image-requirement-unmet", Severity.WARN, layer="engine", after=[*_NVML, "cuda.no-image-runs"], fix="driver"
)
def image_requirement_unmet(gpus: Gpus) -> Iterator[Finding]:
    """The image that runs here states a condition that this driver does not meet.

    Why: Container Toolkit's older way of injecting GPUs checks the image's NVIDIA_REQUIRE_CUDA and refuses to start it
    ("unsatisfied condition: cuda>=..."), though CUDA would run it by minor-version compatibility. CDI does not ask.
    Fix: a newer driver; CDI; or NVIDIA_DISABLE_REQUIRE=1 in the container's environment.
    Source: https://github.com/vllm-project/vllm/issues/4940; NVIDIA_REQUIRE_CUDA in the image
    """
    chosen = _chosen(gpus)
    if chosen and not of_driver(chosen[0].cuda, gpus.driver_version, _cards(gpus)).requirement_met:
        yield Finding(f"{chosen[0].name} asks for cuda>={chosen[0].cuda}", seen=(_told(*chosen),))


@check("cuda.only-ptx-for-gpu", Severity.WARN, layer="engine", after=[*_NVML, "cuda.no-image-runs"])
def only_ptx_for_gpu(gpus: Gpus) -> Iterator[Finding]:
    """The image that runs here has only PTX for a GPU, and no machine code.

    Why: the driver compiles it when the engine first starts, which takes minutes, and the kernels are those of an older
    generation.
    Fix: an image built for this compute capability.
    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (just-in-time compilation)
    """
    chosen = _chosen(gpus)
    for gpu in _each(gpus):
        verdict = of_capability(chosen[0], gpu.compute_capability) if chosen else None
        if chosen and verdict and verdict.way is Way.MINOR:
            seen = (Seen(gpu.name, gpu.compute_capability, "NVML"), _told(chosen[0], verdict))
            yield Finding(f"{chosen[0].name} has {verdict.reason}", gpu.subject, seen)


@check("cuda.capability-unknown", Severity.INFO, layer="engine", after=_NVML)
def capability_unknown(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's compute capability is not in our tables.

    Why: what it computes natively and which CUDA it needs is then not known here, and not guessed.
    Fix: a newer version of lpxdoctor; until then read the engine's own list of supported GPUs.
    Source: https://developer.nvidia.com/cuda-gpus
    """
    for gpu in _each(gpus):
        if knowledge.load().capability(gpu.compute_capability) is None:
            seen = (Seen(gpu.name, gpu.compute_capability, "NVML"),)
            yield Finding(f"compute capability {gpu.compute_capability} is not in the tables", gpu.subject, seen)


@check("cuda.driver-branch-ended", Severity.WARN, layer="driver", after=["driver.nvml-fails"], fix="driver")
def driver_branch_ended(gpus: Gpus, cuda: Cuda) -> Iterator[Finding]:
    """The driver is of a branch that gets no more fixes.

    Why: security holes and faults found since stay open, and new images stop supporting it.
    Fix: move to a long-term branch, with the same check before and after on a test machine first.
    Source: https://docs.nvidia.com/datacenter/tesla/drivers/ (supported drivers)
    """
    row = knowledge.load().branch(gpus.driver_version)
    if row is None or not row.sure:
        raise NotApplicable("this driver's branch is not in the tables")
    ended = row.eol < cuda.asked_on.isoformat()[:7] if row.eol and cuda.asked_on else row.ended
    if ended:
        end = f", since {row.eol}" if row.eol else ""
        supported = ", ".join(f"R{other.branch}" for other in knowledge.load().branches if not other.ended)
        seen = (Seen("driver", gpus.driver_version, "NVML"), Seen("supported branches", supported, row.source))
        yield Finding(f"support of R{row.branch} has ended{end}", seen=seen)


@check(
    "cuda.driver-branch-ends-soon",
    Severity.INFO,
    layer="driver",
    after=["driver.nvml-fails", "cuda.driver-branch-ended"],
)
def driver_branch_ends_soon(gpus: Gpus, cuda: Cuda, policy: Policy) -> Iterator[Finding]:
    """Support of the driver's branch ends within months.

    Why: the move to another branch wants a test machine and a window; this is the time to plan it.
    Fix: choose the next long-term branch, and try it with the same baseline before and after.
    Source: https://docs.nvidia.com/datacenter/tesla/drivers/ (supported drivers); policy.toml, driver_end_months
    """
    row = knowledge.load().branch(gpus.driver_version)
    if row is None or not row.sure or not row.eol or cuda.asked_on is None:
        raise NotApplicable("no end of support is known for this driver's branch")
    year, month = map(int, row.eol.split("-"))
    left = (year - cuda.asked_on.year) * 12 + month - cuda.asked_on.month
    if 0 <= left <= policy.limits.driver_end_months:
        seen = (Seen("driver", gpus.driver_version, "NVML"), Seen("end of support", row.eol, row.source))
        yield Finding(f"support of R{row.branch} ends in {left} months", seen=seen)


@check("cuda.driver-newer-than-known", Severity.INFO, layer="driver", after=["driver.nvml-fails"])
def driver_newer_than_known(gpus: Gpus) -> Iterator[Finding]:
    """The driver is of a branch that is newer than our tables.

    Why: what was true of the branches before may not be of this one; it runs every older CUDA, and nothing else is
    guessed.
    Fix: a newer version of lpxdoctor; `lpxdoctor --version` says which one this is.
    Source: lpxdoctor/knowledge/driver.toml
    """
    known = knowledge.load()
    if known.newer_than_known(gpus.driver_version):
        newest = known.branches[-1]
        seen = (
            Seen("driver", gpus.driver_version, "NVML"),
            Seen("newest branch in the tables", f"R{newest.branch}", f"{newest.source}, {newest.date}"),
        )
        yield Finding(f"driver {gpus.driver_version} is newer than the tables", seen=seen)


def _each(gpus: Gpus) -> Iterator[Gpu]:
    """Yield one GPU of each compute capability."""
    yield from {gpu.compute_capability: gpu for gpu in reversed(gpus.working)}.values()


def _cards(gpus: Gpus) -> list[Card]:
    return [Card(gpu.compute_capability, gpu.kind) for gpu in gpus.working]


def _chosen(gpus: Gpus) -> tuple[Image, Verdict] | None:
    """Return the image that would be rolled out here."""
    return first_that_runs(images.load(), gpus.driver_version, _cards(gpus))


def _errors(verdict: Verdict) -> str:
    return "it would end with CUDA error " + " or ".join(map(str, verdict.errors))


def _told(image: Image, verdict: Verdict) -> Seen:
    return Seen(image.name, f"{verdict.way.value}: {verdict.reason}", _TABLE)
