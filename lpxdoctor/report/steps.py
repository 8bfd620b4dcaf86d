"""What failed in; the shortest sequence to type against all of it, each step once and a reboot last, out."""

import re
from collections.abc import Iterable

from lpxdoctor.evaluate import Judgement, Result

REBOOT = "sudo reboot"
_REBOOTS = re.compile(r"^(?:sudo )?(?:reboot|systemctl reboot|shutdown -r\b.*)$")


def fix(ids: Iterable[str]) -> str:
    """Return the command that puts these findings right by their playbooks."""
    return f"sudo lpxdoctor fix {' '.join(ids)}"


def commands(result: Result) -> tuple[str, ...]:
    """Return what the findings of a result say to type, each once."""
    return tuple(dict.fromkeys(command for finding in result.findings for command in finding.do))


def steps(judgement: Judgement) -> tuple[str, ...]:
    """Return what ends all failures, in the order of their causes.

    What playbooks put right is one command, on the host itself; what is typed by hand stands where its cause does; what
    wants a reboot waits for the one at the end. A cause with neither is named, with where it is explained.
    """
    failures = [result for result in judgement.found if result.failed]
    by_playbook = [result.check.id for result in failures if has_playbook(judgement, result)]
    found: list[str] = []
    reboots = False
    for result in failures:
        typed = commands(result)
        kept = [command for command in typed if not _REBOOTS.match(command)]
        if result.check.id in by_playbook:
            found.append(fix(by_playbook))
        else:
            reboots |= len(kept) < len(typed)
            found += kept if typed else [f"lpxdoctor explain {result.check.id}"]
    return (*dict.fromkeys(found), *([REBOOT] if reboots else []))


def has_playbook(judgement: Judgement, result: Result) -> bool:
    """Tell whether a playbook can put it right from here: what a text shows is of a host that is elsewhere."""
    return bool(result.check.fix) and not judgement.excerpt
