"""What fix planned or did in; for a terminal the plan with what to type, and before and after, out."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lpxdoctor.evaluate import Judgement
from lpxdoctor.fix.outcome import HostResult, status
from lpxdoctor.fix.plan import Plan, Step
from lpxdoctor.report.printed import show
from lpxdoctor.report.text import signs_of, told
from lpxdoctor.report.typed import Typed

_NAMES_SHOWN = 4
_CHANGES_SHOWN = 5


def render_plan(results: Sequence[HostResult], console: Console, typed: Sequence[str], *, recorded: bool) -> None:
    """Print the plans, hosts with the same one together, and what to type.

    Args:
        results: of hosts that were looked at.
        console: where to.
        typed: the words of the command, without the options that run it.
        recorded: whether the evidence is a file's, from which nothing can be run.
    """
    show(console, *_plans(results, signs_of(console), typed, recorded=recorded))


def render_run(results: Sequence[HostResult], console: Console, ids: Collection[str], typed: Sequence[str]) -> None:
    """Print what became of every host; the arguments as those of render_plan."""
    signs = signs_of(console)
    for number, result in enumerate(results):
        if number:
            show(console, "")
        show(console, *_became(result, signs, status(result, ids), typed))


def _plans(
    results: Sequence[HostResult], signs: dict[str, str], typed: Sequence[str], *, recorded: bool
) -> Iterator[RenderableType]:
    groups: dict[Any, list[tuple[HostResult, Plan]]] = {}
    for result in results:
        if result.plan is None:
            yield _refusal(result, signs)
        else:
            plan = result.plan
            groups.setdefault((plan.shape, plan.by_hand, plan.waiting), []).append((result, plan))
    for group in groups.values():
        yield Text(_names([result.host for result, _ in group]), "bold")
        yield from _plan([plan for _, plan in group], signs)
    plans = [plan for group in groups.values() for _, plan in group if plan.ids]
    if plans and not recorded:
        yield ""
        yield from _to_type(plans, typed)


def _plan(plans: Sequence[Plan], signs: dict[str, str]) -> Iterator[RenderableType]:
    plan = plans[0]
    for id_, by in plan.waiting:
        yield Text(f"  {id_} waits for {by}")
    if not plan.ids:
        yield _nothing(plan, "", signs)
    else:
        yield _steps(plan, plans)
        yield Text(f"then checks again: {', '.join(plan.ids)}", "dim")
    for found in plan.by_hand:
        yield _hung("by hand", f"{found.title}  ({found.id})", "yellow")
        yield from (
            Padding(Group(*told(command)) if "\n" in command else Typed(command), (0, 0, 0, 9), expand=False)
            for command in found.do
        )


def _hung(label: str, text: str, style: str) -> Table:
    """Return a label and a text beside it, whose further lines begin where its first one does."""
    grid = Table.grid(padding=(0, 2))
    grid.add_row(Text(label, style), Text(text, style))
    return grid


def _typed(label: str, words: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(label, Typed(shlex.join(words)))
    return grid


def _nothing(plan: Plan, name: str, signs: dict[str, str]) -> Text:
    """Return that nothing is to be run; what could not be judged is not called right."""
    if plan.by_hand:
        return Text(f"{name}no playbook puts right what was found")
    if plan.unjudged:
        return Text(f"{signs['unknown']} {name}nothing was found, but {plan.unjudged} could not be judged", "bold")
    return Text(f"{signs['ok']} {name}nothing to put right", "green")


def _steps(plan: Plan, plans: Sequence[Plan]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    work = tuple(dict.fromkeys(name for each in plans for name in each.work.running))
    stops = f"stops GPU work: {_names(work)}" if work else "would stop GPU work; none is seen now"
    rows = [_row(step, stops) for step in plan.steps]
    if plan.reboots:
        ids = [id_ for step in (*plan.steps, *plan.later) for id_ in step.next_boot]
        rows.append(("reboot", stops, [f"only where one is still found then: {', '.join(ids)}"]))
    rows += [_row(step, stops) for step in plan.later]
    for number, (word, cost, changes) in enumerate(rows, 1):
        lines = Text("\n").join([Text(cost, "yellow" if cost is stops else "green"), *map(Text, changes)])
        grid.add_row(str(number), Text(word, "bold"), lines)
    return grid


def _row(step: Step, stops: str) -> tuple[str, str, list[str]]:
    names = list(step.changes[:_CHANGES_SHOWN]) or list(step.ids)
    left = len(step.changes) - _CHANGES_SHOWN
    names += [f"and {left} more tasks, which --format json names"] if left > 0 else []
    return step.playbook, stops if step.interrupts else "no interruption", names


def _to_type(plans: Sequence[Plan], typed: Sequence[str]) -> Iterator[RenderableType]:
    reboot = ("--reboot",) if any(plan.reboots for plan in plans) else ()
    yield _typed("Run it:", (*typed, "--yes", *reboot))
    if reboot:
        yield Text("Without --reboot: reboot when it suits you, then type: lpxdoctor fix --resume")
    if any(plan.work.running for plan in plans):
        yield Text.assemble(
            "The GPUs are at work, so add ", ("--drain 120", "bold"), " (stops engines in order) or --force"
        )
    unseen = next((plan.work.unseen for plan in plans if plan.work.unseen), "")
    if unseen:
        yield Text(f"What runs on the GPUs could not be seen ({unseen}); the playbooks look again before they stop it.")


def _became(result: HostResult, signs: dict[str, str], code: int, typed: Sequence[str]) -> Iterator[RenderableType]:
    if result.refused or result.failure:
        yield _refusal(result, signs)
    elif result.plan and not result.targets:
        yield _nothing(result.plan, f"{result.host}: ", signs)
    elif not result.left and not result.waiting:
        yield Text(f"{signs['ok']} {result.host}: put right and checked again", "green")
    if result.before and result.after:
        yield Text(f"  before  {_counts(result.before)}")
        yield Text(f"  after   {_counts(result.after)}")
    yield from (Text(f"  {signs['ok']} gone   {id_}", "green") for id_ in result.removed)
    for id_ in result.left:
        yield Text(f"  {signs['fail']} left   {id_}: {_why_left(result, id_)}", "bold red")
    yield from _afterwards(result, signs)
    if result.left or result.failure:
        yield from (Text(f"  evidence  {file}", "dim") for file in result.evidence)
    if code and result.after and not result.waiting and not result.failure:
        yield _typed("  Next:", ("lpxdoctor", "check", *_where(typed)))


def _afterwards(result: HostResult, signs: dict[str, str]) -> Iterator[RenderableType]:
    for found in result.appeared:
        yield Text(f"  {signs['warn']} seen now  {found.check.title}  ({found.check.id})", "yellow")
    if result.waiting:
        yield Text(f"  waits for a reboot: {', '.join(result.waiting)}", "yellow")
        if result.rebooting:
            yield Text(
                "  It reboots now and goes on by itself. After the boot, what came of it: lpxdoctor fix --resume"
            )
        else:
            yield Text.assemble("  Reboot it, then type: ", ("lpxdoctor fix --resume", "bold"))
    for each in result.plan.by_hand if result.plan else ():
        yield Text(f"  by hand  {each.title}  ({each.id})", "yellow")


def _where(typed: Sequence[str]) -> tuple[str, ...]:
    """Return the -i of a command."""
    return tuple(typed[typed.index("-i") : typed.index("-i") + 2]) if "-i" in typed else ()


def _why_left(result: HostResult, id_: str) -> str:
    found = next((each for each in (result.after.results if result.after else ()) if each.check.id == id_), None)
    if found is None:
        return "it was not judged"
    if found.blocked_by:
        return f"it waits for {found.blocked_by}"
    return "; ".join(finding.message for finding in found.findings) or found.reason or found.state.value


def _refusal(result: HostResult, signs: dict[str, str]) -> RenderableType:
    first, *more = (result.refused or result.failure).splitlines()
    grid = Table.grid()
    grid.add_row(Text(f"{signs['fail']} {result.host}: {first}", "bold red"))
    for line in more:
        grid.add_row(Padding(Text(line), (0, 0, 0, 2), expand=False))
    return grid


def _counts(judgement: Judgement) -> str:
    failures = sum(1 for result in judgement.found if result.failed)
    warnings = sum(1 for result in judgement.found if result.severity.value == "warn")
    ran, of = judgement.coverage
    return f"{_number(failures, 'failure')}, {_number(warnings, 'warning')}, {ran} of {of} judged"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
