"""Pictures of estimates, by matplotlib, which is an extra: `stager[plot]`.

May know: matplotlib, when it is there. One rule: the same values draw the same bytes, so that a picture in a repository changes only with
what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from stager.model.errors import InvalidInput
from stager.planning.cost import Bill

FORMATS = (".svg", ".png", ".pdf")
LINES = {"compute": "compute nodes", "io_nodes": "I/O nodes", "requests": "requests", "egress": "egress", "storage": "storage"}
# Told apart by those who see no red or green as well.
COLOURS = {"compute": "#4477aa", "io_nodes": "#66ccee", "requests": "#ccbb44", "egress": "#ee6677", "storage": "#aa3377"}


class Used(Protocol):
    @property
    def wall_s(self) -> float: ...


class Life(Protocol):
    @property
    def usage(self) -> Used: ...
    @property
    def bill(self) -> Bill: ...


class Drawable(Protocol):
    """A choice as service/choices.py makes it."""

    @property
    def io_nodes(self) -> int: ...
    @property
    def expected(self) -> Life | None: ...
    @property
    def wall_s_range(self) -> tuple[float, float]: ...
    @property
    def total_range(self) -> tuple[float, float]: ...
    @property
    def front(self) -> bool: ...


def require_drawable(path: Path) -> None:
    """To be asked before what takes long. Raises InvalidInput for a name that says no format, a directory that is not there, and where
    matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InvalidInput(f"{path} ends in none of {', '.join(FORMATS)}, so it is not known what to draw; name it so", subject=str(path))
    if not path.absolute().parent.is_dir():
        raise InvalidInput(f"there is no directory {path.parent} to draw {path.name} in; make it first", subject=str(path))
    library()


def library() -> Any:
    try:
        import matplotlib
    except ImportError:
        text = "pictures need matplotlib, which is not installed here; `pip install 'stager[plot]'`, or leave out --plot"
        raise InvalidInput(text, code="plot_missing") from None
    return matplotlib


def figure(columns: int, width: float = 5.6, height: float = 4.0) -> tuple[Any, Any]:
    """A figure with so many charts side by side. Raises InvalidInput where matplotlib is not installed."""
    matplotlib = library()
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "stager", "axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    from matplotlib import pyplot

    made, charts = pyplot.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)
    return made, charts[0]


def save(made: Any, path: Path) -> None:
    """Raises InvalidInput as require_drawable does."""
    require_drawable(path)
    from matplotlib import pyplot

    stamp = {"Date": None} if path.suffix.lower() == ".svg" else {"CreationDate": None} if path.suffix.lower() == ".pdf" else {}
    made.savefig(path, metadata=stamp, dpi=150)
    pyplot.close(made)


def plot_choices(choices: Sequence[Drawable], currency: str, title: str, path: Path) -> None:
    """Time against money with the Pareto front, and what each choice's money goes to."""
    made, (across, stacked) = figure(2)
    able = [choice for choice in choices if choice.expected is not None]
    unit, seconds = time_unit(max((choice.wall_s_range[1] for choice in able), default=1.0))
    draw_front(across, able, seconds)
    across.set_xlabel(f"makespan ({unit})")
    across.set_ylabel(f"total ({currency})")
    draw_bills(stacked, able)
    stacked.set_ylabel(f"total ({currency})")
    made.suptitle(title)
    save(made, path)


def time_unit(longest_s: float) -> tuple[str, float]:
    return ("hours", 3600.0) if longest_s >= 7200 else ("minutes", 60.0) if longest_s >= 300 else ("seconds", 1.0)


def draw_front(chart: Any, able: Sequence[Drawable], seconds: float) -> None:
    points = [(life.usage.wall_s / seconds, life.bill.total) for choice in able if (life := choice.expected) is not None]
    for choice, (wall, total) in zip(able, points, strict=True):
        (low, high), (little, much) = choice.wall_s_range, choice.total_range
        spread = {"xerr": [[wall - low / seconds], [high / seconds - wall]], "yerr": [[total - little], [much - total]]}
        chart.errorbar(wall, total, **spread, fmt="o", color="#4477aa" if choice.front else "#bbbbbb", ecolor="#bbbbbb", zorder=3)
        # The number alone: choices often lie near each other.
        name = str(choice.io_nodes) if choice.io_nodes else "direct"
        chart.annotate(name, (wall, total), textcoords="offset points", xytext=(6, 6))
    chart.set_title("by number of I/O nodes", fontsize=10)
    front = sorted(point for choice, point in zip(able, points, strict=True) if choice.front)
    if len(front) > 1:
        chart.plot(*zip(*front, strict=True), color="#4477aa", linewidth=1, linestyle="--", label="Pareto front")
        chart.legend(frameon=False)
    chart.margins(0.15)
    chart.set_xlim(left=0)
    chart.set_ylim(bottom=0)


def label_of(choice: Drawable) -> str:
    return f"{choice.io_nodes} I/O nodes" if choice.io_nodes > 1 else "1 I/O node" if choice.io_nodes else "direct"


def draw_bills(chart: Any, able: Sequence[Drawable]) -> None:
    names = [label_of(choice) for choice in able]
    below = [0.0] * len(able)
    for line, name in LINES.items():
        parts = [getattr(life.bill, line) for choice in able if (life := choice.expected) is not None]
        if any(parts):
            chart.bar(names, parts, bottom=below, color=COLOURS[line], label=name, width=0.6)
            below = [base + part for base, part in zip(below, parts, strict=True)]
    chart.set_ylim(0, max([*below, 1e-9]) * 1.25)
    chart.legend(frameon=False, ncols=3, loc="upper center", fontsize=8)
