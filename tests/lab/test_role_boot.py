"""The roles boot and reboot on Debian 12: real kernels and initramfs images, initramfs-tools and dracut."""

from collections.abc import Iterator

import pytest

from tests.lab.faults import Ward, show_gpu
from tests.lab.fixtures import HostStarter
from tests.lab.hosts import Engine, Host
from tests.lab.plays import Player

BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"
NOTE = "/run/lpxdoctor-reboot-needed"
CHECKS = (
    "driver.nouveau-bound",
    "boot.nouveau-not-blocked",
    "boot.initramfs-allows-nouveau",
    "boot.nvidia-blacklisted",
)
# boot_id is the outer machine's in a container; when its first process started is the container's own.
BOOT_TIME = "cut -d ' ' -f 22 /proc/1/stat"


@pytest.fixture(scope="module")
def host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a server that shows a card, and whose initramfs has nouveau and nothing that blocks it."""
    with start_host("lab-role-boot", Engine.GPU) as host:
        show_gpu(host)
        yield host


def test_a_trial_run_changes_nothing(host: Host, play: Player) -> None:
    before = host.ssh("ls -l --time-style=full-iso /boot /etc/modprobe.d")
    assert play("boot", "--check").well().changed > 0
    assert host.ssh("ls -l --time-style=full-iso /boot /etc/modprobe.d") == before


def test_the_boot_chain_is_put_right_once(host: Host, play: Player, ward: Ward) -> None:
    host.ssh(
        "echo 'blacklist nvidia' > /etc/modprobe.d/left.conf; echo 'blacklist nouveau' > /etc/modprobe.d/mine.conf"
    )
    assert ward.found("driver.nouveau-bound")  # mine.conf is not in the initramfs
    assert ward.found("boot.nvidia-blacklisted")
    assert play("boot").well().changed >= 4
    release = host.ssh("ls /lib/modules")
    inside = host.ssh(f"lsinitramfs /boot/initrd.img-{release}").splitlines()
    assert BLACKLIST.lstrip("/") in inside
    assert any(name.endswith("nouveau.ko") for name in inside)
    assert "blacklist nouveau" in host.ssh(f"cat {BLACKLIST}")
    assert (
        host.ssh("grep --no-filename '^blacklist n' /etc/modprobe.d/left.conf /etc/modprobe.d/mine.conf || true") == ""
    )
    assert not ward.found("boot.nvidia-blacklisted")
    assert play("boot").well().changed == 0


def test_a_reboot_comes_only_when_it_is_allowed(host: Host, play: Player, ward: Ward) -> None:
    told = play("reboot").well()
    assert told.changed == 0
    assert "A reboot is needed, and is not allowed (reboot_allowed=true): nouveau owns GPUs" in told.output
    started = host.ssh(BOOT_TIME)
    play("reboot", reboot_allowed=True, reboot_boot_time_command=BOOT_TIME).well()
    assert host.ssh(BOOT_TIME) != started
    assert host.ssh(f"test -e {NOTE} || echo gone") == "gone"
    assert ward.found_among(CHECKS) == []
    assert play("reboot", reboot_allowed=True, reboot_boot_time_command=BOOT_TIME).well().changed == 0


def test_an_initramfs_that_was_put_back_is_seen_by_what_is_in_it(host: Host, play: Player) -> None:
    # Newer than every file, and still the wrong one: only reading it tells.
    script = f"""set -eu
    image=$(ls /boot/initrd.img-*); cp -p {BLACKLIST} /root/kept
    : > {BLACKLIST}; update-initramfs -u -k all; cp $image /root/wrong
    cp -p /root/kept {BLACKLIST}; sleep 1.1; cat /root/wrong > $image"""
    host.ssh(script, timeout_s=300)
    assert play("boot", "--tags", "boot.initramfs-allows-nouveau").well().changed >= 1
    assert play("boot").well().changed == 0


def test_dracut_does_what_initramfs_tools_does(host: Host, play: Player) -> None:
    script = f"""set -eu
    rm -f {BLACKLIST}; mkdir -p /etc/dracut.conf.d
    echo 'hostonly=yes; compress=cat; add_drivers+=" nouveau "' > /etc/dracut.conf.d/lab.conf
    apt-get update -q; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends dracut"""
    host.ssh(script, timeout_s=900)
    assert BLACKLIST.lstrip("/") not in host.ssh("lsinitrd /boot/initrd.img-*")
    assert play("boot").well().changed >= 3
    inside = host.ssh("lsinitrd /boot/initrd.img-*")
    assert "nouveau.ko" in inside  # asked for by name, which counts more than what is to be left out
    assert BLACKLIST.lstrip("/") in inside
    assert "nouveau" in host.ssh("cat /etc/dracut.conf.d/lpxdoctor-nouveau.conf")
    assert play("boot").well().changed == 0
