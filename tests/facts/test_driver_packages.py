"""Package managers' texts become the driver's packages, and what may or did move them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.facts.packages import (
    Automatic,
    Package,
    apt_automatic,
    dnf_automatic,
    dpkg,
    last_change,
    rpm,
)

UU = (Package("unattended-upgrades", "2.9.1"),)
ON = {"/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n'}
LIBRARY = Package("libnvidia-compute-580-server:amd64", "580.95.05-0ubuntu0.24.04.1")


@pytest.mark.parametrize(
    ("name", "version", "of_driver"),
    [
        ("libnvidia-compute-580-server:amd64", "580.95.05-0ubuntu0.24.04.1", True),
        ("nvidia-dkms-580-server-open", "580.95.05-0ubuntu0.24.04.1", True),
        ("nvidia-utils-580-server", "580.95.05-0ubuntu0.24.04.1", True),
        ("libcuda1:amd64", "535.261.03-1", True),
        ("nvidia-kernel-open-dkms", "595.58.03-1", True),
        ("nvidia-driver-cuda", "3:580.95.05-1.el9", True),
        ("kmod-nvidia-open-dkms", "3:580.95.05-1.el9", True),
        ("nvidia-fabricmanager-580", "580.95.05-1", True),
        ("cuda-drivers-580", "580.95.05-0ubuntu1", True),
        ("nvidia-persistenced", "535.171.04-1~deb12u1", False),  # Debian's goes its own way
        ("nvidia-modprobe", "535.161.07-1~deb12u1", False),
        ("nvidia-container-toolkit", "1.20.0-1", False),
        ("libnvidia-container1:amd64", "1.20.0-1", False),
        ("nvidia-driver-pinning-580", "580.95.05-1", False),
        ("nvidia-kernel-common", "20220217+3~deb12u1", False),
        ("linux-modules-nvidia-580-server-open-generic", "6.8.0-87.88+1", False),
        ("nvidia-cuda-toolkit", "12.0.140~12.0.1-4build4", False),
        ("nvidia-settings", "510.47.03-0ubuntu1", False),
        ("nvlsm", "2025.10.14-1", False),
    ],
)
def test_which_packages_must_be_of_the_modules_version(name: str, version: str, of_driver: bool) -> None:
    assert Package(name, version).of_driver == of_driver


def test_dpkg_lists_what_is_installed_and_what_is_held() -> None:
    rows = ("libcuda1:amd64\t535.261.03-1\thi ", "libcuda-10.0-1\t\tun ", "nvidia-smi\t535.1-1\trc ")
    text = "\n".join((*rows, "nvidia-utils-580\t580.95.05-0\tii "))
    assert dpkg(text) == (
        Package("libcuda1:amd64", "535.261.03-1", held=True),
        Package("nvidia-utils-580", "580.95.05-0"),
    )


def test_rpm_lists_names_and_versions() -> None:
    assert rpm("nvidia-driver-cuda\t580.95.05-1.el9\n\n") == (Package("nvidia-driver-cuda", "580.95.05-1.el9"),)


def test_unattended_upgrades_must_be_installed_and_switched_on() -> None:
    assert apt_automatic(ON, (), UU).service == "unattended-upgrades"
    assert apt_automatic(ON, (), ()).service == ""
    assert apt_automatic({}, (), UU).service == ""
    off = {**ON, "/etc/apt/apt.conf.d/99local": 'APT::Periodic::Unattended-Upgrade "0";\n'}
    assert apt_automatic(off, (), UU).service == ""
    comment = {"/etc/apt/apt.conf.d/20auto-upgrades": '// APT::Periodic::Unattended-Upgrade "1";\n'}
    assert apt_automatic(comment, (), UU).service == ""


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ('Unattended-Upgrade::Package-Blacklist {\n// "libnvidia-";\n "nvidia-"; };\n', True),
        ('Unattended-Upgrade::Package-Blacklist {\n "libnvidia-"; "nvidia-"; };\n', False),
        ('Unattended-Upgrade::Package-Blacklist:: "libnvidia.*";\n', False),
        ('Unattended-Upgrade::Package-Blacklist { "("; };\n', True),  # no valid pattern: it protects nothing
    ],
)
def test_what_the_blacklist_protects(text: str, moves: bool) -> None:
    assert apt_automatic({**ON, "/etc/apt/apt.conf.d/50unattended-upgrades": text}, (), UU).moves(LIBRARY) == moves


@pytest.mark.parametrize(
    ("pin", "moves"),
    [
        ("Package: *nvidia*\nPin: version 580.95.05*\nPin-Priority: 1001\n", False),
        ("Package: *nvidia*\nPin: version 580.*\nPin-Priority: 1001\n", True),  # a branch still moves
        ("Package: cuda*\nPin: version 580.95.05*\nPin-Priority: 1001\n", True),
    ],
)
def test_a_pin_protects_when_it_names_one_version(pin: str, moves: bool) -> None:
    assert apt_automatic(ON, (pin,), UU).moves(LIBRARY) == moves


def test_a_held_package_is_never_moved() -> None:
    automatic = apt_automatic(ON, (), UU)
    assert automatic.moves(LIBRARY)
    assert not automatic.moves(Package(LIBRARY.name, LIBRARY.version, held=True))
    assert not Automatic("").moves(LIBRARY)


TIMER = "/etc/systemd/system/timers.target.wants/dnf-automatic.timer"
INSTALL = "/etc/systemd/system/timers.target.wants/dnf-automatic-install.timer"
DRIVER = Package("nvidia-driver-cuda", "3:580.95.05-1.el9")


@pytest.mark.parametrize(
    ("config", "timers", "dnf", "lock", "moves"),
    [
        ("[commands]\napply_updates = yes\n", [TIMER], None, None, True),
        ("[commands]\napply_updates = no\n", [TIMER], None, None, False),
        ("[commands]\napply_updates = no\n", [INSTALL], None, None, True),
        ("[commands]\napply_updates = yes\n", [], None, None, False),
        (None, [], None, None, False),
        ("apply_updates = yes\n", [TIMER], "[main]\nexclude=kernel* *nvidia*\n", None, False),
        ("apply_updates = yes\n", [TIMER], "[main]\nexclude=kernel*\n", None, True),
        ("apply_updates = yes\n", [TIMER], None, "# added\nnvidia-driver-cuda-3:580.95.05-1.el9.*\n", False),
        ("apply_updates = yes\n", [TIMER], None, "*nvidia*\n", False),
    ],
)
def test_what_dnf_automatic_moves(
    config: str | None, timers: list[str], dnf: str | None, lock: str | None, moves: bool
) -> None:
    assert dnf_automatic(config, timers, dnf, (lock,)).moves(DRIVER) == moves


HISTORY = """
Start-Date: 2026-11-27  10:00:00
Commandline: apt-get install -y nvidia-driver-580-server
Install: nvidia-driver-580-server:amd64 (580.95.05-0ubuntu0.24.04.1)
End-Date: 2026-11-27  10:01:00

