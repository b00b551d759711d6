"""Audits without drawings: matplotlib takes nine tenths of an audit of a few messages, and few tests look at them."""

from __future__ import annotations

import pytest

DRAWN = ("test_report.py", "test_on_call.py")


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name not in DRAWN:
        for figure in ("result.report.flow_figure", "result.report.waits_figure", "daily.page.svg"):
            monkeypatch.setattr(f"sbpair.data.audit.{figure}", lambda *_: "<svg></svg>")
