"""What a tuning run has found so far, as a file: written after every step, so that another run can go on from there."""

import hashlib
from pathlib import Path

import msgspec

from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.files import write_whole
from lpxdoctor.state import content, made
from lpxdoctor.tune.accuracy import Accuracy, Answers
from lpxdoctor.tune.service import Settings

SCHEMA = 1
# Outcomes of a row.
FOUND, KEPT, NO_GAIN, INACCURATE = "as found", "kept", "no gain", "inaccurate"
NOT_STARTED, UNJUDGED, SKIPPED, NOT_TRIED = "did not start", "not judged", "skipped", "not tried"
NOT_CONFIRMED, AGAIN = "not confirmed", "measured again"
# How a run ends.
FINISHED, OUT_OF_BUDGET = "finished", "out of budget"
# Starts that each takes.
A_TRY = 2  # a candidate's, and once more what it is to beat
A_CONFIRMATION = 3  # what was kept, between two of the engine as found
DONE = (KEPT, NO_GAIN, NOT_CONFIRMED, INACCURATE, NOT_STARTED, UNJUDGED)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One start: gain is of tokens/s over all concurrencies against the best before it, within what noise does.

    Of outcome AGAIN it is something measured once more: what was best until then, a candidate in doubt, or as found.
    """

    step: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reason: str = ""
    outcome: str
    why: str = ""
    tokens_per_s: dict[int, float] = {}
    gain: float | None = None
    within: float | None = None
    accuracy: Accuracy | None = None
    log: str | None = None  # of an engine that did not start
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """The settings in words."""
        return " ".join((*self.added, *(f"without {flag}" for flag in self.removed)))


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, measured once more between two measurements of the engine as found."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    holds: bool
    why: str = ""  # it does not hold
    gain: float | None = None  # of tokens/s over all concurrencies
    within: float | None = None
    gains: dict[int, float] = {}  # by concurrency


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a later run needs; best is the newest profile of the settings that were kept."""

    schema: int = SCHEMA
    asked: str  # what the run was for, as text
    rows: tuple[Row, ...]
    reference: Answers
    first: Profile
    best: Profile
    ended: str = ""  # FINISHED or OUT_OF_BUDGET; "" while it runs, and where it was interrupted
    confirmation: Confirmation | None = None  # the last one
    boot: str = ""  # of the machine, as it was measured on

    @property
    def is_open(self) -> bool:
        """Whether settings were kept that are not confirmed yet."""
        best = self.settings()
        last = self.confirmation
        return best != Settings() and (last is None or (last.added, last.removed) != (best.added, best.removed))

    @property
    def longest_s(self) -> float:
        """What the longest start took, its measurement and all; any other may take as long."""
        return max(row.seconds for row in self.rows)

    @property
    def lasts_s(self) -> tuple[float, float]:
        """The budget in seconds with which a later run does something at all, and about that for all that is left."""
        left = sum(row.outcome == NOT_TRIED for row in self.rows)
        starts = A_TRY if left else A_CONFIRMATION
        return starts * self.longest_s, (A_TRY * left + A_CONFIRMATION) * self.longest_s

    @property
    def chosen(self) -> Settings:
        """The settings to use: those that are kept and confirmed, else none."""
        return Settings() if self.is_open else self.settings()

    def settings(self, *, but: str = "") -> Settings:
        """Return the settings that were kept: of every step its last, of one step none."""
        winners = {row.step: row for row in self.rows if row.outcome == KEPT and row.step != but}
        found = Settings()
        for row in winners.values():
            found = found.and_(Settings(row.added, row.removed))
        return found

    def with_row(self, row: Row) -> "State":
        """Return the state with one more row."""
        return msgspec.structs.replace(self, rows=(*self.rows, row))


def file_of(asked: str) -> Path:
    """Return where the state of a run for this is kept."""
    return made("tunes") / f"{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"


def save(state: State) -> None:
    """Keep the state, whole or not at all.

    Raises:
        SetupError: it cannot be written.
    """
    file = file_of(state.asked)
    try:
        write_whole(file, msgspec.json.encode(state))
    except OSError as error:
        raise SetupError(f"What tune has found cannot be kept in {file}: {error.strerror}.") from None


def load(asked: str) -> State:
    """Return the state of a run for this that did not try everything.

    Raises:
        UsageError: there is none, or it is of another schema.
        SetupError: it cannot be read.
    """
    file = file_of(asked)
    kept = content(file)
    if kept is None:
        raise UsageError("There is nothing to resume: no run with this engine and these numbers was begun.")
    try:
        state = msgspec.json.decode(kept, type=State)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file} cannot be read, so there is nothing to resume: {error}.") from None
    if state.schema != SCHEMA:
        raise UsageError(f"{file} is of another lpxdoctor: leave --resume out to begin anew.")
    if state.ended == FINISHED:
        raise UsageError("The run with this engine and these numbers was finished: leave --resume out to begin anew.")
    tried = tuple(row for row in state.rows if row.outcome in (FOUND, AGAIN, *DONE))
    return msgspec.structs.replace(state, rows=tried, ended="")
