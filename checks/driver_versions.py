"""Facts of driver and boot in, versions and libraries that do not fit together out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Driver, same_version
from lpxdoctor.facts.fact import told
from lpxdoctor.facts.libraries import CUDA, JIT, NVML
from lpxdoctor.facts.versions import version_table
from lpxdoctor.policy import Policy

_BEFORE = ["host.no-gpu", "driver.module-not-loaded"]
_RELOAD = "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia"


def _table(driver: Driver, boot: Boot) -> tuple[Seen, ...]:
    return tuple(Seen(*row) for row in version_table(driver, boot))


@check("driver.libraries-missing", Severity.FAIL, layer="driver", after=_BEFORE, fix="driver")
def libraries_missing(driver: Driver) -> Iterator[Finding]:
    """The kernel module is loaded, but the loader does not find the driver's libraries.

    Why: programs reach the module through libcuda and libnvidia-ml only. Without them CUDA reports no device, and the
        container toolkit has nothing to hand on.
    Fix: where the files exist, tell the loader: a line with their directory in /etc/ld.so.conf.d, then sudo ldconfig.
        Where they do not, install the library package of the module's version (libnvidia-compute-BRANCH-server,
        libcuda1 and libnvidia-ml1, or nvidia-driver-cuda).
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (compute-only packages)
    """
    if not driver.loaded:
        raise NotApplicable("no module is loaded for them to fit")
    for name in (CUDA, NVML, JIT):
        if driver.libraries.get(name) is None:
            lying = driver.libraries.elsewhere(name)
            yield Finding(
                f"{lying[0]} exists, where the loader does not look" if lying else "it is in no usual directory",
                subject=name,
                seen=(Seen("loader", f"no {name}", "ldconfig -p"), *(Seen("file", path) for path in lying[:3])),
                do=("sudo ldconfig",),
            )


@check(
    "driver.libcuda-is-a-stub",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "driver.libraries-missing"],
    fix="driver",
)
def libcuda_is_a_stub(driver: Driver) -> Iterator[Finding]:
    """Programs load the CUDA toolkit's stand-in for libcuda, in which every call fails.

    Why: the directory stubs of a toolkit exists for linking on machines without a driver. On the loader's path it hides
        the real library: cuInit ends with error 34, CUDA_ERROR_STUB_LIBRARY, while nvidia-smi works.
    Fix: take the directory out of LD_LIBRARY_PATH (/etc/environment, /etc/profile.d, unit files) and out of
        /etc/ld.so.conf.d, then sudo ldconfig.
    Source: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html (CUDA_ERROR_STUB_LIBRARY)
    """
    for library in driver.libraries.taken:
        if library.is_stub:
            yield Finding(
                f"{library.name} is {library.real}",
                subject=library.name,
                seen=(Seen("loader takes", library.path, f"by {library.by}"),),
                do=("sudo ldconfig -v 2>/dev/null | grep -B 5 stubs",),
            )


@check("driver.compat-libcuda-on-host", Severity.WARN, layer="driver", after=_BEFORE, fix="driver")
def compat_libcuda_on_host(driver: Driver) -> Iterator[Finding]:
    """Programs on this host load a cuda-compat libcuda instead of the driver's own.

    Why: it is the user-mode half of another driver, for data-center GPUs below certain branches. On other cards, or
        with a driver that is newer than it, CUDA ends with error 803 or 804. The same happens to every program here.
    Fix: take /usr/local/cuda/compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, then sudo ldconfig, unless the
        host's own programs are meant to run on it.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    library = driver.libraries.get(CUDA)
    if library and library.is_compat:
        yield Finding(
            f"libcuda {library.version} of cuda-compat comes before the driver's {driver.loaded}",
            subject=library.path,
            seen=(Seen("loader takes", library.real, f"by {library.by}"), Seen("driver", driver.loaded)),
        )


@check(
    "driver.library-mismatch",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "driver.libraries-missing"],
    fix="driver",
)
def library_mismatch(driver: Driver, boot: Boot) -> Iterator[Finding]:
    """The driver's libraries and the loaded kernel module are of different versions.

    Why: the module refuses libraries of any other version: "Driver/library version mismatch". What runs already goes on
        until it restarts; every new CUDA process and container fails. Mostly an upgrade of packages
        (unattended-upgrades, dnf-automatic) replaced the libraries under the running module, or an older module was
        loaded from an initramfs. A container sees it too, and its image is not the reason.
    Fix: reboot, or stop every user of the GPUs and load the module anew:
            sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia
        Then keep upgrades from coming by themselves: sudo apt-mark hold PACKAGES, or sudo dnf versionlock '*nvidia*'.
        Where it comes back after a reboot, purge what another installer left, and rebuild the initramfs.
    Source: https://github.com/canonical/nvidia-graphics-drivers/pull/78
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/394
    """
    if not driver.loaded:
        raise NotApplicable("no module is loaded for them to fit")
    real = [library for library in driver.libraries.taken if not (library.is_stub or library.is_compat)]
    versions = {library.version for library in real if library.version}
    others = sorted(version for version in versions if not same_version(version, driver.loaded))
    if others:
        helps = told(lambda: _what_helps(boot, others[0]))
        yield Finding(
            f"the module in memory is {driver.loaded}, the libraries are {', '.join(others)}; {helps}",
            seen=_table(driver, boot),
            do=("sudo reboot", _RELOAD),
        )
    elif not versions:
        raise Unreadable("the libraries' file names do not tell their version")


