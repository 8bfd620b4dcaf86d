"""The role driver on Debian 12 with real apt, dpkg, kernels and DKMS, which compiles modules that do nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.engine import LAB, docker, run
from tests.lab.faults import DRIVER_CHECKS, Ward, show_gpu
from tests.lab.fixtures import HostStarter
from tests.lab.hosts import Engine, Host
from tests.lab.plays import Player
from tests.lab.toolkit import VERSION, toolkit_repository

# What Debian 12 has itself; the default branch comes from NVIDIA's repository.
OWN = {"driver_branch": "535"}
# test_debian_13 has DKMS make NVIDIA's own modules; here it is told to compile ones that do nothing, in seconds.
SHORT_BUILD = (LAB / "standins/short-build").read_text()
SHORT = f"""mkdir -p /etc/dkms
cat > /etc/dkms/short-build << 'END'
{SHORT_BUILD}END
echo 'MAKE[0]="sh /etc/dkms/short-build $kernelver"' > /etc/dkms/nvidia-current.conf"""
CHECKS = (*DRIVER_CHECKS, "driver.packages-not-held")


@pytest.fixture(scope="module")
def host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a server that shows a card, with libraries of the driver and no module for its kernel."""
    with start_host("lab-role-driver", Engine.GPU) as host:
        host.ssh("echo 'blacklist nouveau' > /etc/modprobe.d/nouveau.conf; update-initramfs -u -k all", timeout_s=300)
        host.ssh(SHORT)
        show_gpu(host)
        yield host


def test_a_repository_that_is_down_is_named_before_a_package_changes(host: Host, play: Player) -> None:
    before = host.ssh("dpkg-query -W")
    played = play("driver", driver_branch="580", mirror_apt_nvidia="http://127.0.0.1:9/mirror")
    assert played.status != 0
    assert "NVIDIA's repository does not answer" in played.output
    assert "Name a mirror of it (mirror_apt_nvidia)" in played.output
    assert host.ssh("dpkg-query -W") == before
    host.ssh("rm -f /etc/apt/preferences.d/lpxdoctor-nvidia-driver")


def test_package_lists_that_cannot_be_read_are_named(host: Host, play: Player) -> None:
    host.ssh("echo 'deb http://127.0.0.1:9/gone bookworm main' > /etc/apt/sources.list.d/gone.list")
    played = play("driver", "--tags", "boot.headers-missing", **OWN)
    assert played.status != 0
    assert "apt could not read its package lists" in played.output
    host.ssh("rm /etc/apt/sources.list.d/gone.list")


def test_a_lock_that_somebody_holds_is_waited_for_and_named(host: Host, play: Player) -> None:
    lock = "f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX)"
    hold = f"import fcntl,time; {lock}; open('/run/lab-held','w'); time.sleep(9000)"
    host.ssh(f'systemd-run --quiet --unit=lab-lock python3 -c "{hold}"')
    host.ssh("until test -e /run/lab-held; do sleep 0.1; done")
    played = play("driver", "--tags", "boot.headers-missing", driver_lock_timeout_s=3, **OWN)
    host.ssh("systemctl stop lab-lock")
    assert played.status != 0
    assert "Another package manager holds the lock" in played.output


def test_a_full_disk_is_named_and_nothing_is_half_installed(host: Host, play: Player) -> None:
    host.ssh("mount -t tmpfs -o size=2m none /var/cache/apt/archives && mkdir /var/cache/apt/archives/partial")
    played = play("driver", "--tags", "boot.headers-missing", **OWN)
    host.ssh("until umount /var/cache/apt/archives; do sleep 0.3; done")  # a method of apt's may be about to end
    assert played.status != 0
    assert "The disk is full" in played.output
    assert host.ssh("dpkg --audit") == ""
    told = play("driver", driver_free_mib=99_999_999, **OWN)
    assert "which is too little for a driver" in told.output


def test_the_driver_comes_with_its_module_after_a_run_that_was_cut_off(host: Host, play: Player, ward: Ward) -> None:
    assert ward.found("boot.module-missing")
    host.ssh(
        "cd /tmp && apt-get update -q && apt-get download -q nvidia-modprobe && dpkg --unpack nvidia-modprobe_*.deb",
        timeout_s=600,
    )
    assert "nvidia-modprobe" in host.ssh("dpkg --audit")
    assert play("driver", **OWN).well().changed > 4
    assert host.ssh("dpkg --audit") == ""
    release = host.ssh("ls /lib/modules")
    module = host.ssh(f"modinfo -k {release} -F version nvidia-current")
    assert module.startswith("535.")
    held = set(host.ssh("apt-mark showhold").split())
    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms"} <= held
    assert not held & {"dkms", "nvidia-modprobe", "linux-image-amd64"}
    assert ward.found_among(CHECKS) == []


def test_a_second_run_changes_nothing(play: Player) -> None:
    assert play("driver", **OWN).well().changed == 0


# What follows is planted in a host whose module is built already, so that no fix has to compile it again.
TAKEN_OUT = "dkms uninstall $(dkms status | grep -o '^nvidia[^,]*' | head -n 1) -k $(ls /lib/modules) > /dev/null"


