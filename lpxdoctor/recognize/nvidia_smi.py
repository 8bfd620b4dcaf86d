"""What nvidia-smi printed, wherever it stands in a text, in; what our own NVML program would have answered out.

A reading that was not printed is left out, so that nothing is taken for well which nobody saw.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from lpxdoctor.facts.nvml import FabricState, Reason

_HEADER = re.compile(
    r"Driver Version\s*: (?P<driver>\d{3}\.[\d.]*\d)(?:\s+\|?\s*CUDA(?: UMD)? Version\s*: (?P<cuda>\d+\.\d+))?",
    re.IGNORECASE,
)
_CUDA = re.compile(r"^\s*\|?\s*CUDA Version\s*: (?P<cuda>\d+\.\d+)", re.MULTILINE)
# |   0  NVIDIA L40S                    On  |   00000000:4F:00.0 Off |                    0 |
_FIRST = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|TCC|WDDM|MCDM)\s*\|\s+(?P<bus>[0-9A-Fa-f]{4,8}:"
    r"[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+\w+\s*\|\s+(?P<ecc>\S+)\s*(?:\||$)"
)
# | N/A   48C    P0            155W /  350W |   45397MiB /  46068MiB |     95%      Default |
_SECOND = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temp>\d+)C\s+(?P<perf>P\d+)\s+(?:(?P<power>\d+)W|\S+)\s*/\s*(?:(?P<limit>\d+)W|\S+)"
    r"\s*\|\s+(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|(?:\s+(?:(?P<busy>\d+)%|N/A))?"
    r"(?:\s+(?P<compute>[\w. ]+?)\s*\|)?"
)
_THIRD = re.compile(r"^\|\s+\|\s+\|\s+(?P<mig>Enabled|Disabled)(?P<pending>\*?)\s*\|")
_LISTED = re.compile(r"^GPU (?P<index>\d+): (?P<name>\S.*?) \(UUID: (?P<uuid>GPU-[^)]*)\)")
_GPU = re.compile(r"^GPU (?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_FIELD = re.compile(r"^(?P<indent>\s+)(?P<name>\S[^:]*?)\s*(?::\s(?P<value>.*?))?\s*$")
_COMPUTE = {"Default": "default", "E. Process": "exclusive-process", "Prohibited": "prohibited"}
_REASONS = {
    "Idle": Reason.IDLE,
    "SW Power Cap": Reason.POWER_CAP,
    "HW Slowdown": Reason.HARDWARE_SLOWDOWN,
    "HW Thermal Slowdown": Reason.HARDWARE_THERMAL,
    "HW Power Brake Slowdown": Reason.POWER_BRAKE,
    "SW Thermal Slowdown": Reason.SOFTWARE_THERMAL,
}
_RECOVERY = {"None": 0, "Reset": 1, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
_FABRIC = {
    "Not Started": FabricState.NOT_STARTED,
    "In Progress": FabricState.IN_PROGRESS,
    "Completed": FabricState.COMPLETED,
}

Raw = dict[str, Any]


def answer(lines: Iterable[str]) -> Raw | None:
    """Return the answer of programs/nvml.py as far as these lines show it, None where they show no GPU."""
    rows = list(lines)
    text = "\n".join(rows)
    gpus = list(_queried(rows)) or list(_tabled(rows)) or list(_listed(rows))
    if not gpus:
        return None
    found: Raw = {"library": "", "module": True, "error": None, "gpus": gpus}
    header = _HEADER.search(text)
    if header:
        cuda = header["cuda"] or next((match["cuda"] for match in _CUDA.finditer(text)), "")
        found |= {"driver_version": header["driver"], **({"cuda_version": cuda} if cuda else {})}
    return found


# --- the table --------------------------------------------------------------------------------------------------------


def _tabled(rows: list[str]) -> Iterator[Raw]:
    """Yield the GPUs of a table; of one that is printed again and again, as by watch, the first."""
    seen: set[int] = set()
    for number, row in enumerate(rows):
        first = _FIRST.match(row)
        if not first or int(first["index"]) in seen:
            continue
        seen.add(int(first["index"]))
        gpu: Raw = {"index": int(first["index"]), "name": first["name"], "bus_id": _bus(first["bus"])}
        if first["mode"] in ("On", "Off"):
            gpu["persistence"] = first["mode"] == "On"
        gpu |= _ecc(first["ecc"])
        for following in rows[number + 1 : number + 3]:
            gpu |= _second(following) | _third(following)
        yield gpu


def _ecc(column: str) -> Raw:
    """Return what the column of volatile uncorrectable errors says: a number, Off, or N/A."""
    if column.isdigit():
        return {"ecc_errors": [None, None, int(column), None]}
    return {"ecc_errors": None} if column in ("Off", "N/A") else {}


def _second(row: str) -> Raw:
    match = _SECOND.match(row)
    if not match:
        return {}
    used, total = int(match["used"]), int(match["total"])
    found: Raw = {
        "temperature_c": int(match["temp"]),
        "memory_mib": {"total": total, "used": used, "free": total - used},
    }
    for name, value in (("power_w", match["power"]), ("power_limit_w", match["limit"])):
        found |= {name: float(value)} if value else {}
    found |= {"utilization_percent": int(match["busy"])} if match["busy"] else {}
    compute = _COMPUTE.get((match["compute"] or "").strip())
    return found | ({"compute_mode": compute} if compute else {})


def _third(row: str) -> Raw:
    match = _THIRD.match(row)
    if not match:
        return {}
    now = match["mig"] == "Enabled"
    return {"mig_mode": [now, now != bool(match["pending"])]}


def _listed(rows: list[str]) -> Iterator[Raw]:
    """Yield the GPUs of nvidia-smi -L."""
    matches = (_LISTED.match(row.strip()) for row in rows)
    found = {int(match["index"]): match for match in matches if match}
    for index, match in sorted(found.items()):
        yield {"index": index, "name": match["name"], "uuid": match["uuid"]}


def _bus(printed: str) -> str:
    """Return a PCI address as /sys writes it."""
    domain, _, rest = printed.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


# --- nvidia-smi -q ----------------------------------------------------------------------------------------------------


def _queried(rows: list[str]) -> Iterator[Raw]:
    """Yield the GPUs of nvidia-smi -q."""
    starts = [number for number, row in enumerate(rows) if _GPU.match(row)]
    for index, (start, end) in enumerate(pairwise([*starts, len(rows)])):
        fields = _fields(rows[start + 1 : end])
        if len(fields) > 2:
            head = _GPU.match(rows[start])
            yield {"index": index, "bus_id": _bus(head["bus"] if head else ""), **_of_fields(fields)}


def _fields(rows: list[str]) -> dict[str, str]:
    """Return {"Section/Subsection/name": value} of lines that are indented by their depth."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for row in rows:
        match = _FIELD.match(row)
        if not match:
            if row.strip():
                break  # a line at the margin ends the listing
            continue
        depth = len(match["indent"])
        while above and above[-1][0] >= depth:
            above.pop()
        if match["value"] is None:
            above.append((depth, match["name"]))
        else:
            found.setdefault("/".join([*(name for _, name in above), match["name"]]), match["value"].strip())
            above.append((depth, match["name"]))
    return found


