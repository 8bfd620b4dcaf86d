"""GRUB's settings, which are a shell's, as people and clouds write them: what a shell makes of them after an edit."""

import os
import resource
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.roles.loading import loaded, shared, write

FILE = "etc/default/grub"
NOTHING: dict[str, list[str]] = {"allow": [], "unreserve": [], "remove": [], "add": []}
WISHES = {**NOTHING, "allow": ["nvidia"], "unreserve": ["10de"], "remove": ["iommu=off"], "add": ["iommu=pt"]}
GONE = {"modprobe.blacklist=nvidia": "", "iommu=off": "", "module_blacklist=nvidia,floppy": "module_blacklist=floppy"}


def edited(root: Path, wishes: dict[str, list[str]]) -> set[Path]:
    """Edit the files below a root as the role would; return those that changed."""
    module = loaded("boot", "boot_command_line")
    wanted = module.wanted_files(root, wishes)
    for path, text in wanted.items():
        shared("text_file").write(path, text)
    return set(wanted)


def command_line(root: Path) -> list[str]:
    """Return the words that grub-mkconfig would write: it reads the settings as a shell does, in this order."""
    files = [root / FILE, *sorted((root / "etc/default/grub.d").glob("*.cfg"))]
    script = "".join(f". {shlex.quote(str(file))}\n" for file in files)
    script += 'printf %s "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
    said = subprocess.run(("sh", "-e", "-c", script), capture_output=True, check=True).stdout
    return loaded("boot", "boot_command_line").WORDS.findall(said.decode())  # type: ignore[no-any-return]


def expected(words: list[str]) -> list[str]:
    """Return what is to be left of a command line, with what is to be added."""
    return sorted([*(word for word in (GONE.get(each, each) for each in words) if word), "iommu=pt"])


