"""What is judged of hosts together, and of none by itself: the kind of a twin in, what is said of it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lpxdoctor.fleet.twins import Kind


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is wrong where hosts are twins; {hosts} and {what} in message are theirs."""

    id: str
    severity: Literal["fail", "warn"]
    title: str
    message: str
    why: str
    cure: str
    source: str


RULES: Mapping[Kind, Rule] = {
    "machine": Rule(
        id="fleet.machine-twice",
        severity="fail",
        title="One machine answers under several names: the same machine id and the same running kernel",
        message="One machine answers as {hosts}",
        why="It counts twice, its engine gets the load of two, and two playbooks may change it at the same time.",
        cure=(
            "Take all but one of these names out of the inventory, or correct the address of the wrong one "
            "(ansible_host)."
        ),
        source="https://man7.org/linux/man-pages/man5/machine-id.5.html and random(4), of boot_id",
    ),
    "machine id": Rule(
        id="fleet.machine-id-cloned",
        severity="warn",
        title="Several hosts were made from one image and kept its machine id",
        message="{hosts} have one machine id",
        why=(
            "They were made from one image. DHCP may give them one address, and what tells machines apart by this id, "
            "such as the journal, monitoring and cluster managers, takes them for one."
        ),
        cure=(
            "On all but one: rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup; then reboot. Empty "
            "/etc/machine-id in the image."
        ),
        source="https://man7.org/linux/man-pages/man5/machine-id.5.html",
    ),
    "GPU": Rule(
        id="fleet.gpu-twice",
        severity="fail",
        title="Several hosts show one GPU",
        message="{hosts} have one GPU, {what}",
        why=(
            "A GPU is in one machine at a time: one of the records is older than the move of a card, or two names of "
            "the inventory lead to one machine."
        ),
        cure="Collect from all of them again, and compare: nvidia-smi -L; cat /proc/sys/kernel/random/boot_id",
        source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html, of nvmlDeviceGetUUID",
    ),
}
