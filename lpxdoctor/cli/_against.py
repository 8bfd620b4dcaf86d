"""What baseline does with another profile and with evidence of the host: a comparison printed, an id."""

import hashlib

from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import read_evidence
from lpxdoctor.cli.compare import STATUS, compared, show
from lpxdoctor.decode.profile import Profile
from lpxdoctor.evidence import to_json

_ID_DIGITS = 12


def evidence_id(path: str) -> str:
    """Return the beginning of the SHA-256 of evidence that `lpxdoctor collect` wrote; UsageError where it is none."""
    return hashlib.sha256(to_json(read_evidence(path)).encode()).hexdigest()[:_ID_DIGITS]


def against(reference: Profile, profile: Profile, form: str) -> int:
    """Print how a profile compares with the reference, as text alone or in the profile's JSON; return its status."""
    comparison = compared(reference, profile)
    if form == "json":
        from lpxdoctor.report.compare_json import with_comparison  # noqa: PLC0415 - each form where it is asked for

        print_document(with_comparison(profile, comparison))
    elif form == "text":
        show(comparison, form)
    return STATUS[comparison.verdict.value]
