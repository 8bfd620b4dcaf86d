"""Facts of the boot chain in, what the next reboot will take away out: a host may be healthy now and lost after it."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.boot import Boot, kept_out_early
from lpxdoctor.facts.driver import Driver, same_version
from lpxdoctor.facts.fact import told

# While the module is not loaded now, its own reason is what counts.
_BEFORE = ["host.no-gpu", "driver.not-installed", "driver.nouveau-bound", "driver.module-not-loaded"]
_REBUILD = "sudo update-initramfs -u -k all || sudo dracut --force --regenerate-all"


def _needs_own_kernel(boot: Boot) -> None:
    """Leave a check on a system whose kernel and modules are somebody else's."""
    if boot.outside:
        raise NotApplicable(boot.outside)


def _next(boot: Boot) -> Seen:
    return Seen("next boot", f"kernel {boot.next.release}", boot.next.because)


@check("boot.initramfs-allows-nouveau", Severity.FAIL, layer="driver", after=_BEFORE[:-1], fix="boot")
def initramfs_allows_nouveau(boot: Boot) -> Iterator[Finding]:
    """The next reboot loses the GPUs: its initramfs holds nouveau and nothing there keeps it out.

    Why: the initramfs runs before the root file system is there, with the copy of modprobe's settings that was put into
        it when it was made. A blacklist written since then does not count: nouveau takes the cards first, and the
        NVIDIA module finds them taken.
    Fix: see that a line `blacklist nouveau` stands in /etc/modprobe.d, then make the initramfs anew, for every kernel:
            sudo update-initramfs -u -k all        # Debian, Ubuntu
            sudo dracut --force --regenerate-all   # RHEL, Rocky
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (disable nouveau, rebuild the initramfs)
        https://github.com/NVIDIA/gpu-operator/issues/8
    """
    _needs_own_kernel(boot)
    image = boot.image(boot.next.release)
    if image is None or not image.has_nouveau:
        return
    if not kept_out_early(image, boot.next_command_line):
        made = boot.written.get(image.path)
        newer = [setting for setting in boot.blocks("nouveau") if _written_after(boot, setting.where, made)]
        yield Finding(
            "it was made before the blacklist was written" if newer else "no setting inside it blocks nouveau",
            subject=image.path,
            seen=(
                _next(boot),
                *(Seen("inside", module, image.path) for module in image.modules if "nouveau" in module),
                *(Seen("on disk", str(setting), setting.where) for setting in boot.blocks("nouveau")),
                Seen("command line", boot.next_command_line.text or "empty", "of the next boot"),
            ),
            do=(_REBUILD,),
        )


@check("boot.initramfs-older-than-settings", Severity.WARN, layer="driver", after=_BEFORE, fix="boot")
def initramfs_older_than_settings(boot: Boot) -> Iterator[Finding]:
    """The initramfs was made before the driver's settings were last changed.

    Why: it holds NVIDIA's module, and so loads it with the settings of the day when it was made: options and blacklists
        written since then have no effect at the next boot.
    Fix: sudo update-initramfs -u -k all, or sudo dracut --force --regenerate-all.
    Source: https://manpages.debian.org/bookworm/initramfs-tools/update-initramfs.8.en.html
    """
    _needs_own_kernel(boot)
    image = boot.image(boot.next.release)
    if image is None or not image.has_nvidia:
        return
    made = boot.written.get(image.path)
    about_driver = {s.where for s in boot.settings if s.module.startswith(("nvidia", "nouveau"))}
    for path in sorted({where.partition(":")[0] for where in about_driver if _written_after(boot, where, made)}):
        yield Finding(f"{path} is newer than {image.path}", subject=path, seen=(_next(boot),), do=(_REBUILD,))


def _written_after(boot: Boot, where: str, made: int | None) -> bool:
    written = boot.written.get(where.partition(":")[0])
    return written is not None and made is not None and written > made


