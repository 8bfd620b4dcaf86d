"""Messages of kernels and drivers, as people posted them, become complaints by kind and GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.facts.driver_log import KINDS, complaints, messages, ranked

MISMATCH = """[ 7386.259769] NVRM: API mismatch: the client has the version 515.48.07, but
               NVRM: this kernel module has the version 510.73.05.  Please
               NVRM: make sure that this kernel module and all NVIDIA driver
               NVRM: components have the same version."""
PASCAL = """[   87.358035] NVRM: The NVIDIA GPU 0000:03:00.0 (PCI ID: 10de:1bb3)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
[  988.289884] NVRM: GPU 0000:03:00.0: RmInitAdapter failed! (0x24:0x72:1603)
[  988.372255] NVRM: GPU 0000:03:00.0: rm_init_adapter failed, device minor number 0"""
BLACKWELL = """[    5.559842] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)
               NVRM: installed in this system requires use of the NVIDIA open kernel modules.
[    5.559858] NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)"""
NO_BAR = """[83260.063553] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)
[83260.063557] nvidia: probe of 0000:14:00.0 failed with error -1
[83260.106438] NVRM: The NVIDIA probe routine failed for 2 device(s)."""
TAKEN = """[  530.504692] NVRM: The NVIDIA probe routine was not called for 1 device(s).
[  530.504693] NVRM: This can occur when a driver such as:
            NVRM: nouveau, rivafb, nvidiafb or rivatv
            NVRM: was loaded and obtained ownership of the NVIDIA device(s)."""
HEALTHY = """[    0.000000] Linux version 6.8.0-87-generic (buildd@lcy02) #88-Ubuntu SMP
[    5.1] nvidia: loading out-of-tree module taints kernel.
[    5.2] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    5.3] nvidia-nvlink: Nvlink Core is being initialized, major device number 234
[    5.4] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
[    6.0] nvidia 0000:65:00.0: enabling device (0140 -> 0142)"""


@pytest.mark.parametrize(
    ("log", "kind", "address", "words"),
    [
        (MISMATCH, "api mismatch", "", "components have the same version."),
        (PASCAL, "needs proprietary", "0000:03:00.0", "required GPU System Processor (GSP)."),
        (BLACKWELL, "needs open", "0000:02:00.0", "requires use of the NVIDIA open kernel modules."),
        (NO_BAR, "no address space", "0000:14:00.0", "is invalid: BAR1 is 0M @ 0x0"),
        (TAKEN, "taken by another", "", "was not called for 1 device(s)."),
        ("[   12.1] Loading of unsigned module is rejected", "signature", "", "unsigned"),
        ("[   12.1] Loading of module with unavailable key is rejected", "signature", "", "unavailable key"),
        ("[ 9.9] Lockdown: modprobe: unsigned module loading is restricted; see man", "signature", "", "Lockdown"),
        ("[ 9.9] nvidia: version magic '6.8.0-87 SMP' should be '6.8.0-90 SMP'", "other kernel", "", "magic"),
        ("[ 9.9] nvidia: disagrees about version of symbol module_layout", "other kernel", "", "disagrees"),
        (
            "[ 9.9] nvidia 0000:65:00.0: Direct firmware load for nvidia/580.95.05/gsp_ga10x.bin failed with error -2",
            "firmware missing",
            "0000:65:00.0",
            "gsp_ga10x.bin",
        ),
        (
            "[ 9.9] NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
            "not initialised",
            "0000:65:00.0",
            "Rm",
        ),
    ],
)
def test_what_explains_most_comes_first(log: str, kind: str, address: str, words: str) -> None:
    first = ranked(complaints(log.splitlines()))[0]
    assert (first.kind, first.address) == (kind, address)
    assert words in first.text


def test_a_driver_that_starts_well_makes_no_complaint() -> None:
    assert complaints(HEALTHY.splitlines()) == ()


def test_the_versions_of_a_mismatch() -> None:
    (found,) = complaints(MISMATCH.splitlines())
    assert found.versions == ("515.48.07", "510.73.05")
    (short,) = complaints(["NVRM: API mismatch: client version 570.133.07, kernel module version 570.124.06"])
    assert short.versions == ("570.133.07", "570.124.06")


def test_lines_that_all_have_a_time_stamp_are_joined_where_the_sentence_goes_on() -> None:
    old = [
        "[41.97] NVRM: API mismatch: the client has the version 352.79, but",
        "[41.97] NVRM: this kernel module has the version 361.42.  Please",
    ]
    (found,) = complaints(old)
    assert found.versions == ("352.79", "361.42")


def test_a_message_that_repeats_is_told_once() -> None:
    assert (
        len(
            complaints(
                [
                    "[1.0] NVRM: GPU 0000:65:00.0: RmInitAdapter failed!",
                    "[2.0] NVRM: GPU 0000:65:00.0: RmInitAdapter failed!",
                ]
            )
        )
        == 1
    )


def test_a_line_of_the_journal_reads_like_one_of_dmesg() -> None:
    assert messages(["Nov 29 10:00:33 gpu-12 kernel: NVRM: None of the NVIDIA devices were initialized."]) == [
        "NVRM: None of the NVIDIA devices were initialized."
    ]


@given(st.lists(st.text()))
def test_any_log_is_read(log: list[str]) -> None:
    assert all(complaint.kind in KINDS and isinstance(complaint.versions, tuple) for complaint in complaints(log))
    assert len(messages(log)) <= len(log)
