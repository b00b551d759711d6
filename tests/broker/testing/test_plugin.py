"""The pytest plugin serves tests quickly and does not affect those that do not use it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from _pytest.pytester import RunResult

pytest_plugins = ["pytester"]
SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "test_my_sender.py"
ALONE = ("-p", "sbpair.broker.testing.plugin")
IS_INSTALLED = any(point.name == "sbpair" for point in entry_points(group="pytest11"))
ARGUMENTS = (*ALONE, "-p", "no:cacheprovider")
WITH_PLUGIN = () if IS_INSTALLED else ALONE


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start inner pytest runs without third-party plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def run(pytester, alone, warm):
    """Run a test file in a separate pytest process and check how many tests end how, by default that one passes."""

    def run(text: str, **outcomes: int) -> None:
        file = pytester.makepyfile(text)
        if warm is None:
            done = pytester.runpytest_subprocess(*ARGUMENTS, file)
            lines = done.outlines
        else:
            done = warm.run([*ARGUMENTS, str(file)], dict(os.environ), 100, program="pytest")
            lines = done.stdout.splitlines()
        assert RunResult.parse_summary_nouns(lines) == (outcomes or {"passed": 1}), lines

    return run


def test_each_test_has_its_own_namespace(run):
    run(
        """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_the_namespace_of_a_new_test_is_empty(servicebus_namespace, number):
            assert servicebus_namespace.queue_names() == []
            servicebus_namespace.create_queue("orders")

        def test_the_namespaces_are_gone_after_the_session(servicebus):
            assert [each.name for each in servicebus.namespaces] == ["shared"]
        """,
        passed=3,
    )


def test_a_fixture_starts_no_broker_no_thread_and_no_certificate(run):
    run(
        """
        import pytest, threading
        from sbpair.broker import certificates

        @pytest.fixture(scope="session", autouse=True)
        def costly(servicebus):
            started = set(threading.enumerate())
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(certificates, "provide", None)
                yield started

        @pytest.mark.parametrize("number", range(20))
        def test_it(costly, servicebus, servicebus_namespace, servicebus_ledger, servicebus_clock, number):
            assert servicebus_namespace.name in [each.name for each in servicebus.namespaces]
            assert set(threading.enumerate()) == costly
        """,
        passed=20,
    )


def test_a_handler_is_tested_with_a_processor(run):
    run(
        """
        from azure.servicebus import ServiceBusMessage

        def test_it(servicebus_pair, servicebus_processor):
            servicebus_pair.primary.create_queue("orders")
            amounts = []
            processor = servicebus_processor("orders", lambda message: amounts.append(int(str(message))))
            with servicebus_pair.client().get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
            processor.wait_completed(2)
            assert sorted(amounts) == [1, 2]
        """
    )


@pytest.mark.slow
def test_the_clock_is_the_tests_own(run):
    run(
        """
        from datetime import timedelta
        from azure.servicebus import ServiceBusClient, ServiceBusMessage
        from sbpair.broker import ManualClock

        def test_an_hour_passes_on_the_manual_clock(servicebus, servicebus_namespace, servicebus_clock):
            servicebus_namespace.create_queue("orders")
            with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
                with client.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
                servicebus_clock.advance(timedelta(hours=2))
                with client.get_queue_receiver("orders") as receiver:
                    assert receiver.receive_messages(1, max_wait_time=0.3) == []

        def test_the_clock_of_another_test_starts_at_now(servicebus_clock):
            import time
            assert abs(servicebus_clock.clock.now() / 1000 - time.time()) < 60
        """,
        passed=2,
    )


def test_a_fault_ends_with_the_test_that_set_it(run):
    run(
        """
        import pytest
        from azure.servicebus import ServiceBusClient, ServiceBusMessage
        from azure.servicebus.exceptions import ServiceBusServerBusyError
        from sbpair.broker import Throttle

        @pytest.fixture
        def orders(servicebus_namespace):
            servicebus_namespace.create_queue("orders")
            yield servicebus_namespace
            assert servicebus_namespace.faults == []

        def test_a_fault_set_by_a_fixture_strikes(orders, servicebus_fault):
            fault = servicebus_fault(orders, "orders", Throttle(), times=1)
            with ServiceBusClient.from_connection_string(orders.connection_string, retry_total=0) as client:
                with client.get_queue_sender("orders") as sender, pytest.raises(ServiceBusServerBusyError):
                    sender.send_messages(ServiceBusMessage("x"))
            assert fault.hits == 1
        """,
    )


def test_a_pair_fails_over_and_is_drained(run):
    run(
        """
        from azure.servicebus import ServiceBusMessage

        def test_it(servicebus_pair, servicebus_ledger):
            servicebus_pair.primary.create_queue("orders")
            client = servicebus_pair.client()
            with client.get_queue_sender("orders") as sender:
                with servicebus_pair.primary.scenario("primary-down"):
                    for number in range(5):
                        with servicebus_ledger.sending(f"m{number}"):
                            sender.send_messages(ServiceBusMessage("x", message_id=f"m{number}"))
            assert servicebus_pair.drain() == 5
            servicebus_ledger.received_all(servicebus_pair.receive_all("orders"))
            assert servicebus_ledger.check().is_conserved and servicebus_ledger.check().duplicates == 0
        """,
    )


@pytest.mark.spec("R-166")
def test_a_program_with_its_own_client_finds_the_pair_in_its_environment(run):
    run(
        """
        import os
        from datetime import timedelta
        from azure.servicebus import ServiceBusMessage
        from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
        from sbpair.syphon import SyphonOptions

        def main():
            options = PairedNamespaceOptions(
                primary_namespace_name="shop", backlog_queue_count=3, failover_interval=timedelta(0)
            )
            strings = os.environ["SBPAIR_PRIMARY"], os.environ["SBPAIR_SECONDARY"]
            with PairedServiceBusClient.from_connection_strings(
                *strings, options=options, connection_verify=os.environ["SBPAIR_CA_FILE"]
            ) as client, client.get_queue_sender("orders") as sender:
                return sender.send_messages(ServiceBusMessage("x")).stored_in

        def test_it(servicebus_pair, monkeypatch):
            for name, value in servicebus_pair.environment.items():
                monkeypatch.setenv(name, value)
            servicebus_pair.primary.create_queue("orders")
            with servicebus_pair.primary.scenario("primary-down"):
                assert main() is StoredIn.BACKLOG
            options = SyphonOptions(primary_namespace_name="shop", backlog_queue_count=3)
            assert servicebus_pair.drain(options) == 1
            assert servicebus_pair.primary.counts("orders").active == 1
        """
    )


def test_a_pair_works_in_a_coroutine_test(run):
    run(
        """
        import asyncio
        from azure.servicebus import ServiceBusMessage

        def test_it(servicebus_pair, servicebus_ledger):
            asyncio.run(lose_nothing(servicebus_pair, servicebus_ledger))

        async def lose_nothing(pair, ledger):
            pair.primary.create_queue("orders")
            async with pair.async_client() as client:
                async with client.get_queue_sender("orders") as sender:
                    with pair.primary.scenario("primary-down"), ledger.sending("1"):
                        await sender.send_messages(ServiceBusMessage("x", message_id="1"))
            assert pair.drain() == 1
            ledger.received_all(pair.receive_all("orders"))
            assert ledger.check().is_conserved
        """,
    )


@pytest.mark.slow
def test_a_user_test_of_a_lost_acknowledgement_ends_in_seconds(pytester):
    result = pytester.runpytest_subprocess(*WITH_PLUGIN, "-p", "no:cacheprovider", str(SAMPLE))
    result.assert_outcomes(passed=1)
    assert result.duration < 60  # 3 s on a machine of its own


def test_the_user_test_fails_for_a_sender_that_gives_up(run):
    run(SAMPLE.read_text("utf-8").replace("message_id=order_id", "message_id=None"), failed=1)


def test_loading_the_plugin_imports_no_sdk_broker_or_asyncio():
    program = (
        "import sys, sbpair.broker.testing.plugin\n"
        "heavy = ('azure', 'aiohttp', 'cryptography', 'asyncio', 'sbpair.broker.public', 'sbpair.pair.pairing')\n"
        "sys.exit(' '.join(name for name in heavy if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_entry_point_names_the_plugin():
    text = (SAMPLE.parents[1] / "pyproject.toml").read_text("utf-8")
    assert '[project.entry-points.pytest11]\nsbpair = "sbpair.broker.testing.plugin"' in text
