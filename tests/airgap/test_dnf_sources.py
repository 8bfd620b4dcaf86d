"""Where rpm packages come from: a mirror before the distribution's own place, this machine's keys before others."""

from configparser import ConfigParser
from pathlib import Path

import pytest

from lpxdoctor.airgap import dnf_sources
from lpxdoctor.airgap.dnf_sources import DISTRIBUTION, Repository, of
from lpxdoctor.airgap.target import named
from lpxdoctor.errors import SetupError

MIRROR = {DISTRIBUTION: "https://near/mirror/"}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a machine that has neither keys nor a subscription, whichever runs this."""
    monkeypatch.setattr(dnf_sources, "_KEYS", tmp_path / "rpm-gpg")
    monkeypatch.setattr(dnf_sources, "_CERTIFICATES", tmp_path / "entitlement")
    for name in ("rpm-gpg", "entitlement"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_rocky_comes_from_its_own_place_or_a_mirror_of_it() -> None:
    own = of(named("rocky9"), (), {})
    assert [one.url for one in own] == [
        "https://download.rockylinux.org/pub/rocky/9/BaseOS/x86_64/os/",
        "https://download.rockylinux.org/pub/rocky/9/AppStream/x86_64/os/",
    ]
    near, _ = of(named("rocky9/arm64"), (), MIRROR)
    assert (near.url, near.key) == (
        "https://near/mirror/9/BaseOS/aarch64/os/",
        "https://near/mirror/RPM-GPG-KEY-Rocky-9",
    )


def test_rhel_comes_with_the_subscription_of_this_machine(machine: Path) -> None:
    with pytest.raises(
        SetupError, match=r"(?s)has none in .*subscription-manager register.*mirror_rpm_distribution: URL"
    ):
        of(named("rhel9"), (), {})
    for name in ("123-key.pem", "123.pem"):
        (machine / "entitlement" / name).touch()
    (machine / "rpm-gpg/RPM-GPG-KEY-redhat-release").touch()
    base, apps = of(named("rhel9"), (), {})
    assert base.url == "https://cdn.redhat.com/content/dist/rhel9/9/x86_64/baseos/os/"
    assert apps.url == "https://cdn.redhat.com/content/dist/rhel9/9/x86_64/appstream/os/"
    assert base.key == (machine / "rpm-gpg/RPM-GPG-KEY-redhat-release").as_uri()
    assert base.settings["sslclientcert"] == str(machine / "entitlement/123.pem")
    near, _ = of(named("rhel9"), (), MIRROR)
    assert (near.url, near.settings) == ("https://near/mirror/x86_64/baseos/os/", {})


def test_dnf_is_told_what_the_key_has_signed() -> None:
    told = {
        "name": "toolkit",
        "url": "https://near/toolkit",
        "key": "https://near/key",
        "signed": "index",
        "only": ["a", "b"],
    }
    *_, packages, index = of(named("rocky9"), (told | {"name": "docker", "signed": "packages"}, told), {})
    read = ConfigParser()
    read.read_string(packages.section() + index.section())
    assert (read["docker"]["gpgcheck"], read["docker"]["repo_gpgcheck"]) == ("1", "0")
    assert (read["toolkit"]["gpgcheck"], read["toolkit"]["repo_gpgcheck"]) == ("0", "1")
    assert read["toolkit"]["includepkgs"] == "a,b"
    assert read["toolkit"]["skip_if_unavailable"] == "0"
    assert isinstance(index, Repository)
