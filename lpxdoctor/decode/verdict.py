"""A measured profile, and what it is held against, in; it with its knee, target and notes out: pure."""

from collections.abc import Mapping

import msgspec

from lpxdoctor.decode import slo
from lpxdoctor.decode.knee import knee
from lpxdoctor.decode.ladder import memory_notes
from lpxdoctor.decode.profile import Profile
from lpxdoctor.policy import Ladder as Policy


def concluded(profile: Profile, policy: Policy, targets_ms: Mapping[str, float]) -> Profile:
    """Return the profile with its ladder's knee, its targets where there are any, and what its whole run shows."""
    return msgspec.structs.replace(
        profile,
        knee=knee(profile.rungs) if profile.ladder else None,
        slo=slo.judged(profile.rungs, targets_ms) if targets_ms else profile.slo,
        notes=tuple(memory_notes(profile.rungs, policy)),
    )
