"""The metrics that Prometheus scrapes after events."""

from __future__ import annotations

import re
import time

import pytest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from sbpair import __version__
from sbpair.observation import EntityStates, Metrics
from sbpair.pair.amqp.build import build
from sbpair.pair.observation.metrics import BUILD_INFO, MAX_PATHS, METRICS, OTHERS
from sbpair.pair.pairing import events as pairing
from sbpair.pair.processor import events as processor
from sbpair.pair.syphon import events as syphon
from sbpair.pair.syphon.status import SyphonCounters, SyphonState

EVERY_EVENT = (
    pairing.EntitySuspected(0.0, "orders", "c"),
    pairing.EntityFailedOver(0.0, "orders", "c"),
    pairing.MessageParked(0.0, "orders", 1, 5, reason="busy"),
    pairing.MessageParked(0.0, "orders", 1, 2, reason="busy"),
    pairing.PingSent(0.0, "orders", 1),
    pairing.PingFailed(0.0, "orders", "c"),
    pairing.BacklogWithdrawn(0.0, "orders", 2, 60.0, "c"),
    pairing.BacklogsCreated(0.0, "", ("a", "b")),
    pairing.BacklogsNotCreated(0.0, "", "c"),
    pairing.SideFaulted(0.0, "", "secondary", "c"),
    pairing.MessageSpooled(0.0, "orders", 3),
    pairing.SpoolReplayed(0.0, "orders", None, 2, 1),
    pairing.SpooledMessageRefused(0.0, "orders", "m1", "c"),
    syphon.SyphonConnected(0.0),
    syphon.SyphonDisconnected(0.0, "primary", "r", 1.0),
    syphon.BacklogMissing(0.0, "b/0"),
    syphon.BacklogDetached(0.0, "b/0", "r"),
    syphon.MessageSetAside(0.0, "b/0", "evil", "PathMissing", "d"),
    syphon.DestinationHeld(0.0, "orders", "r", 1.0),
    syphon.LandingBegan(0.0, "orders", 300.0),
    syphon.BacklogsDrained(0.0),
    pairing.FenceOpened(0.0, "orders", 11, 4),
    pairing.FenceUnproved(0.0, "orders", 11, "c"),
    syphon.SessionHeld(0.0, "b/0", "s", "InvalidPath", "m1"),
    processor.ReceivingLost(0.0, "orders", "primary", "r", 1.0),
    processor.HandlerFailed(0.0, "orders", "primary", "m1", "e"),
    processor.LockEnded(0.0, "orders", "secondary", "m1", False),
    processor.SettlementUnknown(0.0, "orders", "primary", ("m1", "m2")),
    processor.DuplicatesCompleted(0.0, "orders", "primary", ("m1",)),
    processor.LinkSilent(0.0, "orders", "primary", 65.0),
    pairing.PrimarySlow(0.0, "orders", 12.0),
    pairing.KeySetAside(0.0, "orders", "k", "c"),
    pairing.SendRaised(0.0, "orders", "BacklogUnavailableError", ("a", "b")),
)


def samples(metrics):
    """Return the exposed samples as {(name, sorted labels): value}, without creation times."""
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if not sample.name.endswith("_created") or sample.name in {m.name for m in METRICS}
    }


@pytest.fixture
def metrics():
    return Metrics()


def told(metrics, *events):
    for event in events:
        metrics.write(event)
    return samples(metrics)