Start-Date: 2026-11-28  06:12:03
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-compute-580-server:amd64 (580.95.05-0ubuntu0, 580.105.08-0ubuntu0), tzdata:amd64 (2026a, 2026b)
End-Date: 2026-11-28  06:12:09

Start-Date: 2026-11-29  06:10:00
Commandline: /usr/bin/unattended-upgrade
Upgrade: openssl:amd64 (3.0.13-0ubuntu3.5, 3.0.13-0ubuntu3.6)
End-Date: 2026-11-29  06:10:03
"""


def test_the_last_upgrade_of_the_driver_is_found_in_apts_history() -> None:
    change = last_change(HISTORY)
    assert change is not None
    assert (change.date, change.command) == ("2026-11-28 06:12:03", "/usr/bin/unattended-upgrade")
    assert change.packages == (("libnvidia-compute-580-server:amd64", "580.95.05-0ubuntu0", "580.105.08-0ubuntu0"),)
    assert last_change("") is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for packages in (dpkg(text), rpm(text), dpkg(f"{text}\t{text}\tii\n")):
        assert all(isinstance(package.of_driver, bool) for package in packages)
    blacklist = f'Unattended-Upgrade::Package-Blacklist {{ "{text}"; }};'
    assert isinstance(apt_automatic({**ON, "/z": blacklist}, (text,), UU).moves(LIBRARY), bool)
    assert isinstance(
        dnf_automatic(f"apply_updates=yes\n{text}", [TIMER], f"exclude={text}", (text,)).moves(DRIVER), bool
    )
    last_change(text)
