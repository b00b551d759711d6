"""The public API does not change by accident: the listing says what it is."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest

from tests.tools import public
from tests.tools.blocks.api import API

LISTED = {
    block.partition("\n")[0]: block for block in public.LISTING.read_text("utf-8").strip().split("\n\n")
}


def _marked(module: str) -> object:
    return pytest.param(module, marks=[pytest.mark.spark] if ".spark" in module else [])


@pytest.mark.parametrize("module", [_marked(module) for module in API.values()])
def test_the_public_names_equal_the_listing(module: str) -> None:
    assert "\n".join(public.of_module(module)) == LISTED[module], (
        "the public API changed. If that is meant: `python -m tests.tools.public`, and for a name or parameter that is "
        "gone or has another meaning, what docs/reference/versions.md asks for"
    )


def test_the_listing_has_no_other_module() -> None:
    assert set(LISTED) == set(API.values())


class Colour(enum.Enum):
    RED = 1


class Shape:
    def __init__(self, sides: int) -> None:
        self._sides = sides

    @property
    def count(self) -> int:
        return self._sides

    @classmethod
    def square(cls) -> Shape:
        return cls(4)


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (Colour, ["enum it: RED"]),
        (1, ["it"]),
        (Shape, ["class it(sides: 'int') -> 'None'"]),
        (lambda a, b=1, *, c: None, ["it(a, b=1, *, c)"]),
    ],
)
def test_a_name_is_listed_with_its_parameters(value: object, lines: list[str]) -> None:
    assert list(public.of_object("it", value))[: len(lines)] == lines


def test_class_members_are_listed_with_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shape, "__module__", "sbpair.shapes")
    assert list(public.of_object("it", Shape))[1:] == [
        "    count: int",
        "    square [classmethod](cls) -> 'Shape'",
    ]


@pytest.mark.parametrize(("now", "written"), [("a\nb\nc\n", "a\nb\nc\n"), ("a\nc\n", "a\nb\n")])
def test_new_names_are_added_and_removed_ones_stay_until_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str, written: str
) -> None:
    listing = tmp_path / "public.txt"
    listing.write_text("a\nb\n")
    monkeypatch.setattr(public, "LISTING", listing)
    monkeypatch.setattr(public, "listing", lambda: now)
    public.add_what_is_new()
    assert listing.read_text() == written
