"""Facts of the boot chain in, what lets nouveau in or will leave the NVIDIA module behind out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.fact import told

_BEFORE = ["host.no-gpu", "driver.not-installed"]


def _needs_own_kernel(boot: Boot) -> None:
    """Leave a check on a system whose kernel and modules are somebody else's."""
    if boot.outside:
        raise NotApplicable(boot.outside)


@check("boot.nouveau-not-blocked", Severity.WARN, layer="driver", after=_BEFORE, fix="boot")
def nouveau_not_blocked(boot: Boot) -> Iterator[Finding]:
    r"""Nothing keeps the nouveau driver from taking the GPUs.

    Why: at each boot nouveau and the NVIDIA module race for the cards. Whichever comes first keeps them, so a host that
        works today may come up without a GPU after any reboot.
    Fix: say so in modprobe.d, and rebuild the initramfs:
            printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf
            sudo update-initramfs -u -k all || sudo dracut --force --regenerate-all
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (disable nouveau)
        https://github.com/NVIDIA/ansible-role-nvidia-driver/issues/44
    """
    _needs_own_kernel(boot)
    if not any(kernel.has_nouveau for kernel in boot.kernels):
        raise NotApplicable("no installed kernel has the nouveau module")
    if not boot.nouveau_kept_out:
        early = boot.command_line.blocks("nouveau", early=True)
        wrong = [*early, *boot.command_line.mistaken("nouveau")]
        yield Finding(
            "neither modprobe's settings nor the kernel's command line keep it out",
            seen=(
                Seen("modprobe", "no line about nouveau blocks it", "modprobe.d in /etc, /run, /usr/lib, /lib"),
                *(Seen("has no effect then", parameter, "/proc/cmdline") for parameter in wrong),
                Seen("initramfs", told(lambda: _nouveau_inside(boot)), "of the running kernel"),
            ),
        )


def _nouveau_inside(boot: Boot) -> str:
    image = boot.image(boot.running)
    return "none" if image is None else "holds nouveau" if image.has_nouveau else "does not hold nouveau"


@check("boot.nouveau-blocked-by-command-line-only", Severity.INFO, layer="driver", after=_BEFORE, fix="boot")
def nouveau_blocked_by_command_line_only(boot: Boot) -> Iterator[Finding]:
    r"""Only the kernel's command line keeps nouveau out.

    Why: it works, until a boot entry is written anew without the parameter, or the machine is started from another
        entry. A line in modprobe.d holds for all of them.
    Fix: say so in modprobe.d, and rebuild the initramfs:
            printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf
            sudo update-initramfs -u -k all || sudo dracut --force --regenerate-all
    Source: https://man7.org/linux/man-pages/man5/modprobe.d.5.html
    """
    _needs_own_kernel(boot)
    parameters = boot.command_line.blocks("nouveau")
    if parameters and not boot.blocks("nouveau"):
        yield Finding(f"the kernel was started with {', '.join(parameters)}", subject="/proc/cmdline")


@check("boot.parameter-without-effect", Severity.INFO, layer="driver", after=_BEFORE)
def parameter_without_effect(boot: Boot) -> Iterator[Finding]:
    """A parameter on the kernel's command line was meant to block a driver and does not.

    Why: the kernel accepts any parameter without a word. nouveau.blacklist=1 is none of nouveau's, and
        rd.driver.blacklist holds only inside an initramfs made by dracut: behind it nouveau is loaded all the same.
    Fix: use modprobe.blacklist=nouveau, or better a line in modprobe.d, and remove what does nothing.
    Source: https://github.com/negativo17/nvidia-driver/issues/73
        https://man7.org/linux/man-pages/man7/dracut.cmdline.7.html
    """
    _needs_own_kernel(boot)
    line = boot.command_line
    early = set(line.blocks("nouveau", early=True)) - set(line.blocks("nouveau"))
    halfway = [] if boot.nouveau_kept_out else sorted(early)
    for parameter in (*line.mistaken("nouveau"), *line.mistaken("nvidia"), *halfway):
        yield Finding(f"{parameter} does not keep a driver out", subject="/proc/cmdline")


@check("boot.module-not-rebuilt", Severity.WARN, layer="driver", after=[*_BEFORE, "boot.module-missing"], fix="driver")
def module_not_rebuilt(boot: Boot) -> Iterator[Finding]:
    """The next kernel update will leave the NVIDIA module behind.

    Why: the .run installer put the module into this kernel's tree, and neither DKMS nor a package makes one for the
        next kernel. The update itself succeeds; the GPUs are gone after the reboot.
    Fix: replace the .run installation by the distribution's packages: sudo nvidia-uninstall, then install the driver
        from the archive or from NVIDIA's repository. Or register it with DKMS: run the installer with --dkms.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (package manager preferred)
        https://github.com/NVIDIA/nvidia-docker/issues/365
    """
    _needs_own_kernel(boot)
    module = boot.module(boot.running)
    if module and "/kernel/drivers/video/nvidia.ko" in module.path and not boot.dkms:
        yield Finding(
            f"{module.path} belongs to no package and is not built by DKMS",
            subject=boot.running,
            seen=(Seen("module", module.version, module.path), Seen("DKMS", "no NVIDIA module", "/var/lib/dkms")),
        )