def _what_helps(boot: Boot, version: str) -> str:
    if boot.outside:
        return "the module is the host's, so put it right there"
    module = boot.module(boot.next.release)
    if module and same_version(module.version, version):
        return f"a reboot loads {module.version}, which is on disk"
    return f"a reboot alone will not do: the module on disk is {module.version if module else 'none'}"


@check(
    "driver.module-waits-for-restart",
    Severity.WARN,
    layer="driver",
    after=[*_BEFORE, "driver.library-mismatch"],
    fix="driver",
)
def module_waits_for_restart(driver: Driver, boot: Boot) -> Iterator[Finding]:
    """Another version of the kernel module is on disk than the one in memory.

    Why: the next boot, or whoever reloads the module, changes the driver. If the libraries are not changed with it,
        CUDA fails from then on.
    Fix: plan a reboot, with all driver packages at one version, and check again after it.
    Source: https://github.com/lyulyul/shine-cluster/issues/30
    """
    if boot.outside:
        raise NotApplicable(boot.outside)
    module = boot.module(boot.running)
    if driver.loaded and module and not same_version(module.version, driver.loaded):
        yield Finding(f"{driver.loaded} runs, {module.version} is on disk", seen=_table(driver, boot))


@check(
    "driver.client-of-other-version",
    Severity.WARN,
    layer="driver",
    after=[*_BEFORE, "driver.library-mismatch"],
)
def client_of_other_version(driver: Driver) -> Iterator[Finding]:
    """A program with driver libraries of another version tried to use this driver.

    Why: the host's own libraries fit, so it was a container or a program that brings libcuda or libnvidia-ml along:
        an image with a driver baked in, or a mount of old files. It gets "Driver/library version mismatch".
    Fix: find it by the time of the message (sudo dmesg -T | grep -A 3 'API mismatch'), and take the driver's libraries
        out of that image; they come from the host through the container toolkit or CDI.
    Source: https://github.com/saharmor/dalle-playground/issues/104
    """
    versions = [c.versions for c in driver.complaints if c.kind == "api mismatch"]
    # Messages of a module that was loaded before this one are history.
    clients = {
        client for client, module in versions if driver.loaded and module and same_version(module, driver.loaded)
    }
    for client in sorted(clients):
        yield Finding(
            f"its libraries were {client}, the module is {driver.loaded}",
            subject=client,
            seen=(Seen("kernel log", f"API mismatch: {client} against {driver.loaded}", "dmesg"),),
        )


@check(
    "driver.two-installs", Severity.WARN, layer="driver", after=["host.no-gpu", "driver.not-installed"], fix="driver"
)
def two_installs(driver: Driver) -> Iterator[Finding]:
    """The driver was installed in two ways.

    Why: NVIDIA's .run installer and the distribution's packages overwrite each other's files. After the next upgrade
        one half is of one version and one half of the other.
    Fix: keep the packages: sudo nvidia-uninstall, then reinstall them (sudo apt-get install --reinstall PACKAGES).
        Where two versions of a library lie side by side, delete the one of no package (dpkg -S, rpm -qf).
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (removing the runfile installation)
    """
    packages = driver.driver_packages
    if driver.runfile and packages:
        yield Finding(
            "both the .run installer and packages put a driver here",
            seen=(
                Seen(".run installer", "was used", "/usr/bin/nvidia-uninstall"),
                Seen("packages", f"{packages[0].name} {packages[0].version} and {len(packages) - 1} more", "dpkg, rpm"),
            ),
        )
    if len(driver.libraries.versions) > 1:
        yield Finding(
            "libraries of several versions lie where the loader looks",
            seen=tuple(Seen("library", version, path) for version, path in driver.libraries.versions.items()),
        )


@check(
    "driver.not-the-expected-version",
    Severity.WARN,
    layer="driver",
    after=[*_BEFORE, "driver.library-mismatch"],
    fix="driver",
)
def not_the_expected_version(driver: Driver, boot: Boot, policy: Policy) -> Iterator[Finding]:
    """The driver is not of the version that this site expects.

    Why: the site's policy pins it, so that all hosts behave alike and baselines can be compared.
    Fix: install the pinned version, or change driver in [expect] of /etc/lpxdoctor/policy.toml.
    Source: https://github.com/NVIDIA/deepops (driver version pinned per cluster)
    """
    expected = policy.expect.driver
    if expected is None:
        raise NotApplicable("no driver is expected: [expect] driver is not set in policy.toml")
    branch_fits = "." not in expected and driver.loaded.partition(".")[0] == expected
    if driver.loaded and not branch_fits and not same_version(driver.loaded, expected):
        yield Finding(f"{driver.loaded} is loaded, {expected} is expected", seen=_table(driver, boot))