def test_every_event_is_counted_under_its_documented_name(metrics):
    assert told(metrics, *EVERY_EVENT) == {
        ("sbpair_build_info", f"build={build()}", f"version={__version__}"): 1,
        ("sbpair_suspicions_total", "path=orders"): 1,
        ("sbpair_failovers_total", "path=orders"): 1,
        ("sbpair_entity_state", "path=orders", "state=healthy"): 0,
        ("sbpair_entity_state", "path=orders", "state=suspect"): 0,
        ("sbpair_entity_state", "path=orders", "state=failed_over"): 1,
        ("sbpair_entity_state", "path=orders", "state=returning"): 0,
        ("sbpair_slow_sends_total", "path=orders"): 1,
        ("sbpair_keys_set_aside_total", "path=orders"): 1,
        ("sbpair_parked_messages_total", "backlog=1", "path=orders", "reason=busy"): 7,
        ("sbpair_raised_sends_total", "cause=BacklogUnavailableError", "path=orders"): 1,
        ("sbpair_pings_total", "path=orders"): 1,
        ("sbpair_ping_failures_total", "path=orders"): 1,
        ("sbpair_backlog_withdrawals_total", "backlog=2"): 1,
        ("sbpair_backlog_withdrawn", "backlog=2"): 1,
        ("sbpair_backlogs_created_total",): 2,
        ("sbpair_backlog_creation_failures_total",): 1,
        ("sbpair_side_refusals_total", "side=secondary"): 1,
        ("sbpair_side_state", "side=secondary", "state=open"): 0,
        ("sbpair_side_state", "side=secondary", "state=closed"): 0,
        ("sbpair_side_state", "side=secondary", "state=refused"): 1,
        ("sbpair_spooled_messages_total", "path=orders"): 3,
        ("sbpair_spool_replayed_messages_total", "path=orders"): 2,
        ("sbpair_spool_refused_messages_total", "path=orders"): 1,
        ("sbpair_syphon_connects_total",): 1,
        ("sbpair_syphon_disconnects_total",): 1,
        ("sbpair_syphon_backlogs_missing_total", "backlog=b/0"): 1,
        ("sbpair_syphon_backlog_detaches_total", "backlog=b/0"): 1,
        ("sbpair_syphon_set_aside_total", "reason=PathMissing"): 1,
        ("sbpair_syphon_landings_total", "path=orders"): 1,
        ("sbpair_syphon_landing", "path=orders"): 1,
        ("sbpair_syphon_destinations_held",): 1,
        ("sbpair_fence_opened_sessions_total", "path=orders"): 4,
        ("sbpair_fence_unproved_total", "path=orders"): 1,
        ("sbpair_processor_link_losses_total", "path=orders", "side=primary"): 1,
        ("sbpair_processor_handler_failures_total", "path=orders", "side=primary"): 1,
        ("sbpair_processor_locks_lost_total", "path=orders", "side=secondary"): 1,
        ("sbpair_processor_settlements_unknown_total", "path=orders", "side=primary"): 2,
        ("sbpair_processor_duplicates_total", "path=orders", "side=primary"): 1,
        ("sbpair_processor_silent_links_total", "path=orders", "side=primary"): 1,
        ("sbpair_syphon_sessions_held_total", "reason=InvalidPath"): 1,
    }


def test_every_documented_metric_is_moved_by_some_event(metrics):
    back = pairing.EntityRecovered(0.0, "orders", "ping accepted")
    aborted = pairing.ReturnAborted(0.0, "orders", "c")
    moved = {name for name, *_ in told(metrics, *EVERY_EVENT, aborted, back)}

    assert {metric.name for metric in METRICS} <= moved


@pytest.mark.spec("H-55")
def test_a_return_has_its_own_state_and_an_aborted_one_is_no_second_failover(metrics):
    events = pairing.EntityFailedOver(0.0, "orders", "c"), pairing.EntityReturning(0.0, "orders")
    found = told(metrics, *events)
    assert found["sbpair_entity_state", "path=orders", "state=returning"] == 1
    assert found["sbpair_entity_state", "path=orders", "state=failed_over"] == 0

    found = told(metrics, pairing.ReturnAborted(0.0, "orders", "c"))
    assert found["sbpair_entity_state", "path=orders", "state=failed_over"] == 1
    assert found["sbpair_failovers_total", "path=orders"] == 1
    assert found["sbpair_returns_aborted_total", "path=orders"] == 1

    found = told(metrics, events[1], pairing.EntityRecovered(0.0, "orders", "c"))
    assert found["sbpair_failbacks_total", "path=orders"] == 1


def test_coming_back_is_a_failback_and_a_false_alarm_is_none(metrics):
    suspected = pairing.EntitySuspected(0.0, "orders", "c")
    recovered = pairing.EntityRecovered(0.0, "orders", "c")
    told(metrics, suspected, recovered)
    assert ("sbpair_failbacks_total", "path=orders") not in samples(metrics)

    found = told(metrics, suspected, pairing.EntityFailedOver(0.0, "orders", "c"), recovered)

    assert found["sbpair_failbacks_total", "path=orders"] == 1
    assert found["sbpair_entity_state", "path=orders", "state=healthy"] == 1
    assert found["sbpair_suspicions_total", "path=orders"] == 2


def test_two_spellings_of_a_path_are_one_entity(metrics):
    found = told(
        metrics,
        pairing.EntityFailedOver(0.0, "Orders", "c"),
        pairing.EntityRecovered(0.0, "ORDERS", "c"),
    )

    assert found["sbpair_failbacks_total", "path=Orders"] == 1
    assert found["sbpair_entity_state", "path=Orders", "state=failed_over"] == 0


def test_a_returning_backlog_resets_its_withdrawn_gauge(metrics):
    found = told(metrics, EVERY_EVENT[6], pairing.BacklogReturned(0.0, "orders", 2))

    assert found["sbpair_backlog_withdrawn", "backlog=2"] == 0
    assert found["sbpair_backlog_withdrawals_total", "backlog=2"] == 1


