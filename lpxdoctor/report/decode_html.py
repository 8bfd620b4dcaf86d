"""A profile in, one HTML page out with its curves, from this file alone: no script, nothing loaded."""

from collections.abc import Iterator
from html import escape

from lpxdoctor.decode.profile import Distribution, Profile, Rung
from lpxdoctor.report.conclusions import conclusions, remarks
from lpxdoctor.report.decode import headline
from lpxdoctor.report.svg import STYLE, Chart, Point, Series, draw

_STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e4e7eb); --dim: light-dark(#5b6570, #9aa5b1);
  --page: light-dark(#fff, #14171a); --line: light-dark(#d9dee3, #2c3238); --failed: light-dark(#b3261e, #ff8a80);
  --warning: light-dark(#8a5a00, #ffcc66); --one: light-dark(#0b62c4, #6cb2ff); --two: light-dark(#6f42c1, #c4a5ff) }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: var(--text); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; overflow-wrap: anywhere } .dim { color: var(--dim) }
.wrong { color: var(--warning) } .charts { display: grid; gap: 1rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)) }
p { margin: .1rem 0 } p.more { margin-left: 1.2rem } b { display: block; margin-top: .6rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 }
th { color: var(--dim); font-weight: 600 } td, th { text-align: right; padding: .2rem .7rem;
  border-bottom: 1px solid var(--line); white-space: nowrap } tr.knee td { font-weight: 600 }
"""
_HEADS = ("at once", "TTFT p50, ms", "p95", "TPOT p50, ms", "p95", "tokens/s", "of ceiling", "KV cache", "client error")


def page(profile: Profile) -> str:
    """Return the page."""
    title = escape(headline(profile))
    charts = "\n".join(filter(None, (draw(chart) for chart in _charts(profile))))
    found = "\n".join(
        f"<b>{escape(line)}</b>" if is_head else f'<p class="more">{escape(line)}</p>'
        for is_head, line in conclusions(profile)
    )
    rest = "\n".join(f'<p class="{kind}">{escape(line)}</p>' for kind, line in remarks(profile))
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n<title>lpxdoctor: baseline</title>\n'
        f"<style>{_STYLE}{STYLE}</style>\n<h1>{title}</h1>\n"
        f'<p class="dim">Baseline {escape(profile.id)}, {escape(profile.started)}; whiskers are 95% intervals, hollow '
        f"points cannot be compared.</p>\n"
        f'<div class="charts">\n{charts}\n</div>\n{found}\n<div class="wide">{_table(profile)}</div>\n{rest}\n'
        f'<p class="dim">lpxdoctor {escape(profile.lpxdoctor)}: <code>{escape(" ".join(profile.command))}</code></p>\n'
        "</html>\n"
    )


def _charts(profile: Profile) -> Iterator[Chart]:
    rungs = sorted(profile.rungs, key=lambda rung: rung.concurrency)
    knee = profile.knee
    mark = (knee.concurrency, knee.cause) if knee and knee.concurrency is not None else None
    targets = profile.slo.targets_ms if profile.slo else {}
    rates = tuple(
        Point(x=rung.concurrency, y=rung.output_tokens_per_s, sure=rung.valid)
        for rung in rungs
        if rung.output_tokens_per_s is not None
    )
    yield Chart(title="Throughput, tokens/s", unit="tokens/s", series=(Series("all requests", rates),), knee=mark)
    latencies = (
        ("tpot", "Time per output token (TPOT), ms", [(rung, rung.tpot_ms) for rung in rungs]),
        ("ttft", "Time to first token (TTFT), ms", [(rung, rung.ttft_ms) for rung in rungs]),
    )
    for name, title, seen in latencies:
        series = tuple(Series(at, _points(seen, at)) for at in ("p50", "p95"))
        yield Chart(title=title, unit="ms", series=series, knee=mark, target=targets.get(name))


def _points(seen: list[tuple[Rung, Distribution]], name: str) -> tuple[Point, ...]:
    found: list[Point] = []
    for rung, metric in seen:
        value: float | None = getattr(metric, name)
        if value is not None:
            low, high = metric.ci95[name]
            found.append(Point(x=rung.concurrency, y=value, low=low, high=high, sure=rung.valid))
    return tuple(found)


def _table(profile: Profile) -> str:
    knee = profile.knee.concurrency if profile.knee else None
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    rows = (
        f'<tr class="{"knee" if rung.concurrency == knee else ""}">'
        + "".join(f"<td>{cell}</td>" for cell in _cells(rung))
        + "</tr>"
        for rung in profile.rungs
    )
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _cells(rung: Rung) -> Iterator[str]:
    yield f"{rung.concurrency}"
    for value in (rung.ttft_ms.p50, rung.ttft_ms.p95, rung.tpot_ms.p50, rung.tpot_ms.p95, rung.output_tokens_per_s):
        yield "-" if value is None else f"{value:,.0f}" if value >= 99.95 else f"{value:.2f}"
    used = rung.load.kv_cache_max if rung.load else rung.kv_cache_share
    for share in (rung.ceiling.share if rung.ceiling else None, used):
        yield "-" if share is None else f"{share:.0%}"
    bound = rung.client.worst_share
    yield "-" if bound is None else f"±{bound:.1%}"
