"""Driver and boot facts in, the table of every place that has a version of the driver out."""

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.fact import told
from lpxdoctor.facts.libraries import CUDA, JIT, NVML

_PACKAGES = {"fabric manager": "nvidia-fabricmanager", "persistence daemon": "nvidia-persistenced"}


def version_table(driver: Driver, boot: Boot) -> tuple[tuple[str, str, str], ...]:
    """Return (what, version, where) of the module, the libraries and what must fit them; what is absent is left out.

    All driver components of one host belong to one version, so the row that differs is the one to look at.
    """
    flavour = ", open" if told(lambda: str(driver.open_module)) == "True" else ""
    rows = [
        (
            "kernel module, in memory",
            told(lambda: f"{driver.loaded or 'none'}{flavour}"),
            "/proc/driver/nvidia/version",
        ),
        *_on_disk(boot),
        *_libraries(driver),
        *((what, told(lambda n=name: driver.package_version(n)), "package") for what, name in _PACKAGES.items()),  # type: ignore[misc]
        ("GSP firmware", told(lambda: ", ".join(sorted(driver.firmware))), "/lib/firmware/nvidia"),
        ("last upgrade", told(lambda: _last_change(driver)), "/var/log/apt/history.log"),
    ]
    return tuple(row for row in rows if row[1])


def _on_disk(boot: Boot) -> list[tuple[str, str, str]]:
    """Return the module's rows of the running kernel and, where it is another, of the next one."""
    try:
        if boot.outside:
            return []
        releases = dict.fromkeys((boot.running, boot.next.release))
        modules = {release: boot.module(release) for release in releases}
    except Unreadable as reason:
        return [("kernel module, on disk", f"not known: {reason}", "")]
    return [
        (f"kernel module, {'on disk' if release == boot.running else 'next boot'}", module.version, module.path)
        for release, module in modules.items()
        if module
    ]


def _libraries(driver: Driver) -> list[tuple[str, str, str]]:
    try:
        taken = [driver.libraries.get(name) for name in (CUDA, NVML, JIT)]
    except Unreadable as reason:
        return [("libraries", f"not known: {reason}", "")]
    return [(library.name, library.version or "no version in its name", library.real) for library in taken if library]


def _last_change(driver: Driver) -> str:
    change = driver.last_change
    if change is None:
        return ""
    name, old, new = change.packages[0]
    more = f" and {len(change.packages) - 1} more" if len(change.packages) > 1 else ""
    return f"{change.date} {change.command}: {name} {old} -> {new}{more}"
