"""Boot loaders' files become the kernel that starts next and its command line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.bootloader import next_boot

GRUB = """
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
menuentry 'Ubuntu' --class ubuntu --class os $menuentry_id_option 'gnulinux-simple-1f' {
\trecordfail
\tload_video
\tlinux\t/vmlinuz-6.8.0-90-generic root=/dev/md0 ro quiet
\tinitrd\t/initrd.img-6.8.0-90-generic
}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-1f' {
\tmenuentry 'Ubuntu, with Linux 6.8.0-90-generic' $menuentry_id_option 'gnulinux-6.8.0-90-generic-advanced-1f' {
\t\tlinux\t/vmlinuz-6.8.0-90-generic root=/dev/md0 ro quiet
\t}
\tmenuentry 'Ubuntu, with Linux 6.8.0-87-generic' $menuentry_id_option 'gnulinux-6.8.0-87-generic-advanced-1f' {
\t\tlinux\t/vmlinuz-6.8.0-87-generic root=/dev/md0 ro modprobe.blacklist=nouveau
\t}
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
\tfwsetup
}
"""
OLD = "6.8.0-87-generic"
NEW = "6.8.0-90-generic"
BLS_ONLY = (
    'set default="${saved_entry}"\nblscfg\nmenuentry "UEFI Firmware Settings" --id \'uefi-firmware\' {\n\tfwsetup\n}\n'
)


def entry(release: str, options: str = "root=/dev/sda3 ro") -> str:
    lines = (f"title Rocky Linux ({release})", f"version {release}", f"linux /vmlinuz-{release}", f"options {options}")
    return "\n".join((*lines, "options quiet\n"))


WITH_KERNELOPTS = "root=/dev/sda3 $kernelopts"
ENTRIES = {
    "/boot/loader/entries/abc-5.14.0-9.el9.x86_64.conf": entry("5.14.0-9.el9.x86_64"),
    "/boot/loader/entries/abc-5.14.0-503.el9.x86_64.conf": entry("5.14.0-503.el9.x86_64", WITH_KERNELOPTS),
    "/boot/loader/entries/abc-0-rescue.conf": entry("0-rescue-abc"),
}


@pytest.mark.parametrize(
    ("default", "environment", "release"),
    [
        ("0", "", NEW),
        ("1>1", "", OLD),
        ("1>2", "", NEW),  # there is no such entry: GRUB takes the first
        ("1", "", NEW),  # a submenu by itself: its first
        ("Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-87-generic", "", OLD),
        ("gnulinux-advanced-1f>gnulinux-6.8.0-87-generic-advanced-1f", "", OLD),
        ("${saved_entry}", f"saved_entry=gnulinux-advanced-1f>gnulinux-{OLD}-advanced-1f\n", OLD),
        ("${saved_entry}", "# GRUB Environment Block\n##########", NEW),
        ("0", "next_entry=1>1\n", OLD),  # grub-reboot, once
        ("0", "saved_entry=1>1\n", NEW),
    ],
)
def test_grubs_choice(default: str, environment: str, release: str) -> None:
    chosen = next_boot(GRUB.replace("DEFAULT", default), environment, {}, None, (NEW, OLD))
    assert chosen.release == release
    assert chosen.command_line is not None
    assert ("modprobe.blacklist=nouveau" in chosen.command_line) == (release == OLD)


def test_an_entry_that_starts_no_kernel_is_not_taken_for_one() -> None:
    with pytest.raises(Unreadable, match="starts no Linux kernel"):
        next_boot(GRUB.replace("DEFAULT", "uefi-firmware"), "", {}, None, (NEW,))


@pytest.mark.parametrize(
    ("environment", "release"),
    [
        ("saved_entry=abc-5.14.0-9.el9.x86_64\n", "5.14.0-9.el9.x86_64"),
        ("saved_entry=abc-gone\n", "5.14.0-503.el9.x86_64"),
        ("", "5.14.0-503.el9.x86_64"),  # the newest, and 503 is newer than 9
        ("saved_entry=1\n", "5.14.0-9.el9.x86_64"),
    ],
)
def test_loader_entries_as_on_rhel(environment: str, release: str) -> None:
    assert next_boot(BLS_ONLY, environment, ENTRIES, None, ()).release == release


def test_kernelopts_come_from_grubs_environment() -> None:
    environment = "kernelopts=ro modprobe.blacklist=nouveau\n"
    chosen = next_boot(BLS_ONLY, environment, ENTRIES, None, ())
    assert chosen.command_line == "root=/dev/sda3 ro modprobe.blacklist=nouveau quiet"


def test_systemd_boots_default_is_a_pattern() -> None:
    assert next_boot(None, None, ENTRIES, "timeout 3\ndefault abc-5.14.0-9.*\n", ()).release == "5.14.0-9.el9.x86_64"


def test_without_a_boot_loader_the_newest_kernel_is_assumed_and_said_so() -> None:
    chosen = next_boot(None, None, {}, None, (NEW, OLD))
    assert (chosen.release, chosen.command_line) == (NEW, None)
    assert "no boot loader's configuration" in chosen.because
    with pytest.raises(Unreadable, match="neither a boot loader"):
        next_boot(None, None, {}, None, ())


def test_entries_that_may_not_be_read_are_unknown() -> None:
    with pytest.raises(Unreadable, match="may not be read"):
        next_boot(None, None, {"/boot/loader/entries/a.conf": None}, None, (NEW,))


def test_a_kernel_whose_file_does_not_name_its_release_is_unknown() -> None:
    with pytest.raises(Unreadable, match="vmlinuz-linux"):
        next_boot("menuentry 'Arch' {\n linux /vmlinuz-linux root=/dev/sda1\n}\n", None, {}, None, ())


@given(st.text(), st.text())
def test_any_text_gives_a_kernel_or_a_reason(grub: str, other: str) -> None:
    for text in (grub, GRUB.replace("DEFAULT", grub), f"menuentry '{grub}' {{\nlinux {other}\n}}\n"):
        with contextlib.suppress(Unreadable):
            assert next_boot(text, other, {"/a.conf": grub}, other, (other,)).because
