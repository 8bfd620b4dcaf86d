"""What the role driver edits and reads on a host, on files: sources of packages, the loader, device files, DKMS."""

import re
from getpass import getuser
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from tests.roles.loading import loaded, program, rendered, templates, write

SOURCES = """Types: deb
URIs: https://mirror.example/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Types: deb
URIs: https://packages.example/
Suites: noble
Components: stable
"""

LINES = """deb [arch=amd64] http://mirror.example/debian bookworm main # ours
deb http://mirror.example/debian bookworm-backports main
"""


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("sources.list", LINES, LINES.replace("main # ours", "main contrib non-free # ours")),
        (
            "sources.list.d/ubuntu.sources",
            SOURCES,
            SOURCES.replace("main restricted", "main restricted contrib non-free"),
        ),
    ],
)
def test_components_are_added_to_the_archives_own_sources(tmp_path: Path, name: str, before: str, after: str) -> None:
    components = loaded("driver", "driver_components")
    codename = "noble" if "ubuntu" in name else "bookworm"
    write(tmp_path, {f"etc/apt/{name}": before})
    edits, seen = components.wanted(tmp_path, ["contrib", "non-free"], codename)
    assert seen
    assert edits == {tmp_path / "etc/apt" / name: after}
    (tmp_path / "etc/apt" / name).write_text(after)
    assert components.wanted(tmp_path, ["contrib", "non-free"], codename) == ({}, True)
    assert components.wanted(tmp_path, ["contrib"], "trixie")[1] is False


def test_the_loader_is_not_sent_to_stand_ins(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "etc/ld.so.conf.d/cuda.conf": "/usr/local/cuda/lib64\n/usr/local/cuda-13.0/lib64/stubs\n",
            "etc/profile.d/cuda.sh": 'export LD_LIBRARY_PATH="/usr/local/cuda/compat:/opt/x"\n',
        },
    )
    edits = loaded("driver", "driver_loader").wanted(tmp_path)
    assert edits[tmp_path / "etc/ld.so.conf.d/cuda.conf"].splitlines()[0] == "/usr/local/cuda/lib64"
    assert edits[tmp_path / "etc/ld.so.conf.d/cuda.conf"].splitlines()[1].startswith("# ")
    assert edits[tmp_path / "etc/profile.d/cuda.sh"] == 'export LD_LIBRARY_PATH="/opt/x"\n'


def test_device_files_follow_the_numbers_of_the_loaded_modules(tmp_path: Path) -> None:
    devices = "Character devices:\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n195 nvidia-none\n"
    gpu = "Model: NVIDIA H200\nDevice Minor: \t 1\n"
    write(tmp_path, {"proc/devices": devices, "proc/driver/nvidia/gpus/0000:06:00.0/information": gpu})
    assert loaded("driver", "driver_nodes").wanted(tmp_path) == {
        "nvidiactl": (195, 255),
        "nvidia1": (195, 1),
        "nvidia-uvm": (510, 0),
        "nvidia-uvm-tools": (510, 1),
    }


def test_dkms_needs_kernels_with_headers_and_names_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dkms = loaded("driver", "driver_dkms")
    kept = "var/lib/dkms/nvidia-current/535.261.03"
    write(
        tmp_path,
        {
            "boot/vmlinuz-6.1.0-50-amd64": "",
            "boot/vmlinuz-6.1.0-51-amd64": "",
            "lib/modules/6.1.0-50-amd64/build/Makefile": "",
            f"{kept}/source/dkms.conf": "",
            f"{kept}/build/make.log": "make: start\nnv.c:1: error: implicit declaration\n",
        },
    )
    assert dkms.kernels(tmp_path) == ["6.1.0-50-amd64"]
    assert dkms.sources(tmp_path) == [("nvidia-current", "535.261.03")]
    assert dkms.bring_up_to_date(tmp_path, "", rebuild=False, check=True)[0] == [
        "nvidia-current 535.261.03 for 6.1.0-50-amd64"
    ]
    monkeypatch.setattr(dkms.commands, "run", lambda *_, **__: CompletedProcess((), 10, "", ""))
    monkeypatch.setattr(dkms, "NEEDED_MIB", 0)
    with pytest.raises(Exception, match="implicit declaration"):
        dkms.bring_up_to_date(tmp_path, "", rebuild=False, check=False)