def _of_fields(fields: Mapping[str, str]) -> Raw:
    found: Raw = {}
    for name, key in (("name", "Product Name"), ("uuid", "GPU UUID"), ("serial", "Serial Number")):
        found |= {name: fields[key]} if key in fields else {}
    for name, keys in _NUMBERS.items():
        number = _number(next((fields[each] for each in keys if each in fields), ""))
        found |= {name: number} if number is not None else {}
    compute = {"Exclusive_Process": "exclusive-process"}.get(fields.get("Compute Mode", ""))
    if "Compute Mode" in fields:
        found["compute_mode"] = compute or fields["Compute Mode"].lower()
    action = _RECOVERY.get(fields.get("GPU Recovery Action", ""))
    found |= {"recovery_action": action} if action is not None else {}
    state = _FABRIC.get(fields.get("Fabric/State", ""))
    found |= {"fabric": {"state": state, "status": 0, "health": 0}} if state is not None else {}
    return found | _memory_health(fields) | _reasons(fields)


_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "temperature_c": ("Temperature/GPU Current Temp",),
    "slowdown_c": ("Temperature/GPU Slowdown Temp",),
    "power_limit_w": ("GPU Power Readings/Current Power Limit", "Power Readings/Enforced Power Limit"),
    "power_default_w": ("GPU Power Readings/Default Power Limit", "Power Readings/Default Power Limit"),
    "bar1_mib": ("BAR1 Memory Usage/Total",),
    "utilization_percent": ("Utilization/Gpu", "Utilization/GPU"),
    "pcie_generation": ("PCI/GPU Link Info/PCIe Generation/Current",),
    "pcie_generation_max": ("PCI/GPU Link Info/PCIe Generation/Max",),
    "pcie_width": ("PCI/GPU Link Info/Link Width/Current",),
    "pcie_width_max": ("PCI/GPU Link Info/Link Width/Max",),
    "sm_clock_mhz": ("Clocks/SM",),
    "sm_clock_max_mhz": ("Max Clocks/SM",),
}


def _number(text: str) -> int | None:
    match = re.match(r"(\d+)", text)
    return int(match[1]) if match else None


def _memory_health(fields: Mapping[str, str]) -> Raw:
    """Return ECC errors, remapped rows and retired pages."""
    found: Raw = {}
    remaps = [fields.get(f"Remapped Rows/{name}", "") for name in ("Correctable Error", "Uncorrectable Error")]
    if all(value.isdigit() for value in remaps):
        flags = [fields.get(f"Remapped Rows/{n}") == "Yes" for n in ("Pending", "Remapping Failure Occurred")]
        found["remapped_rows"] = [*map(int, remaps), *flags]
    errors = [
        _sum(fields, span, kind) for kind in ("Correctable", "Uncorrectable") for span in ("Volatile", "Aggregate")
    ]
    if any(value is not None for value in errors):
        found["ecc_errors"] = errors
    if fields.get("ECC Errors/Aggregate/SRAM Threshold Exceeded") in ("Yes", "No"):
        found["sram_threshold_exceeded"] = fields["ECC Errors/Aggregate/SRAM Threshold Exceeded"] == "Yes"
    pending = fields.get("Retired Pages/Pending Page Blacklist")
    return found | ({"retired_pending": pending == "Yes"} if pending in ("Yes", "No") else {})


def _sum(fields: Mapping[str, str], span: str, kind: str) -> int | None:
    """Return the errors of a kind, of all memories together; None where none is counted."""
    of_kind = re.compile(rf"ECC Errors/{span}/(?:SRAM|DRAM) {kind}(?: \S+)?")
    counts = [int(value) for name, value in fields.items() if of_kind.fullmatch(name) and value.isdigit()]
    return sum(counts) if counts else None


def _reasons(fields: Mapping[str, str]) -> Raw:
    """Return the mask of the reasons that hold the clocks back."""
    mask, known = Reason(0), False
    for name, value in fields.items():
        section, _, rest = name.partition("/")
        reason = _REASONS.get(rest.rpartition("/")[2])
        if section in ("Clocks Throttle Reasons", "Clocks Event Reasons") and reason is not None:
            known = True
            mask |= reason if value == "Active" else Reason(0)
    return {"clocks_event_reasons": int(mask)} if known else {}
