"""A lab host in, one that is judged as a GPU server out: it shows a recorded card, and a kernel as if it had booted it.

What is shown and not there: the PCI devices of tests/hosts/h200-cdi, mounted over /sys/bus/pci/devices; that this is no
container; that the newest installed kernel runs, started with a plain command line. All else on the host is what it is:
its packages, its files, its initramfs, its Docker Engine. What no container can have, a loaded kernel module above all,
is left out of the judgement by the site policy POLICY.
"""

import io
import json
import tarfile
from pathlib import Path

from tests.lab.engine import docker
from tests.lab.hosts import Host

RECORDED = Path(__file__).resolve().parents[1] / "hosts" / "h200-cdi" / "evidence.json"
ADDRESS = "0000:00:06.0"  # of the card in that record
PLACE = "/opt/lab-illusion"
DRIVER = "nvidia"  # bound to the card, as recorded
# Judged on the module in memory, or by opening the card: no container of this lab can have either.
POLICY = """
disabled = [
  "driver.module-not-loaded", "driver.libraries-missing", "driver.nvml-fails", "driver.nvidia-smi-fails",
  "cuda.init-fails", "cuda.no-driver-library", "container.gpu-not-visible", "container.cuda-init-fails",
]
"""
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
fi
"""


def show_gpu(host: Host) -> None:
    """Have a host with capabilities (Engine.OWN or one made from it) show the card, now and after each reboot."""
    docker("cp", "-", f"{host.container_id}:/", stdin=_files())
    host.ssh("systemctl daemon-reload && systemctl enable --now lab-illusion.service")


def bind_card(host: Host, driver: str) -> None:
    """Have the card be bound to another driver, such as nouveau; "" for none."""
    line = f"/^DRIVER=/d;1i DRIVER={driver}" if driver else "/^DRIVER=/d"
    host.ssh(f"sed -i '{line}' {PLACE}/pci/{ADDRESS}/uevent")


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
