"""Log lines as JSON."""

from __future__ import annotations

import io
import json
import logging

import pytest

from sbpair.observation import use_json_logs


@pytest.fixture
def logged():
    stream = io.StringIO()
    undo = use_json_logs("sbpair.test", stream=stream, level=logging.DEBUG)
    yield (
        logging.getLogger("sbpair.test"),
        lambda: [json.loads(line) for line in stream.getvalue().splitlines()],
    )
    undo()


def test_a_line_has_the_fields_of_its_extra(logged):
    logger, lines = logged
    logger.warning(
        "failed over %s", "orders", extra={"event": "EntityFailedOver", "fields": {"path": "orders"}}
    )

    (line,) = lines()
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "sbpair.test",
        "message": "failed over orders",
        "event": "EntityFailedOver",
        "fields": {"path": "orders"},
    }


@pytest.mark.spec("S-14")
def test_control_characters_stay_inside_their_line(logged):
    logger, lines = logged
    logger.info("a\r\nb\x1b[31m\x7f")

    assert lines()[0]["message"] == "a\r\nb\x1b[31m\x7f"


def test_an_exception_is_logged_as_one_field(logged):
    logger, lines = logged
    try:
        raise ValueError("SharedAccessKey=CANARY;x")
    except ValueError:
        logger.exception("it failed")

    (line,) = lines()
    assert "ValueError: SharedAccessKey=***" in line["exception"]
    assert "CANARY" not in str(line)


def test_a_value_without_a_json_form_is_logged_as_text_and_fixed_fields_win(logged):
    logger, lines = logged
    logger.info("m", extra={"body": b"x", "level": "fake", "seconds": float("inf")})

    (line,) = lines()
    assert (line["body"], line["level"], line["seconds"]) == ("b'x'", "INFO", None)


def test_undoing_the_log_setup_restores_the_logger():
    logger = logging.getLogger("sbpair.test.undo")
    before = (logger.level, logger.propagate, list(logger.handlers))
    use_json_logs("sbpair.test.undo", stream=io.StringIO())()

    assert (logger.level, logger.propagate, list(logger.handlers)) == before
