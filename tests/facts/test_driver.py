"""What a driver answers, real and made up, becomes its versions, libraries, packages, device nodes and complaints."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Evidence, Unreadable, from_json
from lpxdoctor.facts import driver as facts
from lpxdoctor.facts.driver import Driver, module_version, same_version
from lpxdoctor.facts.environment import harmful
from lpxdoctor.facts.host import DMESG
from lpxdoctor.facts.libraries import CUDA, JIT, NVML, libraries
from lpxdoctor.facts.nodes import adapters, expected, majors, nodes
from lpxdoctor.facts.versions import version_table
from tests.facts.builders_boot import healthy_boot
from tests.facts.given import command, evidence

DATA = Path(__file__).parent / "data"
H200 = "580.159.04"
DEBIAN = "535.261.03"


def recorded(name: str) -> Evidence:
    return from_json((DATA / f"{name}.json").read_text(encoding="utf-8"))


def with_answers(**answers: Any) -> Driver:
    """Return the driver of the H200 guest with some answers replaced, by the names of facts.driver's probes."""
    changed = {getattr(facts, name).key: value for name, value in answers.items()}
    wrapped = {key: value if isinstance(value, Answer) else Answer(value) for key, value in changed.items()}
    return Driver.parse(Evidence("gpu", {**recorded("h200-guest").answers, **wrapped}, uid=0))


def test_a_real_driver_on_an_h200() -> None:
    driver = Driver.parse(recorded("h200-guest"))
    assert (driver.loaded, driver.open_module, driver.library_version) == (H200, True, H200)
    assert {"nvidia", "nvidia_uvm"} <= driver.in_memory
    (gpu,) = driver.adapters
    assert (gpu.address, gpu.minor, gpu.firmware, gpu.excluded) == ("0000:00:06.0", 0, H200, False)
    assert driver.parameters["DeviceFileMode"] == "438"
    cuda = driver.libraries.get(CUDA)
    assert cuda is not None
    assert (cuda.by, cuda.version, cuda.is_stub, cuda.is_compat) == ("LD_LIBRARY_PATH", H200, False, False)
    assert (driver.smi.status, driver.smi.hung, driver.smi.skipped) == (0, "", "")
    assert driver.driver_packages == ()
    assert not driver.persistenced.installed
    assert driver.complaints == ()
    assert driver.variables == ()


def test_its_device_nodes_are_the_ones_that_the_kernel_expects() -> None:
    driver = Driver.parse(recorded("h200-guest"))
    wanted = expected(driver.majors, driver.adapters)
    assert wanted == {
        "/dev/nvidiactl": (195, 255),
        "/dev/nvidia0": (195, 0),
        "/dev/nvidia-uvm": (238, 0),
        "/dev/nvidia-uvm-tools": (238, 1),
    }
    assert {node.path: (node.major, node.minor) for node in driver.nodes} == wanted  # and no directory among them


def test_debians_packages_without_a_gpu() -> None:
    driver = Driver.parse(recorded("debian-12-dkms"))
    assert driver.loaded == ""
    assert driver.library_version == DEBIAN
    assert {package.upstream for package in driver.driver_packages} == {DEBIAN}
    names = {package.name.partition(":")[0] for package in driver.driver_packages}
    assert {"libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-smi"} <= names
    # They have versions of their own: nvidia-persistenced is 535.171.04 there.
    assert not names & {"nvidia-persistenced", "nvidia-modprobe", "nvidia-kernel-common", "nvidia-alternative"}
    assert driver.package_version("nvidia-persistenced") == "535.171.04"
    assert driver.firmware == {DEBIAN}
    assert driver.modprobe_helper
    assert driver.smi.skipped == "the nvidia module is not loaded"
    assert driver.libraries.versions == {DEBIAN: f"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{DEBIAN}"}


