"""What a bundle holds: packages, wheels, collections and images, each with its source, as the manifest's JSON."""

from typing import Any

import msgspec

SCHEMA = 2


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package, wheel or collection."""

    name: str
    version: str
    file: str  # within the bundle; a directory for a collection
    source: str  # the URL that it came from


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A container image, as `docker load` takes it."""

    reference: str  # as it was asked for
    id: str  # what --image of deploy takes on a host that has it: sha256:...
    file: str
    source: str  # the repository's digest, or "this machine" where it has none


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the archive; size in bytes."""

    sha256: str
    size: int


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The system that a bundle is for; the first two as its /etc/os-release says."""

    distribution: str
    version: str  # or the beginning of it: 9 for 9.6
    manager: str  # of packages: apt or dnf
    architecture: str  # dpkg's word
    machine: str  # the kernel's word
    python: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of manifest.json."""

    schema: int = SCHEMA
    created: str  # ISO 8601, UTC
    lpxdoctor: str  # the version that made it
    target: System
    words: tuple[str, ...]  # the playbooks that it is for
    variables: dict[str, Any]  # of the roles, which decided what is in it; to be used again
    install: tuple[str, ...]  # packages, before any playbook runs: what was asked for by name, and what Ansible needs
    packages: tuple[Item, ...]
    wheels: tuple[Item, ...]
    collections: tuple[Item, ...]
    images: tuple[Image, ...]
    files: dict[str, File]


def encode(manifest: Manifest) -> bytes:
    """Return the JSON of manifest.json, the same for the same manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1) + b"\n"


def decode(content: object) -> Manifest:
    """Return the manifest in what was read from JSON; raises msgspec.ValidationError where it is none."""
    return msgspec.convert(content, Manifest)
