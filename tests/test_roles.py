"""The roles boot, driver and reboot without a host: which packages from where, which lines of files, which tags."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import gpu_table
from lpxdoctor import bundled, catalog
from lpxdoctor.facts.packages import Package
from lpxdoctor.fix import catalogue
from tests.role_modules import loaded, rendered, templates
from tests.test_playbooks import read

ROLES = bundled.PLAYBOOKS / "roles"
OURS = ("boot", "driver", "reboot")
MODULES = sorted(path for role in OURS for path in (ROLES / role).glob("library/*.py"))
FIXTURES = Path(__file__).parent / "roles"
WISHES = {"branch": "", "version": "", "flavour": "auto", "source": "auto", "modules": "auto", "fabric": "auto"}
H200 = {"kind": "gpu", "address": "0000:06:00.0", "device": "2335", "driver": ""}


def tags(role: str) -> set[str]:
    """Return all tags that stand in a role's task files."""

    def within(node: Any) -> set[str]:
        if isinstance(node, dict):
            return {*node.get("tags", []), *(tag for value in node.values() for tag in within(value))}
        return {tag for value in node for tag in within(value)} if isinstance(node, list) else set()

    return {tag for file in (ROLES / role).glob("tasks/*.yml") for tag in within(read(file))}


@pytest.mark.parametrize("word", ["boot", "driver"])
def test_every_check_that_names_a_role_has_a_tag_in_it(word: str) -> None:
    checks = {check.id for check in catalog.load(None) if check.fix == word}
    assert checks
    assert checks <= tags(word)
    known = {check.id for check in catalog.load(None)}
    assert {tag for tag in tags(word) if "." in tag} <= known  # and no tag is of a check that is gone


def test_what_brings_packages_holds_them_too() -> None:
    tasks = catalogue.load()["driver"]
    installs = re.compile(r"Install (the driver|again|by)|Choose the stream|Remove (modules|what)")
    ids = {tag for task in tasks if installs.match(task.name) for tag in task.tags if "." in tag}
    (hold,) = [task for task in tasks if task.name.startswith("Hold the driver's packages")]
    assert {"driver.wrong-module-flavour", "fabric.manager-not-installed", "cuda.no-image-runs"} <= ids
    assert {id_ for id_ in ids if not id_.startswith("fabric.")} <= hold.tags
    assert "fabric.manager-not-installed" in hold.tags
    assert "interrupts" not in hold.tags  # a plan would say of it what is not so


def test_what_moves_a_driver_comes_after_the_look_at_gpu_work() -> None:
    """Of all tasks: one that interrupts is preceded, within what an illness has run, by the role drain."""
    tasks = [task for task in catalogue.load()["driver"] if "interrupts" in task.tags]
    looks = "Look for work on the GPUs"
    moving = re.compile(r"Install (the driver|again)|Choose the stream|Remove |Let go what|Install Fabric")
    for id_ in sorted({tag for task in tasks for tag in task.tags if "." in tag}):
        names = [task.name for task in tasks if id_ in task.tags or "always" in task.tags]
        first = next((index for index, name in enumerate(names) if moving.match(name)), None)
        assert first is None or looks in names[:first], (id_, names)


def test_what_the_role_knows_of_gpus_is_what_lpxdoctor_knows() -> None:
    assert (ROLES / "driver/vars/main/gpus.yml").read_text() == gpu_table.page()


def variables() -> dict[str, Any]:
    """Return the variables of the role driver that stand for facts."""
    return {**read(ROLES / "driver/vars/main/catalogue.yml"), **read(ROLES / "driver/vars/main/gpus.yml")}


def host(name: str, **more: Any) -> dict[str, Any]:
    """Return a recorded host with one H200 and no driver, or with what is given."""
    recorded = read(FIXTURES / "hosts.yml")[name]
    return {"guest": False, "gpus": [H200], "switches": 0, "packages": {}, **recorded, **more}


def plan(of: dict[str, Any], **wishes: Any) -> dict[str, Any]:
    """Return what driver_plan chooses."""
    facts = variables()
    given = {
        "host": of,
        "wishes": {**WISHES, "require_gpu": True, **wishes},
        "catalogue": facts["driver_catalogue"],
        "gpus": facts["driver_gpus"],
        "ranges": facts["driver_ranges"],
        "lts": facts["driver_lts"],
        "open_rules": facts["driver_open_rules"],
    }
    chosen: dict[str, Any] = loaded("driver", "driver_plan").plan(given)
    return chosen