def test_a_host_without_a_driver() -> None:
    driver = Driver.parse(recorded("no-gpu-guest"))
    assert driver.loaded == ""
    assert driver.libraries.taken == ()
    assert driver.packages == ()
    assert driver.nodes == ()
    assert driver.smi.skipped == "nvidia-smi is not installed"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Jul 10 20:44:01 UTC 2025\n", DEBIAN),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n", "580.95.05"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  455.32  Wed Oct 14\n", "455.32"),
    ],
)
def test_the_version_of_the_loaded_module(text: str, version: str) -> None:
    assert module_version(text) == version
    with pytest.raises(Unreadable, match="holds no version"):
        module_version("NVRM version: something new")


def test_a_module_that_only_sys_shows_is_loaded_too() -> None:
    absent = Answer(failure="absent", reason="no such file")
    assert with_answers(VERSION=absent).loaded == H200
    assert with_answers(VERSION=absent, MODULE_VERSION=absent).loaded == ""


def test_one_version_may_be_written_in_two_ways() -> None:
    assert same_version("580.159.04", "580.159.4")
    assert not same_version("580.105", "580.105.08")
    assert same_version("custom", "custom")
    assert not same_version("custom", "580.95.05")


# --- libraries --------------------------------------------------------------------------------------------------------

LIB = "/usr/lib/x86_64-linux-gnu"
FILES = {
    f"{LIB}/libcuda.so.1": f"{LIB}/libcuda.so.580.95.05",
    f"{LIB}/libnvidia-ml.so.1": f"{LIB}/libnvidia-ml.so.580.95.05",
    "/usr/local/cuda/compat/libcuda.so.1": "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06",
    "/usr/local/cuda/lib64/stubs/libcuda.so": "/usr/local/cuda-13.0/targets/x86_64-linux/lib/stubs/libcuda.so",
}
CACHE = {CUDA: [f"{LIB}/libcuda.so.1"], NVML: [f"{LIB}/libnvidia-ml.so.1"]}


def loader(searched: str = "", cache: Any = CACHE) -> dict[str, Any]:
    return {"ld_library_path": searched, "cache": cache, "cache_reason": "ldconfig: not found", "files": FILES}


def test_the_loaders_cache_is_taken_where_no_path_is_set() -> None:
    found = libraries(loader())
    cuda = found.get(CUDA)
    assert cuda is not None
    assert (cuda.version, cuda.by) == ("580.95.05", "ldconfig")
    assert found.get(JIT) is None
    assert found.elsewhere(CUDA) == (f"{LIB}/libcuda.so.1",)


def test_ld_library_path_comes_before_the_cache() -> None:
    cuda = libraries(loader("/nowhere::/usr/local/cuda/compat/")).get(CUDA)
    assert cuda is not None
    assert (cuda.version, cuda.by, cuda.is_compat) == ("580.65.06", "LD_LIBRARY_PATH", True)


def test_without_the_cache_what_programs_load_is_unknown() -> None:
    with pytest.raises(Unreadable, match="ldconfig: not found"):
        libraries(loader(cache=None))
    assert libraries(loader("/usr/local/cuda/compat", cache=None)).get(CUDA) is not None


# --- device nodes -----------------------------------------------------------------------------------------------------


def test_majors_are_those_of_character_devices() -> None:
    text = "Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n195 fake\n"
    assert majors(text) == {"mem": 1, "nvidia-frontend": 195, "nvidia-uvm": 510}
    with pytest.raises(ValueError, match="no character devices"):
        majors("")


def test_an_excluded_gpu_has_no_node() -> None:
    text = "Model: \t\t Tesla T4\nDevice Minor: \t 3\nGPU Firmware: \t N/A\nGPU Excluded:\t Yes\n"
    gpus = adapters({"/proc/driver/nvidia/gpus/0000:3b:00.0/information": text})
    assert (gpus[0].address, gpus[0].firmware, gpus[0].excluded) == ("0000:3b:00.0", "", True)
    assert expected({"nvidia-frontend": 195}, gpus) == {"/dev/nvidiactl": (195, 255)}


def test_a_directory_in_dev_is_no_node() -> None:
    entry = {
        "kind": "dir",
        "major": 0,
        "minor": 0,
        "mode": 0o755,
        "uid": 0,
        "gid": 0,
        "readable": True,
        "writable": True,
    }
    assert nodes({"/dev/nvidia-caps": entry}) == ()


