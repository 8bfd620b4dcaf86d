"""A run that was begun earlier in; it as one can go on with on this machine today out, or why it cannot."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from lpxdoctor.decode.variables import setups
from lpxdoctor.errors import UsageError
from lpxdoctor.tune.confirm import again_row
from lpxdoctor.tune.running import Run, words
from lpxdoctor.tune.state import State, save

_STALE = timedelta(hours=1)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what names this start of the machine, "" where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def taken_up(run: Run, state: State, boot: str, now: datetime | None = None) -> State | None:
    """Measure what is best once more where the machine was started since or an hour has passed; None when stopped.

    Raises:
        UsageError: driver, engine or anything else is another one by now.
        DoctorError: it does not come up any more, or cannot be measured.
    """
    since = datetime.fromisoformat(state.best.ended.replace("Z", "+00:00"))
    if state.boot == boot and (now or datetime.now(timezone.utc)) - since < _STALE:
        return state
    if run.left_s() < state.longest_s:
        return state
    best = state.settings()
    found = run.tried(best, f"{words(best)}, once more: what follows is held against the machine as it is now")
    if found is None:
        return None
    profile, _, seconds = found
    differing = setups(state.best, profile).differing
    if differing:
        listed = "\n".join(f"  {one.name}  {one.a} -> {one.b}" for one in differing)
        raise UsageError(
            f"The run cannot go on: this is another set-up than it began with.\n{listed}\n"
            "Leave --resume out to begin anew."
        )
    state = msgspec.structs.replace(state.with_row(again_row(best, profile, seconds)), boot=boot)
    if profile.is_valid:
        state = msgspec.structs.replace(state, best=profile)
    save(state)
    return state
