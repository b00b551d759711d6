"""A section laid out like one before is taken apart without walking it: to the same parts."""

from __future__ import annotations

import random

import pytest

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.sections import Section, decode_map_section, encode_map_section, map_section
from sbpair.pair.amqp.types import Symbol, Timestamp, UInt
from sbpair.pair.envelope import scan
from sbpair.pair.envelope.scan import MAX_LESSONS, Layouts, part_entries

WANTED = frozenset((b"x-ms-path", b"x-ms-timetolive"))


def a_map(random: random.Random) -> dict[object, object]:
    """A map with few shapes and many contents, so that shapes come again."""
    values = (
        lambda: random.choice(("orders", "prices", "a" * 300)),
        lambda: UInt(random.randrange(2**32)),
        lambda: Timestamp(random.randrange(2**40)),
        lambda: random.random() < 0.5,
        lambda: None,
        lambda: [UInt(random.randrange(2**32)), "ab"],
        lambda: bytes(random.randrange(3)),
    )
    keys = ["tenant", Symbol("kind"), "x-ms-path", "x-ms-timetolive", "k" * 260]
    random.shuffle(keys)
    return {key: random.choice(values)() for key in keys[: random.randrange(1, 6)]}


@pytest.mark.spec("G-22")
def test_cached_layouts_do_not_change_the_result(monkeypatch):
    monkeypatch.setattr(scan, "_LAYOUTS", Layouts())
    dice = random.Random(7)
    for _ in range(4_000):
        mapping = a_map(dice)
        section = encode_map_section(Section.APPLICATION_PROPERTIES, mapping)
        parted = part_entries(section, WANTED)

        assert {key.decode() for key in parted.found} == {str(key) for key in mapping} & {
            key.decode() for key in WANTED
        }
        kept = {key: value for key, value in mapping.items() if str(key).encode() not in WANTED}
        again = map_section(Section.APPLICATION_PROPERTIES, parted.kept, parted.kept_values)
        assert decode_map_section(again) == kept


def test_a_section_broken_at_the_place_of_a_cached_one_is_refused(monkeypatch):
    monkeypatch.setattr(scan, "_LAYOUTS", Layouts())
    section = encode_map_section(Section.APPLICATION_PROPERTIES, {"x-ms-path": "orders", "n": UInt(700)})
    part_entries(section, WANTED)
    broken = section.replace(b"\xa1\x06orders", b"\xa1\x99orders")

    assert len(broken) == len(section)
    with pytest.raises((DecodeError, IndexError)):
        part_entries(broken, WANTED)


def test_a_kind_of_section_that_is_never_laid_out_alike_is_not_learnt_for_ever(monkeypatch):
    layouts = Layouts()
    monkeypatch.setattr(scan, "_LAYOUTS", layouts)
    kind = None
    for number in range(MAX_LESSONS + 1):
        section = encode_map_section(Section.APPLICATION_PROPERTIES, {f"key-{number:03}": "value"})
        part_entries(section, WANTED)
        kind = len(section), WANTED
    assert kind is not None
    assert not layouts.wants(kind)
