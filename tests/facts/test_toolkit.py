"""The toolkit: its packages, its configuration, where it comes from, and the CDI specifications that it writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.facts import toolkit
from lpxdoctor.facts.cdi import Node, Spec, counting, named_twice, spec
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.driver import DPKG
from lpxdoctor.facts.packages import Package
from tests.facts.builders_container import asked, healthy
from tests.facts.given import command

# --- the toolkit ------------------------------------------------------------------------------------------------------


def test_the_toolkit_by_its_packages() -> None:
    lines = (
        "nvidia-container-toolkit\t1.18.1-1\tii \n"
        "libnvidia-container1:amd64\t1.18.1-1\tii \n"
        "nvidia-docker2\t2.13.0-1\tii "
    )
    facts = Container.parse(asked({DPKG: command(lines)}))
    assert str(facts.toolkit) == "1.18.1"
    assert [package.name for package in toolkit.of_toolkit(facts.packages)] == [
        "nvidia-container-toolkit",
        "libnvidia-container1:amd64",
    ]
    assert [package.name for package in toolkit.legacy(facts.packages)] == ["nvidia-docker2"]
    assert healthy().toolkit is None
    assert str(toolkit.version(Package("nvidia-container-toolkit", "1.17.8"))) == "1.17.8"


def test_the_toolkits_config() -> None:
    found = toolkit.config("f", '[nvidia-container-cli]\nno-cgroups = true\n[nvidia-container-runtime]\nmode = "cdi"\n')
    assert (found.no_cgroups, found.mode, found.error) == (True, "cdi", "")
    assert toolkit.config("f", "mode = ").error
    assert toolkit.config("f", "").mode == "auto"


def test_the_refresh_units_of_systemctl_show() -> None:
    shown = """Id=nvidia-cdi-refresh.service
LoadState=loaded
ActiveState=active
Result=success
Before=shutdown.target multi-user.target

Id=nvidia-cdi-refresh.path
LoadState=loaded
ActiveState=active
Result=success
Before=nvidia-cdi-refresh.service paths.target
"""
    found = toolkit.refresh(shown)
    assert (found.installed, found.watching, found.result, found.before_docker) == (True, True, "success", False)
    assert not toolkit.refresh(shown.replace("LoadState=loaded", "LoadState=not-found")).installed


def test_the_toolkits_sources_and_their_keys() -> None:
    keyring = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
    repository = "https://nvidia.github.io/libnvidia-container/stable/deb"
    listed = f"deb [signed-by={keyring}] {repository}/$(ARCH) /\n"
    stanza = f"Types: deb\nURIs: {repository}/amd64\nSigned-By: /etc/apt/keyrings/nvidia.asc\n"
    other = "deb https://mirror.example/debian bookworm main\n"
    found = toolkit.sources(
        {
            "/s/nvidia-container-toolkit.list": listed,
            "/s/nvidia.sources": stanza,
            "/s/debian.list": other,
            "/s/x.list.bak": listed,
        }
    )
    assert found == {
        "/s/nvidia-container-toolkit.list": keyring,
        "/s/nvidia.sources": "/etc/apt/keyrings/nvidia.asc",
    }


# --- CDI --------------------------------------------------------------------------------------------------------------

GENERATED = """cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
              fileMode: 438
              permissions: rw
    - name: GPU-11111111-2222-3333-4444-555555555555
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
    - name: all
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
containerEdits:
    deviceNodes:
        - path: /dev/nvidia-uvm
          major: 510
        - path: /dev/nvidiactl
          major: 195
          minor: 255
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
          args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07
          containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07
        - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.13
          containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.13
"""


def test_a_generated_specification() -> None:
    found = spec("/var/run/cdi/nvidia.yaml", GENERATED)
    assert found.error == ""
    assert found.devices == ("0", "GPU-11111111-2222-3333-4444-555555555555", "all")
    assert found.uuids == ("GPU-11111111-2222-3333-4444-555555555555",)
    assert found.driver_versions == ("535.161.07",)
    assert Node("/dev/nvidia-uvm", 510, 0) in found.nodes
    assert Node("/dev/nvidiactl", 195, 255) in found.nodes
    assert found.hooks == ("/usr/bin/nvidia-cdi-hook",)


@pytest.mark.parametrize("text", ["{broken", "a: [", "just words", "[]", '{"kind": "nvidia.com/gpu"}', None])
def test_what_is_no_specification_says_why(text: str | None) -> None:
    assert spec("/etc/cdi/x.json", text).error


@given(st.text())
def test_any_text_is_a_specification_or_has_an_error(text: str) -> None:
    found = spec("/etc/cdi/x.yaml", text)
    assert found.error or found.kind


def test_the_later_directory_hides_the_earlier() -> None:
    etc = Spec(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=("0", "all"))
    run = Spec(path="/var/run/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=("0", "1", "all"))
    assert counting((etc, run)) == (run,)
    assert counting((etc,)) == (etc,)
    more = Spec(path="/etc/cdi/old.yaml", kind="nvidia.com/gpu", devices=("2",))
    assert counting((more, run)) == (more, run)
    assert named_twice((etc, run)) == {
        "nvidia.com/gpu=0": ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"),
        "nvidia.com/gpu=all": ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"),
    }
