"""A lab host in, one that is judged as a GPU server out: it shows a recorded card, and a kernel as if it had booted it.

What is shown and not there: the PCI devices of tests/hosts/h200-cdi, mounted over /sys/bus/pci/devices; that this is no
container; that the newest installed kernel runs, started with a plain command line; that nouveau takes the card at a
boot whose initramfs has nouveau and no line that blocks it. All else is what it is: packages, files, the initramfs, the
Docker Engine. What no container can have, a loaded kernel module above all, is left out of the judgement by the site
policy POLICY.
"""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpxdoctor import cli
from tests.lab.engine import docker
from tests.lab.hosts import Host, write_inventory
from tests.report.schemas import valid_of

RECORDED = Path(__file__).resolve().parents[1] / "hosts" / "h200-cdi" / "evidence.json"
ADDRESS = "0000:00:06.0"  # of the card in that record
PLACE = "/opt/lab-illusion"
# Judged on the module in memory, or by opening the card: no container of this lab can have either.
POLICY = """
disabled = [
  "driver.module-not-loaded", "driver.libraries-missing", "driver.nvml-fails", "driver.nvidia-smi-fails",
  "cuda.init-fails", "cuda.no-driver-library", "container.gpu-not-visible", "container.cuda-init-fails",
]
"""
# What is not found any more once the role driver has put a driver and its module in place.
DRIVER_CHECKS = (
    "driver.not-installed",
    "boot.headers-missing",
    "boot.dkms-build-failed",
    "boot.dkms-not-built",
    "boot.module-missing",
    "boot.next-kernel-without-module",
    "boot.next-driver-differs",
    "driver.packages-mixed",
)
UNIT = f"""[Unit]
Description=Show a GPU that is not there
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {PLACE}/show

[Install]
WantedBy=sysinit.target
"""
# Mounts are gone after a reboot, so that a unit makes them; a second run of it changes nothing.
SHOW = f"""set -eu
over() {{ mountpoint -q "$2" || mount --bind "$1" "$2"; }}
over {PLACE}/pci /sys/bus/pci/devices
over {PLACE}/detect-virt /usr/bin/systemd-detect-virt
release=$(ls -1 /lib/modules 2>/dev/null | sort -V | tail -n 1)
if [ -n "$release" ]; then
    echo "$release" > {PLACE}/osrelease
    echo "BOOT_IMAGE=/boot/vmlinuz-$release root=/dev/vda1 ro quiet" > {PLACE}/cmdline
    over {PLACE}/osrelease /proc/sys/kernel/osrelease
    over {PLACE}/cmdline /proc/cmdline
    driver=nvidia
    rm -rf /tmp/initramfs
    if unmkinitramfs "/boot/initrd.img-$release" /tmp/initramfs 2>/dev/null; then
        found=$(find /tmp/initramfs -name 'nouveau.ko*')
        grep -rqs '^blacklist nouveau' /tmp/initramfs --include='*.conf' || driver=${{found:+nouveau}}
    fi
    rm -rf /tmp/initramfs
    sed -i "s/^DRIVER=.*/DRIVER=${{driver:-nvidia}}/" {PLACE}/pci/{ADDRESS}/uevent
fi
"""


def show_gpu(host: Host) -> None:
    """Have a host with capabilities (Engine.OWN or one made from it) show the card, now and after each reboot."""
    docker("cp", "-", f"{host.container_id}:/", stdin=_files())
    host.ssh("systemctl daemon-reload && systemctl enable --now lab-illusion.service")


@dataclass(frozen=True)
class Ward:
    """A host to plant faults in, and how lpxdoctor is run on it, in this process and over SSH."""

    host: Host
    options: tuple[str, ...]  # of check and fix
    said: Callable[[], str]  # what was printed since it was asked last
    directory: Path  # of the test

    def plant(self, script: str) -> None:
        """Do to the host what an operator or a package did."""
        self.host.ssh(f"set -eu\n{script}", timeout_s=300)

    def run(self, *argv: str) -> tuple[int, Any]:
        """Return lpxdoctor's exit status and the JSON that it printed."""
        self.said()
        status = cli.run([*argv, "--format", "json", *self.options])
        document = json.loads(self.said())
        valid_of(argv, document)
        return status, document

    def found(self, id_: str) -> bool:
        """Tell whether check finds it; a host or check that could not be judged fails the test."""
        return bool(self.found_among([id_]))

    def found_among(self, ids: Sequence[str]) -> list[str]:
        """Return which of them check finds, by one look at the host."""
        _, fleet = self.run("check", *ids)
        (row,) = fleet["hosts"]
        states = {id_: row["report"]["checks"][id_] for id_ in ids}
        assert set(states.values()) <= {"found", "pass", "not applicable"}, (states, row)
        return [id_ for id_, state in states.items() if state == "found"]

    def put_right(self, id_: str, playbook: str, **variables: Any) -> None:
        """Assert that check finds a fault, that fix plans one playbook for it and removes it, and check is green."""
        file = self.directory / "vars.yml"
        file.write_text(json.dumps(variables))
        status, planned = self.run("fix", id_, "--plan", "--vars", str(file))
        (host,) = planned["hosts"]
        assert status in (1, 2), planned
        assert [(step["playbook"], step["ids"]) for step in host["steps"]] == [(playbook, [id_])], planned
        status, done = self.run("fix", id_, "--yes", "--vars", str(file))
        (host,) = done["hosts"]
        assert (status, host["removed"]) == (0, [id_]), done
        assert not self.found(id_)


def ward_of(host: Host, directory: Path, said: Callable[[], str]) -> Ward:
    """Return a host's ward, with its inventory and policy written to a directory."""
    policy = directory / "policy.toml"
    policy.write_text(POLICY)
    inventory = write_inventory(directory / "inventory.yml", [host])
    return Ward(host, ("-i", str(inventory), "--policy", str(policy), "--no-container-test"), said, directory)


def _files() -> bytes:
    contents = {
        f"{PLACE}/show": SHOW,
        f"{PLACE}/detect-virt": "#!/bin/sh\necho none\nexit 1\n",
        "/etc/systemd/system/lab-illusion.service": UNIT,
        **{f"{PLACE}/pci/{path}": text for path, text in _devices().items()},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, text in contents.items():
            content = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o755 if path.endswith("detect-virt") else 0o644
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _devices() -> dict[str, str | bytes]:
    """Return {"<address>/<file>": content} of the recorded devices; of the card also what programs/pci.py reads."""
    answers = json.loads(RECORDED.read_text(encoding="utf-8"))["answers"]
    uevents = answers["glob:/sys/bus/pci/devices/*/uevent"]["value"]
    files: dict[str, str | bytes] = {}
    for path, text in uevents.items():
        address = path.split("/")[5]
        ids = next(line for line in text.splitlines() if line.startswith("PCI_ID=")).removeprefix("PCI_ID=")
        files[f"{address}/uevent"] = text
        files[f"{address}/vendor"] = f"0x{ids.partition(':')[0].lower()}\n"
    card = answers["program:pci"]["value"][ADDRESS]
    files[f"{ADDRESS}/config"] = bytes.fromhex(card["config"])
    files |= {f"{ADDRESS}/{name}": f"{text}\n" for name, text in card["link"].items() if text is not None}
    return files
