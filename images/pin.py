#!/usr/bin/env python3
"""pin.py [--check] [FILE]: write into images/vllm.toml the digest that each tag has in its registry now.

With --check nothing is written, and a digest that differs is an error: a tag has moved. Needs only Python.
"""

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlencode

LIMIT_S = 30
# Every kind of manifest: without the lists, a registry answers for one platform with another digest.
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
DOCKER_HUB = "registry-1.docker.io"
# The two lines of a table in the file, and the date that follows before the next table.
PINNED = re.compile(r'^tag = "(?P<tag>[^"]+)"\ndigest = "(?P<digest>[^"]+)"$', re.MULTILINE)
DATED = re.compile(r"^date = \S+$", re.MULTILINE)


class RegistryError(Exception):
    """A registry did not say what a tag means; the message is for people."""


def location(tag: str) -> tuple[str, str, str]:
    """Return registry, repository and tag of an image's name, by Docker's rules."""
    name, _, version = tag.rpartition(":")
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return first, rest, version
    return DOCKER_HUB, name if slash else f"library/{name}", version


def digest_of(tag: str) -> str:
    """Return the digest of a tag's manifest, computed from the manifest itself.

    Raises:
        RegistryError: the registry does not answer, refuses, or contradicts itself.
    """
    registry, repository, version = location(tag)
    local = registry.partition(":")[0] in {"localhost", "127.0.0.1"}  # as Docker: these need no TLS
    url = f"{'http' if local else 'https'}://{registry}/v2/{repository}/manifests/{version}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    try:
        body, told = fetch(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise RegistryError(f"{tag}: {registry} answered {error.code} {error.reason}") from error
        body, told = fetch_with_token(tag, url, headers, error.headers.get("WWW-Authenticate", ""))
    except OSError as error:
        raise RegistryError(f"{tag}: {registry} did not answer: {error}") from error
    computed = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if told not in {None, computed}:
        raise RegistryError(f"{tag}: {registry} says {told} and sent a manifest with {computed}")
    return computed


def fetch(url: str, headers: Mapping[str, str]) -> tuple[bytes, str | None]:
    """Return a manifest and the digest that the registry gives for it."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - http only for this machine
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:  # noqa: S310
        return response.read(), response.headers.get("Docker-Content-Digest")


def fetch_with_token(tag: str, url: str, headers: Mapping[str, str], challenge: str) -> tuple[bytes, str | None]:
    """Get the token that a registry asks for, which a public image gives to anybody, and fetch again."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not challenge.lower().startswith("bearer ") or "realm" not in asked:
        raise RegistryError(f"{tag}: the registry asks for a log-in that this program does not know: {challenge!r}")
    realm = asked.pop("realm")
    try:
        body, _ = fetch(f"{realm}?{urlencode(asked)}", {})
        answer = json.loads(body)
        token = answer.get("token") or answer["access_token"]
        return fetch(url, {**headers, "Authorization": f"Bearer {token}"})
    except (OSError, ValueError, KeyError) as error:
        raise RegistryError(f"{tag}: no token from {realm}: {error}") from error


def repinned(text: str, digests: Mapping[str, str], today: str) -> str:
    """Return the file's text with these digests, and today's date where one changed."""
    for match in reversed(list(PINNED.finditer(text))):
        digest = digests[match["tag"]]
        if digest == match["digest"]:
            continue
        rest = DATED.sub(f"date = {today}", text[match.end() :], count=1)
        text = f'{text[: match.start()]}tag = "{match["tag"]}"\ndigest = "{digest}"{rest}'
    return text


def main() -> int:
    """Return 0 when all is pinned, 1 where a tag has moved and --check was given, 2 where a registry did not say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a tag has moved")
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).with_name("vllm.toml"))
    given = parser.parse_args()
    text = given.file.read_text(encoding="utf-8")
    pinned = {match["tag"]: match["digest"] for match in PINNED.finditer(text)}
    if not pinned:
        print(f"pin.py: {given.file} has no tag with a digest in the line after it", file=sys.stderr)
        return 2
    try:
        digests = {tag: digest_of(tag) for tag in pinned}
    except RegistryError as error:
        print(f"pin.py: {error}\nNothing was written.", file=sys.stderr)
        return 2
    for tag, digest in digests.items():
        moved = digest != pinned[tag]
        print(f"{tag} {digest}{f' was {pinned[tag]}' if moved else ''}")
    if not given.check:
        today = datetime.now(timezone.utc).date().isoformat()
        given.file.write_text(repinned(text, digests, today), encoding="utf-8")
        return 0
    return int(digests != pinned)


if __name__ == "__main__":
    sys.exit(main())