def test_fix_brings_in_a_module_that_dkms_has_and_the_kernel_has_not(ward: Ward) -> None:
    ward.plant(TAKEN_OUT)
    ward.put_right("boot.dkms-not-built", "driver", **OWN)


def test_fix_brings_missing_headers_and_the_module(ward: Ward) -> None:
    ward.plant(f"{TAKEN_OUT}; apt-get remove -y -q linux-headers-amd64 linux-headers-$(ls /lib/modules) > /dev/null")
    ward.put_right("boot.headers-missing", "driver", **OWN)


def test_fix_brings_packages_of_several_versions_to_one(ward: Ward) -> None:
    ward.plant("""cd /tmp && apt-get download -q nvidia-smi && dpkg-deb --raw-extract nvidia-smi_*.deb older
sed -i 's/^Version:.*/Version: 535.54.03-1/' older/DEBIAN/control
dpkg-deb --build older older.deb > /dev/null && dpkg --install older.deb 2> /dev/null""")
    ward.put_right("driver.packages-mixed", "driver", **OWN)
    assert "nvidia-smi" in ward.host.ssh("apt-mark showhold").split()


def test_a_run_file_beside_packages_is_refused_and_removed_where_it_is_asked(
    host: Host, play: Player, ward: Ward
) -> None:
    # What stands in for NVIDIA's own: it takes a file of a package with it.
    ward.plant(r"printf '#!/bin/sh\nrm -f /usr/bin/nvidia-smi $0\n' > /usr/bin/nvidia-uninstall")
    ward.plant("chmod +x /usr/bin/nvidia-uninstall; rm -f /tmp/smi; readlink -f /usr/bin/nvidia-smi > /tmp/smi")
    played = play("driver", "--tags", "driver.two-installs", **OWN)
    assert played.status != 0
    assert "To have it removed first: driver_remove_runfile=true" in played.output
    ward.put_right("driver.two-installs", "driver", driver_remove_runfile=True, **OWN)
    assert host.ssh("dpkg --verify nvidia-smi") == ""


def test_a_unit_that_refuses_persistence(ward: Ward) -> None:
    # As Ubuntu's; the daemon itself would end without a GPU.
    ward.plant(r"""printf '#!/bin/sh\nexec sleep infinity\n' > /opt/persistenced; chmod +x /opt/persistenced
cd /etc/systemd/system; mkdir -p nvidia-persistenced.service.d
printf '[Service]\nType=simple\nExecStart=\nExecStart=/opt/persistenced --no-persistence-mode --verbose\n' \
    > nvidia-persistenced.service.d/override.conf
systemctl daemon-reload; systemctl restart nvidia-persistenced""")
    ward.put_right("driver.persistence-refused-by-unit", "driver", **OWN)
    command = ward.host.ssh("systemctl show nvidia-persistenced --property=ExecStart")
    assert "argv[]=/opt/persistenced --verbose ;" in command


def test_a_directory_of_packages_is_the_only_source(host: Host, play: Player) -> None:
    script = """set -eu
    mkdir -p /srv/packages; cd /srv/packages; apt-get download -q nvidia-persistenced libtirpc3 libtirpc-common
    dpkg-scanpackages . /dev/null > Packages 2>/dev/null; apt-get remove -y -q nvidia-persistenced
    sed -i.kept 's/^deb /#deb /' /etc/apt/sources.list
    echo 'deb http://127.0.0.1:9/gone bookworm main' > /etc/apt/sources.list.d/gone.list"""
    host.ssh(script, timeout_s=300)
    played = play("driver", offline_repository="/srv/packages", **OWN)
    host.ssh("mv /etc/apt/sources.list.kept /etc/apt/sources.list; rm /etc/apt/sources.list.d/gone.list")
    played.well()
    assert "ii" in host.ssh("dpkg-query -W -f '${db:Status-Abbrev}' nvidia-persistenced")


def test_docker_and_the_toolkit_come_from_it_without_a_network(host: Host, play: Player, tmp_path: Path) -> None:
    names = ("docker.io", "containerd", "runc", "tini", "iptables")
    host.ssh(f"cd /srv/packages && apt-get download -q {' '.join(names)} ca-certificates", timeout_s=600)
    debs = toolkit_repository(tmp_path / "toolkit") / "stable" / "deb" / "amd64"
    run("docker", "cp", f"{debs}/.", f"{host.container_id}:/srv/packages/")
    host.ssh("""set -eu
    cd /srv/packages; rm -f Packages InRelease Release; dpkg-scanpackages . /dev/null > Packages 2> /dev/null
    apt-get purge -y -q docker.io containerd runc > /dev/null""")
    pid = docker("inspect", "--format", "{{.State.Pid}}", host.container_id)
    run("nsenter", "--target", pid, "--net", "ip", "route", "del", "default")
    wish = {"offline_repository": "/srv/packages", "container_toolkit_version": VERSION}
    play("container", **wish).well()
    assert host.ssh("dpkg-query -W -f '${db:Status-Abbrev}' docker.io libnvidia-container1").split() == ["ii", "ii"]
    assert "nvidia" in host.ssh("docker info --format '{{json .Runtimes}}'")
    assert play("container", **wish).well().changed == 0
