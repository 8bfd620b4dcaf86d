"""What a boot chain answers, real and made up, becomes what blocks nouveau, what boots next, and who is trusted."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Evidence, Unreadable, from_json
from lpxdoctor.facts import boot as facts
from lpxdoctor.facts import host
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.modprobe import CommandLine, blocks, lines, settings
from lpxdoctor.facts.signing import Keys, enforcement, keys, secure_boot
from tests.facts.given import command, evidence

DATA = Path(__file__).parent / "data"
DEBIAN = "6.1.0-50-amd64"


def recorded(name: str) -> Evidence:
    return from_json((DATA / f"{name}.json").read_text(encoding="utf-8"))


def installed(**changes: Any) -> Boot:
    """Return the boot chain of a real Debian 12 with nvidia-kernel-dkms, as if that machine had started its kernel."""
    answers = dict(recorded("debian-12-dkms").answers)
    answers |= {facts.KERNEL.key: Answer(DEBIAN), host.DETECT_VIRT.key: Answer(command("none\n", 1)), **changes}
    return Boot.parse(Evidence("debian", answers, uid=0))


def test_a_real_dkms_module_of_debian() -> None:
    boot = installed()
    (kernel,) = boot.kernels
    assert (kernel.release, kernel.headers, kernel.has_nouveau) == (DEBIAN, True, True)
    assert kernel.nvidia == ("updates/dkms/nvidia-current.ko",)  # not the -drm, -uvm and wmi modules beside it
    module = boot.module(DEBIAN)
    assert module is not None
    assert (module.version, module.license, module.open, module.signer) == ("535.261.03", "NVIDIA", False, "")
    (source,) = boot.dkms
    assert (source.name, source.version, source.built, source.log) == ("nvidia-current", "535.261.03", (DEBIAN,), ())


def test_debians_blacklist_is_found_on_disk_by_modprobe_and_in_the_initramfs() -> None:
    boot = installed()
    (setting,) = boot.blocks("nouveau")
    assert (str(setting), setting.where) == (
        "blacklist nouveau",
        "/etc/modprobe.d/nvidia-blacklists-nouveau.conf:4",
    )
    assert boot.effective is not None
    assert [str(said) for said in blocks(boot.effective, "nouveau")] == ["blacklist nouveau"]
    image = boot.image(DEBIAN)
    assert image is not None
    assert not image.has_nouveau
    assert [inside.where for inside in blocks(image.settings, "nouveau")] == [
        "etc/modprobe.d/nvidia-blacklists-nouveau.conf:4"  # a link there, to a file in /etc/nvidia
    ]
    assert boot.blocks("nvidia") == ()  # its install line calls modprobe and blocks nothing


def test_the_outlook_of_that_host() -> None:
    assert installed().outlook == (
        f"kernel {DEBIAN} has its NVIDIA module 535.261.03, nouveau stays out, Secure Boot off"
    )


def test_in_the_container_where_it_was_recorded_the_kernel_is_somebody_elses() -> None:
    assert "this is a container" in Boot.parse(recorded("debian-12-dkms")).outside


@pytest.mark.parametrize("name", ["h200-guest", "no-gpu-guest"])
def test_a_guest_with_a_kernel_from_outside_has_no_boot_chain(name: str) -> None:
    boot = Boot.parse(recorded(name))
    assert boot.kernels == ()
    assert "it comes from outside" in boot.outside
    assert boot.outlook == ""


# --- modprobe's settings ----------------------------------------------------------------------------------------------


def test_of_files_with_one_name_the_first_directory_counts() -> None:
    files = {
        "/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
        "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
        "/etc/modprobe.d/nvidia.conf": "",  # masks the others
        "/usr/lib/modprobe.d/b.conf": "options nouveau modeset=0\n",
        "/run/modprobe.d/a.conf": "# blacklist nouveau\n\nblacklist  nova-core\n",
    }
    assert [(str(s), s.where) for s in settings(files)] == [
        ("blacklist nova_core", "/run/modprobe.d/a.conf:3"),
        ("options nouveau modeset=0", "/usr/lib/modprobe.d/b.conf:1"),
    ]


@pytest.mark.parametrize(
    ("line", "blocked"),
    [
        ("blacklist nouveau", True),
        ("install nouveau /bin/false", True),
        ("install nouveau /usr/bin/true", True),
        ("install nouveau modprobe -i nouveau $CMDLINE_OPTS", False),
        ("install nouveau", False),
        ("options nouveau modeset=0", True),
        ("options nouveau config=X modeset=0 debug=1", True),
        ("options nouveau modeset=1", False),
        ("alias nouveau off", False),
        ("blacklist nouveau_extra", False),
        ("blacklist \\\nnouveau", True),
    ],
)
def test_what_blocks_a_module(line: str, blocked: bool) -> None:
    assert bool(blocks(lines(line, "x:{}"), "nouveau")) == blocked


def test_a_file_that_may_not_be_read_makes_the_settings_unknown() -> None:
    boot = installed(**{facts.MODPROBE_FILES[0].key: Answer({"/etc/modprobe.d/secret.conf": None})})
    with pytest.raises(Unreadable, match=r"secret\.conf may not be read"):
        boot.blocks("nouveau")


@pytest.mark.parametrize(
    ("text", "late", "early", "mistaken"),
    [
        ("ro quiet", (), (), ()),
        ("ro modprobe.blacklist=pcspkr,nouveau", ("modprobe.blacklist=pcspkr,nouveau",) * 1, None, ()),
        ("module_blacklist=nouveau", ("module_blacklist=nouveau",), None, ()),
        ("nouveau.modeset=0", ("nouveau.modeset=0",), None, ()),
        ("nomodeset", ("nomodeset",), None, ()),
        ("rd.driver.blacklist=nouveau", (), ("rd.driver.blacklist=nouveau",), ()),
        ("nouveau.blacklist=1", (), (), ("nouveau.blacklist=1",)),
        ("nouveau.blacklist=yes quiet", (), (), ("nouveau.blacklist=yes",)),
        ("blacklist=nouveau rdblacklist=nouveau", (), (), ("blacklist=nouveau", "rdblacklist=nouveau")),
        ("nouveau.modeset=1 nouveau.config=NvGspRm=1", (), (), ()),
        ('dyndbg="file nouveau/* +p" modprobe.blacklist=nova-core', (), (), ()),
    ],
)
def test_what_a_command_line_blocks(
    text: str, late: tuple[str, ...], early: tuple[str, ...] | None, mistaken: tuple[str, ...]
) -> None:
    line = CommandLine(text)
    assert line.blocks("nouveau") == late
    assert line.blocks("nouveau", early=True) == (late if early is None else early)
    assert line.mistaken("nouveau") == mistaken


# --- signatures -------------------------------------------------------------------------------------------------------


def test_the_byte_of_secure_boot() -> None:
    assert secure_boot(firmware_is_efi=True, variables={"SecureBoot-8be4": "\x06\x00\x00\x00\x01"})
    assert not secure_boot(firmware_is_efi=True, variables={"SecureBoot-8be4": "\x06\x00\x00\x00\x00"})
    assert not secure_boot(firmware_is_efi=False, variables={})
    with pytest.raises(Unreadable, match="cannot be read"):
        secure_boot(firmware_is_efi=True, variables={"SecureBoot-8be4": None})
    with pytest.raises(Unreadable, match="cannot be read"):
        secure_boot(firmware_is_efi=True, variables={})


@pytest.mark.parametrize(
    ("on", "lockdown", "sig_enforce", "enforced", "words"),
    [
        (True, "none [integrity] confidentiality\n", "N\n", True, "Secure Boot on, lockdown integrity"),
        (True, None, None, True, "Secure Boot on"),
        (True, "[none] integrity confidentiality\n", "N\n", False, "Secure Boot on, lockdown none"),
        (False, "[none] integrity confidentiality\n", "N\n", False, "Secure Boot off, lockdown none"),
        (False, None, "Y\n", True, "Secure Boot off, module.sig_enforce"),
        (False, None, None, False, "Secure Boot off"),
    ],
)
def test_when_signatures_are_enforced(
    on: bool, lockdown: str | None, sig_enforce: str | None, enforced: bool, words: str
) -> None:
    state = enforcement(on, lockdown, sig_enforce)
    assert (state.on, str(state)) == (enforced, words)


ENROLLED = """[key 1]
SHA1 Fingerprint: 76:a0:92:06:58:00:bf:37:69:01:c3:72:cd:55:a9:0e:1f:de:d2:e0
Certificate:
    Data:
        Version: 3 (0x2)
        Serial Number:
            0b:94:1a
        Issuer: CN=gpu-12 Secure Boot Module Signature key
        Subject: CN=gpu-12 Secure Boot Module Signature key
