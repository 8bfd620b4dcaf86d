#!/usr/bin/python
"""What a host is and what is wished for in; branch, flavour, source and packages of its driver out."""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.driver_packages import LIBRARY, MODULE, is_open, of_driver, upstream, versions_of

DOCUMENTATION = r"""
module: driver_plan
short_description: Choose branch, flavour, source and packages of the NVIDIA driver for a host
options:
  host: {description: What driver_host returned., type: dict, required: true}
  wishes: {description: "branch, version, flavour, source, modules, fabric, require_gpu.", type: dict, required: true}
  catalogue: {description: Packages by distribution and source., type: dict, required: true}
  gpus: {description: What is known of GPUs by PCI device id., type: dict, required: true}
  ranges: {description: What holds for the ids that are not known., type: list, elements: dict, required: true}
  lts: {description: Branches that may be chosen without being asked., type: list, elements: int, required: true}
  open_rules: {description: "exists_from, preferred_from and only_from.", type: dict, required: true}
author: lpxdoctor
"""

RED_HATS = ("rhel", "rocky", "almalinux", "ol", "centos")
BOARD_GPUS = 8  # on a board whose NVSwitches are of the fourth generation, which the PCI bus does not show
Host = dict[str, Any]
Plan = dict[str, Any]


class Refused(Exception):  # noqa: N818 - it is an answer
    """No driver fits; the message says why and what to do."""


def entry_of(host: Host, catalogue: Plan) -> Plan:
    """Return the distribution's entry."""
    system = host["distribution"]
    major = system["version"].partition(".")[0]
    key = f"rhel{major}" if system["id"] in RED_HATS else f"{system['id']}{major}"
    entry = catalogue.get(system["id"]) if system["id"] == "ubuntu" else catalogue.get(key)
    if entry is None:
        raise Refused(
            f"No driver packages are known for {system['id']} {system['version']}.\n"
            "Known are Ubuntu 22.04 and 24.04, Debian 12 and 13, and RHEL 9 with its rebuilds."
        )
    return dict(entry)


def known(given: Plan) -> list[Plan]:
    """Return what is known of the host's GPUs, by id or else by the range that the id is in."""
    rows = []
    for gpu in given["host"]["gpus"]:
        row = given["gpus"].get(gpu["device"])
        if row is None:
            near = next(one for one in given["ranges"] if int(gpu["device"], 16) < int(one["below"]))
            row = {**near, "name": f"GPU 10de:{gpu['device'].lower()}", "board": False, "c2c": False}
        rows.append(row)
    return rows


def branch_of(given: Plan, rows: list[Plan]) -> int:
    """Return the branch: the one asked for, else the installed one where it knows the GPUs, else one that does."""
    wishes, versions = given["wishes"], versions_of(given["host"]["packages"])
    floor = max([row["branch"] for row in rows], default=0)
    asked = int(str(wishes["version"] or wishes["branch"] or 0).partition(".")[0])
    there = int(upstream(versions.most_common(1)[0][0]).partition(".")[0]) if versions else 0
    branch = asked or (there if there and there >= floor else next(one for one in given["lts"] if one >= floor))
    newest = next((row["name"] for row in rows if row["branch"] > branch), "")
    if newest:
        raise Refused(f"Driver branch {branch} does not know {newest}: it takes {floor} or newer (driver_branch).")
    return branch


def flavour_of(given: Plan, rows: list[Plan], branch: int) -> str:
    """Return "open" or "proprietary", the one that drives all GPUs of the host."""
    rules, wish = given["open_rules"], given["wishes"]["flavour"]
    needs = {row["open"]: row["name"] for row in rows}
    old, new = needs.get("unsupported"), needs.get("required")
    if old and new:
        raise Refused(
            f"No driver drives both {old} and {new}: one needs the proprietary module, the other the open one."
        )
    if old and branch >= rules["only_from"]:
        raise Refused(f"Branch {branch} has no module for {old}: stay on branch 580 (driver_branch).")
    choice = wish if wish != "auto" else preferred(given["host"], rules, branch, old=bool(old), new=bool(new))
    wrong = (choice == "open" and old) or (choice == "proprietary" and new)
    if wrong:
        raise Refused(f"The {choice} kernel module does not drive {wrong} (driver_flavour).")
    if choice == "open" and branch < rules["exists_from"]:
        raise Refused(f"Branch {branch} has no open kernel module (driver_flavour).")
    return str(choice)


