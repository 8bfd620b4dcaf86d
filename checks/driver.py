"""Facts of host, boot and driver in, which driver is there and which one owns the GPUs out."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot, kept_out_early
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.driver_log import Complaint, ranked
from lpxdoctor.facts.fact import told
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.pci import PciDevice

_NVIDIA = ("nvidia", "")  # "": bound to none, which the checks of GPUs judge
_GIVEN_AWAY = ("vfio-pci", "pci-stub", "xen-pciback")
_BOOT_REASONS = [
    "boot.nvidia-blacklisted",
    "boot.modules-of-running-kernel-gone",
    "boot.headers-missing",
    "boot.dkms-build-failed",
    "boot.dkms-not-built",
    "boot.module-missing",
    "boot.signature-refused",
]
_SHOWN = 4
# What to type for each kind of complaint of the kernel log (facts/driver_log.py).
_DO = {
    "signature": ("mokutil --sb-state", "sudo mokutil --import /var/lib/dkms/mok.pub"),
    "other kernel": ("sudo dkms autoinstall --force", "sudo depmod -a"),
    "taken by another": ("lspci -k -d 10de:",),
    "firmware missing": ("ls /lib/firmware/nvidia", "reinstall the driver's firmware package"),
    "no address space": ("enable Above 4G Decoding in the firmware",),
}


@check("driver.not-installed", Severity.FAIL, layer="driver", after=["host.no-gpu"], fix="driver")
def not_installed(driver: Driver, boot: Boot) -> Iterator[Finding]:
    """There is an NVIDIA GPU, but no NVIDIA driver on this host.

    Why: no module is loaded or on disk for any kernel, and no driver library or package was found. The container
        image brings CUDA, but never the driver: that is the host's.
    Fix: install it from the distribution's packages, and reboot:
            sudo ubuntu-drivers install --gpgpu                # Ubuntu
            sudo apt-get install nvidia-open                   # Debian, with NVIDIA's repository
            sudo dnf module install nvidia-driver:open-dkms    # RHEL and Rocky, with NVIDIA's repository
        Blackwell and newer GPUs run on the open kernel module only, Volta and older not on it.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    if driver.loaded or driver.libraries.taken or driver.driver_packages or driver.smi.path:
        return
    if any(kernel.nvidia for kernel in boot.kernels):
        return
    lying = [path for path, _ in driver.libraries.files if "/stubs/" not in path and "/compat/" not in path]
    if lying:  # installed where the loader does not look
        return
    yield Finding(
        "no module, library, package or nvidia-smi of the driver was found",
        seen=(
            Seen("kernel module", "not loaded", "/proc/driver/nvidia/version"),
            Seen("kernel module, on disk", "none", "/lib/modules"),
            Seen("libcuda, libnvidia-ml", "none", "ldconfig -p"),
            Seen("packages", "none", "dpkg, rpm"),
        ),
    )


@check("driver.nouveau-bound", Severity.FAIL, layer="driver", after=["host.no-gpu", "driver.not-installed"], fix="boot")
def nouveau_bound(host: Host, boot: Boot) -> Iterator[Finding]:
    r"""The nouveau driver owns the GPUs.

    Why: a card has one driver. While nouveau has it, the NVIDIA module finds nothing to drive, nvidia-smi says that it
        cannot communicate with the driver, and CUDA has no device.
    Fix: block nouveau for good, in the copy inside the initramfs too, and reboot:
            printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf
            sudo update-initramfs -u -k all || sudo dracut --force --regenerate-all
            sudo reboot
        On the kernel's command line it is modprobe.blacklist=nouveau; rd.driver.blacklist=nouveau alone ends with the
        initramfs. NVIDIA's .run installer only works once nouveau is out.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (disable nouveau)
        https://github.com/NVIDIA/gpu-operator/issues/974
    """
    taken = [gpu for gpu in host.gpus if gpu.driver == "nouveau"]
    if taken:
        yield Finding(
            f"it is bound to {len(taken)} of {len(host.gpus)} GPUs",
            subject=", ".join(gpu.address for gpu in taken),
            seen=(*(_bound(gpu) for gpu in taken), *_why_nouveau(boot)),
        )


def _bound(gpu: PciDevice) -> Seen:
    return Seen(f"driver of {gpu.address}", gpu.driver or "none", f"/sys/bus/pci/devices/{gpu.address}/driver")


