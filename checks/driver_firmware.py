"""Facts of the driver in; whether the GPU firmware of its very version is on disk out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.driver import Driver, same_version


@check(
    "driver.firmware-missing",
    Severity.FAIL,
    layer="driver",
    after=["host.no-gpu", "driver.module-not-loaded"],
    fix="driver",
)
def firmware_missing(driver: Driver) -> Iterator[Finding]:
    """The GPU's firmware for this driver is missing, or of another version.

    Why: at start the driver loads firmware (GSP) of its very version from /lib/firmware/nvidia into the GPU. Without
        it, or with a mismatch, the open kernel module brings no GPU up, and the proprietary one only with
        NVreg_EnableGpuFirmware=0. A half upgrade, or an initramfs without the files, leaves it behind.
    Fix: install the firmware package of the driver's version (nvidia-firmware-BRANCH-VERSION, firmware-nvidia-gsp, or
        nvidia-driver-cuda), rebuild the initramfs (update-initramfs -u, dracut --force) and reboot.
    Source: https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/gsp.html
    """
    said = [complaint for complaint in driver.complaints if complaint.kind == "firmware missing"]
    if driver.loaded and said and not any(same_version(version, driver.loaded) for version in driver.firmware):
        seen = (
            Seen("kernel module, loaded", driver.loaded, "/proc/driver/nvidia/version"),
            Seen("firmware on disk", ", ".join(sorted(driver.firmware)) or "none", "/lib/firmware/nvidia"),
            Seen("kernel log", said[-1].text[:200], "dmesg"),
        )
        yield Finding(f"there is none of {driver.loaded}", seen=seen)
