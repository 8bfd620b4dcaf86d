"""A bare host without a network gets Docker and an image from a bundle alone; every other bundle changes nothing."""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lpxdoctor.airgap import apt, archive, create, images, wheels, words
from lpxdoctor.airgap.target import TARGETS
from lpxdoctor.errors import SetupError
from tests.airgap.bundles import written
from tests.lab.engine import LAB, build, docker, run
from tests.lab.hosts import Engine, Host, started_host, write_inventory
from tests.lab.said import Doctor, one_error, with_variables

IMAGE, IMAGE_OF_ARM = "lpxdoctor-lab/tiny:bundle", "lpxdoctor-lab/tiny:arm64"
OURS = next(one for one in TARGETS if one.codename == platform.freedesktop_os_release()["VERSION_CODENAME"])
OTHER = next(one for one in TARGETS if one is not OURS)
OWN_BRANCH = {"12": "535", "13": "550"}  # of the driver, in Debian's archive


def tar_of(**files: bytes) -> bytes:
    """Return an archive of files, with a dot for each __ in their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("__", "."))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@dataclass(frozen=True)
class Made:
    """A bundle, and the digest that its maker was told."""

    file: Path
    sha256: str


@pytest.fixture(scope="module")
def made(doctor: Doctor, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a real bundle for this machine's distribution: what the role container installs, and a small image."""
    directory = tmp_path_factory.mktemp("bundle")
    docker("import", "-", IMAGE, stdin=tar_of(file=b""))
    variables = with_variables(directory / "vars.yml", container_toolkit=False, container_runtime=False)
    file = directory / "bundle.tar"
    said = doctor(
        "bundle",
        "create",
        "container",
        "--for",
        OURS.name,
        "-o",
        file,
        "--image",
        IMAGE,
        "--vars",
        variables,
        "--format",
        "json",
    )
    assert said.status == 0, said
    return Made(file, json.loads(said.out)["manifest_sha256"])