def _why_nouveau(boot: Boot) -> tuple[Seen, ...]:
    """Show the places that could have kept nouveau out, and what stands there."""
    return (
        Seen("modprobe", told(lambda: _in_modprobe(boot)), "modprobe.d"),
        Seen("kernel command line", told(lambda: _on_command_line(boot)), "/proc/cmdline"),
        Seen("initramfs, next boot", told(lambda: _in_initramfs(boot)), told(lambda: boot.next.release)),
    )


def _in_modprobe(boot: Boot) -> str:
    return ", ".join(f"{setting} in {setting.where}" for setting in boot.blocks("nouveau")) or "does not block it"


def _on_command_line(boot: Boot) -> str:
    line = boot.command_line
    parts = [f"blocks it: {', '.join(line.blocks('nouveau'))}"] if line.blocks("nouveau") else ["does not block it"]
    early = [word for word in line.blocks("nouveau", early=True) if word not in line.blocks("nouveau")]
    parts += [f"{word} holds only inside a dracut initramfs" for word in early]
    parts += [f"{word} has no effect" for word in line.mistaken("nouveau")]
    return "; ".join(parts)


def _in_initramfs(boot: Boot) -> str:
    image = boot.image(boot.next.release)
    if image is None:
        return "none"
    holds = "holds nouveau" if image.has_nouveau else "does not hold nouveau"
    blocked = ", ".join(kept_out_early(image, boot.next_command_line)) or "nothing"
    return f"{image.path} {holds}, blocked there by {blocked}"


@check(
    "driver.nouveau-loaded",
    Severity.WARN,
    layer="driver",
    after=["host.no-gpu", "driver.not-installed", "driver.nouveau-bound"],
    fix="boot",
)
def nouveau_loaded(host: Host, driver: Driver, boot: Boot) -> Iterator[Finding]:
    """The nouveau driver is loaded, though it owns no GPU now.

    Why: a GPU that is reset, replugged or unbound goes to whichever driver asks first, and at the next boot nouveau may
        be faster than the NVIDIA module.
    Fix: sudo rmmod nouveau, and block it as for driver.nouveau-bound.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (disable nouveau)
    """
    if "nouveau" in driver.in_memory and not any(gpu.driver == "nouveau" for gpu in host.gpus):
        yield Finding(
            "it is in memory",
            seen=(Seen("module", "nouveau", "/sys/module/nouveau"), *_why_nouveau(boot)),
            do=("sudo rmmod nouveau",),
        )


@check(
    "driver.gpu-owned-by-another",
    Severity.FAIL,
    layer="driver",
    after=["host.no-gpu", "driver.not-installed", "driver.nouveau-bound"],
    fix="boot",
)
def gpu_owned_by_another(host: Host) -> Iterator[Finding]:
    """Another driver than NVIDIA's owns the GPU.

    Why: a card has one driver. With vfio-pci it is reserved for a virtual machine; nvidiafb and nova_core draw a
        console with it. CUDA sees nothing of it.
    Fix: find who claims it: `grep -r -e vfio -e nvidiafb -e nova /etc/modprobe.d /proc/cmdline`. Remove its ids= or
        vfio-pci.ids=, or block the module (blacklist nvidiafb, blacklist nova_core), rebuild the initramfs and reboot.
        Only for now:
            echo ADDRESS | sudo tee /sys/bus/pci/devices/ADDRESS/driver/unbind
            echo ADDRESS | sudo tee /sys/bus/pci/drivers/nvidia/bind
    Source: https://docs.kernel.org/driver-api/vfio.html
    """
    others = [gpu for gpu in host.gpus if gpu.driver not in (*_NVIDIA, "nouveau")]
    if all(gpu.driver in _GIVEN_AWAY for gpu in others) and len(others) < len(host.gpus):
        return  # some cards given away, some kept: a decision, not an accident
    for gpu in others:
        yield Finding(f"{gpu.driver} is bound to it", subject=gpu.address, seen=(_bound(gpu),))


@check("driver.gpu-given-away", Severity.INFO, layer="driver", after=["host.no-gpu", "driver.gpu-owned-by-another"])
def gpu_given_away(host: Host) -> Iterator[Finding]:
    """Some GPUs are reserved for virtual machines.

    Why: this host has fewer GPUs for itself than its PCI bus shows.
    Fix: nothing, where that is meant.
    Source: https://docs.kernel.org/driver-api/vfio.html
    """
    away = [gpu for gpu in host.gpus if gpu.driver in _GIVEN_AWAY]
    if away and len(away) < len(host.gpus):
        yield Finding(f"{len(away)} of {len(host.gpus)} are bound so", seen=tuple(map(_bound, away)))


