"""What the roles say that they would install on systems that are not here."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor import bundled, galaxy
from lpxdoctor.airgap import words
from lpxdoctor.airgap.dnf_sources import Repository
from lpxdoctor.airgap.target import named
from lpxdoctor.airgap.words import Plan, plan
from lpxdoctor.errors import UsageError

KERNEL = {
    "debian12": "6.1.0-57-amd64",
    "debian13/arm64": "6.12.57+deb13-arm64",
    "ubuntu2404": "6.8.0-87-generic",
    "rhel9": "5.14.0-611.5.1.el9_7.x86_64",
}


def planned(word: str, target: str, **variables: Any) -> Plan:
    return plan(("boot", word), named(target), (KERNEL[target],), variables, galaxy.ensure())


def test_every_word_can_be_asked() -> None:
    for word in words.WORDS:
        assert f"name: {words.ANSWER}\n" in (bundled.PLAYBOOKS / f"roles/{word}/tasks/packages.yml").read_text()


@pytest.mark.slow
def test_docker_and_the_toolkit_come_with_their_repositories() -> None:
    found = planned("container", "ubuntu2404", container_docker="docker", mirror_apt_toolkit="https://near/toolkit")
    assert {"docker-ce", "containerd.io", "nvidia-container-toolkit=1.20.0-1"} <= set(found.packages)
    assert found.sources == (
        {
            "line": "https://download.docker.com/linux/ubuntu noble stable",
            "key": "https://download.docker.com/linux/ubuntu/gpg",
        },
        {"line": "https://near/toolkit/stable/deb/$(ARCH) /", "key": "https://near/toolkit/gpgkey"},
    )
    own = planned("container", "debian12", container_toolkit=False)
    assert "docker.io" in own.packages
    assert own.sources == ()
    assert "mokutil" in own.packages


@pytest.mark.slow
def test_the_driver_comes_with_headers_and_is_chosen_once() -> None:
    found = planned("driver", "debian13/arm64", driver_branch="580")
    headers = {"linux-headers-6.12.57+deb13-arm64", "linux-headers-arm64"}
    assert {"nvidia-driver-cuda=580.*", *headers} <= set(found.packages)
    (source,) = found.sources
    assert source["line"].endswith("/debian13/sbsa/ /")
    assert source["key"].endswith("/debian13/sbsa/3bf863cc.pub")
    assert found.variables == {"driver_branch": "580", "driver_flavour": "open", "driver_source": "nvidia"}
    assert "Pin: version 580.*" in found.preferences[0]


@pytest.mark.slow
def test_ubuntus_signed_modules_are_taken_for_the_kernel() -> None:
    found = planned("driver", "ubuntu2404", driver_branch="580", driver_fabric="manager")
    assert "linux-modules-nvidia-580-server-open-6.8.0-87-generic" in found.optional
    assert any(name.startswith("linux-modules-nvidia-580-server-open-generic") for name in found.packages)
    assert "nvidia-fabricmanager-580" in found.packages
    assert found.sources == ()


@pytest.mark.slow
def test_rpm_packages_come_with_repositories_and_the_stream_of_the_driver() -> None:
    variables = {
        "driver_branch": "580",
        "mirror_rpm_epel": "https://near/epel",
        "mirror_rpm_docker": "https://near/docker",
    }
    found = plan(("boot", "driver", "container"), named("rhel9"), (KERNEL["rhel9"],), variables, galaxy.ensure())
    assert {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", "python3-dnf-plugin-versionlock"} <= set(found.packages)
    assert {f"kernel-devel-{KERNEL['rhel9']}", "kernel-devel-matched", "mokutil", "docker-ce"} <= set(found.packages)
    assert "nvidia-container-toolkit-1.20.0-1" in found.packages
    assert found.streams == ("nvidia-driver:580-open",)
    assert not found.variables.keys() - {"driver_branch", "driver_flavour", "driver_source"}
    repositories = {one.name: one for one in (msgspec.convert(told, Repository) for told in found.sources)}
    assert repositories["lpxdoctor-epel"].url == "https://near/epel/9/Everything/x86_64/"
    assert repositories["lpxdoctor-epel"].only == ("dkms",)
    assert repositories["lpxdoctor-nvidia"].url.endswith("/rhel9/x86_64/")
    assert repositories["docker"].url == "https://near/docker/rhel/9/$basearch/stable"
    # NVIDIA signs the index of this one and not each package.
    assert {name: one.signed for name, one in repositories.items() if one.signed == "index"} == {
        "nvidia-container-toolkit": "index"
    }


def test_a_driver_needs_kernels() -> None:
    with pytest.raises(UsageError, match="--kernel RELEASE"):
        plan(("driver",), named("debian12"), (), {}, Path())
