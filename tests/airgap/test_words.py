"""What the roles say that they would install on systems that are not here."""

from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import bundled, galaxy
from lpxdoctor.airgap import words
from lpxdoctor.airgap.target import named
from lpxdoctor.airgap.words import Plan, Repository, plan
from lpxdoctor.errors import UsageError

KERNEL = {"debian12": "6.1.0-57-amd64", "ubuntu2404": "6.8.0-87-generic"}


def planned(word: str, target: str, **variables: Any) -> Plan:
    return plan(("boot", word), named(target), (KERNEL[target],), variables, galaxy.ensure())


def test_every_word_can_be_asked() -> None:
    for word in words.WORDS:
        assert f"name: {words.ANSWER}\n" in (bundled.PLAYBOOKS / f"roles/{word}/tasks/packages.yml").read_text()


@pytest.mark.slow
def test_docker_and_the_toolkit_come_with_their_repositories() -> None:
    found = planned("container", "ubuntu2404", container_docker="docker", mirror_apt_toolkit="https://near/toolkit")
    assert {"docker-ce", "containerd.io", "nvidia-container-toolkit=1.20.0-1"} <= set(found.packages)
    assert found.repositories == (
        Repository(
            line="https://download.docker.com/linux/ubuntu noble stable",
            key_url="https://download.docker.com/linux/ubuntu/gpg",
        ),
        Repository(line="https://near/toolkit/stable/deb/amd64 /", key_url="https://near/toolkit/gpgkey"),
    )
    own = planned("container", "debian12", container_toolkit=False)
    assert "docker.io" in own.packages
    assert own.repositories == ()
    assert own.first == ("mokutil",)


@pytest.mark.slow
def test_the_driver_comes_with_headers_and_is_chosen_once() -> None:
    found = planned("driver", "debian12", driver_branch="580")
    assert {"nvidia-driver-cuda=580.*", "linux-headers-6.1.0-57-amd64"} <= set(found.packages)
    (repository,) = found.repositories
    assert repository.line.endswith("/debian12/x86_64/ /")
    assert repository.key_url.endswith("/debian12/x86_64/3bf863cc.pub")
    assert found.variables == {"driver_branch": "580", "driver_flavour": "open", "driver_source": "nvidia"}
    assert "Pin: version 580.*" in found.preferences[0]


@pytest.mark.slow
def test_ubuntus_signed_modules_are_taken_for_the_kernel() -> None:
    found = planned("driver", "ubuntu2404", driver_branch="580", driver_fabric="manager")
    assert "linux-modules-nvidia-580-server-open-6.8.0-87-generic" in found.optional
    assert any(name.startswith("linux-modules-nvidia-580-server-open-generic") for name in found.packages)
    assert "nvidia-fabricmanager-580" in found.packages
    assert found.repositories == ()


def test_a_driver_needs_kernels() -> None:
    with pytest.raises(UsageError, match="--kernel RELEASE"):
        plan(("driver",), named("debian12"), (), {}, Path())
