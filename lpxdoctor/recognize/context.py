"""A pasted text in; what it says of the host besides its faults, {"gpu": ..., "driver": ..., "kernel": ...}, out."""

import re
from collections.abc import Iterable, Mapping

from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.facts.modprobe import CommandLine
from lpxdoctor.facts.packages import Package
from lpxdoctor.knowledge import names
from lpxdoctor.recognize.peers import peers

_DRIVER = r"(?P<v>\d{3}\.\d{2,3}(?:\.\d{2})?)"
_RELEASE = r"(?P<v>\d+\.\d+\.\d+-[\w.+~-]*\w)"
# Name -> patterns, what a program prints before what a person writes; the first that is found counts.
_SAID: Mapping[str, tuple[str, ...]] = {
    "module": (
        rf"NVRM version: NVIDIA UNIX.*?Kernel Module(?: for \S+)?\s+{_DRIVER}",
        rf"kernel module,?(?: \w+)? (?:has the )?version:?\s+{_DRIVER}",
        rf"sys[_/]module[_/]nvidia[_/]version:?\s+{_DRIVER}",
        rf"(?:loaded|running) (?:kernel )?module:?\s+(?:is |version )?{_DRIVER}",
        rf"kernel module:?\s+(?:is |at |still )*{_DRIVER}",
        rf"NVIDIA kernel module has version {_DRIVER}",
    ),
    "client": (
        rf"\bclient\b[^\n]{{0,60}}?(?:has the )?version\s+{_DRIVER}",
        rf"NVIDIA driver component has version {_DRIVER}",
        rf"(?:user[- ]?(?:space|mode)|libraries|lib(?:nvidia-ml|cuda)\.so\.)(?: (?:are|is|at))?:?\s*{_DRIVER}",
        r"NVML library version:\s*(?P<v>\d{3}\.\d+(?:\.\d+)?)",
    ),
    "driver": (
        rf"Driver Version\s*:\s*{_DRIVER}",
        rf"NVRM version: NVIDIA UNIX.*?Kernel Module(?: for \S+)?\s+{_DRIVER}",
        rf"NVIDIA driver version:?\s*{_DRIVER}",
        rf"Linux-x86_64-{_DRIVER}",
        rf"NVIDIA {_DRIVER} driver release",
        rf"nvidia-driver-\S+\s+{_DRIVER}",
        rf"^[\"' -]*(?:nvidia[ _-]?)?driver(?:[ _]version)?[\"']?\s*[:=][^\n]*?{_DRIVER}",
        r"^[\"' -]*(?:nvidia[ _-]?)?driver(?:[ _]version)?[\"']?\s*[:=]\s*[\"']?(?:R)?(?P<v>\d{3})\b",
        rf"\bdriver\b[^\n\d]{{0,30}}{_DRIVER}",
        rf"驱动[^\n\d]{{0,16}}{_DRIVER}",
        r"\bdriver\b[^\n\d]{0,20}\b(?P<v>[3-6]\d0|[3-6]\d5)\b",
        r"驱动[^\n\d]{0,16}(?P<v>[3-6]\d[05])\b",
    ),
    "driver_cuda": (
        r"CUDA Version\s*:\s*(?P<v>\d+\.\d+)",
        r"^[\"' -]*cuda(?:[ _]version)?[\"']?\s*[:=]\s*[\"']?(?P<v>\d{2}\.\d+)",
    ),
    "runtime_cuda": (
        r"CUDA runtime version\s*:\s*(?P<v>\d+\.\d+)",
        r"CUDA used to build PyTorch\s*:\s*(?P<v>\d+\.\d+)",
    ),
    "wanted_cuda": (r"unsatisfied condition: cuda\s*>=?\s*(?P<v>\d{1,2}\.\d{1,2})\b",),
    "kernel": (
        rf"Linux version {_RELEASE}",
        rf"^Linux \S+ {_RELEASE} ",
        rf"uname(?:_| -)[ra]\b[^\n]*\n?[^\n]*?{_RELEASE}",
        rf"BOOT_IMAGE=\S*vmlinuz-{_RELEASE}",
        rf"running kernel:?\s+(?:is )?{_RELEASE}",
        rf"\bkernel(?: version)?[\"']?\s*[:=]?\s*[\"']?{_RELEASE}",
        rf"内核(?:版本)?[^\n\d]{{0,6}}{_RELEASE}",
    ),
    "os": (
        r'PRETTY_NAME="?(?P<v>[^"\n]+)',
        r"^OS\s*:\s*(?P<v>\S[^\n]*)",
        r"Operating System:\s*(?P<v>\S[^\n]*)",
        r"^[\"' -]*os[\"']?\s*:\s*(?P<v>[^\n]+)",
    ),
    "vllm": (
        r"vLLM (?:API server )?version:?\s+v?(?P<v>\d+\.\d+[\w.+]*)",
        r"vllm-openai:v?(?P<v>\d+\.\d+[\w.+]*)",
        r"^[\"' -]*vllm[\"']?\s*[:=]+\s*v?(?P<v>\d+\.\d+[\w.+]*)",
    ),
    "image": (
        r"(?<![\w./-])(?P<v>(?:[\w.-]{1,40}/){0,3}vllm/[\w-]{1,40}:[\w.-]{1,60}|nvcr\.io/[\w./-]{1,80}:[\w.-]{1,60}|nvidia/cuda:[\w.-]{1,60})",
        r"^image:\s*(?P<v>\S+)",
    ),
    "toolkit": (
        r"NVIDIA Container (?:Toolkit|Runtime)[^\n]{0,20}version:?\s+v?(?P<v>\d+\.\d+\.\d+)",
        r"(?:nvidia-container-toolkit|libnvidia-container1|toolkit)[^\n\d]{0,30}(?P<v>1\.\d+\.\d+)",
    ),
    "docker": (
        r"Server Version:\s*(?P<v>\S+)",
        r"Docker (?:Engine|version)[^\n\d]{0,20}(?P<v>\d+\.\d+(?:\.\d+)?)",
    ),
    "fabric": (
        rf"nvidia-fabricmanager(?:-\d+)?\s*[:=]?\s+{_DRIVER}",
        rf"fabric ?manager[^\n\d]{{0,40}}{_DRIVER}",
    ),
    "model": (r"--model[ =](?P<v>[^\s\\]+)", r"vllm serve (?P<v>[^\s-][^\s\\]*)"),
    "address": (r"NVRM: Xid \((?:PCI:)?(?P<v>[0-9a-fA-F:.]+)\)",),
}
_GPU_LINE = re.compile(
    r"gpu|nvidia|geforce|tesla|quadro|rtx|gtx|10de|jetson|orin|显卡|device name"
    r"|\b(?:G?[BH]\d{2,3}|[ALTPVKM]\d{1,3}[SG]?|HGX|DGX)\b",
    re.IGNORECASE,
)
_GPU_LINES = 400
_PCI_ID = re.compile(r"\b10de:(?P<id>[0-9a-f]{4})\b", re.IGNORECASE)
_NVIDIA_SMI_ROW = re.compile(r"^\|\s+\d+\s+(?P<name>\S.*?)\s{2,}|^GPU \d+: (?P<listed>.*?)(?: \(UUID|$)", re.MULTILINE)
_MODULE_FILE = re.compile(r"/lib/modules/(\d[^/\s]*)/\S*\bnvidia[\w-]*\.ko")
_DKMS = re.compile(r"^\s*nvidia[\w-]*[/,] ?(\d{3}[\d.]*)(?:, (\S+?), \S+?)?: (installed|built|added)", re.MULTILINE)
_COMMAND_LINE = re.compile(r"^.*\b(?:BOOT_IMAGE=|root=UUID=|root=/dev/)\S*.*$", re.MULTILINE)
_UPGRADE = re.compile(
    r"^Upgrade: .*?([\w.+-]{0,60}nvidia[\w.+-]{0,60})(?::\w{1,10})? \(([^,()]{1,80}), ([^,()]{1,80})\)", re.MULTILINE
)
_DPKG_LOG = re.compile(r"^(\d{4}-\S+) \S+ upgrade (\S*nvidia\S*?)(?::\w+)? (\S+) (\S+)$", re.MULTILINE)
_STAMP = re.compile(r"^Start-Date: (\S+)", re.MULTILINE)
_COMMAND = re.compile(r"^Commandline: (?:\S*/)?(.+?)\s*$", re.MULTILINE)
_DPKG_LIST = re.compile(r"^[hi]i\s+((?:lib)?(?:nvidia|cuda)\S*)\s+(\d\S*)", re.MULTILINE)
_OPEN_PACKAGE = re.compile(
    r"nvidia-(?:driver|dkms|kernel|headless)\S*-open|Open Kernel Module|Dual MIT/GPL|\bopen$", re.MULTILINE
)
# A kernel module that is not NVIDIA's, as DKMS, modprobe and the kernel name it.
_OTHERS_MODULE = re.compile(
    r"could not insert (?:module )?'?\w|Failed to insert module '?\w"
    r"|\bdkms (?:add|build|install) (?:-m )?\w|/var/lib/dkms/\w"
    r"|\b[\w-]{1,40}-dkms\b|\bDKMS files\b|^(?:\[[ \d.]+\] )?\w+: disagrees about version of symbol",
    re.MULTILINE | re.IGNORECASE,
)
_NVIDIA = re.compile(r"nvidia|\bNVRM\b|geforce|\bcuda\b|\b10de:", re.IGNORECASE)
_OTHER_VENDOR = re.compile(
    r"\brocm\b(?! used to build pytorch: N/A)|\bHIP (?:error|runtime version|out of memory)|AMD (?:Instinct|Radeon)"
    r"|\bgfx\d{3}|\btorch_npu\b|\bascend\b|\bintel_extension",
    re.IGNORECASE,
)
# What a page about Xids says of one, which is no report of it: "Xid 63 (row remapping failure), Xid 74 means ...".
_EXPLAINED_XID = re.compile(
    r"\bXids? (?:error )?(\d{1,3})\b(?: errors?)?"
    r"(?: ?\(| ?[:=|] ?| [-\u2013\u2014] | (?:means|is|indicates|signals)\b ?)(?=[a-z])",
    re.IGNORECASE,
)
_ABOUT_XIDS = re.compile(
    r"\b(?:codes? (?:include|are|mean)|each (?:mapping|code)|glossary|catalog(?:ue)?|reference)\b"
    r"|\b(?:main|following|several|these|the system log these) Xids\b|\bXids have the following\b"
    r"|\bwhat (?:it|they|each \w+) means?\b|\bcommon(?:ly \w+)? Xids?\b",
    re.IGNORECASE,
)
_XIDS_OF_A_PAGE = 3
_CLOSED_PACKAGE = re.compile(
    r"(?:linux-modules-nvidia-\d{3}(?!\S*open)\S*|nvidia-(?:driver|dkms|headless|kernel-source)-\d{3}(?:-server)?(?![\w-]*open)\b)"
    r"|license:\s+NVIDIA\b|\bproprietary$",
    re.MULTILINE,
)


