"""Faults of the boot chain and the driver's packages planted in a server with a real kernel, initramfs and apt.

Each is found by check, is the matter of one playbook, is removed by fix over SSH, and is not found any more.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.engine import ROOT, docker, wait_until
from tests.lab.faults import ADDRESS, PLACE, POLICY, Ward, show_gpu
from tests.lab.hosts import Engine, Host, started_host

# The line that blocks it is written, and the initramfs was made before.
ALLOWS_NOUVEAU = """rm -f /etc/modprobe.d/*nouveau*
update-initramfs -u -k all
echo 'blacklist nouveau' > /etc/modprobe.d/blacklist-nouveau.conf"""


@pytest.fixture(scope="module")
def host(docker_engine: None, collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a server that shows a card, and whose initramfs has nouveau and nothing that blocks it.

    It can run this lpxdoctor itself, from this machine's directories.
    """
    ours = dict.fromkeys((ROOT, Path(sys.prefix), Path(sys.base_prefix), collections))
    with started_host("lab-faults-boot", Engine.GPU, tmp_path_factory.mktemp("boot"), tuple(ours)) as host:
        show_gpu(host)
        host.ssh(f"sed -i 's/^DRIVER=.*/DRIVER=nvidia/' {PLACE}/pci/{ADDRESS}/uevent")  # until a boot lets nouveau in
        yield host


def test_nouveau_that_took_the_card_is_out_after_a_reboot(ward: Ward) -> None:
    ward.plant("systemctl restart lab-illusion.service")
    assert ward.found("driver.nouveau-bound")
    status, done = ward.run("fix", "driver.nouveau-bound", "--yes")
    (row,) = done["hosts"]
    assert status == 1
    assert row["waiting_for_reboot"] == ["driver.nouveau-bound"]
    # The boot id of a container is its machine's: what tells one start of it from the next is its first process.
    times = ward.directory / "vars.yml"
    times.write_text("reboot_boot_time_command: cut -d ' ' -f 22 /proc/1/stat\n")
    status, done = ward.run("fix", "--resume", "--reboot", "--vars", str(times))
    (row,) = done["hosts"]
    assert (status, row["removed"], row["failure"]) == (0, ["driver.nouveau-bound"], "")
    assert not ward.found("driver.nouveau-bound")


def test_nouveau_that_nothing_keeps_out(ward: Ward) -> None:
    ward.plant("rm -f /etc/modprobe.d/*nouveau*")
    ward.put_right("boot.nouveau-not-blocked", "boot")


def test_an_initramfs_that_allows_nouveau(ward: Ward) -> None:
    ward.plant(ALLOWS_NOUVEAU)
    ward.put_right("boot.initramfs-allows-nouveau", "boot")


def test_a_blacklist_of_nvidia_that_a_passed_through_card_left(ward: Ward) -> None:
    ward.plant("echo 'blacklist nvidia' > /etc/modprobe.d/passthrough.conf")
    ward.put_right("boot.nvidia-blacklisted", "boot")


def test_driver_packages_that_automatic_upgrades_may_replace(ward: Ward) -> None:
    ward.plant("apt-mark unhold '*nvidia*' libcuda1")
    ward.put_right("driver.packages-not-held", "driver")


def test_ctrl_c_in_the_middle_is_told_and_resume_finishes(ward: Ward, environment: dict[str, str]) -> None:
    ward.plant(ALLOWS_NOUVEAU)
    command = (sys.executable, "-m", "lpxdoctor", "fix", "boot.initramfs-allows-nouveau", "--yes", *ward.options)
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    record = Path(environment["XDG_STATE_HOME"], "lpxdoctor", "fix", f"{ward.host.name}.json")
    wait_until(lambda: record.exists() and '"boot",' in record.read_text(), "its work", str, timeout_s=300)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"{ward.host.name}: interrupted in the playbook boot. What was done stays." in said
    assert "To finish it: lpxdoctor fix --resume" in said
    status, done = ward.run("fix", "--resume")
    (row,) = done["hosts"]
    assert (status, row["removed"], row["failure"]) == (0, ["boot.initramfs-allows-nouveau"], "")


def told(host: Host, command: str) -> str:
    """Return what a command said on a host that may go away meanwhile."""
    argv = ("ssh", *host.ssh_options(), "-o", "ConnectTimeout=5", "-p", str(host.port), "root@127.0.0.1", command)
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False).stdout


def test_a_host_that_fixes_itself_goes_on_after_its_reboot(ward: Ward, collections: Path) -> None:
    host = ward.host
    docker("exec", "--interactive", host.container_id, "sh", "-c", "cat > /root/policy.toml", stdin=POLICY.encode())
    ward.plant("rm -f /etc/modprobe.d/*nouveau*; update-initramfs -u -k all; systemctl restart lab-illusion.service")
    doctor = f"cd {ROOT} && ANSIBLE_COLLECTIONS_PATH={collections} {sys.executable} -m lpxdoctor fix"
    said = told(host, f"{doctor} driver.nouveau-bound --policy /root/policy.toml --no-container-test --yes --reboot")
    assert "It reboots now and goes on by itself" in said
    record = "cat /root/.local/state/lpxdoctor/fix/localhost.json"
    log = f"{record}; journalctl -u lpxdoctor-fix"
    wait_until(lambda: '"finished"' in told(host, record), "its end", lambda: told(host, log), timeout_s=900)
    assert told(host, "ls /etc/systemd/system | grep lpxdoctor") == ""
    said = host.ssh(f"{doctor} --resume", timeout_s=300)
    assert "put right and checked again" in said
    assert "gone   driver.nouveau-bound" in said
    assert not ward.found("driver.nouveau-bound")
