"""One page of HTML about a run that is over: it loads nothing and runs no script, so it can be mailed and kept.

One rule: every text of a user is escaped; the same values make the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from html import escape
from pathlib import Path

from stager import wire
from stager.model.units import counted, format_duration, format_size

WIDTH, MARGIN, LANE, CHART = 1000, 64, 9, 130
SPANS_MAX = 4_000
# Of job types, as the palette calls them. Where there are more, those that took longest have one each, and all others OTHERS together.
COLOURS = tuple(f"type{number}" for number in range(7))
OTHERS = "other job types"
# The dashboard has the same.
PALETTE = (Path(__file__).parents[1] / "service" / "dashboard" / "palette.css").read_text(encoding="utf-8")
PAINTS = "".join(f".{name} {{ fill: var(--{name}); background: var(--{name}); }}\n" for name in (*COLOURS, "fetch", "upload", "others"))
# A picture is not squeezed below what can be read: on a phone it is moved sideways.
STYLE = (
    f"\n{PALETTE}{PAINTS}"
    + """\
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { margin: 2rem auto; max-width: 1064px; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem 0 .2rem 1.2rem; text-align: right; border-bottom: 1px solid var(--rule); }
td { white-space: nowrap; } td:first-child, th:first-child { text-align: left; padding-left: 0; white-space: normal; }
tr.total td { font-weight: 600; } .wide { overflow-x: auto; } .note { margin: .4rem 0; color: var(--faint); }
svg { display: block; } svg:not(.plan) { width: 100%; min-width: 640px; height: auto; }
svg:not(.plan) text { font: 11px system-ui, sans-serif; fill: var(--faint); }
.plan .ink { fill: var(--ink); } .plan .faint { fill: var(--faint); } .plan .paper { fill: var(--paper); }
.plan .box rect { fill: var(--paper); stroke: var(--faint); } .plan .head { fill: var(--faint); } .plan .arrow { stroke: var(--faint); }
.plan .source rect { stroke: var(--ours); } .plan .destination rect { stroke: var(--type2); } .plan .box rect { stroke-width: 1.5; }
.keys span { white-space: nowrap; margin-right: 1em; } i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
.held { fill: var(--held); } .ours { fill: var(--ours); } .bound { fill: var(--others); }
@media (max-width: 600px) { body { margin: 1rem auto; } td, th { padding-left: .6rem; } td { font-size: 13px; } }
"""
)


def page_of(
    summary: wire.RunSummary,
    history: wire.RunHistory,
    rows: Sequence[tuple[str, str, str, str]],
    currency: str,
    notes: Sequence[str] = (),
    spent: Sequence[tuple[str, ...]] = (),
    said: Sequence[str] = (),
    drawn: str = "",
) -> str:
    """`rows`: name, estimated, actual, off by. `notes`: what they rest on. `spent`: where the time went, with its heading; and what is
    `said` of it. `drawn`: the picture of its plan, as SVG.
    """
    title = f"run {summary.run}: {summary.outcome} after {format_duration(summary.wall_s)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(summary.workflow)}: {summary.jobs_done} of {counted(summary.jobs_total, 'job')} done, "
        f"{counted(summary.attempts, 'attempt')}, {summary.finals_durable} of {counted(summary.finals_total, 'final')} durable</p>",
        "<h2>Estimate against actual</h2>",
        table_of((f"money in {currency}", "estimated", "actual", "off by"), rows),
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        *([f"<h2>Where the time went</h2>\n{table_of(('', *spent[0][1:]), spent[1:])}"] if spent[1:] else ()),
        *(f"<p>{escape(sentence)}</p>" for sentence in said),
        *([f'<h2>Plan</h2>\n<div class="wide">{drawn}</div>'] if drawn else ()),
        "<h2>Timeline</h2>",
        timeline(history, summary.wall_s),
        "<h2>Bytes on the I/O nodes</h2>",
        occupancy(history, summary.wall_s),
        "<h2>Hit rate</h2>",
        hits(summary, history),
    ]
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<!doctype html>\n<html lang="en"><head>{meta}<title>{escape(title)}</title><style>{STYLE}</style></head>'
    return f"{head}\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"


def table_of(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "\n".join(
        f"<tr{' class=total' if row[0].endswith('in total') else ''}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    head = "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in heading) + "</tr>"
    return f'<div class="wide"><table>{head}\n{body}</table></div>'


def picture(height: float, shapes: str, about: str) -> str:
    label = escape(about, quote=True)
    return f'<div class="wide"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}">{shapes}</svg></div>'


def at(seconds: float, wall_s: float) -> float:
    """Where a time stands from left to right."""
    return MARGIN + (WIDTH - MARGIN) * min(1.0, max(0.0, seconds / wall_s if wall_s > 0 else 0.0))


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """The lowest row that is free for each of the spans, which ascend by their begin."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found, made = [], 0
    for begin, end in spans:
        while busy and busy[0][0] <= begin:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else made
        made = max(made, lane + 1)
        heappush(busy, (end, lane))
        found.append(lane)
    return found


def longest(spans: Sequence[tuple[float, float, str, str]]) -> list[tuple[float, float, str, str]]:
    """As many as a picture can hold, by their begin."""
    return sorted(sorted(spans, key=lambda span: span[0] - span[1])[:SPANS_MAX])


