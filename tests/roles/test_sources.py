"""The role sources on files: mirrors put into a host's sources and out again."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.roles.loading import loaded, write

MODULE = loaded("sources", "sources_archive")
MIRROR = "https://mirror.example"

DEB822 = """# Debian's own
Types: deb
URIs: mirror+file:///etc/apt/mirrors/debian.list
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://security.example/debian-security
Suites: trixie-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 debian-archive-x
"""

LINES = """deb [arch=amd64] http://old.example/debian trixie main contrib # ours
deb-src http://old.example/debian trixie-backports main
deb http://security.example/debian-security trixie-security main
#deb http://old.example/debian trixie main
"""

# Somebody else's, whose suite is called as the release.
FOREIGN = "deb [signed-by=/usr/share/keyrings/other-archive-keyring.gpg] https://other.example/debian trixie main\n"

ROCKY = """[baseos]
name=Rocky Linux $releasever - BaseOS
mirrorlist=https://mirrors.example/mirrorlist?arch=$basearch&repo=BaseOS-$releasever
#baseurl=http://dl.example/$contentdir/$releasever/BaseOS/$basearch/os/
gpgcheck=1
enabled=1

[crb]
name=CRB
baseurl=https://old.example/crb/
enabled=0

[mine]
baseurl=https://mine.example/
"""

STREAM = "[appstream]\nname=AppStream\nmetalink=https://x.example/?repo=centos-appstream-$stream\n"


def host(root: Path, files: Mapping[str, str]) -> Path:
    """Write a host's files below a root and return it."""
    release = {"etc/os-release": 'ID=debian\nVERSION_CODENAME="trixie"\n'}
    apt = {"usr/bin/apt-get": ""} if any("apt" in name for name in files) else {}
    return write(root, {**release, **apt, **files})


def pointed(root: Path, **given: str) -> dict[str, str]:
    """Point a host to mirrors; return {path below the root: text} of what changed."""
    edits = MODULE.wanted(root, {"apt": None, "security": None, "rpm": None, **given})
    for path, text in edits.items():
        path.write_text(text)
    return {str(path.relative_to(root)): text for path, text in edits.items()}


@pytest.mark.parametrize(("name", "text"), [("debian.sources", DEB822), ("a.list", LINES)], ids=["deb822", "lines"])
def test_apt_is_pointed_to_mirrors_once_to_others_and_back_to_the_byte(tmp_path: Path, name: str, text: str) -> None:
    file = f"etc/apt/sources.list.d/{name}"
    host(tmp_path, {file: text, "etc/apt/sources.list.d/other.list": FOREIGN})
    assert pointed(tmp_path) == {}  # nobody asked
    given = {"apt": f"{MIRROR}/debian", "security": f"{MIRROR}/debian-security"}
    (after,) = pointed(tmp_path, **given).values()
    live = "\n".join(line for line in after.splitlines() if not line.startswith("#"))
    assert set(re.findall(r"\S+:/\S*/debian\S*", live)) == {f"{MIRROR}/debian", f"{MIRROR}/debian-security"}
    (release,) = re.findall(r"(?m)^#deb .*$", after) or [""]
    assert release in text  # what was switched off stays as it was
    assert pointed(tmp_path, **given) == {}
    assert list(pointed(tmp_path, apt=f"{MIRROR}/2/debian")) == [file]
    assert (tmp_path / file).read_text() == after.replace(f"{MIRROR}/debian", f"{MIRROR}/2/debian").replace(
        f"{MIRROR}/2/debian-security", f"{MIRROR}/debian-security"
    )
    pointed(tmp_path, apt="", security="")
    assert (tmp_path / file).read_text() == text
    assert pointed(tmp_path, apt="", security="") == {}


def test_components_go_to_the_archive_and_to_nobody_else(tmp_path: Path) -> None:
    host(tmp_path, {"etc/apt/sources.list.d/a.list": LINES, "etc/apt/sources.list.d/other.list": FOREIGN})
    edits, seen = loaded("driver", "driver_components").wanted(tmp_path, ["contrib", "non-free"], "trixie")
    assert seen
    assert [path.name for path in edits] == ["a.list"]


def test_an_archive_that_is_signed_by_a_key_of_the_house_is_one(tmp_path: Path) -> None:
    host(tmp_path, {"etc/apt/sources.list": FOREIGN})
    assert MIRROR in pointed(tmp_path, apt=f"{MIRROR}/debian")["etc/apt/sources.list"]


@pytest.mark.parametrize(("text", "release"), [(ROCKY, "$releasever"), (STREAM, "$stream")], ids=["rocky", "stream"])
def test_dnf_is_pointed_to_a_mirror_once_and_back_to_the_byte(tmp_path: Path, text: str, release: str) -> None:
    file = "etc/yum.repos.d/the.repo"
    host(tmp_path, {file: text})
    assert pointed(tmp_path) == {}
    after = pointed(tmp_path, rpm=f"{MIRROR}/rocky/")[file]
    live = [line for line in after.splitlines() if re.match(r"(mirrorlist|metalink|baseurl)=", line)]
    names = [name for name in ("BaseOS", "AppStream", "CRB") if f"[{name.lower()}]" in text]
    kept = ["baseurl=https://mine.example/"] if "[mine]" in text else []
    assert live == [f"baseurl={MIRROR}/rocky/{release}/{name}/$basearch/os/" for name in names] + kept
    assert pointed(tmp_path, rpm=f"{MIRROR}/rocky") == {}
    pointed(tmp_path, rpm=f"{MIRROR}/else")
    pointed(tmp_path, rpm="")
    assert sorted((tmp_path / file).read_text().splitlines()) == sorted(text.splitlines())
    assert pointed(tmp_path, rpm="") == {}


@pytest.mark.parametrize(
    ("files", "given", "says"),
    [
        ({"etc/apt/sources.list": LINES}, {"apt": "mirror.example"}, "is no URL of a mirror"),
        ({"etc/apt/sources.list": "deb http://x/ sid main\n"}, {"apt": MIRROR}, "apt has no source of trixie"),
        ({"etc/apt/sources.list": LINES.replace("-security main", "x main")}, {"security": MIRROR}, "no source of"),
        ({"etc/yum.repos.d/redhat.repo": "[rhel-9-baseos]\n"}, {"rpm": MIRROR}, "subscription-manager config"),
    ],
)
def test_a_mirror_that_can_stand_for_nothing_is_refused(
    tmp_path: Path, files: dict[str, str], given: dict[str, str], says: str
) -> None:
    with pytest.raises(MODULE.Refused, match=says):
        pointed(host(tmp_path, files), **given)