def context(text: str) -> dict[str, str]:
    """Return what is known of the host, only what is."""
    found = {name: value for name, patterns in _SAID.items() if (value := _first(text, patterns))}
    found |= (
        _gpu(text) | _kernels(text, found.get("kernel", "")) | _command_line(text) | _upgrade(text) | _flavour(text)
    )
    found |= _packages(text) | _of_others(text, found) | _xids_explained(text) | peers(text)
    return {name: value for name, value in (found | _derived(found, text)).items() if value}


def _first(text: str, patterns: Iterable[str]) -> str:
    for pattern in patterns:
        match = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
        if match:
            return str(match["v"]).strip(" .,\"'")
    return ""


def _gpu(text: str) -> dict[str, str]:
    """Return the first GPU that is named: by nvidia-smi, else by anybody."""
    row = _NVIDIA_SMI_ROW.search(text)
    printed = [row["name"] or row["listed"]] if row else []
    lines = [line for line in text.splitlines() if _GPU_LINE.search(line)][:_GPU_LINES]
    for line in (*printed, *lines):
        name, cc = names.gpu_in(line)
        listed = None if cc else _PCI_ID.search(line)
        known = knowledge.load().gpu_by_pci(int(listed["id"], 16)) if listed else None
        if known:
            name, cc = known.name, known.cc
        if cc:
            arch, module = names.family(cc)
            return {"gpu": name, "cc": cc, "arch": arch, "sm": "sm_" + cc.replace(".", ""), "open": module or ""}
    return {}