[key 2]
Certificate:
        Serial Number: 1234 (0x4d2)
        Subject: C=GB, O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority
"""


def test_a_real_list_of_the_kernels_keys() -> None:
    real = str(recorded("h200-guest").value(facts.KEYS))
    assert keys(real, "") == Keys(frozenset({"Build time autogenerated kernel key"}), frozenset())
    with pytest.raises(Unreadable, match="no key of the kernel"):
        keys("22a2c340 I--Q---     9 perm 3f1b0000     0     0 keyring   _ses.1: empty\n", "")


def test_a_key_made_anew_under_the_same_name_is_not_the_enrolled_one() -> None:
    trusted = keys(str(recorded("h200-guest").value(facts.KEYS)), ENROLLED)
    signer = "gpu-12 Secure Boot Module Signature key"
    assert trusted.trust(signer, "0B:94:1A")
    assert not trusted.trust(signer, "77:77:77")
    assert trusted.trust("Canonical Ltd. Master Certificate Authority", "04:D2")
    assert trusted.trust("Build time autogenerated kernel key", "01:02")
    assert not trusted.trust("somebody", "0B:94:1A")


def test_mokutils_short_list_has_names_only() -> None:
    trusted = keys(str(recorded("h200-guest").value(facts.KEYS)), "2bb010e24d fedoraca\n68447cfc17 my own key\n")
    assert trusted.trust("my own key", "01:02")
    assert not trusted.trust("another", "01:02")


# --- anything at all --------------------------------------------------------------------------------------------------


@given(st.text())
def test_no_answer_makes_parsing_fail(text: str) -> None:
    answers: dict[Any, Any] = dict.fromkeys(Boot.probes, text)
    answers |= {glob: {text: text} for glob in (*facts.MODPROBE_FILES, *facts.ENTRIES, facts.SECURE_BOOT)}
    answers |= {facts.ENROLLED: command(text), facts.GRUB[0]: text, facts.EFI: {text: {}}}
    answers |= {facts.MODULES: {"kernels": [], "modinfo": {}, "dkms": [], "showconfig": [text]}}
    boot = Boot.parse(evidence(answers))
    assert isinstance(boot, Boot)
    CommandLine(text).blocks("nouveau", early=True)
    CommandLine(text).mistaken(text)
    blocks(lines(text, text), text)
    for file in ("/etc/modprobe.d/a.conf", text):
        settings({file: text})
