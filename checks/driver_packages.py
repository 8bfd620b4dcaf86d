"""Facts of the driver's packages in, what will move them apart out."""

from collections import Counter
from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.environment import HARMFUL
from lpxdoctor.facts.host import Host

_AFTER = ["host.no-gpu", "driver.not-installed"]
_FABRIC = ("nvidia-fabricmanager", "nvidia-fabric-manager", "libnvidia-nscq")
_SHOWN = 12


@check("driver.packages-mixed", Severity.WARN, layer="driver", after=[*_AFTER, "driver.library-mismatch"], fix="driver")
def packages_mixed(driver: Driver, host: Host) -> Iterator[Finding]:
    """The driver's packages are of several versions.

    Why: an upgrade was interrupted, or two repositories compete. What works now rests on which file came last; the next
        start of the module or of Fabric Manager picks the other one.
    Fix: bring all to one version (sudo apt-get -f install, then sudo apt-get install PACKAGES=VERSION, or sudo dnf
        distro-sync '*nvidia*'), and keep only one repository for the driver.
    Source: https://github.com/dstackai/dstack/issues/2348
    """
    packages = [p for p in driver.driver_packages if host.nvswitches or not p.name.startswith(_FABRIC)]
    versions = Counter(package.upstream for package in packages)
    if len(versions) > 1:
        common = versions.most_common(1)[0][0]
        odd = [package for package in packages if package.upstream != common]
        yield Finding(
            f"{versions[common]} packages are {common}, {len(odd)} are not",
            seen=(
                *(Seen(package.name, package.version, "dpkg, rpm") for package in odd[:_SHOWN]),
                Seen("all others", common, "dpkg, rpm"),
            ),
        )


@check("driver.packages-not-held", Severity.WARN, layer="driver", after=_AFTER, fix="driver")
def packages_not_held(driver: Driver) -> Iterator[Finding]:
    """Automatic upgrades may replace the driver under the running module.

    Why: at some hour of the night the libraries become newer than the module in memory, and from then on every new CUDA
        process and container fails with "Driver/library version mismatch", until a reboot.
    Fix: hold the packages, and upgrade the driver when you choose to:
            sudo apt-mark hold PACKAGES
            sudo dnf versionlock add '*nvidia*'
        or name them in Unattended-Upgrade::Package-Blacklist ("nvidia-"; "libnvidia-";).
    Source: https://github.com/canonical/ubuntu-server-documentation/pull/369
        https://github.com/lyulyul/shine-cluster/issues/30
    """
    if not driver.driver_packages:
        raise NotApplicable("the driver was not installed by packages")
    if not driver.automatic.service:
        raise NotApplicable("nothing upgrades packages by itself here")
    loose = [package.name for package in driver.driver_packages if driver.automatic.moves(package)]
    if loose:
        yield Finding(
            f"{driver.automatic.service} is on, and {len(loose)} of {len(driver.driver_packages)} driver packages are "
            "neither held nor excluded",
            seen=(
                Seen("automatic upgrades", driver.automatic.service, driver.automatic.where),
                Seen("not held", ", ".join(loose[:_SHOWN]) + (", ..." if len(loose) > _SHOWN else ""), "dpkg, rpm"),
            ),
            do=(f"sudo apt-mark hold {' '.join(loose)}",)
            if driver.automatic.service == "unattended-upgrades"
            else ("sudo dnf versionlock add '*nvidia*'",),
        )


@check("driver.harmful-environment", Severity.WARN, layer="driver", after=["host.no-gpu"])
def harmful_environment(driver: Driver) -> Iterator[Finding]:
    """A variable that changes how CUDA works is set for every program on this host.

    Why: such variables belong to one program for an hour of debugging. Set for everybody they slow down or misdirect
        what runs here, engines outside containers and benchmarks among them, and nobody looks for them there.
    Fix: remove the line, log in anew and restart the services.
    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
        https://github.com/NVIDIA/DCGM (dcgmi diag, environment variables)
    """
    for variable in driver.variables:
        yield Finding(
            f"{variable.name}={variable.value} {HARMFUL[variable.name]}",
            subject=variable.name,
            seen=(Seen(variable.name, variable.value, variable.where),),
        )
