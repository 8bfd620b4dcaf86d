"""Where packages come from: variables before this machine's apt, and a clear error where nobody says it."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lpxdoctor.airgap import apt
from lpxdoctor.airgap import apt_sources as sources
from lpxdoctor.airgap.apt import Source
from lpxdoctor.airgap.target import named
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.fix import variables

Said = Callable[[str], None]
MIRRORS = {sources.DISTRIBUTION: "http://mirror/debian", sources.SECURITY: "http://mirror/security"}


@pytest.fixture
def apt_says(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Return what sets the answer of this machine's apt, whichever machine this is."""

    def say(text: str) -> None:
        monkeypatch.setattr(sources, "said_by", lambda *_: text)

    return say


@pytest.fixture(autouse=True)
def keyrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "_KEYRINGS", tmp_path)
    (tmp_path / "debian-archive-keyring.gpg").touch()
    return tmp_path


def lines(found: tuple[Source, ...]) -> list[str]:
    return [f"{source.uri} {source.suite}" for source in found]


def test_the_mirror_of_this_machine_serves_other_releases_too(apt_says: Said, tmp_path: Path) -> None:
    apt_says(
        "bookworm\tstable\tDocker\thttp://docker/debian\n"
        "bookworm\tmain\t$(ORIGIN)\thttp://near/debian\n"
        "bookworm-updates\tmain\tDebian\thttp://near/debian\n"
        "bookworm-security\tmain\tDebian\thttp://near/security\n"
    )
    found = sources.of(named("debian13"), (), {}, tmp_path)
    assert lines(found) == [
        "http://near/debian trixie",
        "http://near/debian trixie-updates",
        "http://near/security trixie-security",
    ]
    (line, *_) = (source.line("amd64") for source in found)
    assert line.startswith(
        f"deb [arch=amd64 signed-by={tmp_path}/debian-archive-keyring.gpg] http://near/debian trixie "
    )


def test_what_was_told_comes_first(apt_says: Said, tmp_path: Path) -> None:
    apt_says("bookworm\tmain\tDebian\thttp://near/debian\n")
    found = sources.of(named("debian12"), (), MIRRORS, tmp_path)
    assert {source.uri for source in found} == set(MIRRORS.values())


def test_a_machine_without_a_mirror_says_which_variables_name_one(apt_says: Said, tmp_path: Path) -> None:
    apt_says("noble\tmain\tUbuntu\thttp://near/ubuntu\n")
    with pytest.raises(SetupError, match=r"mirror_apt_distribution: URL, mirror_apt_security: URL"):
        sources.of(named("debian12"), (), {}, tmp_path)


def test_missing_keys_of_a_distribution_name_their_package(apt_says: Said, tmp_path: Path) -> None:
    apt_says("")
    with pytest.raises(SetupError, match="apt-get install ubuntu-keyring"):
        sources.of(named("ubuntu2404"), (), MIRRORS, tmp_path)


@pytest.mark.parametrize(("content", "suffix"), [(b"-----BEGIN PGP", ".asc"), (b"\x99\x02", ".gpg")])
def test_a_repository_comes_with_its_key(apt_says: Said, tmp_path: Path, content: bytes, suffix: str) -> None:
    apt_says("")
    key = tmp_path / "their-key"
    key.write_bytes(content)
    wanted = {"line": "https://far/$(ARCH)/debian bookworm stable", "key": key.as_uri()}
    *_, found = sources.of(named("debian12"), (wanted,), MIRRORS, tmp_path)
    assert (found.uri, found.suite, found.components) == ("https://far/amd64/debian", "bookworm", ("stable",))
    assert found.signed_by.suffix == suffix
    assert found.signed_by.read_bytes() == content


def test_a_key_that_cannot_be_had_is_said(apt_says: Said, tmp_path: Path) -> None:
    apt_says("")
    for url, message in (((tmp_path / "none").as_uri(), "could not be fetched"), ("ftp://x", "no URL of a key")):
        with pytest.raises((SetupError, UsageError), match=message):
            sources.of(named("debian12"), ({"line": "https://far /", "key": url},), MIRRORS, tmp_path)


def test_ubuntu_has_other_architectures_elsewhere(apt_says: Said, keyrings: Path) -> None:
    (keyrings / "ubuntu-archive-keyring.gpg").touch()
    apt_says("noble\tmain\tUbuntu\thttp://near/ubuntu\n")
    near, *_ = sources.of(named("ubuntu2404"), (), {}, keyrings)
    far, *_, security = sources.of(named("ubuntu2404/arm64"), (), {}, keyrings)
    assert (near.uri, far.uri) == ("http://near/ubuntu", "http://ports.ubuntu.com/ubuntu-ports")
    assert security.uri == far.uri
    told, *_ = sources.of(named("ubuntu2404/arm64"), (), MIRRORS, keyrings)
    assert told.uri == MIRRORS[sources.DISTRIBUTION]


def test_the_mirrors_are_variables_that_a_file_may_have(tmp_path: Path) -> None:
    file = tmp_path / "vars.yml"
    file.write_text("container_toolkit: false\nmirror_apt_distribution: http://x\nmirror_apt_security: http://y\n")
    assert variables.read(str(file))[sources.DISTRIBUTION] == "http://x"
    assert {sources.DISTRIBUTION, sources.SECURITY} <= variables.known()


def test_a_repository_of_files_is_the_same_each_time(tmp_path: Path) -> None:
    """Of a package that dpkg-deb itself made."""
    from lpxdoctor.airgap.programs import said_by

    control = tmp_path / "package/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: tiny\nVersion: 1:2\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: d\n")
    directory = tmp_path / "packages"
    directory.mkdir()
    package = directory / "tiny_1%3a2_all.deb"
    said_by(("dpkg-deb", "--build", "--root-owner-group", str(control.parent.parent), str(package)), "x")
    root = apt.Root(tmp_path, named("debian12"))
    root.write_index(directory, datetime(2026, 11, 29, tzinfo=timezone.utc))
    first = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert b"Package: tiny\n" in first["Packages"]
    assert f"Filename: ./{package.name}\nSize: {package.stat().st_size}\n".encode() in first["Packages"]
    assert b"Date: Sun, 29 Nov 2026 00:00:00 GMT\n" in first["Release"]
    root.write_index(directory, datetime(2026, 11, 29, tzinfo=timezone.utc))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == first
