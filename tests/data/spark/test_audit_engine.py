"""The audit on Spark equals the local audit, row by row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sbpair.audit import audit
from sbpair.data.audit.daily import audit_daily
from sbpair.data.audit.read import reading
from sbpair.data.audit.result.interface import COLUMNS
from sbpair.spark.audit import SparkEngine
from tests.data.audit.audited import audited
from tests.data.audit.month import month
from tests.data.audit.story import Story
from tests.data.audit.test_lakehouse import publish, there

MESSAGES = 400


def told(directory: Path) -> None:
    """Sessions, copies, detours and losses of two pairs; one syphon was killed."""
    rng = random.Random(7)
    for primary in ("contoso", "fabrikam"):
        story = Story(directory, primary)
        sender, syphon, receiver, broker = story.sender(), story.syphon(), story.receiver(), story.broker()
        for number in range(MESSAGES):
            key, story.now = f"m{number}", number * 0.5
            if rng.random() < 0.3:
                sender.parked(key, number=number % 3, session=f"s{number % 9}" if number % 2 else "")
            else:
                sender.sent(key)
            if rng.random() < 0.9:
                broker.stored(key)
                receiver.received(
                    key, key, numbers=(number + 1, rng.randrange(900)), session=f"s{number % 9}"
                )
            syphon.forwarded(key, number=number % 3)
        syphon.set_aside("poison", path=None)
        story.end(but=(syphon.journal,) if primary == "contoso" else ())


@pytest.mark.spec("G-1", "G-2")
def test_spark_and_the_local_engine_write_equal_tables_and_pages(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TASK_BYTES", 16 * 1024)  # several tasks, and several parts
    monkeypatch.setattr(reading, "PART_BYTES", 64 * 1024)
    told(tmp_path / "journals")
    here = audited(tmp_path / "journals", tmp_path / "here")
    other = audited(tmp_path / "journals", tmp_path / "there", engine=SparkEngine(spark))

    assert other.plain() == here.plain()
    assert other.summary == here.summary
    assert len(list((tmp_path / "there" / "messages").iterdir())) > 1
    assert here.summary.sessions > 0
    assert here.summary.sessions_broken > 0
    assert here.summary.duplicated > 0


@pytest.mark.spec("R-146")
def test_a_daily_audit_on_spark_has_the_same_tables(spark, tmp_path: Path) -> None:
    for _ in month(tmp_path / "journals", days=2, messages=20):
        here = audit_daily(tmp_path / "journals", tmp_path / "here")
        other = audit_daily(tmp_path / "journals", tmp_path / "there", engine=SparkEngine(spark))
        assert other.summary == here.summary
    here, other = tmp_path / "here" / "current", tmp_path / "there" / "current"
    for table in here.rglob("*.parquet"):
        assert (other / table.relative_to(here)).read_bytes() == table.read_bytes()


@pytest.mark.spec("R-146")
def test_a_daily_audit_on_spark_writes_the_same_delta_tables(spark, tmp_path: Path) -> None:
    for _ in month(tmp_path / "journals", days=2, messages=10):
        for place, engine in (("here", None), ("there", SparkEngine(spark))):
            audit_daily(tmp_path / "journals", tmp_path / place, engine=engine)
            publish("delta", tmp_path / place, tmp_path / f"lake of {place}")
    assert there("delta", tmp_path / "lake of there") == there("delta", tmp_path / "lake of here")


@pytest.mark.spec("R-230")
def test_spark_shows_the_comments_of_all_columns(spark, tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    story.sender().sent("m")
    story.end()
    audit(tmp_path / "journals", tmp_path / "out")

    for table, columns in COLUMNS.items():
        if table != "days":  # of a daily audit
            found = spark.read.parquet(str(tmp_path / "out" / table)).schema
            assert {each.name: each.metadata.get("comment") for each in found} == {
                each.name: each.comment for each in columns
            }