def timeline(history: wire.RunHistory, wall_s: float) -> str:
    """Jobs by type, then what was fetched and uploaded: a bar each, as many rows as went on at once."""
    paint_of = paints(history.attempts)
    jobs = [(s.begun_s, s.ended_s, paint_of.get(s.job_type, PAINT_OTHERS), words_of(s)) for s in history.attempts]
    groups = [("jobs", jobs)]
    for title, direction in (("fetches", "fetch"), ("uploads", "upload")):
        moved = [move for move in history.moves if move.direction == direction]
        groups.append((title, [(s.begun_s, s.ended_s, f'class="{direction}"', f"{s.lfn}: {format_size(s.size_bytes)}") for s in moved]))
    shapes, top = [], 4
    for name, spans in groups:
        shown = longest(spans)
        rows = lanes([(begin, end) for begin, end, _, _ in shown])
        shapes.append(f'<text x="0" y="{top + 10}">{name}</text>')
        for (begin, end, paint, text), row in zip(shown, rows, strict=True):
            left, width = at(begin, wall_s), max(0.6, at(end, wall_s) - at(begin, wall_s))
            words = escape(f"{text}, {format_duration(begin)} to {format_duration(end)}")
            place = f'x="{left:.1f}" y="{top + row * LANE}" width="{width:.1f}" height="{LANE - 2}"'
            shapes.append(f"<rect {place} {paint}><title>{words}</title></rect>")
        top += (max(rows, default=0) + 1) * LANE + 10
    keys = "".join(f"<span><i {paint}></i>{escape(name)}</span>" for name, paint in paint_of.items())
    if any(span.job_type not in paint_of for span in history.attempts):
        keys += f"<span><i {PAINT_OTHERS}></i>{OTHERS}</span>"
    left_out = sum(max(0, len(spans) - SPANS_MAX) for _, spans in groups)
    note = f"<p>{left_out} of the shortest are not drawn.</p>" if left_out else ""
    return f'<p class="keys">{keys}</p>{note}' + picture(
        top + 18, "".join(shapes) + axis(top + 12, wall_s), "jobs, fetches and uploads in time"
    )


def words_of(span: wire.AttemptSpan) -> str:
    return f"{span.job}: {span.outcome}" + (f" on {span.host}" if span.host else "")


PAINT_OTHERS = 'class="others"'


def paints(attempts: Sequence[wire.AttemptSpan]) -> dict[str, str]:
    """By job type, in the order of their beginnings; of more types than there are colours only those that took longest."""
    took_s: dict[str, float] = {}
    for span in sorted(attempts, key=lambda span: span.begun_s):
        took_s[span.job_type] = took_s.get(span.job_type, 0.0) + span.ended_s - span.begun_s
    longest_first = sorted(took_s, key=lambda name: -took_s[name])
    kept = [name for name in took_s if name in longest_first[: len(COLOURS)]]
    return {name: f'class="{colour}"' for name, colour in zip(kept, COLOURS, strict=False)}


def axis(top: float, wall_s: float) -> str:
    ends = ((0.0, "start"), (wall_s / 2, "middle"), (wall_s, "end"))
    return "".join(f'<text x="{at(s, wall_s):.0f}" y="{top:.0f}" text-anchor="{anchor}">{format_duration(s)}</text>' for s, anchor in ends)


def occupancy(history: wire.RunHistory, wall_s: float) -> str:
    """A step for each change, below the line of the capacity where that is near."""
    highest = max([size for _, size in history.occupancy], default=0)
    ceiling = max(1, history.capacity_bytes if highest * 4 > history.capacity_bytes else highest * 1.1)

    def height(size: float) -> float:
        return CHART - (CHART - 14) * size / ceiling

    points, before = [f"{MARGIN},{CHART}"], 0
    for seconds, size in history.occupancy:
        points += [f"{at(seconds, wall_s):.1f},{height(before):.1f}", f"{at(seconds, wall_s):.1f},{height(size):.1f}"]
        before = size
    points += [f"{WIDTH},{height(before):.1f}", f"{WIDTH},{CHART}"]
    label = f'<text x="0" y="{height(highest) + 4:.0f}">{format_size(highest)}</text>'
    full = ""
    if ceiling == history.capacity_bytes:
        full = f'<line x1="{MARGIN}" x2="{WIDTH}" y1="14" y2="14" stroke="#ee6677" stroke-dasharray="5 4"/>'
        full += f'<text x="{WIDTH}" y="10" text-anchor="end">capacity</text>'
    text = f"<p>At most {format_size(highest)} of {format_size(history.capacity_bytes)}.</p>"
    shape = f'<polygon points="{" ".join(points)}" class="held"/>'
    return text + picture(CHART + 20, f"{shape}{full}{label}{axis(CHART + 14, wall_s)}", "bytes on the I/O nodes in time")


def hits(summary: wire.RunSummary, history: wire.RunHistory) -> str:
    """Three bars: ours, Belady's rule, the bound."""
    rates = (
        ("this run", summary.hit_rate, "ours"),
        ("Belady's rule, same reads", history.belady_hit_rate, "bound"),
        ("no cache can do more", history.best_hit_rate, "bound"),
    )
    known = [(name, rate, kind) for name, rate, kind in rates if rate is not None]
    if not summary.staged_bytes:
        return "<p>Nothing was read through the I/O nodes.</p>"
    shapes = []
    for row, (name, rate, kind) in enumerate(known):
        top = row * 26 + 4
        shapes.append(f'<text x="0" y="{top + 14}">{escape(name)}</text>')
        shapes.append(f'<rect x="170" y="{top}" width="{700 * rate:.1f}" height="18" class="{kind}"/>')
        shapes.append(f'<text x="{178 + 700 * rate:.0f}" y="{top + 14}">{rate:.1%}</text>')
    return picture(len(known) * 26 + 8, "".join(shapes), "hit rates")