def preferred(host: Host, rules: Plan, branch: int, *, old: bool, new: bool) -> str:
    """Return the flavour that nobody chose: what the GPUs need, else what is there, else NVIDIA's own preference."""
    if old or new:
        return "proprietary" if old else "open"
    there = {is_open(name) for name in host["packages"] if MODULE.fullmatch(name)}
    if branch < rules["only_from"] and len(there) == 1:
        return "open" if there.pop() else "proprietary"
    return "open" if branch >= rules["preferred_from"] else "proprietary"


def source_of(given: Plan, entry: Plan, branch: int, *, subnet_manager: bool) -> str:
    """Return "distribution", which comes first, or "nvidia"."""
    own = branch_is_in(entry, branch) and not subnet_manager
    wish = given["wishes"]["source"]
    if wish == "distribution" and not own:
        system = given["host"]["distribution"]
        why = "the NVLink Subnet Manager" if subnet_manager else f"branch {branch}"
        raise Refused(f"{system['id']} {system['version']} has no package of {why} (driver_source: nvidia has).")
    return str(wish) if wish != "auto" else "distribution" if own else "nvidia"


def branch_is_in(entry: Plan, branch: int) -> bool:
    """Tell whether the distribution itself has a branch."""
    return str(branch) in entry.get("distribution", {}).get("branches", [])


def fabric_of(given: Plan, rows: list[Plan]) -> str:
    """Return what the NVSwitches need: "none", "manager" or "subnet-manager"."""
    wish, host = given["wishes"]["fabric"], given["host"]
    if wish != "auto":
        return str(wish)
    if host["switches"]:
        return "manager"
    boards = [row for row in rows if row["board"] and row["open"] == "required"]
    return "subnet-manager" if len(boards) >= BOARD_GPUS and not host["guest"] else "none"


def named(patterns: list[str], branch: int, flavour: str, **more: str) -> list[str]:
    """Return names with their places filled in."""
    return [pattern.format(b=branch, o="-open" if flavour == "open" else "", **more) for pattern in patterns]


def kernel_flavours(host: Host) -> list[str]:
    """Return the flavours of kernels: of the packages that follow them, else what the releases end with."""
    ends = (re.sub(r"^[\d.]+(?:\+deb\d+)?(?:-\d+(?:\.[\d.]+)?)?-", "", kernel["release"]) for kernel in host["kernels"])
    return host["flavours"] or list(dict.fromkeys(ends))


def needed_kernels(host: Host) -> tuple[list[str], list[str]]:
    """Return the releases that must get a module, the running and the newest one, and the others."""
    releases = [kernel["release"] for kernel in host["kernels"]]
    musts = [release for release in releases if release in (host["running"], releases[-1])]
    return musts, [release for release in releases if release not in musts]


def module_packages(host: Host, source: Plan, branch: int, flavour: str) -> tuple[list[str], list[str]]:
    """Return the packages, and the optional ones, that bring the module to every kernel: signed ones, or DKMS's."""
    if not source.get("signed"):
        return named([source["dkms"][flavour]], branch, flavour), []
    musts, others = needed_kernels(host)
    following = [
        name for k in kernel_flavours(host) for name in named([source["signed_following"]], branch, flavour, k=k)
    ]
    return following, [name for r in musts + others for name in named([source["signed"]], branch, flavour, r=r)]


def headers(host: Host, entry: Plan) -> tuple[list[str], list[str]]:
    """Return the packages that DKMS builds with: of kernels that must get a module and those to come, of the others."""
    musts, others = needed_kernels(host)
    following = [entry["headers_following"].format(k=kind) for kind in kernel_flavours(host)] if musts else []
    exact = [entry["headers"].format(r=release) for release in musts]
    return [*exact, *dict.fromkeys(following)], [entry["headers"].format(r=release) for release in others]


def aligned(host: Host, branch: int, version: str) -> dict[str, str]:
    """Return {package: version} of what must move so that all driver packages of this branch are of one version."""
    versions = [v for v in versions_of(host["packages"]) if upstream(v).split(".")[0] == str(branch)]
    fitting = [one for one in versions if not version or upstream(one) == version]
    if not fitting:
        return {}
    target = max(fitting, key=lambda one: [int(part) for part in upstream(one).split(".")])
    rows = ((name, package["version"]) for name, package in host["packages"].items())
    return {
        name: target
        for name, there in rows
        if of_driver(name.partition(":")[0], there) and upstream(there) != upstream(target) and there in versions
    }