@pytest.mark.parametrize(
    ("said", "damaged"),
    [
        ("", False),
        ("missing     /usr/lib/nvidia/current/nvidia-smi\n", True),
        ("??5??????   /usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03\n", True),
        ("??5?????? c /etc/nvidia/nvidia-load.conf\nmissing   c /etc/x\n", False),
        ("S.5....T.    /usr/bin/nvidia-smi\n", True),
        (".......T.    /usr/bin/nvidia-smi\n", False),  # only its time
    ],
)
def test_a_package_that_lost_files_is_told_from_one_whose_settings_were_changed(
    said: str, damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded("driver", "driver_damaged")
    monkeypatch.setattr(module.commands, "run", lambda *_: CompletedProcess((), 1, said, ""))
    assert module.is_damaged("nvidia-smi", apt=True) == damaged


def test_a_package_database_that_cannot_be_read_is_no_host_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = loaded("driver", "driver_hold").driver_packages
    program(tmp_path / "rpm", "echo 'error: cannot open Packages index' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="cannot open Packages index") as caught:
        packages.installed()
    assert caught.value.filename == "rpm"
    program(tmp_path / "dpkg-query", "exit 1")  # as where no package fits a pattern
    program(tmp_path / "dpkg", "echo amd64")
    assert packages.installed() == {}


@pytest.mark.parametrize(("version", "chosen"), [("", "580.159.04-1"), ("580.95.05", "580.95.05-1")])
def test_apt_keeps_all_of_the_driver_to_its_branch_and_nothing_else(tmp_path: Path, version: str, chosen: str) -> None:
    """libcudadebugger1's name tells nothing of NVIDIA; a driver whose dependency is of another branch is refused."""
    ours = ("libcudadebugger1", "libnvcuvid1", "libcuda1", "libnvidia-ml1", "nvidia-driver-cuda")
    packages = [
        *(
            (name, "nvidia-graphics-drivers", f"{new}-1")
            for name in ours
            for new in ("580.95.05", "580.159.04", "620.3")
        ),
        *(("nvidia-container-toolkit", "nvidia-container-toolkit", new) for new in ("1.19.0-1", "1.20.0-1")),
        *(("less", "less", new) for new in ("580-1", "668-1")),
    ]
    index = "\n".join(
        f"Package: {name}\nSource: {source}\nVersion: {new}\nArchitecture: all\nMaintainer: a\n"
        f"Filename: ./{name}_{new}.deb\nSize: 1\nSHA256: {'0' * 64}\nDescription: a\n"
        for name, source, new in packages
    )
    known = {"driver_version": version, "driver_plan": {"branch": 580}}
    pin = rendered(templates("driver", "vars/main/main.yml")["driver_preferences"], known)
    source = f"deb [trusted=yes] file:{tmp_path}/repository ./\n"
    write(tmp_path, {"repository/Packages": index, "sources.list": source, "preferences": pin, "status": ""})
    for place in ("lists/partial", "cache/archives/partial"):
        (tmp_path / place).mkdir(parents=True)
    places = {"sourcelist": "sources.list", "preferences": "preferences"}
    options = [f"Dir::Etc::{name}={tmp_path}/{file}" for name, file in places.items()]
    options += [f"Dir::Etc::{name}=/none" for name in ("sourceparts", "preferencesparts")]
    options += [f"Dir::State={tmp_path}", f"Dir::State::status={tmp_path}/status", f"Dir::Cache={tmp_path}/cache"]
    argv = [word for option in (*options, f"APT::Sandbox::User={getuser()}") for word in ("--option", option)]
    run(("apt-get", "update", *argv), capture_output=True, check=True)
    said = run(
        ("apt-cache", "policy", *argv, *ours, "nvidia-container-toolkit", "less"), capture_output=True, check=True
    )
    candidates = re.findall(rb"^(\S+):\n.*\n  Candidate: (\S+)", said.stdout, re.MULTILINE)
    assert {name.decode(): new.decode() for name, new in candidates} == {
        **dict.fromkeys(ours, chosen),
        "nvidia-container-toolkit": "1.20.0-1",
        "less": "668-1",
    }