def _kernels(text: str, running: str) -> dict[str, str]:
    """Return for which other kernels there is an NVIDIA module, on disk or by DKMS."""
    on_disk = [release for release in dict.fromkeys(_MODULE_FILE.findall(text)) if release != running]
    rows = _DKMS.findall(text)
    built = list(dict.fromkeys(release for _, release, _ in rows if release))
    where = ""
    if rows:
        where = "added" if not built else "here" if running in built or not running else "elsewhere"
    return {
        "others": ", ".join(on_disk) if running else "",
        "dkms": where,
        "dkms_kernels": ", ".join(built),
        "dkms_version": rows[0][0] if rows else "",
    }


def _command_line(text: str) -> dict[str, str]:
    """Return what a kernel command line does against nouveau, in words."""
    match = _COMMAND_LINE.search(text)
    if not match:
        return {}
    line = CommandLine(match[0])
    early = [word for word in line.blocks("nouveau", early=True) if word not in line.blocks("nouveau")]
    if line.blocks("nouveau"):
        return {"cmdline": "blocks"}
    if early:
        note = f"{early[0]} keeps it out only while the initramfs runs: modprobe.blacklist=nouveau is missing"
        return {"cmdline": "early", "cmdline_note": note}
    wrong = line.mistaken("nouveau")
    note = f"{wrong[0]} has no effect; it is modprobe.blacklist=nouveau" if wrong else ""
    return {"cmdline": "allows", "cmdline_note": note}


