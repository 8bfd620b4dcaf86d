"""A real Debian kernel and initramfs, changed as an operator would, judged before and after update-initramfs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lpxdoctor.evidence import Answer, Evidence, from_json
from lpxdoctor.facts import boot as facts
from lpxdoctor.facts import host
from lpxdoctor.facts.boot import Boot
from tests.checks.judging import found
from tests.facts.given import command
from tests.lab.engine import ROOT, container, docker

IMAGE = "lpxdoctor-lab/boot-chain"
DOCKERFILE = """FROM {base}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    linux-image-amd64 initramfs-tools kmod zstd python3 && rm -rf /var/lib/apt/lists/*
RUN echo nouveau >> /etc/initramfs-tools/modules && update-initramfs -u -k all
"""
COLLECT = """
from lpxdoctor.collect import collect
from lpxdoctor.evidence import to_json
from lpxdoctor.facts.boot import Boot
from pathlib import Path
programs = {path.stem: path for path in Path("/opt/lpxdoctor/programs").glob("[!_]*.py")}
print(to_json(collect(Boot.probes, programs)))
"""
BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"


@dataclass(frozen=True)
class Machine:
    """A container that has a kernel, as if it were the machine that starts it."""

    identity: str

    def run(self, script: str) -> str:
        return docker("exec", self.identity, "sh", "-c", script)

    def boot(self) -> Boot:
        """Collect there with the real collector; what is said of the kernel becomes what a machine itself would say."""
        argv = ("exec", "--env", "PYTHONPATH=/opt", "--env", "PYTHONDONTWRITEBYTECODE=1", self.identity)
        evidence = from_json(docker(*argv, "python3", "-c", COLLECT))
        (release,) = self.run("ls /lib/modules").split()
        real: dict[str, Any] = {
            facts.KERNEL.key: Answer(release),
            facts.CMDLINE.key: Answer("root=/dev/vda1 ro quiet"),
            host.DETECT_VIRT.key: Answer(command("none\n", 1)),
        }
        return Boot.parse(Evidence("debian", {**evidence.answers, **real}, uid=0))


@pytest.fixture(scope="module")
def machine(lab_image: str) -> Iterator[Machine]:
    """Yield a machine whose initramfs holds nouveau, with nothing that blocks it."""
    dockerfile = DOCKERFILE.format(base=lab_image).encode()
    docker("build", "--network", "host", "--tag", IMAGE, "-", stdin=dockerfile, timeout_s=900)
    mount = f"{ROOT / 'lpxdoctor'}:/opt/lpxdoctor:ro"
    with container(IMAGE, "--volume", mount, command=("sleep", "infinity")) as identity:
        yield Machine(identity)


def test_a_blacklist_counts_at_the_next_boot_only_once_it_is_in_the_initramfs(machine: Machine) -> None:
    boot = machine.boot()
    image = boot.image(boot.running)
    assert image is not None
    listed = machine.run(f"lsinitramfs {image.path}").splitlines()
    assert list(image.modules) == [name for name in listed if name.endswith("nouveau.ko")]
    (finding,) = found("boot.initramfs-allows-nouveau", boot)
    assert finding.message == "no setting inside it blocks nouveau"
    assert len(found("boot.nouveau-not-blocked", boot)) == 1
    assert "nouveau may take the GPUs" in boot.outlook

    machine.run(f"sleep 1.1; printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > {BLACKLIST}")
    boot = machine.boot()
    assert [setting.where for setting in boot.blocks("nouveau")] == [f"{BLACKLIST}:1", f"{BLACKLIST}:2"]
    assert found("boot.nouveau-not-blocked", boot) == []
    (finding,) = found("boot.initramfs-allows-nouveau", boot)
    assert finding.message == "it was made before the blacklist was written"

    machine.run("update-initramfs -u -k all")
    boot = machine.boot()
    assert found("boot.initramfs-allows-nouveau", boot) == []
    assert "nouveau stays out" in boot.outlook


def test_our_reading_of_modprobes_files_is_modprobes_own(machine: Machine) -> None:
    machine.run(
        "mkdir -p /run/modprobe.d && echo 'install floppy /bin/false' > /run/modprobe.d/a.conf"
        " && printf 'blacklist \\\\\\nshadowed-one\\n' > /etc/modprobe.d/fbdev-blacklist.conf"  # masks Debian's own
        " && echo 'blacklist ignored' > /etc/modprobe.d/ignored.txt"
    )
    boot = machine.boot()
    assert boot.effective is not None
    by_kernel = machine.run("cat /proc/cmdline")  # modprobe adds the options that stand there
    said = {str(s) for s in boot.effective if not any(f"{s.module}.{word}" in by_kernel for word in s.value.split())}
    assert said == {str(setting) for setting in boot.settings if setting.kind != "alias"}
    assert "blacklist shadowed_one" in said
    assert "install floppy /bin/false" in said
