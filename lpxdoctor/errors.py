"""Every failure a user can meet: a message that says what to do, and the exit code of its kind."""

from collections.abc import Iterable

# The least first: a failure before what could not be judged before a warning, and no defect hides a failure.
_ORDER = (0, 1, 3, 64, 70, 2, 130)


def worst(statuses: Iterable[int]) -> int:
    """Return the exit status of several hosts."""
    return max(statuses, key=_ORDER.index, default=0)


class DoctorError(Exception):
    """Base of all errors that end a command: the message is for people, exit_code for programs."""

    exit_code = 70


class UsageError(DoctorError):
    """What was typed, or a file that was named, cannot be used as it is."""

    exit_code = 64


class DeployError(DoctorError):
    """A roll-out did not end with a healthy engine; the message says which host, why and what to type."""

    exit_code = 2


class MeasureError(DoctorError):
    """A baseline could not be measured: the server did not answer, or refused every request."""

    exit_code = 2


class SetupError(DoctorError):
    """Something this command needs on this machine is missing or does not answer."""

    exit_code = 3