@check(
    "driver.module-not-loaded",
    Severity.FAIL,
    layer="driver",
    after=[
        "host.no-gpu",
        "driver.not-installed",
        "driver.nouveau-bound",
        "driver.gpu-owned-by-another",
        *_BOOT_REASONS,
    ],
    fix="driver",
)
def module_not_loaded(driver: Driver, boot: Boot, gpus: Gpus) -> Iterator[Finding]:
    """The NVIDIA kernel module is not loaded.

    Why: everything above it talks to the GPU through this module. nvidia-smi says that it could not communicate with
        the driver, and CUDA finds no device.
    Fix: sudo modprobe nvidia, and read what it answers and what the kernel adds (sudo dmesg | grep -e nvidia -e NVRM).
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (verify the kernel module)
    """
    if driver.loaded:
        return
    if gpus.opened:
        raise NotApplicable("NVML opens a GPU although this kernel shows no NVIDIA module: a sandbox, or WSL")
    complaints = _complaints(driver)
    yield Finding(
        f"the kernel says why: {complaints[0].text}" if complaints else "the kernel log gives no reason",
        seen=(
            Seen("kernel module, in memory", "none", "/proc/driver/nvidia/version"),
            Seen("kernel module, on disk", told(lambda: _module_on_disk(boot)), told(lambda: boot.running)),
            *(Seen("kernel log", complaint.text, "dmesg") for complaint in complaints[:_SHOWN]),
        ),
        do=(*(command for c in complaints[:1] for command in _DO.get(c.kind, ())), "sudo modprobe nvidia"),
    )


def _complaints(driver: Driver) -> list[Complaint]:
    """Return the driver's complaints in the kernel log, the one that explains most first; none where it is closed."""
    try:
        return ranked(driver.complaints)
    except Unreadable:
        return []


def _module_on_disk(boot: Boot) -> str:
    module = boot.module(boot.running)
    return f"{module.version} ({module.path})" if module else "none"


@check(
    "driver.wrong-module-flavour",
    Severity.FAIL,
    layer="driver",
    after=["host.no-gpu", "driver.module-not-loaded"],
    fix="driver",
)
def wrong_module_flavour(host: Host, driver: Driver, gpus: Gpus) -> Iterator[Finding]:
    """The loaded kernel module is of the flavour that cannot drive this GPU.

    Why: NVIDIA builds its module twice. The open kernel module needs a GPU with a system processor (GSP), Turing or
        newer; Blackwell and newer work with nothing else; older ones take the proprietary one. The wrong one loads
        without an error and leaves the card out: nvidia-smi says "No devices were found".
    Fix: install the other flavour of the same version and reboot: packages with -open in their names
        (nvidia-driver-BRANCH-open, nvidia-dkms-BRANCH-open, nvidia-open), or for Volta and older those without, of
        branch 580 at most. Remove the former first.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
        https://github.com/NVIDIA/open-gpu-kernel-modules/issues/587
    """
    known = knowledge.load()
    said = {c.address: c for c in _complaints(driver) if c.kind in ("needs open", "needs proprietary")}
    for gpu in host.gpus:
        row = known.gpu_by_pci(gpu.device)
        need = known.open_modules_of(row) if row and row.sure else None
        wrong = {"required": not driver.open_module, "unsupported": driver.open_module}.get(need or "", False)
        if gpu.address not in gpus.opened and gpu.driver in _NVIDIA and (wrong or gpu.address in said):
            complaint = said.get(gpu.address)
            yield Finding(
                f"the {'open' if driver.open_module else 'proprietary'} module {driver.loaded} is loaded, "
                f"and {row.name if row else gpu.ids} needs the {'proprietary' if driver.open_module else 'open'} one",
                subject=gpu.address,
                seen=(
                    Seen("loaded", "open" if driver.open_module else "proprietary", "/proc/driver/nvidia/version"),
                    Seen("GPU", row.name if row else "not in our table", gpu.ids),
                    *([Seen("kernel log", complaint.text, "dmesg")] if complaint else []),
                ),
            )