# --- nvidia-smi, the daemon, variables --------------------------------------------------------------------------------


def smi(**changes: Any) -> dict[str, Any]:
    return {"path": "/usr/bin/nvidia-smi", "skipped": "", "exit": 0, "stdout": "", "stderr": "", "hung": "", **changes}


def test_nvidia_smis_last_words_are_kept_where_it_failed() -> None:
    failed = with_answers(SMI=smi(exit=9, stdout="NVIDIA-SMI has failed because ...\n\n")).smi
    assert (failed.status, failed.said) == (9, "NVIDIA-SMI has failed because ...")
    assert with_answers(SMI=smi(stdout="a table\n")).smi.said == ""


def test_nvidia_smi_that_hangs_is_told_whoever_noticed_it() -> None:
    hung = with_answers(SMI=smi(exit=None, hung="process 7 in uninterruptible sleep (D)")).smi
    assert (hung.status, hung.hung) == (None, "process 7 in uninterruptible sleep (D)")
    late = Answer(failure="timeout", reason="no answer within 15 s; it cannot be killed: process 8")
    assert with_answers(SMI=late).smi.hung.endswith("process 8")


def test_the_daemons_unit() -> None:
    shown = command(
        "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
        "ExecStart={ path=/usr/bin/nvidia-persistenced ; argv[]=/usr/bin/nvidia-persistenced --user nvidia-persistenced"
        " --no-persistence-mode --verbose ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 }\n"
    )
    daemon = with_answers(PERSISTENCED=shown).persistenced
    assert (daemon.installed, daemon.active) == (True, True)
    assert daemon.command.endswith("--user nvidia-persistenced --no-persistence-mode --verbose")
    no_systemd = command("", 1, "Failed to connect to bus: Host is down\n")
    assert not with_answers(PERSISTENCED=no_systemd).persistenced.installed


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("/etc/environment", "PATH=/bin\nCUDA_LAUNCH_BLOCKING=1\n", ["CUDA_LAUNCH_BLOCKING"]),
        ("/etc/environment", "CUDA_LAUNCH_BLOCKING=0\n#CUDA_VISIBLE_DEVICES=0\n", []),
        ("/etc/profile.d/x.sh", "export CUDA_VISIBLE_DEVICES='0,1'; export FOO=1\n", ["CUDA_VISIBLE_DEVICES"]),
        ("/etc/profile.d/x.sh", 'if [ "$CUDA_VISIBLE_DEVICES" = "" ]; then :; fi\n', []),
        ("/etc/profile.d/x.sh", "MY_CUDA_VISIBLE_DEVICES=1\n", []),
        ("/etc/systemd/system.conf", 'DefaultEnvironment="CUDA_CACHE_DISABLE=1" "A=b"\n', ["CUDA_CACHE_DISABLE"]),
    ],
)
def test_variables_set_for_everybody(path: str, text: str, names: list[str]) -> None:
    found = harmful({path: text})
    assert [variable.name for variable in found] == names
    assert all(variable.where.startswith(f"{path}:") for variable in found)


def test_the_table_of_versions_leaves_out_what_is_not_there() -> None:
    driver = Driver.parse(recorded("h200-guest"))
    table = version_table(driver, healthy_boot(outside="it comes from outside"))
    assert [row[:2] for row in table] == [
        ("kernel module, in memory", f"{H200}, open"),
        (CUDA, H200),
        (NVML, H200),
        (JIT, H200),
    ]


@given(st.text())
def test_no_answer_makes_parsing_fail(text: str) -> None:
    answers: dict[Any, Any] = dict.fromkeys(Driver.probes, text)
    answers |= dict.fromkeys((facts.DPKG, facts.RPM, facts.PERSISTENCED, DMESG), command(text))
    answers |= {probe: {text: text} for probe in (facts.ADAPTERS, facts.APT, facts.PREFERENCES)}
    answers |= {facts.LIBRARIES: loader(text), facts.SMI: smi(stdout=text, exit=1)}
    driver = Driver.parse(evidence(answers))
    assert isinstance(driver, Driver)
    assert driver.packages is not None
    assert version_table(driver, healthy_boot())
