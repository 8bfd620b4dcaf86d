"""Bundles for RHEL's kin by a real dnf: all words resolved and verified, one applied where there is no network."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lpxdoctor.airgap import create, words
from lpxdoctor.airgap.dnf import Root
from lpxdoctor.airgap.target import named
from lpxdoctor.errors import SetupError
from tests.lab import rpms
from tests.lab.engine import ROOT, run
from tests.lab.said import Doctor, Said, with_variables

ROCKY = named("rocky9")
OS_RELEASE = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.7"\n'
CREATED = datetime(2026, 11, 29, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables that name a mirror of tiny packages."""
    return rpms.built(tmp_path_factory.mktemp("mirror"))


@pytest.fixture
def root(mirror: dict[str, str], tmp_path: Path) -> Root:
    """Return a dnf that knows the distribution's part of the mirror."""
    prepared = create.packager(words.Plan(), ROCKY, mirror, tmp_path)
    assert isinstance(prepared, Root)
    return prepared


def test_everything_that_the_roles_install_comes_from_where_it_should(
    mirror: dict[str, str], collections: Path, tmp_path: Path
) -> None:
    variables = {**mirror, "driver_branch": "580"}
    planned = words.plan(words.WORDS, ROCKY, (rpms.KERNEL,), variables, collections)
    packager = create.packager(planned, ROCKY, variables, tmp_path)
    items = packager.fetch(planned.packages, planned.optional, tmp_path / "packages")
    names = {item.name: item.source for item in items}
    assert {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", "dkms", "kernel-devel", "docker-ce", "mokutil"} <= set(names)
    assert "nvidia-persistenced" in names, "optional, and NVIDIA's repository has it"
    assert "nvidia-modprobe" not in names, "of EPEL only dkms is taken"
    assert names["kernel-devel"].startswith(mirror["mirror_rpm_distribution"])
    assert names["libnvidia-container1"].startswith(mirror["mirror_rpm_toolkit"])
    packager.write_index(tmp_path / "packages", CREATED)
    first = {path: path.read_bytes() for path in (tmp_path / "packages").rglob("*") if path.is_file()}
    (modules,) = (path for path in first if "modules" in path.name)
    assert modules.parent.name == "repodata"
    packager.write_index(tmp_path / "packages", CREATED)
    assert {path: path.read_bytes() for path in first} == first


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (rpms.UNSIGNED, f"Package {rpms.UNSIGNED}-1-1.x86_64.rpm is not signed"),
        (rpms.FOREIGN, "GPG check FAILED"),
        ("lab-none", "Unable to find a match: lab-none"),
    ],
)
def test_what_the_key_did_not_sign_is_not_packed(root: Root, package: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=said):
        root.fetch((package,), (), tmp_path / "packages")


@pytest.fixture(scope="module")
def bundle(mirror: dict[str, str], doctor: Doctor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a real bundle for Rocky 9."""
    directory = tmp_path_factory.mktemp("bundle")
    variables = with_variables(directory / "vars.yml", **mirror)
    file = directory / "rocky.tar"
    said = doctor("bundle", "create", "--for", "rocky9", "--package", rpms.ASKED, "--vars", variables, "-o", file)
    assert said.status == 0, said
    return file


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Said]]:
    """Yield what runs a command on a machine that is this one's copy, written to on its own, and says that it is Rocky.

    It has this machine's dnf and no network device besides the loopback's.
    """
    disk = tmp_path_factory.mktemp("disk")
    run("mount", "-t", "tmpfs", "-o", "size=1g", "none", disk)
    for name in ("upper/etc/yum.repos.d", "work", "root"):
        (disk / name).mkdir(parents=True)
    (disk / "upper/etc/os-release").write_text(OS_RELEASE)
    script = f"""set -eu
    mount -t overlay -o lowerdir=/,upperdir={disk}/upper,workdir={disk}/work overlay {disk}/root
    for place in /dev /proc {ROOT} {tmp_path_factory.getbasetemp()}; do mount --rbind "$place" "{disk}/root$place"; done
    mount -t tmpfs none {disk}/root/run
    cd /; exec chroot {disk}/root "$@" """

    def execute(*argv: str | Path) -> Said:
        apart = ("unshare", "--mount", "--net", "sh", "-c", script, "sh")
        environment = {**os.environ, "XDG_STATE_HOME": "/root/state", "HOME": "/root"}
        done = subprocess.run(
            (*apart, *argv), env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return Said(done.returncode, done.stdout, done.stderr)

    execute("rm", "/usr/bin/apt-get")
    yield execute
    run("umount", "--lazy", disk)


def test_it_is_installed_where_there_is_no_network(bundle: Path, offline: Callable[..., Said]) -> None:
    applied = offline(sys.executable, "-m", "lpxdoctor", "bundle", "apply", bundle, "--local")
    assert applied.status == 0, applied
    assert offline("cat", rpms.FILE).out == "tiny\n"
    told = offline("dnf", "--quiet", "--installed", "repoquery", "--queryformat", "%{name} %{evr}\n", "lab-tiny*")
    assert set(told.out.split("\n")) >= {"lab-tiny 3-1", "lab-tiny-data 2-1"}


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Yield a server that takes calls and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(180)
        yield server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_create_leaves_nothing(
    number: signal.Signals, silent: socket.socket, environment: dict[str, str], tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    variables = with_variables(tmp_path / "vars.yml", mirror_rpm_distribution=url)
    (tmp_path / "out").mkdir()
    command = (sys.executable, "-m", "lpxdoctor", "bundle", "create", "--for", "rocky9", "--package", "x")
    with subprocess.Popen(
        (*command, "--vars", variables, "-o", tmp_path / "out/x.tar"),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        caller, _ = silent.accept()
        process.send_signal(number)
        _, said = process.communicate(timeout=180)
        caller.close()
    assert process.returncode == 130
    assert said.endswith("Interrupted.\n")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_is_named_and_nothing_is_left(mirror: dict[str, str], doctor: Doctor, tmp_path: Path) -> None:
    variables, disk = with_variables(tmp_path / "vars.yml", **mirror), tmp_path / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=200k", "none", disk)
    try:
        wanted = ("--for", "rocky9", "--package", rpms.ASKED, "--vars", variables)
        said = doctor("bundle", "create", *wanted, "-o", disk / "x.tar")
        assert list(disk.iterdir()) == []
    finally:
        run("umount", "--lazy", disk)
    assert said.status == 3
    assert f"lpxdoctor: There is no room left beside {disk}/x.tar" in said.err