@pytest.mark.parametrize("case", read(FIXTURES / "plans.yml"), ids=lambda case: case["name"])
def test_the_plan_for_a_distribution(case: dict[str, Any]) -> None:
    chosen = plan(host(case["host"], **case.get("with", {})), **case.get("wishes", {}))
    assert {key: chosen[key] for key in case["expect"]} == case["expect"]


@pytest.mark.parametrize("case", read(FIXTURES / "refusals.yml"), ids=lambda case: case["name"])
def test_what_no_driver_fits_is_refused_with_a_reason(case: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=re.escape(case["says"])) as caught:
        plan(host(case["host"], **case.get("with", {})), **case.get("wishes", {}))
    assert type(caught.value).__name__ == "Refused"


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.0-50-amd64", "amd64"),
        ("6.1.0-50-cloud-amd64", "cloud-amd64"),
        ("6.12.48+deb13-cloud-amd64", "cloud-amd64"),
        ("6.12.48+deb13-amd64", "amd64"),
        ("6.8.0-85-generic", "generic"),
        ("6.8.0-1040-aws", "aws"),
    ],
)
def test_a_kernels_flavour_is_read_from_its_release_where_no_package_follows_it(release: str, flavour: str) -> None:
    of = host(
        "debian12", kernels=[{"release": release, "headers": False, "module": False}], running=release, flavours=[]
    )
    assert f"linux-headers-{flavour}" in plan(of, branch="535")["kernels"]


def test_the_roles_call_a_package_the_drivers_as_the_checks_do() -> None:
    loaded("driver", "driver_plan")
    ours = sys.modules["ansible.module_utils.driver_packages"]
    names = re.findall(r"[\w.+-]+(?==)|(?<==)[\w.+-]+", (FIXTURES / "plans.yml").read_text())
    names += [
        "nvidia-container-toolkit",
        "nvidia-driver-pinning-580",
        "nvidia-modprobe",
        "libnvidia-ml1",
        "nvidia-settings",
    ]
    for name in names:
        for version in ("580.159.04-0ubuntu1", "1:535.161.07-1~deb12u1", "1.20.0-1"):
            assert ours.of_driver(name, version) == Package(name, version).of_driver, name


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_documents_its_arguments(module: Path) -> None:
    text = module.read_text()
    documented = re.search(r'DOCUMENTATION = r"""\n(.*?)"""', text, re.DOTALL)
    specification = re.search(r"argument_spec=\{(.*)\},?\s*supports_check_mode=True", text, re.DOTALL)
    assert documented
    assert specification
    options = yaml.safe_load(documented[1])["options"]
    assert set(options) == set(re.findall(r'"(\w+)": \{"type"', specification[1]))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_runs_on_the_oldest_python_of_hosts(module: Path) -> None:
    ast.parse(module.read_text(), feature_version=(3, 9))
    imported = set(re.findall(r"^(?:from|import) ([\w.]+)", module.read_text(), re.MULTILINE))
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign <= {"ansible.module_utils", "ansible.module_utils.basic", "ansible.module_utils.driver_packages"}


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root and return it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def modprobe_edits(root: Path, **wishes: Any) -> dict[str, str]:
    """Return what boot_modprobe would write: {path below the root: text}."""
    given = {"block": [], "file": None, "allow": [], "unreserve": [], **wishes}
    edits: dict[str, str] = loaded("boot", "boot_modprobe").edits(root, given)
    return {str(Path(path).relative_to(root)): text for path, text in edits.items()}


def test_nouveau_is_blocked_in_one_file_and_in_no_other(tmp_path: Path) -> None:
    by_hand = "# by somebody\nblacklist nouveau\nblacklist floppy\noptions nouveau modeset=0\n"
    write(tmp_path, {"etc/modprobe.d/old.conf": by_hand, "usr/lib/modprobe.d/vendor.conf": "blacklist nouveau\n"})
    edits = modprobe_edits(tmp_path, block=["nouveau", "nova_core"], file="/etc/modprobe.d/ours.conf")
    assert set(edits) == {"etc/modprobe.d/old.conf", "etc/modprobe.d/ours.conf"}  # a package's own is its own affair
    kept = [line for line in edits["etc/modprobe.d/old.conf"].splitlines() if not line.startswith("#")]
    assert kept == ["blacklist floppy"]
    lines = edits["etc/modprobe.d/ours.conf"].splitlines()[1:]
    assert lines == ["blacklist nouveau", "blacklist nova_core", "options nouveau modeset=0"]
    write(tmp_path, edits)
    assert modprobe_edits(tmp_path, block=["nouveau", "nova_core"], file="/etc/modprobe.d/ours.conf") == {}


