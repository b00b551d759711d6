"""The picture of a soak: resources of each process over time, and the outages of the primary."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .course import Report

WIDTH, HEIGHT = 10.0, 11.0  # inches
DOWN = {"refuse": "#f4c7c3", "reset": "#f9dcc4", "silent": "#d9d9e8"}
PANELS = (
    ("memory", "memory (MiB)", 1024),
    ("descriptors", "descriptors", 1),
    ("threads", "threads", 1),
)


def draw(report: Report, path: Path) -> None:
    """Write it to ``path``, in the format of its suffix: .svg, .png, .pdf."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots(len(PANELS) + 2, 1, sharex=True)
    times = [sample.at for sample in report.samples]
    for panel, (what, label, unit) in zip(axes, PANELS, strict=False):
        for name in report.samples[0].held:
            values = [getattr(sample.held[name], what) / unit for sample in report.samples]
            panel.plot(times, values, linewidth=1, label=name)
        _dress(panel, label, report)
    for name in report.samples[0].on_disk:
        axes[-2].plot(times, [each.on_disk[name] / 1024 for each in report.samples], linewidth=1, label=name)
    _dress(axes[-2], "on disk (MiB)", report)
    axes[-1].plot(times, [each.outstanding for each in report.samples], linewidth=1, label="messages")
    _dress(axes[-1], "accepted, not yet delivered", report)
    axes[-1].set_xlabel("seconds")
    found = report.found
    figure.suptitle(
        f"{found.acknowledged} acknowledged, {len(found.lost)} lost, {found.duplicates} copies more; "
        f"{report.outages} outages of the primary: refuse (red), reset (orange), silent (grey)",
        fontsize=9,
    )
    figure.savefig(path)


def _dress(panel: Axes, label: str, report: Report) -> None:
    for how, begin, end in report.plan.outages():
        panel.axvspan(begin, end, color=DOWN[how], linewidth=0)
    panel.set_ylim(bottom=0)
    panel.set_ylabel(label, fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