@check("boot.initramfs-has-other-driver", Severity.FAIL, layer="driver", after=_BEFORE, fix="boot")
def initramfs_has_other_driver(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The next reboot breaks the driver: the initramfs holds an NVIDIA module of another version than the libraries.

    Why: that copy is loaded before the one on disk can be, whatever DKMS says is installed. The libraries do not match
        it, and every CUDA program ends with "Driver/library version mismatch", after each reboot again.
    Fix: make the initramfs anew, so that it takes the module that is on disk now:
            sudo update-initramfs -u -k all        # Debian, Ubuntu
            sudo dracut --force --regenerate-all   # RHEL, Rocky
    Source: https://manpages.debian.org/bookworm/initramfs-tools/update-initramfs.8.en.html
    """
    _needs_own_kernel(boot)
    image = boot.image(boot.next.release)
    inside = image.nvidia_version if image else ""
    if image and inside and driver.library_version and not same_version(inside, driver.library_version):
        module = boot.module(boot.next.release)
        yield Finding(
            f"it holds {inside}, the libraries are {driver.library_version}",
            subject=image.path,
            seen=(
                Seen("in the initramfs", inside, image.path),
                Seen("on disk", module.version if module else "none", module.path if module else ""),
                Seen("libraries", driver.library_version, "ldconfig"),
                _next(boot),
            ),
            do=(_REBUILD,),
        )


@check("boot.next-kernel-without-module", Severity.FAIL, layer="driver", after=_BEFORE, fix="driver")
def next_kernel_without_module(boot: Boot) -> Iterator[Finding]:
    """The next reboot loses the GPUs: the kernel that it starts has no NVIDIA module.

    Why: a kernel update was installed and the module was not built for it, or no package of modules for it came along.
        Everything works until somebody reboots.
    Fix: install the headers of that kernel and build, or the package of modules for it:
            sudo apt-get install linux-headers-RELEASE && sudo dkms autoinstall -k RELEASE
            sudo apt-get install linux-modules-nvidia-BRANCH-server-open-RELEASE
            sudo dnf install kernel-devel-RELEASE && sudo dkms autoinstall -k RELEASE
        or start the old kernel by default until the driver supports the new one.
    Source: https://github.com/GoogleCloudPlatform/compute-gpu-installation/issues/25
        https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    _needs_own_kernel(boot)
    kernel = boot.kernel(boot.next.release)
    if kernel and kernel.nvidia:
        return
    release = boot.next.release
    failed = [s for s in boot.dkms if any(release in line for line in s.log[:3])]
    yield Finding(
        f"kernel {release} starts next and has none" if kernel else f"kernel {release} starts next and has no modules",
        subject=release,
        seen=(
            _next(boot),
            Seen("running", f"kernel {boot.running}", "uname -r"),
            Seen("headers", "present" if kernel and kernel.headers else "missing", f"/lib/modules/{release}/build"),
            *(Seen("DKMS", f"{s.name} {s.version}, built for {', '.join(s.built) or 'none'}", "") for s in boot.dkms),
            *(Seen("build failed", s.log[-1], f"/var/lib/dkms/{s.name}/{s.version}/build/make.log") for s in failed),
        ),
        do=(f"sudo dkms autoinstall -k {release}",) if boot.dkms and kernel and kernel.headers else (),
    )


@check(
    "boot.next-module-refused",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "boot.next-kernel-without-module"],
    fix="boot",
)
def next_module_refused(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The next reboot loses the GPUs: its kernel will not trust the NVIDIA module's signature.

    Why: this machine starts with Secure Boot, and the module for the next kernel is not signed, or by a key that is not
        enrolled. The one that runs now is another file and says nothing about it.
    Fix: enrol the key before the reboot (sudo mokutil --import /var/lib/dkms/mok.pub; on Ubuntu
        /var/lib/shim-signed/mok/MOK.der) and be at the console for MokManager; or install modules that the distribution
        signed.
    Source: https://wiki.debian.org/SecureBoot
        https://github.com/linux-surface/linux-surface/issues/906
    """
    _needs_own_kernel(boot)
    module = boot.module(boot.next.release)
    if module is None or not boot.enforcement.on:
        return
    runs_already = boot.next.release == boot.running and driver.loaded == module.version
    if not runs_already and not (module.signer and boot.keys.trust(module.signer, module.key)):
        yield Finding(
            f"its signer {module.signer!r} is not enrolled" if module.signer else "it is not signed",
            subject=boot.next.release,
            seen=(
                _next(boot),
                Seen("kernel", str(boot.enforcement), "efivars, /sys/kernel/security/lockdown"),
                Seen("signer", module.signer or "none", f"modinfo {module.path}"),
            ),
        )


@check(
    "boot.next-driver-differs",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "boot.next-kernel-without-module", "boot.initramfs-has-other-driver", "driver.library-mismatch"],
    fix="driver",
)
def next_driver_differs(boot: Boot, driver: Driver) -> Iterator[Finding]:
    """The next reboot breaks the driver: the module on disk and the libraries are of different versions.

    Why: the module in memory still fits the libraries, the one that the next boot loads does not. From then on every
        CUDA program ends with "Driver/library version mismatch".
    Fix: bring all driver packages to one version before the reboot, the module's among them:
            sudo apt-get install --reinstall PACKAGES=VERSION, or sudo dnf distro-sync '*nvidia*'
        then build the module for the next kernel (sudo dkms autoinstall).
    Source: https://github.com/canonical/nvidia-graphics-drivers/pull/78
    """
    _needs_own_kernel(boot)
    module = boot.module(boot.next.release)
    if module is None or not module.version or not driver.library_version:
        return
    if not same_version(module.version, driver.library_version):
        yield Finding(
            f"the next boot loads module {module.version}, the libraries are {driver.library_version}",
            subject=boot.next.release,
            seen=(
                Seen("module, in memory", told(lambda: driver.loaded), "/proc/driver/nvidia/version"),
                Seen("module, next boot", module.version, module.path),
                Seen("libraries", driver.library_version, "ldconfig"),
                _next(boot),
            ),
        )


@check("boot.next-boot-blocks-nvidia", Severity.FAIL, layer="driver", after=_BEFORE, fix="boot")
def next_boot_blocks_nvidia(boot: Boot) -> Iterator[Finding]:
    """The next reboot loses the GPUs: its boot entry keeps the NVIDIA module out.

    Why: the boot loader's entry carries a parameter that blocks the module. This boot was started without it.
    Fix: remove the parameter from /etc/default/grub and run update-grub, or on RHEL:
            sudo grubby --update-kernel=ALL --remove-args=PARAMETER
    Source: https://docs.kernel.org/admin-guide/kernel-parameters.html (module_blacklist)
    """
    _needs_own_kernel(boot)
    now = boot.command_line.blocks("nvidia")
    for parameter in boot.next_command_line.blocks("nvidia"):
        if parameter not in now:
            yield Finding(f"it will be started with {parameter}", subject=boot.next.release, seen=(_next(boot),))