def test_what_blocks_nvidia_is_taken_out_and_stays_readable(tmp_path: Path) -> None:
    left = "blacklist nvidia-drm\ninstall nvidia \\\n  /bin/false\noptions nvidia NVreg_X=1\nblacklist pcspkr\n"
    write(tmp_path, {"etc/modprobe.d/left.conf": left, "usr/lib/modprobe.d/prime.conf": "blacklist nvidia\n"})
    edits = modprobe_edits(tmp_path, allow=["nvidia", "nvidia_drm"])
    # A file outside /etc is not edited but masked by one of its name.
    assert set(edits) == {"etc/modprobe.d/left.conf", "etc/modprobe.d/prime.conf"}
    said = [line for line in edits["etc/modprobe.d/left.conf"].splitlines() if not line.startswith("#")]
    assert said == ["options nvidia NVreg_X=1", "blacklist pcspkr"]
    assert edits["etc/modprobe.d/left.conf"].count("# taken out by lpxdoctor") == 3
    write(tmp_path, edits)
    assert modprobe_edits(tmp_path, allow=["nvidia", "nvidia_drm"]) == {}


def test_only_nvidias_devices_are_taken_back_from_virtual_machines(tmp_path: Path) -> None:
    write(tmp_path, {"etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:2335,8086:1572 disable_vga=1\n"})
    edits = modprobe_edits(tmp_path, unreserve=["10de"])
    assert edits["etc/modprobe.d/vfio.conf"].splitlines()[-1] == "options vfio-pci ids=8086:1572 disable_vga=1"


def command_line(root: Path, **wishes: Any) -> dict[str, str]:
    """Return what boot_command_line would write: {path below the root: text}."""
    given = {"allow": [], "unreserve": [], "remove": [], "add": [], **wishes}
    edits: dict[Path, str] = loaded("boot", "boot_command_line").wanted_files(root, given)
    return {str(path.relative_to(root)): text for path, text in edits.items()}


GRUB = 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet modprobe.blacklist=nouveau,nvidia"\nGRUB_CMDLINE_LINUX=""\n'


def test_the_command_line_loses_what_blocks_nvidia_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"etc/default/grub": GRUB, "etc/kernel/cmdline": "root=/dev/vda1 module_blacklist=nvidia\n"})
    edits = command_line(tmp_path, allow=["nvidia", "nvidia_drm"])
    assert edits["etc/default/grub"] == GRUB.replace("nouveau,nvidia", "nouveau")
    assert edits["etc/kernel/cmdline"] == "root=/dev/vda1\n"
    write(tmp_path, edits)
    assert command_line(tmp_path, allow=["nvidia", "nvidia_drm"]) == {}


def test_parameters_are_added_once_for_every_entry(tmp_path: Path) -> None:
    write(tmp_path, {"etc/default/grub": GRUB})
    edits = command_line(tmp_path, add=["iommu=pt"], remove=["iommu=off"])
    assert 'GRUB_CMDLINE_LINUX="iommu=pt"' in edits["etc/default/grub"]
    write(tmp_path, edits)
    assert command_line(tmp_path, add=["iommu=pt"], remove=["iommu=off"]) == {}


def test_a_menu_that_was_edited_by_hand_is_made_anew(tmp_path: Path) -> None:
    write(
        tmp_path, {"boot/grub/grub.cfg": "menuentry 'x' {\n linux /vmlinuz root=/dev/vda1 module_blacklist=nvidia\n}\n"}
    )
    boot = loaded("boot", "boot_command_line")
    given = {"allow": ["nvidia"], "unreserve": [], "remove": [], "add": []}
    assert boot.menu_is_stale(tmp_path, given)
    assert not boot.menu_is_stale(tmp_path, {**given, "allow": []})


def test_settings_come_back_where_the_menu_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, {"etc/default/grub": GRUB}) / "etc/default/grub"
    boot = loaded("boot", "boot_command_line")

    class Module:
        def backup_local(self, path: str) -> str:
            return path + ".backup"

    def fails(*argv: str) -> str:
        raise boot.Refused(f"{argv[0]} ended with 1")

    monkeypatch.setattr(boot, "run", fails)
    given = {"allow": ["nvidia"], "unreserve": [], "remove": [], "add": []}
    with pytest.raises(Exception, match="settings are as they were"):
        boot.apply(Module(), tmp_path, {file: "GRUB_CMDLINE_LINUX=\n"}, given, menu=True)
    assert file.read_text() == GRUB


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
    monkeypatch.setattr(
        dkms.subprocess, "run", lambda *_, **__: type("Done", (), {"returncode": 10, "stdout": "", "stderr": ""})
    )
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
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: type("Done", (), {"stdout": said}))
    assert module.is_damaged("nvidia-smi", apt=True) == damaged


