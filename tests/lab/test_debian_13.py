"""The roles boot and driver on Debian 13: its kernel, its initramfs, its driver 550 built by DKMS; judged by check."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.engine import LAB, build
from tests.lab.faults import DRIVER_CHECKS, Ward, show_gpu
from tests.lab.hosts import Engine, Host, started_host
from tests.lab.plays import Player

BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"
OWN = {"driver_branch": "550"}
# A volume of compiled files; it stays as the images do, and what was compiled once from the same text is not again.
CACHE = ("-v", "lpxdoctor-lab-ccache:/var/cache/ccache")
# Without debugging information, which DKMS strips from a module and which takes a quarter of the compiler's time.
COMPILED_ONCE = r"""mkdir -p /etc/dkms /opt/ccache
ln -s /usr/bin/ccache /opt/ccache/x86_64-linux-gnu-gcc-14
cat > /etc/dkms/nvidia-current.conf << 'END'
MAKE[0]="env CCACHE_DIR=/var/cache/ccache PATH=/opt/ccache:$PATH ${MAKE[0]} KCFLAGS=-g0"
END"""
CHECKS = ("boot.nouveau-not-blocked", "boot.initramfs-allows-nouveau", *DRIVER_CHECKS)


@pytest.fixture(scope="module")
def host(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a Debian 13 that shows a card, with a kernel whose initramfs has nouveau and nothing that blocks it."""
    if "\nID=debian\n" not in Path("/etc/os-release").read_text():
        pytest.skip("the mirror of this machine's own distribution has no Debian 13")
    image = build(LAB / "build", "host", "trixie")
    with started_host("lab-debian-13", Engine.OWN, tmp_path_factory.mktemp("13"), more=CACHE, image=image) as host:
        script = """set -eu
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q; apt-get install -y -q --no-install-recommends initramfs-tools kmod zstd ccache
        sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf # made in seconds
        echo nouveau >> /etc/initramfs-tools/modules
        apt-get install -y -q --no-install-recommends linux-image-amd64"""
        host.ssh(script, timeout_s=900)
        host.ssh(COMPILED_ONCE)
        show_gpu(host)
        yield host


def test_nouveau_is_kept_out(host: Host, play: Player) -> None:
    assert play("boot").well().changed >= 2
    inside = host.ssh("lsinitramfs /boot/initrd.img-*")
    assert "nouveau.ko" in inside
    assert BLACKLIST.lstrip("/") in inside
    assert play("boot").well().changed == 0
    host.ssh("systemctl restart lab-illusion.service")  # shows who has the card after a boot from that initramfs


def test_the_driver_comes_with_its_module(host: Host, play: Player, to_ward: Callable[[Host], Ward]) -> None:
    ward = to_ward(host)
    assert ward.found("driver.not-installed")
    assert play("driver", "--check", **OWN).well().changed > 0
    assert host.ssh("ls /usr/sbin/dkms 2> /dev/null || true") == ""
    assert play("driver", **OWN).well().changed > 4
    release = host.ssh("ls /lib/modules")
    assert host.ssh(f"modinfo -k {release} -F version nvidia-current").startswith("550.")
    assert host.ssh(f"modinfo -k {release} -F vermagic nvidia-current-uvm").startswith(release)
    assert {"libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms"} <= set(host.ssh("apt-mark showhold").split())
    assert ward.found_among(CHECKS) == []


def test_a_second_run_changes_nothing(play: Player) -> None:
    assert play("driver", **OWN).well().changed == 0
