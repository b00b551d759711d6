"""The names of functions: a participle says what happened, so what returns something has another name."""

from __future__ import annotations

import pytest

from tests.tools.names import ROOT, returning

ROOMS = sorted(path.name for path in (ROOT / "sbpair").iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("room", ROOMS)
def test_what_returns_something_is_not_named_like_a_notification(room: str) -> None:
    found = [
        f"{path.name}: {name}"
        for path in sorted((ROOT / "sbpair" / room).rglob("*.py"))
        for name, _ in returning(path.read_text("utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def made() -> int: ...", ["made"]),
        ("async def _parked_again(message) -> bytes: ...", ["_parked_again"]),
        ("def parked() -> None: ...", []),  # a notification
        ("def failed(now: float) -> bool: ...", []),  # one that is answered
        ("def closed() -> list[SideChange]: ...", []),
        ("def locked_message() -> object: ...", []),  # a noun
        ("class A:\n    @property\n    def spent(self) -> int: ...", []),  # a state
    ],
)
def test_a_participle_that_returns_is_found_and_a_notification_is_not(source: str, found: list[str]) -> None:
    assert [name for name, _ in returning(source)] == found