def plan(given: Plan) -> Plan:
    """Return everything that was chosen."""
    host, wishes = given["host"], given["wishes"]
    if not host["gpus"] and wishes["require_gpu"]:
        raise Refused(
            "There is no NVIDIA GPU on the PCI bus of this host, so no driver is installed.\n"
            "To prepare a host whose GPUs come later: driver_require_gpu=false."
        )
    entry, rows = entry_of(host, given["catalogue"]), known(given)
    branch = branch_of(given, rows)
    flavour, fabric = flavour_of(given, rows, branch), fabric_of(given, rows)
    name = source_of(given, entry, branch, subnet_manager=fabric == "subnet-manager")
    source = dict(entry[name])
    plain = branch >= source.get("plain_from", 0) and "plain" in source
    source.update(source["plain"] if plain else {})
    if wishes["modules"] == "dkms":
        source.pop("signed", None)
    system = host["distribution"]
    places = {"distribution": system["id"], "version": system["version"].replace(".", "")}
    return {
        "branch": branch,
        "flavour": flavour,
        "source": name,
        "manager": entry["manager"],
        "signed": "signed" in source,
        "repository": entry["repository"].format(**places),
        "components": source.get("components", []),
        "stream": named([source["streams"][flavour]], branch, flavour)[0] if "streams" in source else "",
        **packages(host, entry, source, wishes, branch, flavour),
        "fabric": fabric_packages(source, fabric, branch, flavour),
        "fabric_needed": fabric,
        "subnet_manager": source["subnet_manager"] if fabric == "subnet-manager" else [],
    }


def packages(host: Host, entry: Plan, source: Plan, wishes: Plan, branch: int, flavour: str) -> Plan:
    """Return what to install, and what to remove by exact name; a whole driver of another make-up is left alone."""
    modules, exact = module_packages(host, source, branch, flavour)
    wanted, optional = [*named(source["packages"], branch, flavour), *modules], source.get("optional", [])
    there = host["packages"]
    of_branch = [name for name, one in there.items() if upstream(one["version"]).split(".")[0] == str(branch)]
    others = sorted(n for n in there if MODULE.fullmatch(n) and is_open(n) != (flavour == "open"))
    module = [n for n in there if MODULE.fullmatch(n) and n not in others]
    whole = bool(module) and any(LIBRARY.fullmatch(name) for name in of_branch)
    if whole and not set(module) & set(wanted):
        wanted, optional, exact = module, [], []
    built = any("dkms" in name.replace("no-dkms", "") for name in wanted)
    needed, older = headers(host, entry) if built else ([], exact)
    moved = aligned(host, branch, str(wishes["version"]))
    join = "-" if "streams" in source else "="
    return {
        "install": [spec(name, source, wishes, branch) for name in wanted if name not in moved],
        "optional": optional,
        "kernels": needed,
        "kernels_optional": older,
        "align": [f"{name}{join}{version}" for name, version in moved.items()],
        "remove": others,
    }


def spec(name: str, source: Plan, wishes: Plan, branch: int) -> str:
    """Return a package with the version that it must have, as its package manager writes it."""
    version = str(wishes["version"])
    if not of_driver(name, f"{branch}.0"):
        return name
    if "streams" in source:  # the stream is of one branch
        return f"{name}-{version}" if version else name
    return f"{name}={version or f'{branch}.'}*"


def fabric_packages(source: Plan, fabric: str, branch: int, flavour: str) -> list[str]:
    """Return the packages of what manages the NVSwitches; the first ones must be of the driver's very version."""
    if fabric == "none":
        return []
    if not source["fabric"] or (fabric == "subnet-manager" and "subnet_manager" not in source):
        raise Refused(
            f"There is no package of Fabric Manager for these NVSwitches in branch {branch} of this source.\n"
            "Name another branch (driver_branch), or driver_source=nvidia."
        )
    return named(source["fabric"], branch, flavour)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "dict", "required": True},
            "wishes": {"type": "dict", "required": True},
            "catalogue": {"type": "dict", "required": True},
            "gpus": {"type": "dict", "required": True},
            "ranges": {"type": "list", "elements": "dict", "required": True},
            "lts": {"type": "list", "elements": "int", "required": True},
            "open_rules": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **plan(module.params))
    except Refused as refused:
        module.fail_json(msg=str(refused))


if __name__ == "__main__":
    main()
