"""Faults of the boot chain and the driver's packages planted in a server with a real kernel, initramfs and apt.

Each is found by check, is the matter of one playbook, is removed by fix over SSH, and is not found any more.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.lab.faults import Ward, show_gpu
from tests.lab.fixtures import HostStarter
from tests.lab.hosts import Engine, Host


@pytest.fixture(scope="module")
def host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a server that shows a card, and whose initramfs has nouveau and nothing that blocks it."""
    with start_host("lab-faults-boot", Engine.GPU) as host:
        show_gpu(host)
        yield host


@pytest.fixture
def ward(host: Host, to_ward: Callable[[Host], Ward]) -> Ward:
    return to_ward(host)


def test_nouveau_that_took_the_card_is_out_after_a_reboot(ward: Ward) -> None:
    ward.plant("systemctl restart lab-illusion.service")
    assert ward.found("driver.nouveau-bound")
    status, done = ward.run("fix", "driver.nouveau-bound", "--yes")
    (row,) = done["hosts"]
    assert status == 1
    assert row["waiting_for_reboot"] == ["driver.nouveau-bound"]
    # The boot id of a container is its machine's: what tells one start of it from the next is its first process.
    times = ward.directory / "vars.yml"
    times.write_text("reboot_boot_time_command: stat --format %Y /proc/1\n")
    status, done = ward.run("fix", "--resume", "--reboot", "--vars", str(times))
    (row,) = done["hosts"]
    assert (status, row["removed"], row["failure"]) == (0, ["driver.nouveau-bound"], "")
    assert not ward.found("driver.nouveau-bound")


def test_nouveau_that_nothing_keeps_out(ward: Ward) -> None:
    ward.plant("rm /etc/modprobe.d/*nouveau*")
    ward.put_right("boot.nouveau-not-blocked", "boot")


def test_an_initramfs_that_allows_nouveau(ward: Ward) -> None:
    ward.plant("f=$(ls /etc/modprobe.d/*nouveau*); mv $f /root; update-initramfs -u -k all; mv /root/${f##*/} $f")
    ward.put_right("boot.initramfs-allows-nouveau", "boot")


def test_a_blacklist_of_nvidia_that_a_passed_through_card_left(ward: Ward) -> None:
    ward.plant("echo 'blacklist nvidia' > /etc/modprobe.d/passthrough.conf")
    ward.put_right("boot.nvidia-blacklisted", "boot")


def test_driver_packages_that_automatic_upgrades_may_replace(ward: Ward) -> None:
    ward.plant("apt-mark unhold '*nvidia*' libcuda1")
    ward.put_right("driver.packages-not-held", "driver")
