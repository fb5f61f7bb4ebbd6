"""Pictures of plans as text: SVG, DOT for graphviz, Mermaid for pages of Markdown.

One rule: names of users are written so that no program takes them for anything but letters, and what cannot be seen is shown as �.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from html import escape

from stager.cli.picture_layout import Point, Size, layout, widest
from stager.cli.plan_picture import Arrow, Box, Kind, PlanPicture, Way

# Of text in 12 px, in px; a little more than what letters take in the fonts that there are.
LETTER, WIDE_LETTER, LINE = 6.6, 13.0, 16.0
NAME_MAX = 34
BOX_LEAST, PAD, MARGIN = 120.0, 10.0, 14.0
# Where more boxes than these would stand side by side, layers go from left to right.
ACROSS_MAX = 5
LABELS_MAX = 160
JOINERS = "\u200c\u200d"
FILLS = {Kind.JOBS: "#ffffff", Kind.SOURCE: "#dceaf7", Kind.KEPT: "#f5ecd2", Kind.DESTINATION: "#dcf0df"}
DASHES = {Way.FILES: "", Way.DIRECT: ' stroke-dasharray="7 4"', Way.WAITS: ' stroke-dasharray="2 4"'}
# Of boxes whose jobs are only there since members of a scatter are not known yet.
ASSUMED_DASHES = ' stroke-dasharray="5 3"'
INK, FAINT = "#222222", "#555555"
FONT = "system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif"


def seen(text: str) -> str:
    """No letter that cannot be seen, that turns the line round, or that XML forbids."""
    return "".join([letter if letter.isprintable() or letter in JOINERS else "\ufffd" for letter in text])


def short(text: str, letters_max: int = NAME_MAX) -> str:
    """The beginning and the end: names often differ by their ends."""
    if len(text) <= letters_max:
        return text
    ending = letters_max // 3
    return f"{text[: letters_max - ending - 1]}…{text[-ending:]}"


def width_of(text: str) -> float:
    return sum([WIDE_LETTER if letter >= "\u1100" else LETTER * 1.4 if letter in "MWmw@%" else LETTER for letter in text])


def thickness(arrow: Arrow) -> float:
    """More for more bytes: 1 below a megabyte, 6 for terabytes."""
    return 1.0 + min(5.0, max(0.0, 0.8 * math.log10(max(1, arrow.amount.size_bytes) / 1e6)))


def svg_text(picture: PlanPicture, *, alone: bool = True) -> str:
    """`alone`: a file of its own; else for a page, which has a heading of its own."""
    boxes = [size_of(box) for box in picture.boxes]
    told = len(picture.arrows) <= LABELS_MAX
    texts = [arrow.label() if told else "" for arrow in picture.arrows]
    ends = [(arrow.start, arrow.end) for arrow in picture.arrows]
    labels = [Size(width_of(text) * 0.92, LINE) if text else None for text in texts]
    across = widest(len(boxes), ends) > ACROSS_MAX
    sizes = [Size(size.depth, size.breadth) for size in boxes] if across else boxes
    if across:
        labels = [label and Size(label.depth, label.breadth) for label in labels]
    found = layout(sizes, ends, labels, 26.0 if told else 48.0)
    top = MARGIN + (2 * LINE + 12 if alone else 0.0)

    def place(point: Point) -> Point:
        along, down = (point[1], point[0]) if across else point
        return MARGIN + along, top + down

    wide, high = (found.depth, found.breadth) if across else (found.breadth, found.depth)
    width = 2 * MARGIN + (max(wide, width_of(short(seen(picture.title), 100)), width_of(picture.facts)) if alone else wide)
    height = top + high + MARGIN
    about = escape(seen(picture.title), quote=True)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    space = 'xmlns="http://www.w3.org/2000/svg" ' if alone else ""
    parts = [f'<svg {space}{size} class="plan" role="img" aria-label="{about}" font-family="{FONT}">', ARROW_HEAD]
    if alone:
        parts.append(f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>')
        parts.append(text_at(MARGIN, MARGIN + 12, short(seen(picture.title), 100), 'font-size="14" font-weight="600"', INK))
        parts.append(text_at(MARGIN, MARGIN + 12 + LINE, picture.facts, 'font-size="12"', FAINT))
    for arrow, route in zip(picture.arrows, found.routes, strict=True):
        parts.append(line_of(picture, arrow, [place(point) for point in route], across))
    parts += [box_of(box, place(at), size) for box, at, size in zip(picture.boxes, found.middles, boxes, strict=True)]
    for text, spot in zip(texts, found.labels, strict=True):
        if text and spot is not None:
            x, y = place(spot)
            room = width_of(text) * 0.92
            behind = f'x="{x - room / 2:.1f}" y="{y - 7:.1f}" width="{room:.1f}" height="14"'
            parts.append(f'<rect class="paper" {behind} fill="#ffffff" fill-opacity="0.85"/>')
            parts.append(text_at(x, y + 4, text, 'font-size="11" text-anchor="middle"', FAINT))
    return "\n".join([*parts, "</svg>"]) + "\n"


ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" '
    f'orient="auto"><path class="head" d="M0 0L10 5L0 10z" fill="{FAINT}"/></marker></defs>'
)


def size_of(box: Box) -> Size:
    lines = box.lines()
    widths = [width_of(short(seen(box.name))) * 1.1, *map(width_of, lines)]
    return Size(max(BOX_LEAST, *widths) + 2 * PAD, 3 * LINE + 10)


def box_of(box: Box, at: Point, size: Size) -> str:
    left, top = at[0] - size.breadth / 2, at[1] - size.depth / 2
    radius = 4 if box.kind is Kind.JOBS else 14
    rect = f'<rect x="{left:.1f}" y="{top:.1f}" width="{size.breadth:.1f}" height="{size.depth:.1f}" rx="{radius}"'
    texts = [text_at(at[0], top + 18, short(seen(box.name)), 'font-size="13" font-weight="600" text-anchor="middle"', INK)]
    for number, line in enumerate(box.lines(), 2):
        texts.append(text_at(at[0], top + 2 + number * LINE, line, 'font-size="12" text-anchor="middle"', FAINT))
    title = f"<title>{escape(seen(box.details()))}</title>"
    kind, dashes = (f"{box.kind.value} assumed", ASSUMED_DASHES) if box.is_assumed else (box.kind.value, "")
    return f'<g class="box {kind}">{title}{rect} fill="{FILLS[box.kind]}" stroke="{FAINT}"{dashes}/>{"".join(texts)}</g>'


def text_at(x: float, y: float, text: str, more: str, fill: str) -> str:
    kind = "ink" if fill == INK else "faint"
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" {more} fill="{fill}">{escape(text)}</text>'


def line_of(picture: PlanPicture, arrow: Arrow, points: list[Point], across: bool) -> str:
    """Through its points, going straight from layer to layer where it leaves and meets them."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in zip(points, points[1:], strict=False):
        bend = ((to_x - x) / 2, 0.0) if across else (0.0, (to_y - y) / 2)
        path += f"C{x + bend[0]:.1f} {y + bend[1]:.1f} {to_x - bend[0]:.1f} {to_y - bend[1]:.1f} {to_x:.1f} {to_y:.1f}"
    words = f"{picture.boxes[arrow.start].name} → {picture.boxes[arrow.end].name}: {arrow.label()}"
    drawn = f'fill="none" stroke="{FAINT}" stroke-width="{thickness(arrow):.1f}" stroke-opacity="0.55"{DASHES[arrow.way]}'
    return f'<path class="arrow {arrow.way.value}" d="{path}" {drawn} marker-end="url(#head)"><title>{escape(seen(words))}</title></path>'