ODD = {
    "a comment behind": 'GRUB_CMDLINE_LINUX="console=ttyS0 iommu=off" # serial\n',
    "single quotes around double ones": "GRUB_CMDLINE_LINUX='dyndbg=\"file a.c +p\" console=ttyS0'\n",
    "escaped quotes": 'GRUB_CMDLINE_LINUX="dyndbg=\\"file a.c +p\\" console=ttyS0 iommu=off"\n',
    "a dollar that is one": "GRUB_CMDLINE_LINUX='cost=$5 iommu=off console=ttyS0'\n",
    "two lines in one": 'GRUB_CMDLINE_LINUX="console=ttyS0 \\\n  iommu=off \\\n  nosmt"\n',
    "no quotes": "GRUB_CMDLINE_LINUX=console=ttyS0\n",
    "no quotes and an escape": "GRUB_CMDLINE_LINUX=console=ttyS0\\ nosmt\n",
    "quotes of two kinds": "GRUB_CMDLINE_LINUX=\"console=ttyS0\"' nosmt'\n",
    "another variable": 'X=nosmt\nGRUB_CMDLINE_LINUX="$X console=ttyS0"\n',
    "one that goes on": 'GRUB_CMDLINE_LINUX="nosmt"\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=off quiet"\n',
    "a condition": 'if true; then GRUB_CMDLINE_LINUX="console=ttyS0"; fi\n',
    "exported": "export GRUB_CMDLINE_LINUX='console=ttyS0 iommu=off'\n",
    "no line end": 'GRUB_CMDLINE_LINUX="console=ttyS0"',
    "none": "GRUB_TIMEOUT=5\n",
    "an empty file": "",
    "one that is a comment": '#GRUB_CMDLINE_LINUX="iommu=pt"\n',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_shell_reads_what_it_read_with_what_is_added_and_without_what_goes(tmp_path: Path, text: str) -> None:
    write(tmp_path, {FILE: text})
    before = command_line(tmp_path)
    edited(tmp_path, WISHES)
    assert sorted(command_line(tmp_path)) == expected(before)
    assert edited(tmp_path, WISHES) == set()


def test_what_a_clouds_own_file_says_last_is_added_to_there(tmp_path: Path) -> None:
    cloud, other = "etc/default/grub.d/50-cloudimg-settings.cfg", "etc/default/grub.d/99-dump.cfg"
    write(tmp_path, {FILE: 'GRUB_CMDLINE_LINUX="nosmt"\n', cloud: 'GRUB_CMDLINE_LINUX="console=ttyS0"\n'})
    write(tmp_path, {other: 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M"\n'})
    assert edited(tmp_path, WISHES) == {tmp_path / cloud}
    assert command_line(tmp_path) == ["console=ttyS0", "iommu=pt", "crashkernel=512M"]


def test_a_file_keeps_all_other_bytes_its_owner_its_mode_and_its_place(tmp_path: Path) -> None:
    place, link = tmp_path / "kept/grub", tmp_path / FILE
    place.parent.mkdir()
    raw = b'# d\xe9marrage\r\nGRUB_CMDLINE_LINUX="nosmt  iommu=off\tquiet" # \xe9\nGRUB_TIMEOUT=5'
    place.write_bytes(raw)
    place.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(place, 12, 34)
    before = place.stat()
    link.parent.mkdir(parents=True)
    link.symlink_to(place)
    edited(tmp_path, {**WISHES, "add": []})
    assert link.is_symlink()
    assert place.read_bytes() == raw.replace(b"  iommu=off", b"")
    now = place.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert [path.name for path in place.parent.iterdir()] == ["grub"]


class Module:
    """What of Ansible's is asked for."""

    def backup_local(self, path: str) -> str:
        return path


def test_where_there_is_no_room_the_file_is_as_it_was(tmp_path: Path) -> None:
    module, raw = loaded("boot", "boot_command_line"), 'GRUB_CMDLINE_LINUX="iommu=off quiet"\n'
    file = write(tmp_path, {FILE: raw}) / FILE
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = module.wanted_files(tmp_path, WISHES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))  # bytes
    try:
        with pytest.raises(module.Refused, match="the settings are as they were"):
            module.apply(Module(), tmp_path, wanted, WISHES, menu=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == raw
    assert list(file.parent.iterdir()) == [file]


WORD = st.sampled_from(["quiet", "nosmt", "console=ttyS0,115200n8", "modprobe.blacklist=nouveau", *GONE])
SPACE = st.sampled_from([" ", "  ", "\t"])
QUOTED = st.sampled_from(['"{}"', "'{}'", '"{}" # as it was', '"{} "', "' {}'"])


@st.composite
def settings_text(draw: Any) -> str:
    """Return a file of GRUB's settings, with lists of parameters spaced and quoted in many ways."""
    lines = []
    for name in draw(st.lists(st.sampled_from(["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"]), max_size=4)):
        words = draw(st.lists(WORD, max_size=5))
        inner = "".join(word + draw(SPACE) for word in words[:-1]) + "".join(words[-1:])
        lines.append(f"{name}={draw(QUOTED).format(inner)}")
        lines.append(draw(st.sampled_from(["", "# a remark", "GRUB_TIMEOUT=5", "GRUB_TERMINAL='a b'"])))
    return "\n".join(lines)


@settings(max_examples=40)  # two shells for each
@given(settings_text())
def test_any_settings_are_corrected_for_a_shell(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = write(Path(directory), {FILE: text})
        before = command_line(root)
        edited(root, WISHES)
        # Of two assignments the last counts, as for the shell; what is added stands in it once.
        assert sorted(command_line(root)) == expected(before)
        assert edited(root, WISHES) == set()


@given(st.text(), st.lists(st.text()))
def test_where_nothing_must_go_nothing_is_touched(text: str, words: list[str]) -> None:
    module = loaded("boot", "boot_command_line")
    both = f'{text}\nGRUB_CMDLINE_LINUX="{" ".join(words)}"\n'
    assert module.edited(both, {**NOTHING, "remove": ["a-parameter-of-nobody"]}) == both
