"""Without tracing nothing of it is imported or created, and a missing extra is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sbpair.pair.ground.extras import install_line
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import headers_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.spec("R-194")
def test_clients_syphons_and_processors_do_not_import_opentelemetry() -> None:
    program = "import sys, sbpair.aio, sbpair.syphon, sbpair.processor, sbpair.observation, sbpair.tracing"
    program += "; sbpair.PairedServiceBusClient; sbpair.aio.PairedServiceBusClient"
    assert (
        said(f"{program}; print('opentelemetry' in sys.modules, sbpair.pair.tracing.current.active)")
        == "False None"
    )


@pytest.mark.spec("R-194")
def test_without_the_extra_the_error_names_it() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from sbpair.pair.tracing import current
from sbpair.tracing import MissingExtraError, use_opentelemetry
try:
    use_opentelemetry()
except MissingExtraError as error:
    print(error, current.active)
"""
    assert f"{install_line('otel')} None" in said(program)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, {}),
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        ({"Diagnostic-Id": PARENT}, {"traceparent": PARENT}),
        ({b"Diagnostic-Id": PARENT.encode()}, {"traceparent": PARENT}),
        ({"traceparent": "a", "Diagnostic-Id": "b"}, {"traceparent": "a"}),
        ({"traceparent": 5, "Diagnostic-Id": "b"}, {"traceparent": "b"}),
        ({"traceparent": PARENT, "tracestate": "x=y"}, {"traceparent": PARENT, "tracestate": "x=y"}),
        ({"tracestate": "x=y"}, {}),
    ],
)
def test_the_creation_context_is_read_under_either_of_its_names(
    properties: dict[object, object], found: dict[str, str]
) -> None:
    assert headers_of(properties) == found


def test_switched_off_tracing_records_nothing_in_threads_and_tasks() -> None:
    current.want(current.SdkSpans.NONE)
    assert current.wanted_spans() is current.SdkSpans.ALL
    assert current.background() is None