@pytest.fixture(scope="module")
def host(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a host without Docker that answers SSH from its bridge, and has no route to anything else."""
    bare = build(LAB / "build", Engine.NONE.value)
    with started_host("lab-offline", Engine.OWN, tmp_path_factory.mktemp("offline"), image=bare) as started:
        pid = docker("inspect", "--format", "{{.State.Pid}}", started.container_id)
        run("nsenter", "--target", pid, "--net", "ip", "route", "del", "default")
        yield started


@pytest.fixture
def inventory(host: Host, tmp_path: Path) -> Path:
    return write_inventory(tmp_path / "inventory.yml", [host])


def test_the_host_has_no_network(host: Host) -> None:
    assert "default" not in host.ssh("ip route")
    assert "docker" not in host.ssh("ls /usr/bin /usr/sbin")


def test_a_bundle_of_another_system_is_refused(host: Host, inventory: Path, doctor: Doctor, tmp_path: Path) -> None:
    other = written(tmp_path / "other.tar", OTHER)
    said = doctor("bundle", "apply", other, "-i", inventory)
    one_error(said, f"The bundle is for {OTHER.distribution} {OTHER.version}", f"this host is {OURS.distribution}")
    assert host.ssh("ls /var/lib/lpxdoctor 2>/dev/null || true") == ""


def test_a_host_without_room_is_refused(host: Host, inventory: Path, doctor: Doctor, tmp_path: Path) -> None:
    fitting = written(tmp_path / "fitting.tar", OURS)
    host.ssh("mkdir -p /var/lib/lpxdoctor && mount -t tmpfs -o size=64m none /var/lib/lpxdoctor")
    try:
        said = doctor("bundle", "apply", fitting, "-i", inventory)
        assert host.ssh("ls /var/lib/lpxdoctor") == ""
    finally:
        host.ssh("umount --lazy /var/lib/lpxdoctor")
    one_error(said, "MiB below /var/lib/lpxdoctor", "Make room")


def test_a_changed_bundle_is_refused_before_a_host_is_asked(made: Made, doctor: Doctor, tmp_path: Path) -> None:
    changed = tmp_path / "changed.tar"
    content = bytearray(made.file.read_bytes())
    with tarfile.open(made.file, "r:") as tar:
        content[max(tar, key=lambda member: member.size).offset_data] ^= 1  # not what fills up a block
    changed.write_bytes(content)
    nowhere = "root@host.invalid"
    one_error(doctor("bundle", "apply", changed, "-i", nowhere), "is not what was packed", status=64)
    one_error(doctor("bundle", "apply", made.file, "-i", nowhere, "--sha256", "0" * 64), made.sha256, status=64)


def test_docker_comes_from_the_bundle_and_nothing_else(made: Made, host: Host, inventory: Path, doctor: Doctor) -> None:
    sources = "cat /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null | sha256sum; ls /var/lib/apt/lists"
    before = host.ssh(sources)
    said = doctor("bundle", "apply", made.file, "-i", inventory, "--sha256", made.sha256)
    assert said.status == 0, said
    manifest, _ = archive.show(made.file)
    versions = {item.name: item.version for item in manifest.packages}
    assert host.ssh("dpkg-query --show --showformat '${Version}' docker.io") == versions["docker.io"]
    (image,) = manifest.images
    assert image.id in host.ssh("docker image ls --quiet --no-trunc")
    assert f"--image {image.id}" in said.out
    assert host.ssh(sources) == before
    assert host.ssh("ls /var/lib/lpxdoctor | grep -c archive || true") == "0"

    again = doctor("bundle", "apply", made.file, "-i", inventory, "--format", "json")
    assert again.status == 0, again
    assert json.loads(again.out)["hosts"] == [{"host": "lab-offline", "changed": 0}]


def test_lpxdoctor_can_be_installed_from_it(made: Made, tmp_path: Path) -> None:
    archive.unpack(made.file, tmp_path / "bundle", below="wheels/")
    pip = (sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--dry-run", "--ignore-installed")
    offline = ("--no-index", "--find-links", tmp_path / "bundle/wheels", "--target", tmp_path / "nowhere")
    told = run(*pip, *offline, *wheels.options_for(OURS), "--report", "-", "lpxdoctor")
    names = {row["metadata"]["name"] for row in json.loads(told)["install"]}
    assert {"lpxdoctor", "ansible-core", "ansible-runner", "msgspec"} <= names


def kernel() -> str:
    """Return the release of the distribution's newest kernel."""
    told = run("apt-cache", "depends", f"linux-image-{OURS.architecture}")
    return told.partition("Depends: linux-image-")[2].split()[0]


@pytest.mark.skipif(OURS.distribution != "debian", reason="kernels and drivers are named as Debian names them")
def test_a_bare_host_needs_nothing_besides(host: Host, collections: Path, tmp_path: Path) -> None:
    """For every word, the driver's headers and compiler too; by the index alone, for apt says what it would install."""
    variables = {"driver_branch": OWN_BRANCH[OURS.version], "container_toolkit": False}
    planned = words.plan(words.WORDS, OURS, (kernel(),), variables, collections)
    root = create.packager(planned, OURS, variables, tmp_path)
    assert isinstance(root, apt.Root)
    found = [f"{item.name}={item.version}" for item in root.resolved(planned.packages, planned.optional)]
    index = run("env", *(f"{name}={value}" for name, value in root.env.items()), "apt-cache", "show", *found)
    with tarfile.open(tmp_path / "index.tar", "w") as tar:
        (tmp_path / "Packages").write_text(index)
        tar.add(tmp_path / "Packages", "srv/offline/Packages")
    docker("cp", "-", f"{host.container_id}:/", stdin=(tmp_path / "index.tar").read_bytes())
    settings = (
        "Dir::Etc::sourcelist=/srv/offline/list",
        "Dir::Etc::sourceparts=none",
        "Dir::State::lists=/srv/offline/lists",
    )
    own = " ".join(f"-o {setting}" for setting in settings)
    host.ssh("mkdir -p /srv/offline/lists/partial; echo 'deb [trusted=yes] file:/srv/offline ./' > /srv/offline/list")
    host.ssh(f"apt-get update {own}")
    wanted = " ".join(f"'{name}'" for name in planned.packages)
    said = host.ssh(f"apt-get install --simulate --no-install-recommends {own} {wanted}")
    installed = {line.split()[1] for line in said.splitlines() if line.startswith("Inst ")}
    headers = f"linux-headers-{kernel()}"
    assert {"dkms", "make", headers, "nvidia-kernel-dkms", "mokutil"} <= installed
    # From the bundle of the test before, where that ran.
    assert "docker.io" in installed or "docker.io" in host.ssh("dpkg-query --show")
    assert any(name.startswith("gcc-") for name in installed)


def test_packages_of_another_architecture_are_real_ones(tmp_path: Path) -> None:
    target = replace(OURS, architecture="arm64", components=("main",))
    items = create.packager(words.Plan(), target, {}, tmp_path).fetch(("hello",), (), tmp_path / "packages")
    assert {"hello", "libc6"} <= {item.name for item in items}
    (file,) = (tmp_path / item.file for item in items if item.name == "hello")
    assert run("dpkg-deb", "--field", file, "Architecture") == "arm64"


def test_an_image_is_of_the_targets_architecture(docker_engine: None, tmp_path: Path) -> None:
    layer = tar_of(file=b"")
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = json.dumps({"architecture": "arm64", "os": "linux", "config": {}, "rootfs": layers}).encode()
    told = json.dumps([{"Config": "config.json", "RepoTags": [IMAGE_OF_ARM], "Layers": ["layer.tar"]}]).encode()
    docker("load", stdin=tar_of(config__json=config, layer__tar=layer, manifest__json=told))
    saved = images.fetch(IMAGE_OF_ARM, replace(OURS, architecture="arm64"), tmp_path)
    assert (tmp_path.parent / saved.file).stat().st_size > 0
    with pytest.raises(SetupError, match="docker pull --platform linux/amd64"):
        images.fetch(IMAGE_OF_ARM, OURS, tmp_path)
