"""The figures of the report as SVG: the flow of messages with the failovers, and the waiting times."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..read.clocks import EPOCH
from .flow import FlowStep
from .summary import Wait
from .timeline import Episode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIRECT, PARKED, FORWARDED = "#4c78a8", "#e0a030", "#54a24b"
SUSPECT, FAILED_OVER = "#f2cf5b", "#d1495b"
WIDTH = 9.5  # inches
MAX_LANES = 20
MAX_BARS = 40
SECONDS_OF_A_DAY = 86_400
FADED = 0.45  # of a bar without an end in its journal
TIME_FORMS = ((10, "%H:%M:%S.%f"), (7200, "%H:%M:%S"), (SECONDS_OF_A_DAY, "%H:%M"), (math.inf, "%m-%d %H:%M"))
"""How times are written on an axis that spans less than so many seconds; of seconds, one digit after the point."""
Lane = tuple[str, str]  # the primary and the path of an entity


def flow_figure(
    flow: list[FlowStep], step: float, timeline: list[Episode], ends: Mapping[str, datetime]
) -> str:
    """Messages per second by route, above the failovers of each entity; "" without messages.

    ``step`` is the width of one element of ``flow`` in seconds; ``ends`` is when the journal of each writer ends: a
    failover without a record of its end is drawn up to there, and faded.
    """
    if not flow:
        return ""
    lanes = sorted({_lane(episode) for episode in timeline})[:MAX_LANES]
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.2 + 0.35 * len(lanes)), layout="constrained")
    if lanes:
        above, below = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [3.0, 0.4 + 0.35 * len(lanes)]}
        )
        _lanes(below, timeline, lanes, ends, flow[-1].at)
    else:
        above = figure.subplots()
    _flow(above, flow, step)
    return svg(figure)


def _flow(axes: Axes, flow: list[FlowStep], step: float) -> None:
    times = [_day(each.at) for each in flow]
    width = step / SECONDS_OF_A_DAY
    direct = [each.direct / step for each in flow]
    parked = [each.parked / step for each in flow]
    forwarded = [each.forwarded / step for each in flow]
    axes.bar(times, direct, width, align="edge", color=DIRECT, label="sent to the primary")
    axes.bar(times, parked, width, align="edge", bottom=direct, color=PARKED, label="parked")
    ends = [*times, times[-1] + width]
    axes.stairs(forwarded, ends, baseline=None, color=FORWARDED, label="forwarded by a syphon")
    axes.set_ylabel("messages per second")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8, ncols=3)
    time_axis(axes)
    plain(axes)


def _lanes(
    axes: Axes, timeline: list[Episode], lanes: list[Lane], ends: Mapping[str, datetime], last: datetime
) -> None:
    for episode in timeline:
        if _lane(episode) not in lanes:
            continue
        y = lanes.index(_lane(episode))
        marks = (episode.suspected_at, episode.failed_over_at, episode.recovered_at)
        suspected, failed, recovered = (None if mark is None else _day(mark) for mark in marks)
        until = _day(ends.get(episode.writer, last)) if recovered is None else recovered
        alpha = FADED if recovered is None else 1.0
        if suspected is not None:
            axes.barh(y, (failed or until) - suspected, 0.6, left=suspected, color=SUSPECT, alpha=alpha)
        if failed is not None:
            axes.barh(y, until - failed, 0.6, left=failed, color=FAILED_OVER, alpha=alpha)
    is_one = len({primary for primary, _ in lanes}) == 1
    labels = [path if is_one else f"{primary}: {path}" for primary, path in lanes]
    axes.set_yticks(range(len(lanes)), labels, fontsize=8, parse_math=False)  # a path may contain a $
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_title("suspect (yellow), failed over (red); faded: its journal ends", fontsize=8, loc="left")
    time_axis(axes)
    plain(axes)


def _lane(episode: Episode) -> Lane:
    return episode.primary, episode.path


def waits_figure(waits: list[Wait]) -> str:
    """The waiting times by backlog queue; "" if there are none."""
    if not waits:
        return ""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    axes = figure.subplots()
    is_one = len({wait.primary for wait in waits}) == 1
    waits = waits[:MAX_BARS]
    places = range(len(waits))
    labels = [
        f"backlog {wait.backlog}\n{wait.messages} messages" + ("" if is_one else f"\n{wait.primary}")
        for wait in waits
    ]
    for name, colour in (("longest", "#dddddd"), ("p99", "#f5d08a"), ("p95", PARKED), ("p50", "#a86a00")):
        axes.bar(places, [getattr(wait, name) for wait in waits], 0.7, color=colour, label=name)
    axes.set_xticks(places, labels, fontsize=8, parse_math=False)
    axes.set_ylabel("seconds waited")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8, ncols=4)
    plain(axes)
    return svg(figure)


def time_axis(axes: Axes) -> None:
    """Label the time axis with hours and, if it spans several days, with the day before them."""
    from matplotlib.dates import AutoDateLocator
    from matplotlib.ticker import FuncFormatter

    def label(at: float, _: object = None) -> str:
        first, last = sorted(axes.get_xlim())
        span = (last - first) * SECONDS_OF_A_DAY
        form = next(form for most, form in TIME_FORMS if span < most)
        text = (EPOCH + timedelta(days=at)).strftime(form)
        return text[:-5] if form.endswith("%f") else text

    axes.xaxis_date()
    axes.xaxis.set_major_locator(AutoDateLocator())  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(FuncFormatter(label))


def _day(at: datetime) -> float:
    """Days since the epoch, matplotlib's unit of time."""
    return at.timestamp() / SECONDS_OF_A_DAY


def plain(axes: Axes) -> None:
    """Remove the box of the axes, and use small labels."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)


def svg(figure: Figure) -> str:
    """The figure as an element of HTML."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    _, _, drawing = text.getvalue().partition("<svg")  # without the XML prolog, to embed it in HTML
    return f"<svg{drawing}"
