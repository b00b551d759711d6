"""A message shaped like one before is restored without being taken apart: to the same bytes."""

from __future__ import annotations

import random

import pytest

from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.types import Symbol, Timestamp, UInt
from sbpair.pair.envelope import restore as restore_module
from sbpair.pair.envelope.ordering import OrderStamp
from sbpair.pair.envelope.restore import Forward, Poison, anywhere, restore
from sbpair.pair.envelope.scan import MAX_LESSONS, Shapes

NOW = 1_795_219_200_000


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    shapes = Shapes()
    monkeypatch.setattr(restore_module, "_SHAPES", shapes)
    return shapes


def at_length(payload: bytes) -> Forward | Poison:
    restore_module._SHAPES, known = Shapes(), restore_module._SHAPES
    try:
        return restore(payload, NOW)
    finally:
        restore_module._SHAPES = known


def a_parked_message(writer: int, dice: random.Random) -> bytes:
    """The same writer's messages have one shape, and contents as the dice fall."""
    habits = random.Random(writer)
    own: dict[str, object] = {
        "tenant": dice.choice(("t1", "t2"))
        * habits.choice((1, 1, 200)),  # in a map with sizes of one byte or four
        "n": UInt(dice.randrange(300, 2**32)),
        "nested": {"a": dice.randrange(128)},
    }
    aliases: dict[str, object] = {
        "x-ms-timetolive": habits.choice(("P1D", "P60D", "PT5M")),
        "x-ms-sessionid": dice.choice(("s1", "s2")),
        "x-sbpair-partitionkey": dice.choice(("k1", "k2")),
        "x-sbpair-deadline": dice.choice(
            ("2026-11-22T00:00:00Z", "2026-11-21T10:00:00Z", "2020-11-22T00:00:00Z")
        ),
    }
    carried: dict[str, object] = {"x-ms-path": dice.choice(("orders", "prices"))}
    carried |= {name: aliases[name] for name in habits.sample(sorted(aliases), habits.choice((0, 1, 1, 2)))}
    carried |= {name: own[name] for name in habits.sample(sorted(own), 2)}
    if habits.random() < 0.3:
        carried |= {"x-sbpair-version": "1"}  # behind the writer's own: two runs are kept, or one
    annotations: dict[object, object] = {
        Symbol("x-opt-sequence-number"): dice.randrange(2**40, 2**41),
        Symbol("x-opt-locked-until"): Timestamp(NOW + dice.randrange(9999)),
    }
    if habits.random() < 0.2:
        annotations[Symbol("x-custom")] = UInt(dice.randrange(256, 2**32))
    created = Timestamp(NOW + dice.randrange(9)) if habits.random() < 0.3 else None
    expires = None if created is None else Timestamp(created + 86_400_000 + dice.randrange(2))
    return Message(
        header=Header(delivery_count=habits.randrange(3)),
        message_annotations=annotations,
        properties=habits.choice(
            (
                None,
                Properties(message_id=f"{dice.randrange(1000):03}"),
                Properties(message_id="m", creation_time=created, absolute_expiry_time=expires),
            )
        ),
        application_properties=carried,
        body=habits.choice((DataBody((dice.randbytes(dice.choice((0, 5, 300))),)), ValueBody("v"))),
        footer={Symbol("f"): UInt(1)} if habits.random() < 0.1 else {},
    ).encode()


@pytest.mark.slow
@pytest.mark.spec("G-22")
def test_cached_shapes_do_not_change_a_byte(nothing_is_known):
    dice = random.Random(7)
    for number in range(4_000):
        payload = a_parked_message(number // 20, dice)
        assert restore(payload, NOW) == at_length(payload)


@pytest.mark.spec("G-22")
def test_the_usual_message_is_remembered(nothing_is_known):
    for tenant in ("t", "t" * 300):
        restore(usual(1, tenant=tenant), NOW)
        other = usual(2, tenant=tenant)
        assert nothing_is_known.find(other) is not None
        assert restore(other, NOW) == at_length(other)


@pytest.mark.spec("G-22")
def test_a_broken_message_is_not_mistaken_for_a_cached_one():
    dice, whole = random.Random(7), usual(1)
    restore(whole, NOW)
    for _ in range(4_000):
        broken = bytearray(whole)
        broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
        assert restore(bytes(broken), NOW) == at_length(bytes(broken))
    for size in range(len(whole)):
        assert restore(whole[:size], NOW) == at_length(whole[:size])
    assert restore(whole + b"\x00", NOW) == at_length(whole + b"\x00")


@pytest.mark.spec("G-22")
@pytest.mark.parametrize("odd", [1.5, 2.0**1000, UInt(2**31), "2026-11-22T00:00:00Z", b"12345678", NOW, None])
def test_a_mistyped_lock_time_is_handled_alike_with_and_without_the_cache(odd):
    for number in range(1, 4):
        payload = usual(number, locked_until=odd)
        assert restore(payload, NOW) == at_length(payload)


def test_a_path_no_longer_allowed_is_refused_although_cached():
    assert isinstance(restore(usual(1), NOW, anywhere), Forward)
    assert isinstance(restore(usual(2), NOW, lambda path: False), Poison)


def test_a_length_that_is_never_shaped_alike_is_not_learnt_for_ever(nothing_is_known):
    for number in range(MAX_LESSONS + 1):
        restore(usual(1, name=f"key-{number:03}"), NOW)
    last = usual(1, name=f"key-{MAX_LESSONS:03}")
    assert nothing_is_known.find(last) is None
    assert restore(last, NOW) == at_length(last)


@pytest.mark.spec("O-7")
def test_a_stamped_message_keeps_its_stamp_when_restored_again(nothing_is_known):
    stamped = usual(1, name="x-sbpair-order", kind="abc/1000/7")
    for _ in range(3):
        restored = restore(stamped, NOW)
        assert isinstance(restored, Forward)
        assert restored.order == OrderStamp("abc", 1000, 7)


def usual(
    number: int, *, name: str = "kind", kind: str = "order", tenant: str = "t1", locked_until: object = ...
) -> bytes:
    lock = Timestamp(NOW + number) if locked_until is ... else locked_until
    return Message(
        header=Header(delivery_count=0),
        delivery_annotations={Symbol("x-opt-lock-token"): number},
        message_annotations={Symbol("x-opt-locked-until"): lock},
        properties=Properties(message_id=f"m{number}"),
        application_properties={
            name: kind,
            "tenant": tenant,
            "x-ms-path": "orders",
            "x-ms-timetolive": "P1D",
        },
        body=DataBody((b"hello",)),
    ).encode()
