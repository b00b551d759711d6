"""The timeline of failovers, computed in Python without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbpair.data.audit.result.timeline import StateEvent, timeline

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def told(
    event: str, second: int, path: str = "orders", writer: str = "w", cause: str = "refused"
) -> StateEvent:
    return StateEvent("contoso", path, writer, f"entity_{event}", NOON + timedelta(seconds=second), cause)


def after(second: int) -> datetime:
    return NOON + timedelta(seconds=second)


def test_a_failover_episode_has_start_duration_and_end() -> None:
    (episode,) = timeline(
        [told("suspected", 0), told("failed_over", 60), told("recovered", 200, cause="ping")]
    )

    assert (episode.suspected_at, episode.failed_over_at, episode.recovered_at) == (
        after(0),
        after(60),
        after(200),
    )
    assert episode.cause == "refused"


def test_a_suspicion_without_a_failover_is_an_episode_of_its_own_kind() -> None:
    (episode,) = timeline([told("suspected", 0), told("recovered", 5)])

    assert (episode.failed_over_at, episode.recovered_at) == (None, after(5))


def test_an_unfinished_episode_has_no_end() -> None:
    (episode,) = timeline([told("failed_over", 3)])

    assert (episode.suspected_at, episode.failed_over_at, episode.recovered_at) == (None, after(3), None)


def test_episodes_are_per_entity_and_process_and_sorted_by_start() -> None:
    story = [
        told("suspected", 9, writer="v"),
        told("suspected", 0),
        told("suspected", 5, path="invoices"),
        told("failed_over", 60, path="ORDERS"),
        told("recovered", 65, path="invoices"),
    ]

    episodes = timeline(story)

    assert [(each.writer, each.path) for each in episodes] == [
        ("w", "orders"),
        ("w", "invoices"),
        ("v", "orders"),
    ]
    assert episodes[0].failed_over_at == after(60)
