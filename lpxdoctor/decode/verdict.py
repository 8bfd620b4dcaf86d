"""A measured profile, and what it is held against, in; it with its knee, target and notes out: pure."""

from collections.abc import Mapping

import msgspec

from lpxdoctor.decode import slo
from lpxdoctor.decode.knee import knee
from lpxdoctor.decode.ladder import memory_notes
from lpxdoctor.decode.limits import Cause
from lpxdoctor.decode.profile import Knee, Profile
from lpxdoctor.policy import Ladder as Policy

_NO_NETWORK = "over loopback"


def concluded(profile: Profile, policy: Policy, targets_ms: Mapping[str, float]) -> Profile:
    """Return the profile with its ladder's knee, its targets where there are any, and what its whole run shows."""
    return msgspec.structs.replace(
        profile,
        knee=_with_the_way(knee(profile.rungs), profile.reached) if profile.ladder else None,
        slo=slo.judged(profile.rungs, targets_ms) if targets_ms else profile.slo,
        notes=tuple(memory_notes(profile.rungs, policy)),
    )


def _with_the_way(found: Knee, reached: str) -> Knee:
    """Add to what is said of a late front end that the network may be the cause, where one lies between."""
    if found.cause != Cause.FRONT_END.value or reached.startswith(_NO_NETWORK):
        return found
    doubt = f"measured {reached}: that way may be what is late; measure on the engine's own host to tell"
    return msgspec.structs.replace(found, confidence="medium", evidence=(*found.evidence, doubt))
