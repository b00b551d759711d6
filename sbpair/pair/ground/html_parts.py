"""The parts of a self-contained HTML page: its style, sections and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:980px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.1em;margin-top:2em;border-bottom:1px solid #ddd}
.verdict{padding:.7em 1em;border-radius:6px;font-weight:600}.ok{background:#e3f3e1}.bad{background:#fbe3e4}
table{border-collapse:collapse;margin:.6em 0}
td,th{padding:.2em .9em .2em 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}tr.bad td{color:#a3123a;font-weight:600}
code{background:#f4f4f4;padding:.1em .3em}
td.t{white-space:nowrap;font-variant-numeric:tabular-nums}
th{border-bottom:1px solid #bbb;font-weight:600}svg{max-width:100%;height:auto}small{color:#666}
.wide{overflow-x:auto}
@media(max-width:40em){body{margin:1em auto;padding:0 .7em}td,th{padding-right:.6em}}
"""


class Html(str):
    """Text that is HTML already: a table cell that contains it is not escaped."""

    __slots__ = ()


Row = tuple[Sequence[object], bool]  # the cells, and whether to highlight the row


def section(title: str, content: str) -> str:
    """Return a section with a title; "" without content."""
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def table(heads: Iterable[str], rows: Sequence[Row]) -> str:
    """Return a table; numbers are aligned to the right, times shown in milliseconds."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr{' class=bad' if is_bad else ''}>{''.join(_cell(value) for value in cells)}</tr>"
        for cells, is_bad in rows
    )
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"<td class=t>{value.strftime('%Y-%m-%d %H:%M:%S.%f')[:-3]}</td>"
    if isinstance(value, Html):
        return f"<td>{value}</td>"
    is_number = isinstance(value, int | float)
    return f"<td{' class=n' if is_number else ''}>{'' if value is None else escape(str(value))}</td>"
