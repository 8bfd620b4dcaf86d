"""Facts of the boot chain in; why the NVIDIA module is not loaded out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.host import Host, log_matches
from lpxdoctor.facts.modules import DkmsSource

_BEFORE = ["host.no-gpu", "driver.not-installed"]
_SIGNATURE_LOG = r"unsigned module|[Uu]navailable key|not signed with a trusted key|Key was rejected|Lockdown: .*module"
_ERROR = (
    "error:",
    "Error ",
    "ERROR",
    "No such file",
    "No space left",
    "unrecognized",
    "kernel was built by",
    "You are using",
)
_SHOWN = 4


def _needs_own_kernel(boot: Boot) -> None:
    """Leave a check on a system whose kernel and modules are somebody else's."""
    if boot.outside:
        raise NotApplicable(boot.outside)


@check("boot.nvidia-blacklisted", Severity.FAIL, layer="driver", after=_BEFORE, fix="boot")
def nvidia_blacklisted(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The NVIDIA module is not loaded because the system was told not to load it.

    Why: a blacklist line, an install line that runs /bin/false, or a parameter of the kernel's command line keeps it
        out. Such lines stay behind after a passed-through GPU, a switch between graphics cards or an old driver.
    Fix: remove the line, rebuild the initramfs (update-initramfs -u -k all, or dracut --force) and load the module:
            sudo modprobe nvidia
    Source: https://man7.org/linux/man-pages/man5/modprobe.d.5.html
    """
    _needs_own_kernel(boot)
    if not driver.loaded:
        yield from _blocked_nvidia(boot)


@check("boot.nvidia-blacklist-left", Severity.WARN, layer="driver", after=_BEFORE, fix="boot")
def nvidia_blacklist_left(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The NVIDIA module runs although the system was told not to load it.

    Why: something loaded it by hand or by name. After the next boot it may be missing, because the line that keeps it
        out is still there.
    Fix: remove the line and rebuild the initramfs (update-initramfs -u -k all, or dracut --force).
    Source: https://man7.org/linux/man-pages/man5/modprobe.d.5.html
    """
    _needs_own_kernel(boot)
    if driver.loaded:
        yield from _blocked_nvidia(boot)


def _blocked_nvidia(boot: Boot) -> Iterator[Finding]:
    """Yield what keeps the module out, under either of its names."""
    for name in ("nvidia", "nvidia_current"):
        for setting in boot.blocks(name):
            place = setting.where.partition(":")[0]
            yield Finding(
                f"{place} says: {setting}", subject=setting.where, do=(f"sudoedit {place}", "sudo modprobe nvidia")
            )
        for parameter in boot.command_line.blocks(name):
            yield Finding(f"the kernel was started with {parameter}", subject="/proc/cmdline")


@check("boot.modules-of-running-kernel-gone", Severity.FAIL, layer="driver", after=_BEFORE, fix="boot")
def modules_of_running_kernel_gone(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The modules of the running kernel are no longer on disk.

    Why: its package was removed or replaced while it runs, so no module can be loaded until another kernel is started,
        and the NVIDIA module is not loaded.
    Fix: sudo reboot into an installed kernel. What it will have is judged by the checks named boot.next.
    Source: https://wiki.debian.org/Kernel (removal of the running kernel)
    """
    _needs_own_kernel(boot)
    if not driver.loaded and boot.kernel(boot.running) is None:
        installed = ", ".join(kernel.release for kernel in boot.kernels)
        yield Finding(
            f"kernel {boot.running} runs, and /lib/modules has only {installed}",
            seen=(Seen("running", boot.running, "uname -r"), Seen("installed", installed, "/lib/modules")),
            do=("sudo reboot",),
        )


@check(
    "boot.headers-missing",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "boot.modules-of-running-kernel-gone"],
    fix="driver",
)
def headers_missing(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """DKMS cannot build the NVIDIA module: the running kernel's headers are missing.

    Why: DKMS compiles the module for each kernel from source. A kernel update that did not bring its headers along
        leaves the new kernel without a driver.
    Fix: on Debian and Ubuntu
            sudo apt-get install linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia
        on RHEL and Rocky
            sudo dnf install kernel-devel-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia
        and install the package that follows the kernel (linux-headers-generic, linux-headers-amd64,
        kernel-devel-matched), so that it does not happen again.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (kernel headers)
        https://github.com/GoogleCloudPlatform/compute-gpu-installation/issues/25
    """
    for source in _not_built(boot, driver):
        kernel = boot.kernel(boot.running)
        if kernel and not kernel.headers:
            yield Finding(
                f"kernel {boot.running} has no headers, so {source.name} {source.version} is not built for it",
                subject=boot.running,
                seen=(Seen("headers", "missing", f"/lib/modules/{boot.running}/build"), *_dkms_rows(boot)),
            )


@check("boot.dkms-build-failed", Severity.FAIL, layer="driver", after=[*_BEFORE, "boot.headers-missing"], fix="driver")
def dkms_build_failed(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """DKMS tried to build the NVIDIA module for the running kernel and failed.

    Why: the usual reasons are a gcc other than the one that built the kernel, a kernel newer than this driver knows,
        and a full disk. The log names it.
    Fix: read the first error of the log. For another compiler install the gcc that it names (gcc-12, say) and make it
        the default (update-alternatives, or CC= for DKMS); for an unknown kernel take a newer driver of the same
        branch, or stay on the older kernel. Then:
            sudo dkms autoinstall && sudo modprobe nvidia
    Source: https://github.com/pop-os/pop/issues/3117
        https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    for source in _not_built(boot, driver):
        if any(boot.running in line for line in source.log[:3]):
            telling = [line.strip() for line in source.log if any(word in line for word in _ERROR)]
            log = f"/var/lib/dkms/{source.name}/{source.version}/build/make.log"
            yield Finding(
                f"{source.name} {source.version} does not compile for kernel {boot.running}",
                subject=boot.running,
                seen=tuple(Seen("log", line[:200], log) for line in (telling or list(source.log))[-_SHOWN:]),
                do=(f"less {log}",),
            )


@check(
    "boot.dkms-not-built",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "boot.headers-missing", "boot.dkms-build-failed"],
    fix="driver",
)
def dkms_not_built(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """DKMS has the NVIDIA module's source, but has not built it for the running kernel.

    Why: the step that builds modules when a kernel is installed did not run, or was interrupted.
    Fix: sudo dkms autoinstall && sudo modprobe nvidia
    Source: https://github.com/dell/dkms#readme
    """
    for source in _not_built(boot, driver):
        yield Finding(
            f"{source.name} {source.version} is not built for kernel {boot.running}",
            subject=boot.running,
            seen=_dkms_rows(boot),
            do=("sudo dkms autoinstall", "sudo modprobe nvidia"),
        )


def _not_built(boot: Boot, driver: Driver) -> tuple[DkmsSource, ...]:
    """Return the module's sources that DKMS holds, where the running kernel has no NVIDIA module at all."""
    _needs_own_kernel(boot)
    if not boot.dkms:
        raise NotApplicable("DKMS does not build the NVIDIA module here")
    return () if driver.loaded or boot.module(boot.running) else boot.dkms


def _dkms_rows(boot: Boot) -> tuple[Seen, ...]:
    return tuple(
        Seen(f"{source.name} {source.version}", f"built for {', '.join(source.built) or 'no kernel'}", "/var/lib/dkms")
        for source in boot.dkms
    )


@check(
    "boot.module-missing",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "boot.headers-missing", "boot.dkms-build-failed", "boot.dkms-not-built"],
    fix="driver",
)
def module_missing(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The running kernel has no NVIDIA module.

    Why: the module was installed for another kernel, by the .run installer without DKMS or as a package of one kernel's
        modules, and nothing made one for the kernel that runs now. modprobe ends with "Module nvidia not found".
    Fix: install the driver from the distribution's packages, with the modules for this kernel
        (linux-modules-nvidia-BRANCH-server-open-FLAVOUR on Ubuntu) or with DKMS and the headers; until then start the
        older kernel that has it. After the .run installer: run nvidia-uninstall first.
    Source: https://github.com/NVIDIA/nvidia-docker/issues/365
        https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    _needs_own_kernel(boot)
    kernel = boot.kernel(boot.running)
    if driver.loaded or kernel is None or kernel.nvidia:
        return
    others = [other.release for other in boot.kernels if other.nvidia]
    yield Finding(
        f"kernel {boot.running} has none; " + (f"there is one for {', '.join(others)}" if others else "no other has"),
        subject=boot.running,
        seen=(Seen("NVIDIA module", "none", f"/lib/modules/{boot.running}/modules.dep"),),
    )


@check("boot.signature-refused", Severity.FAIL, layer="driver", after=[*_BEFORE, "boot.module-missing"], fix="boot")
def signature_refused(host: Host, boot: Boot, driver: Driver) -> Iterator[Finding]:
    """Secure Boot keeps the NVIDIA module out: the kernel does not trust its signature.

    Why: with Secure Boot on, the kernel loads only modules that are signed by a key which it knows. A module that DKMS
        built is signed by this machine's own key (MOK) or by none; modprobe ends with "Key was rejected by service".
    Fix: on Ubuntu take the modules that Canonical signed (linux-modules-nvidia-...). Else enrol the machine's key,
        which needs its console at the next boot: sudo mokutil --import /var/lib/dkms/mok.pub (on Ubuntu
        /var/lib/shim-signed/mok/MOK.der), choose a password, reboot, and in MokManager: Enroll MOK, Continue, Yes.
        Or switch Secure Boot off in the firmware.
    Source: https://wiki.debian.org/SecureBoot
        https://github.com/linux-surface/linux-surface/issues/906
    """
    _needs_own_kernel(boot)
    module = boot.module(boot.running)
    if driver.loaded or module is None or not boot.enforcement.on:
        return
    lines = log_matches(host.kernel_log, _SIGNATURE_LOG)
    if lines or not module.signer or not boot.keys.trust(module.signer, module.key):
        yield Finding(
            f"the module is signed by {module.signer!r}, whose key is not enrolled"
            if module.signer
            else "the module is not signed",
            subject=boot.running,
            seen=(
                Seen("kernel", str(boot.enforcement), "efivars, /sys/kernel/security/lockdown"),
                Seen("signer", module.signer or "none", f"modinfo {module.path}"),
                *(Seen("kernel log", line, "dmesg") for line in lines[-_SHOWN:]),
            ),
        )
