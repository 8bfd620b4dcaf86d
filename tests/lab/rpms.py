"""A mirror of tiny rpm packages in place of Rocky's, EPEL's, NVIDIA's and Docker's: a directory in, its variables out.

The packages, indexes and signatures are real ones, of rpmbuild, createrepo_c and gpg; only what is in them is nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.lab.engine import run

KERNEL = "5.14.0-611.5.1.el9_7.x86_64"
ASKED = "lab-tiny"  # brings a file, and needs another package
FILE = "/usr/share/lab-tiny"
UNSIGNED, FOREIGN = "lab-unsigned", "lab-foreign"  # nobody signed one, and somebody else the other
_STREAM = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{stream}"
  version: 1
  context: "1"
  arch: x86_64
  summary: {stream}
  description: {stream}
  license: {{module: [MIT]}}
  artifacts: {{rpms: ["nvidia-driver-cuda-0:580.95-1.x86_64", "kmod-nvidia-open-dkms-0:580.95-1.x86_64"]}}
"""


class Package(NamedTuple):
    """A package of the spec."""

    name: str
    version: str = "1"
    release: str = "1"
    requires: str = ""
    files: str = ""


_BASE, _APPS = "rocky/9/BaseOS/x86_64/os", "rocky/9/AppStream/x86_64/os"
_EPEL, _NVIDIA = "epel/9/Everything/x86_64", "nvidia/rhel9/x86_64"
_DOCKER, _TOOLKIT = "docker/centos/9/x86_64/stable", "toolkit/stable/rpm/x86_64"
_HEADERS = {"version": "5.14.0", "release": "611.5.1.el9_7"}
PACKAGES: Mapping[str, tuple[Package, ...]] = {
    _BASE: (*(Package(name) for name in ("python3-requests", "mokutil", "openssl")), Package("lab-tiny-data", "2")),
    _APPS: (
        Package(ASKED, "3", requires="lab-tiny-data >= 2", files=FILE),
        Package("kernel-devel", **_HEADERS),
        Package("kernel-devel-matched", **_HEADERS, requires="kernel-devel = 5.14.0-611.5.1.el9_7"),
        Package("python3-dnf-plugin-versionlock"),
        *(Package(UNSIGNED), Package(FOREIGN)),
    ),
    # Of EPEL only DKMS is to be taken, however new the others are.
    _EPEL: (Package("dkms", requires="kernel-devel-matched"), Package("nvidia-modprobe", "999")),
    _NVIDIA: (
        Package("nvidia-driver-cuda", "580.95"),
        Package("kmod-nvidia-open-dkms", "580.95", requires="dkms"),
        Package("nvidia-persistenced", "580.95"),
    ),
    _DOCKER: tuple(
        Package(name, "29.2.0")
        for name in ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
    ),
    _TOOLKIT: tuple(
        Package(name, "1.20.0")
        for name in (
            *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
            *("libnvidia-container-tools", "libnvidia-container1"),
        )
    ),
}
_KEYS = (
    *("rocky/RPM-GPG-KEY-Rocky-9", "epel/RPM-GPG-KEY-EPEL-9", f"{_NVIDIA}/D42D0685.pub"),
    *("docker/centos/gpg", "toolkit/gpgkey"),
)


def built(directory: Path) -> dict[str, str]:
    """Build and sign all packages, and return the variables that name the mirror."""
    home = directory / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", home, "--batch", "--quiet", "--armor")
    for name in ("own", "foreign"):
        run(*gpg, "--passphrase", "", "--quick-gen-key", name, "rsa2048")
    spec = directory / "lab.spec"
    spec.write_text("".join(_spec()))
    places = ("--define", f"_topdir {directory}/top", "--define", f"_rpmdir {directory}/rpms")
    run("rpmbuild", "-bb", "--quiet", "--target", "x86_64", *places, spec)
    files = {package.name: _file(directory, package) for rows in PACKAGES.values() for package in rows}
    unsigned = {UNSIGNED, FOREIGN, *(package.name for package in PACKAGES[_TOOLKIT])}
    _sign("own", [file for name, file in files.items() if name not in unsigned], home)
    _sign("foreign", [files[FOREIGN]], home)
    mirror = directory / "mirror"
    for place, packages in PACKAGES.items():
        (mirror / place).mkdir(parents=True)
        for package in packages:
            files[package.name].rename(mirror / place / files[package.name].name)
        run("createrepo_c", "--quiet", mirror / place)
    modules = directory / "modules.yaml"
    modules.write_text("".join(_STREAM.format(stream=stream) for stream in ("570-open", "580-open")))
    run("modifyrepo_c", "--mdtype", "modules", modules, mirror / _NVIDIA / "repodata")
    index = mirror / _TOOLKIT / "repodata/repomd.xml"
    run(*gpg, "--local-user", "own", "--detach-sign", index)
    for key in _KEYS:
        run(*gpg, "--export", "--output", mirror / key, "own")
    names = {"distribution": "rocky", "epel": "epel", "nvidia": "nvidia", "docker": "docker", "toolkit": "toolkit"}
    return {f"mirror_rpm_{name}": (mirror / place).as_uri() for name, place in names.items()}


def _file(directory: Path, package: Package) -> Path:
    return directory / "rpms/x86_64" / f"{package.name}-{package.version}-{package.release}.x86_64.rpm"


def _sign(name: str, files: list[Path], home: Path) -> None:
    # Debian's rpm has no path of gpg.
    settings = (f"_gpg_name {name}", f"_gpg_path {home}", "__gpg /usr/bin/gpg")
    run("rpmsign", "--addsign", *(word for setting in settings for word in ("--define", setting)), *files)


def _spec() -> Iterator[str]:
    yield "Name: lab\nVersion: 1\nRelease: 1\nSummary: lab\nLicense: MIT\n%description\nlab\n"
    yield f"%install\nmkdir -p %{{buildroot}}/usr/share\necho tiny > %{{buildroot}}{FILE}\n"
    for package in (package for rows in PACKAGES.values() for package in rows):
        yield f"%package -n {package.name}\nVersion: {package.version}\nRelease: {package.release}\nSummary: lab\n"
        yield f"Requires: {package.requires}\n" if package.requires else ""
        yield f"%description -n {package.name}\nlab\n%files -n {package.name}\n{package.files}\n"