def test_secure_boot_asks_for_a_key_only_where_dkms_builds(tmp_path: Path) -> None:
    signing = loaded("boot", "boot_signing")
    variable = tmp_path / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\0\0\0\x01")
    assert signing.look(tmp_path)["secure_boot"]
    assert not signing.look(tmp_path)["needed"]
    write(tmp_path, {"var/lib/dkms/nvidia/580.159.04/source/dkms.conf": "", "var/lib/dkms/mok.pub": "key"})
    seen = signing.look(tmp_path)
    assert seen["needed"]
    assert seen["key"] == str(tmp_path / "var/lib/dkms/mok.pub")
    variable.write_bytes(b"\x06\0\0\0\0")
    assert not signing.look(tmp_path)["needed"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the host's openssl makes the key")
def test_the_key_that_dkms_signs_with_is_a_certificate_that_firmware_takes(tmp_path: Path) -> None:
    argv = [word.replace("/var/lib/dkms", str(tmp_path)) for word in read(ROLES / "boot/vars/main.yml")["boot_new_key"]]
    subprocess.run(argv, check=True, capture_output=True)
    assert (tmp_path / "mok.key").stat().st_mode & 0o077 == 0
    shown = ("openssl", "x509", "-inform", "DER", "-in", tmp_path / "mok.pub", "-noout", "-subject")
    assert "DKMS module signing key" in subprocess.run(shown, check=True, capture_output=True, text=True).stdout


# As dnf 4.14 prints it.
STREAMS = """x
Name          Stream       Profiles    Summary
nvidia-driver 580-dkms [d] default [d] NVIDIA
nvidia-driver 580-open [e] default     NVIDIA

Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled
"""


@pytest.mark.parametrize(
    ("stream", "said", "differs"),
    [
        ("580-open", STREAMS, False),
        ("580-dkms", STREAMS, True),
        ("580-dkms", STREAMS.replace("[d] default", "[d][e] default"), False),
        ("580", STREAMS, True),
        ("580-open", "", False),  # a directory of packages has none
    ],
)
def test_whether_another_stream_of_the_driver_is_to_be_chosen(stream: str, said: str, differs: bool) -> None:
    expression = templates("driver", "vars/main/main.yml")["driver_stream_differs"]
    assert rendered(expression, {"driver_streams": {"stdout": said}, "driver_plan": {"stream": stream}}) is differs


def test_all_gpus_given_to_virtual_machines_are_seen(tmp_path: Path) -> None:
    look = loaded("boot", "boot_look")
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.1.0\n"})
    for address, driver in (("0000:06:00.0", "vfio-pci"), ("0000:07:00.0", "vfio-pci")):
        text = f"DRIVER={driver}\nPCI_CLASS=30200\nPCI_ID=10DE:2335\n"
        write(tmp_path, {f"sys/bus/pci/devices/{address}/uevent": text})
    assert look.look(tmp_path)["given_away"]
    write(tmp_path, {"sys/bus/pci/devices/0000:07:00.0/uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2335\n"})
    assert not look.look(tmp_path)["given_away"]


def test_the_reasons_for_a_reboot(tmp_path: Path) -> None:
    reasons = loaded("reboot", "reboot_reasons")
    write(
        tmp_path,
        {
            "run/reboot-required": "",
            "run/reboot-required.pkgs": "linux-image-6.1\n",
            "proc/sys/kernel/osrelease": "6.1.0\n",
            "lib/modules/6.1.0/updates/dkms/nvidia-current.ko": "",
            "sys/module/nouveau/refcnt": "1\n",
        },
    )
    assert reasons.of_distribution(tmp_path) == ["packages ask for it: linux-image-6.1"]
    assert reasons.of_modules(tmp_path) == ["nouveau is loaded, and NVIDIA's module is on disk"]


def test_signed_modules_are_not_held_with_the_driver() -> None:
    loaded("driver", "driver_plan")
    ours = sys.modules["ansible.module_utils.driver_packages"]
    packages = {
        "libnvidia-compute-580-server": {"version": "580.159.04-0ubuntu0.24.04.1", "held": False},
        "libcuda1:i386": {"version": "535.261.03-1", "held": False},
        "linux-modules-nvidia-580-server-open-generic": {"version": "6.8.0-85.85", "held": False},
        "nvidia-container-toolkit": {"version": "1.20.0-1", "held": False},
    }
    assert ours.to_hold(packages) == ["libcuda1:i386", "libnvidia-compute-580-server"]
