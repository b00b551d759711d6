"""Every error is one line without a key, with an exit code."""

from __future__ import annotations

import base64
import errno
from urllib.parse import quote_plus

import pytest
from azure.servicebus import exceptions as sdk
from hypothesis import given
from hypothesis import strategies as st

from sbpair import BacklogUnavailableError
from sbpair.broker.errors import PortUnavailableError
from sbpair.pair.cli.errors import MAX_TEXT, ExitCode, configuration, explain, one_line
from sbpair.pair.cli.output import redact, remember

CODES = {
    sdk.ServiceBusAuthenticationError(message="no"): ExitCode.AUTHORIZATION,
    sdk.ServiceBusAuthorizationError(message="no"): ExitCode.AUTHORIZATION,
    sdk.MessagingEntityNotFoundError(message="no"): ExitCode.CONFIGURATION,
    sdk.ServiceBusConnectionError(message="no"): ExitCode.UNAVAILABLE,
    sdk.OperationTimeoutError(message="no"): ExitCode.UNAVAILABLE,
    BacklogUnavailableError("orders", ()): ExitCode.UNAVAILABLE,
    sdk.MessageSizeExceededError(message="no"): ExitCode.FAILED,
    PortUnavailableError("contoso", "127.0.0.1", 5672, "in use"): ExitCode.CONFIGURATION,
    ConnectionRefusedError("no"): ExitCode.UNAVAILABLE,
    KeyError("no"): ExitCode.FAILED,
    OSError(errno.ENOSPC, "No space left on device"): ExitCode.UNAVAILABLE,
    PermissionError(errno.EACCES, "Permission denied", "/var/x"): ExitCode.CONFIGURATION,
}


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=lambda value: type(value).__name__)
def test_an_error_has_the_exit_code_of_its_kind(error, code):
    assert explain(error)[1] is code


def test_a_full_disk_is_not_a_network_error():
    for number in (errno.ENOSPC, errno.EROFS):
        assert explain(OSError(number, "no"))[0].endswith("make room there, or name another place")
    assert "check the path" in explain(FileNotFoundError(errno.ENOENT, "none", "/var/x"))[0]
    assert "check the address" in explain(OSError(errno.EHOSTUNREACH, "No route to host"))[0]


def test_an_unexpected_error_is_reported_as_a_defect():
    text, code = explain(RuntimeError("on fire"))

    assert text.startswith("unexpected RuntimeError: on fire (a defect")
    assert code is ExitCode.FAILED


def test_a_value_error_while_reading_settings_is_a_configuration_error():
    with pytest.raises(Exception, match="the same namespace") as caught, configuration():
        raise ValueError("the same namespace")
    assert explain(caught.value) == ("the same namespace", ExitCode.CONFIGURATION)


@given(st.text())
def test_every_error_is_one_bounded_printable_line(text):
    line = one_line(Exception(text))

    assert line
    assert len(line) <= MAX_TEXT
    assert line.isprintable()


@pytest.mark.spec("S-12")
@pytest.mark.parametrize(
    "spelling",
    [
        lambda key: key,
        quote_plus,
        lambda key: base64.b64encode(key.encode()).decode(),
        lambda key: f"SharedAccessKey={key};more",
    ],
)
def test_a_given_key_is_redacted_in_every_spelling(spelling):
    key = "pine+apple/on=pizza%"
    remember(key)

    assert "pine" not in redact(f"failed with {spelling(key)} at last")


@pytest.mark.spec("S-12")
def test_text_that_looks_like_a_key_is_redacted():
    text = redact("SharedAccessSignature sr=a&sig=abc%2Fd&se=1 and sharedaccesskey=xyz;Endpoint=sb://b")

    assert "abc" not in text
    assert "xyz" not in text
    assert "Endpoint=sb://b" in text