def _upgrade(text: str) -> dict[str, str]:
    """Return the upgrade of driver packages that apt's history or dpkg's log tells of, in words."""
    match = _UPGRADE.search(text)
    if match:
        day, command = _STAMP.search(text), _COMMAND.search(text)
        what = (
            f"{command[1] if command else 'apt'} moved {match[1]} from {_upstream(match[2])} to {_upstream(match[3])}"
        )
        return {"change": what + (f" on {day[1]}" if day else "")}
    match = _DPKG_LOG.search(text)
    if match:
        return {"change": f"dpkg moved {match[2]} from {_upstream(match[3])} to {_upstream(match[4])} on {match[1]}"}
    return {}


def _upstream(version: str) -> str:
    return version.strip().partition(":")[2].partition("-")[0] or version.strip().partition("-")[0]


def _packages(text: str) -> dict[str, str]:
    """Return the versions of the driver's packages in dpkg's list, where they are several."""
    listed = (Package(name, version) for name, version in _DPKG_LIST.findall(text))
    versions = sorted({package.upstream for package in listed if package.of_driver})
    return {"packages": "mixed", "package_versions": ", ".join(versions)} if len(versions) > 1 else {}


def _of_others(text: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return whether the text is about a kernel module, or a GPU, of others, and about none of NVIDIA's."""
    module = not _NVIDIA.search(text) and _OTHERS_MODULE.search(text)
    vendor = "gpu" not in found and "driver" not in found and _OTHER_VENDOR.search(text)
    return {"others_module": "yes" if module else "", "other_vendor": "yes" if vendor else ""}


def _xids_explained(text: str) -> dict[str, str]:
    """Return whether the text explains what Xids mean and shows none that a driver logged."""
    codes = set(_EXPLAINED_XID.findall(text)) if "NVRM: Xid (" not in text else set()
    return {"xids_explained": "yes" if len(codes) >= _XIDS_OF_A_PAGE and _ABOUT_XIDS.search(text) else ""}


def _flavour(text: str) -> dict[str, str]:
    """Return which flavour of the kernel module the text speaks of, where it is one."""
    is_open, is_closed = bool(_OPEN_PACKAGE.search(text)), bool(_CLOSED_PACKAGE.search(text))
    return {"flavour": "open" if is_open else "proprietary"} if is_open != is_closed else {}


def _same(fabric: str, driver: str) -> str:
    """Return whether Fabric Manager is of the driver's version, "" where one of them is not known to the last digit."""
    whole = fabric.count(".") == driver.count(".") == 2
    return ("yes" if fabric == driver else "no") if whole else ""


def _enough(carried: str, wanted: str) -> str:
    """Return whether the CUDA that a driver carries is enough for a program's, "" where one of them is not known."""
    return ("yes" if Version(carried) >= Version(wanted) else "no") if carried and wanted else ""


def _derived(found: Mapping[str, str], text: str) -> dict[str, str]:
    """Return what the tables say about what was found."""
    known = knowledge.load()
    driver = found.get("driver") or found.get("module") or found.get("client") or ""
    branch = known.branch(driver) if driver else None
    row = known.capability(found.get("cc", ""))
    number = int(driver[:3]) if driver[:3].isdigit() else 0
    fits = ""
    if row and number:
        too_old = row.last_branch is not None and number > row.last_branch
        too_new = row.first_branch is not None and number < row.first_branch
        fits = "gpu-too-old" if too_old else "gpu-too-new" if too_new else "yes"
    carried = found.get("driver_cuda") or (branch.cuda if branch else "")
    wanted = known.toolkit(found["wanted_cuda"]) if "wanted_cuda" in found else None
    wsl = "yes" if re.search(r"\bWSL ?2?\b|microsoft-standard-WSL", text) else ""
    return {
        "driver": driver,
        "branch": driver[:3],
        "driver_cuda": carried,
        "needs_driver": wanted.driver if wanted else "",
        "cuda_fits": _enough(carried, found.get("runtime_cuda", "")),
        "fits": fits,
        "fabric_fits": _same(found.get("fabric", ""), driver),
        "wsl": wsl,
    }
