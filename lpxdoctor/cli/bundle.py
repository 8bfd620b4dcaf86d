"""lpxdoctor bundle: make one archive for hosts without a network, look into it, and use it."""

import signal
import sys
from pathlib import Path

import click

from lpxdoctor.airgap.target import TARGETS
from lpxdoctor.airgap.words import WORDS
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.errors import UsageError


@click.group("bundle")
def command() -> None:
    """Carry packages, wheels, collections and images to hosts without a network.

    `create` where a network is, `apply` where none is. In between, carry one file.
    """


@command.command(
    "create", epilog=_options.examples("lpxdoctor bundle create --for debian12 --kernel 6.1.0-57-amd64 -o site.tar")
)
@click.argument("words", nargs=-1, metavar="[WORD]...", type=click.Choice(WORDS))
@click.option(
    *("--for", "target"),
    required=True,
    metavar="TARGET",
    help=f"Its system: {', '.join(one.name for one in TARGETS)}; with /arm64 behind it, for 64-bit ARM.",
)
@click.option(
    "-o",
    "--output",
    type=_options.FILE,
    metavar="FILE",
    help="Where to write it.  [default: lpxdoctor-TARGET.tar.gz]",
)
@click.option(
    *("--package", "packages"),
    multiple=True,
    metavar="NAME",
    help="One more package; with a version as NAME=VERSION, NAME-VERSION for dnf; may be repeated.",
)
@click.option("--kernel", "kernels", multiple=True, metavar="RELEASE", help="As uname -r says there; may be repeated.")
@click.option("--image", "images", multiple=True, metavar="IMAGE", help="A container image; may be repeated.")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="The image of a pinned engine; may be repeated."
)
@_options.variables()
@_options.output_format()
def create(
    *,
    words: tuple[str, ...],
    target: str,
    output: Path | None,
    packages: tuple[str, ...],
    kernels: tuple[str, ...],
    images: tuple[str, ...],
    variants: tuple[str, ...],
    variables_file: str | None,
    form: str,
) -> int:
    """Fetch what the playbooks WORD... need, and write one archive.

    Without a WORD and without --package: all of them. Packages come with everything that they depend on.

    Exit status: 0 it is written, 3 something could not be fetched or kept, 64 wrong use, 130 interrupted.
    """
    # What ends it, ends it like Ctrl-C: nothing is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from lpxdoctor.airgap.create import Wanted, create  # noqa: PLC0415
    from lpxdoctor.airgap.target import named  # noqa: PLC0415
    from lpxdoctor.fix.variables import read  # noqa: PLC0415
    from lpxdoctor.report import bundle as report  # noqa: PLC0415

    system = named(target)
    wanted = Wanted(
        target=system,
        words=tuple(word for word in WORDS if word in words) if words or packages else WORDS,
        packages=tuple(dict.fromkeys(packages)),
        kernels=tuple(dict.fromkeys(kernels)),
        images=(*images, *(_reference(name) for name in variants)),
        variables=read(variables_file or ""),
    )
    file = output or Path(f"lpxdoctor-{system.name.replace('/', '-')}.tar.gz")
    made = create(wanted, file, lambda step: print(step, file=sys.stderr))
    if form == "json":
        print_document(report.to_json(made.file, made.manifest, made.manifest_sha256, verified=False))
    else:
        print(report.made(made))
    return 0


@command.command("show", epilog=_options.examples("lpxdoctor bundle show site.tar --verify"))
@click.argument("file", type=_options.FILE)
@click.option("--verify", is_flag=True, help="Read all of it and compare every hash.")
@_options.output_format()
def show(file: Path, *, verify: bool, form: str) -> int:
    """Say what a bundle holds.

    Exit status: 0 it is whole, as far as was looked, 64 it is not, or is none, or wrong use.
    """
    from lpxdoctor.airgap import archive  # noqa: PLC0415
    from lpxdoctor.report import bundle as report  # noqa: PLC0415

    manifest, digest = archive.verify(file) if verify else archive.show(file)
    if form == "json":
        print_document(report.to_json(file, manifest, digest, verified=verify))
    else:
        print(report.shown(manifest, digest, verified=verify))
    return 0


@command.command("apply", epilog=_options.examples("lpxdoctor bundle apply site.tar -i inventory.yml --sha256 DIGEST"))
@click.argument("file", type=_options.FILE)
@click.option("--local", is_flag=True, help="This machine.")
@_options.inventory()
@_options.variables(", over those in the bundle")
@click.option("--sha256", metavar="DIGEST", help="Refuse another bundle than the one whose manifest has this digest.")
@_options.output_format()
def apply(
    *, file: Path, local: bool, hosts: str | None, variables_file: str | None, sha256: str | None, form: str
) -> int:
    """Put hosts right with what a bundle holds, and nothing else.

    Exit status: 0 done, 2 a host failed, 64 wrong use, or the archive is not what was packed (nothing was changed).
    """
    from lpxdoctor.cli._rollout import progress, source_of  # noqa: PLC0415

    source = source_of(local=local, hosts=hosts)
    if source is None:
        raise UsageError("Where to?\nGive --local for this machine, or -i with hosts: -i root@10.0.0.5")
    from lpxdoctor.airgap.apply import apply  # noqa: PLC0415
    from lpxdoctor.fix.variables import read  # noqa: PLC0415
    from lpxdoctor.report import bundle as report  # noqa: PLC0415

    given = read(variables_file or "")
    with progress("bundle") as on_event:
        applied = apply(file, source, given, on_event, manifest_sha256=sha256)
    if form == "json":
        print_document(report.applied_json(applied))
    else:
        print(report.applied(applied))
    return 0


def _reference(variant: str) -> str:
    from lpxdoctor.deploy.variant import catalogue, variants  # noqa: PLC0415
    from lpxdoctor.knowledge.images import Built  # noqa: PLC0415

    by_name = {one.name: one for one in variants(catalogue())}
    if variant not in by_name:
        raise UsageError(f"There is no variant {variant}.\nThere are: {', '.join(by_name)}.")
    found = by_name[variant]
    return found.tag if isinstance(found, Built) else f"{found.tag.rpartition(':')[0]}@{found.digest}"