def test_a_withdrawn_backlog_is_available_after_its_quarantine_without_a_send(metrics, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    metrics.write(pairing.BacklogWithdrawn(0.0, "orders", 2, 5.0, "c"))
    assert 'sbpair_backlog_withdrawn{backlog="2"} 1.0' in metrics.exposition().decode()
    now += 5.0
    assert 'sbpair_backlog_withdrawn{backlog="2"} 0.0' in metrics.exposition().decode()


@pytest.mark.spec("R-28")
def test_a_lost_connection_resets_its_held_messages_gauge(metrics):
    told(metrics, syphon.DestinationHeld(0.0, "orders", "full", 1.0))
    gone = syphon.SyphonDisconnected(0.0, "primary", "reset", 1.0)
    assert told(metrics, gone)["sbpair_syphon_destinations_held",] == 0


def test_a_destination_is_held_only_once_until_it_resumes(metrics):
    held = syphon.DestinationHeld(0.0, "orders", "r", 1.0)
    assert told(metrics, held, held)["sbpair_syphon_destinations_held",] == 1
    assert told(metrics, syphon.DestinationResumed(0.0, "orders"))["sbpair_syphon_destinations_held",] == 0


def test_a_syphons_counters_are_read_at_each_scrape(metrics):
    counters = SyphonCounters(received=5, forwarded=4, pending=1)
    metrics.read_counters("sbpair_syphon", lambda: counters)
    assert samples(metrics)["sbpair_syphon_forwarded_total",] == 4

    counters.forwarded, counters.pending = 5, 0

    found = samples(metrics)
    assert found["sbpair_syphon_forwarded_total",] == 5
    assert found["sbpair_syphon_pending",] == 0
    assert re.search(rb"# TYPE sbpair_syphon_pending gauge", metrics.exposition())


def test_a_syphons_state_is_read_at_each_scrape(metrics):
    states = iter([SyphonState.REFUSED, SyphonState.RUNNING])
    metrics.read_state("sbpair_syphon_state", lambda: next(states))

    assert samples(metrics)["sbpair_syphon_state", "state=refused"] == 1
    found = samples(metrics)
    assert found["sbpair_syphon_state", "state=running"] == 1
    assert found["sbpair_syphon_state", "state=refused"] == 0


@pytest.mark.spec("R-179")
def test_only_documented_series_are_exposed_without_times_of_creation(metrics):
    for event in EVERY_EVENT:
        metrics.write(event)
    exposed = {each.name for each in text_string_to_metric_families(metrics.exposition().decode())}

    assert "sbpair_backlogs_created" in exposed
    assert exposed <= {each.name.removesuffix("_total") for each in (*METRICS, BUILD_INFO)}


def test_the_registry_is_valid_openmetrics_for_a_server_of_the_programs_own(metrics):
    for event in EVERY_EVENT:
        metrics.write(event)
    families = {each.name: each for each in parsed_openmetrics(openmetrics_text(metrics.registry).decode())}

    assert families["sbpair_backlogs_created"].type == "counter"
    assert {each.name.removesuffix("_total") for each in METRICS} <= families.keys()


def test_text_of_a_message_is_no_label(metrics):
    for number in range(20):
        metrics.write(syphon.MessageSetAside(0.0, "b/0", f"evil-{number}", "PathMissing", f"d{number}"))

    assert b"evil" not in metrics.exposition()


def test_two_clients_in_one_process_are_counted_separately():
    first, second = Metrics(), Metrics()
    first.write(EVERY_EVENT[1])

    assert ("sbpair_failovers_total", "path=orders") not in samples(second)


def test_the_state_metric_lists_every_entity_that_ever_failed():
    states = EntityStates()
    for event in EVERY_EVENT:
        states.write(event)

    assert states.snapshot() == {"orders": "failed_over"}


@pytest.mark.spec("C-3")
def test_an_entity_that_lands_is_a_gauge_until_it_answers(metrics):
    began = told(metrics, syphon.LandingBegan(0.0, "orders", 300.0))
    assert began["sbpair_syphon_landing", "path=orders"] == 1
    assert began["sbpair_syphon_landings_total", "path=orders"] == 1
    assert told(metrics, syphon.LandingEnded(0.0, "orders"))["sbpair_syphon_landing", "path=orders"] == 0


@pytest.mark.spec("R-133")
def test_the_version_and_the_build_are_a_metric(metrics):
    assert samples(metrics)["sbpair_build_info", f"build={build()}", f"version={__version__}"] == 1


@pytest.mark.spec("R-113")
def test_invented_paths_of_landings_make_few_series(metrics):
    for number in range(3000):
        metrics.write(syphon.LandingBegan(0.0, f"invented-{number}", 300.0))
    landing = {key[1]: value for key, value in samples(metrics).items() if key[0] == "sbpair_syphon_landing"}
    assert len(landing) == MAX_PATHS + 1
    assert landing[f"path={OTHERS}"] == 3000 - MAX_PATHS
    assert len(metrics.exposition()) < 100_000
    for number in range(3000):
        metrics.write(syphon.LandingRefused(0.0, f"invented-{number}", "not found", 30.0))
    landing = {key[1]: value for key, value in samples(metrics).items() if key[0] == "sbpair_syphon_landing"}
    assert landing == {f"path={OTHERS}": 0.0}
    metrics.write(syphon.LandingBegan(0.0, "orders", 300.0))
    assert samples(metrics)["sbpair_syphon_landing", "path=orders"] == 1.0
