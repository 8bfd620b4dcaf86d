"""What stands in for NVIDIA's Container Toolkit, whose repository cannot be reached: a directory in, a signed one out.

The packages have the real ones' names and versions of their own, and each program in them says in its name that it is a
stand-in. What they prove is the way from a repository to Docker's settings, and nothing about NVIDIA's programs.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.lab.engine import LAB, run

VERSION = "1.20.0-1+standin"
PROGRAMS = Path("usr/lib/lpxdoctor-lab")
RUNTIME = '#!/bin/sh\nexec runc "$@"\n'
SERVICE = """[Unit]
Description=Stand-in for the unit that refreshes the CDI specification
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStartPre=/bin/mkdir -p /var/run/cdi
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
[Install]
WantedBy=multi-user.target
"""
WATCH = "[Path]\nPathChanged=/usr/bin/nvidia-ctk\n[Install]\nWantedBy=multi-user.target\n"
FILES = {
    "nvidia-container-toolkit": {
        PROGRAMS / "nvidia-container-runtime-hook.standin": RUNTIME,
    },
    "nvidia-container-toolkit-base": {
        PROGRAMS / "nvidia-ctk.standin": (LAB / "standins" / "nvidia-ctk.standin").read_text(),
        PROGRAMS / "nvidia-container-runtime.standin": RUNTIME,
        Path("usr/lib/systemd/system/nvidia-cdi-refresh.service"): SERVICE,
        Path("usr/lib/systemd/system/nvidia-cdi-refresh.path"): WATCH,
    },
    "libnvidia-container-tools": {},
    "libnvidia-container1": {},
}


def toolkit_repository(directory: Path, version: str = VERSION) -> Path:
    """Make an apt repository of the toolkit's four packages, laid out as NVIDIA's and signed with a key of its own."""
    packages = directory / "stable" / "deb" / "amd64"
    packages.mkdir(parents=True)
    rows = [_package(directory / "work", packages, name, version, files) for name, files in FILES.items()]
    (packages / "Packages").write_text("\n".join(rows))
    _sign(directory, packages)
    shutil.rmtree(directory / "work")
    return directory


def _package(work: Path, packages: Path, name: str, version: str, files: dict[Path, str]) -> str:
    """Build one package and return its paragraph of the index."""
    root = work / name
    (root / "DEBIAN").mkdir(parents=True)
    root.chmod(0o755)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: lab\nDescription: stand-in\n"
    (root / "DEBIAN" / "control").write_text(control)
    for file, text in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
        if file.is_relative_to(PROGRAMS):
            (root / file).chmod(0o755)
            (root / "usr/bin").mkdir(exist_ok=True)
            (root / "usr/bin" / file.stem).symlink_to(Path("/") / file)
    built = packages / f"{name}.deb"
    run("dpkg-deb", "--root-owner-group", "--build", root, built)
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    return f"{control}Filename: ./{built.name}\nSize: {built.stat().st_size}\nSHA256: {digest}\n"


def _sign(directory: Path, packages: Path) -> None:
    """Write the signed index, and the key that it is to be trusted by, where NVIDIA has its own."""
    index = (packages / "Packages").read_bytes()
    summed = f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    (packages / "Release").write_text(f"Origin: lab\nSHA256:\n{summed}\n")
    # Not below the test's own directory: its agent's socket stands in it, whose path may have 107 characters.
    with tempfile.TemporaryDirectory() as home:
        gpg = ("gpg", "--homedir", home, "--batch", "--quiet", "--passphrase", "")
        run(*gpg, "--quick-gen-key", "lab@standin.invalid", "ed25519", "sign", "never")
        run(*gpg, "--clearsign", "--output", packages / "InRelease", packages / "Release")
        run(*gpg, "--armor", "--output", directory / "gpgkey", "--export", "lab@standin.invalid")
        run("gpgconf", "--homedir", home, "--kill", "all")
