"""Use a bundle: an archive and an inventory in; hosts that got everything from it, or one clear error, out."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor import fleet, inventory, playbook
from lpxdoctor.airgap import archive
from lpxdoctor.airgap.manifest import Manifest
from lpxdoctor.errors import DoctorError, UsageError
from lpxdoctor.fix import failures
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import Outcome, TaskEvent

DIRECTORY = "/var/lib/lpxdoctor/bundle"
LIMIT_S = 4 * 3600.0  # an archive with images may go through a slow line


class ApplyError(DoctorError):
    """A host did not get what the bundle has; the message says which, why and what to type."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of the hosts."""

    manifest: Manifest
    changed: Mapping[str, int]  # host -> changed tasks of all playbooks


def apply(
    file: Path,
    source: Source,
    variables: Mapping[str, Any],
    on_event: Callable[[TaskEvent], None],
    *,
    manifest_sha256: str | None = None,
) -> Applied:
    """Verify the whole archive, bring it to all hosts, and run its playbooks there with it as the only source.

    Raises:
        UsageError: the archive is not what was packed, or another one than manifest_sha256 names; nothing was changed.
        ApplyError: a host refused or failed.
        SetupError: Ansible could not run here.
    """
    with tempfile.TemporaryDirectory(prefix="lpxdoctor-") as work:
        own = Path(work) / "bundle"
        manifest, digest = archive.unpack(file, own, below="collections/")
        if manifest_sha256 not in (None, digest):
            raise UsageError(f"{file} has the manifest {digest}, not {manifest_sha256}: it is another bundle.")
        shared = {"bundle_file": str(file.resolve()), "bundle_directory": DIRECTORY}
        hosts = [host.name for host in fleet.hosts(source)]
        offline = {**manifest.variables, **variables, "offline_repository": f"{DIRECTORY}/packages"}
        steps: list[tuple[str, Mapping[str, Any]]] = [("bundle", shared), *((word, offline) for word in manifest.words)]
        if manifest.images:
            steps.append(("bundle_images", {"bundle_images": [msgspec.to_builtins(one) for one in manifest.images]}))
        changed: dict[str, int] = {}
        for name, given in steps:
            sources = (source, inventory.for_hosts(dict.fromkeys(hosts, given)))
            outcome = playbook.run(name, sources, collections=own / "collections", on_event=on_event, limit_s=LIMIT_S)
            if outcome.failed:
                raise _failed(name, outcome)
            for host, count in outcome.changed.items():
                changed[host] = changed.get(host, 0) + count
    return Applied(manifest=manifest, changed=changed)


def _failed(name: str, outcome: Outcome) -> ApplyError:
    reasons = [f"{host}: {failures.explain(events, host)}" for host, events in outcome.failed.items()]
    done = f"{name}.yml went well on: {', '.join(outcome.changed)}." if outcome.changed else ""
    log = f"What Ansible did: {outcome.log}" if outcome.log else ""
    return ApplyError("\n".join(part for part in (*reasons, done, log) if part))