def dot_text(picture: PlanPicture) -> str:
    """For graphviz: `stager plan W --dot | dot -Tpdf`."""
    lines = [
        f"digraph plan {{\n  label={dot_quoted(picture.title, picture.facts)}; labelloc=t;",
        '  node [shape=box, style="rounded,filled"];',
    ]
    for place, box in enumerate(picture.boxes):
        about = f"label={dot_quoted(box.name, *box.lines())}, tooltip={dot_quoted(box.details())}"
        style = ', style="rounded,filled,dashed"' if box.is_assumed else ""
        lines.append(f'  n{place} [{about}, fillcolor="{FILLS[box.kind]}"{style}];')
    styles = {Way.FILES: "solid", Way.DIRECT: "dashed", Way.WAITS: "dotted"}
    for arrow in picture.arrows:
        more = f"label={dot_quoted(arrow.label())}, style={styles[arrow.way]}, penwidth={thickness(arrow):.1f}"
        lines.append(f"  n{arrow.start} -> n{arrow.end} [{more}];")
    return "\n".join([*lines, "}"]) + "\n"


def dot_quoted(*lines: str) -> str:
    """In its strings a backslash begins an escape, and `&` an entity."""
    quoted = [seen(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines]
    return '"' + "\\n".join(quoted) + '"'


def mermaid_text(picture: PlanPicture) -> str:
    """For a block of code in a page of Markdown."""
    lines = ["flowchart TD"]
    shapes = {Kind.JOBS: ("[", "]"), Kind.SOURCE: ("([", "])"), Kind.KEPT: ("([", "])"), Kind.DESTINATION: ("([", "])")}
    for place, box in enumerate(picture.boxes):
        before, after = shapes[box.kind]
        lines.append(f"  n{place}{before}{mermaid_quoted(box.name, *box.lines())}{after}")
    links = {Way.FILES: "-->", Way.DIRECT: "-.->", Way.WAITS: "-.->"}
    for arrow in picture.arrows:
        lines.append(f"  n{arrow.start} {links[arrow.way]}|{mermaid_quoted(arrow.label())}| n{arrow.end}")
    for kind, fill in FILLS.items():
        members = ",".join(f"n{place}" for place, box in enumerate(picture.boxes) if box.kind is kind)
        if members:
            lines.append(f"  classDef {kind.value} fill:{fill},stroke:{FAINT},color:{INK}\n  class {members} {kind.value}")
    if assumed := ",".join(f"n{place}" for place, box in enumerate(picture.boxes) if box.is_assumed):
        lines.append(f"  classDef assumed stroke-dasharray:5 3\n  class {assumed} assumed")
    return "\n".join(lines) + "\n"


def mermaid_quoted(*lines: str) -> str:
    """Each letter that could mean something to Mermaid, Markdown or HTML is written by its number."""
    quoted = ["".join([letter if is_plain(letter) else f"#{ord(letter)};" for letter in seen(line)]) for line in lines]
    return '"' + "<br/>".join(quoted) + '"'


def is_plain(letter: str) -> bool:
    return letter.isalnum() or letter in " .,:" + JOINERS


PICTURES: Mapping[str, Callable[[PlanPicture], str]] = {"svg": svg_text, "dot": dot_text, "mermaid": mermaid_text}
