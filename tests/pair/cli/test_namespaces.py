"""--primary and --secondary: their sources, and errors that do not show a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.namespaces import ConnectionStringFile, fetch, parse_fields

KEY = "SharedAccessKeyName=n;SharedAccessKey=CANARY+/=%pineapple+key/7aQ="
GOOD = f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}"
SIGNATURE = "SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=1&skn=n"

WRONG = {
    "SBPAIR_PRIMARY": "malformed",
    "contoso;": "malformed",
    "https://contoso.example": "malformed",
    "a;b;c": "every part must be Name=Value",
    KEY: "no Endpoint",
    f"Endpoint=;{KEY}": "no Endpoint",
    f"Endpoint=contoso;{KEY}": "no Endpoint with a host",
    f"Endpoint=sb://;{KEY}": "no Endpoint with a host",
    f"Endpoint=sb://contoso:99999;{KEY}": "is not an address",
    f"Endpoint=sb://contoso:0;{KEY}": "port 0",
    f"Endpoint=sb://[::1;{KEY}": "is not an address",
    "Endpoint=sb://contoso": "no SharedAccessKeyName",
    "Endpoint=sb://contoso;SharedAccessKeyName=n": "no SharedAccessKey ",
    "Endpoint=sb://contoso;SharedAccessKey=secret": "no SharedAccessKeyName",
    f"{GOOD};{SIGNATURE}": "has both a SharedAccessKey and a SharedAccessSignature",
    f"{GOOD};EntityPath=orders": "EntityPath",
    f"{GOOD};Endpoint=sb://other": "a part twice",
}


@pytest.mark.parametrize(("text", "says"), WRONG.items())
def test_a_wrong_connection_string_is_reported_by_its_part_and_never_repeated(text, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse_fields(text, "--primary")

    assert str(caught.value).startswith("--primary")
    assert "pineapple" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f" {GOOD};; ",
        GOOD.replace("Endpoint", "endpoint").replace("SharedAccessKey=", "sharedaccesskey="),
        f"Endpoint=sb://localhost:5672;{KEY};UseDevelopmentEmulator=true",
        f"Endpoint=sb://[::1]:5672;{KEY}",
        f"Endpoint=sb://contoso;{SIGNATURE}",
    ],
)
def test_a_connection_string_accepted_by_the_sdk_is_accepted(text):
    assert parse_fields(text.strip(), "--primary")["endpoint"].startswith("sb://")


def test_a_key_keeps_its_equals_signs():
    assert parse_fields(GOOD, "--primary")["sharedaccesskey"] == "CANARY+/=%pineapple+key/7aQ="


@given(st.text(max_size=200))
def test_any_input_is_a_connection_string_or_a_configuration_error(text):
    try:
        fields = parse_fields(text, "--primary")
    except ConfigurationError:
        return
    assert {"endpoint"} <= fields.keys()


def test_a_file_may_begin_with_a_byte_order_mark_and_end_with_a_new_line(tmp_path):
    file = tmp_path / "primary"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n")

    assert fetch(f"file:{file}", "--primary") == GOOD


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"\xff\xfe\x00", "not UTF-8"), (b"a" * 70_000, "larger than")],
)
def test_a_file_that_holds_no_connection_string_is_named(tmp_path, content, says):
    file = tmp_path / "primary"
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=says) as caught:
        fetch(f"file:{file}", "--primary")
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(ConfigurationError, match="cannot read"):
        fetch(f"file:{path}", "--secondary")


def test_an_unset_variable_is_a_configuration_error(sbpair):
    done = sbpair("syphon", "--primary", "env:NOBODY_SET_THIS", "--secondary", "env:NOR_THIS")

    assert done.returncode == 3
    assert "'NOBODY_SET_THIS' is not set" in done.stderr


def test_missing_namespaces_are_a_usage_error_that_names_flag_and_variable(sbpair):
    done = sbpair("syphon")

    assert done.returncode == 2
    assert "--primary" in done.stderr


@pytest.mark.spec("S-13")
def test_a_key_on_the_command_line_gives_a_warning_without_the_key(sbpair, pair_environment):
    done = sbpair("syphon", "--drain", "--patience", "0s", "--primary", pair_environment["SBPAIR_PRIMARY"],
                  SBPAIR_SECONDARY=pair_environment["SBPAIR_SECONDARY"])  # fmt: skip

    assert "the key in --primary is visible in the process list" in done.stderr
    assert "--secondary is visible" not in done.stderr


@pytest.mark.spec("S-13")
def test_a_key_from_the_environment_gives_no_warning(sbpair, pair_environment):
    done = sbpair("syphon", "--drain", "--patience", "0s", **pair_environment)

    assert "visible" not in done.stderr


@pytest.mark.spec("R-26")
def test_a_changed_key_file_is_read_again_and_an_unusable_one_ignored(tmp_path):
    file = tmp_path / "primary"
    again = ConnectionStringFile(f"file:{file}", "--primary", GOOD)
    rotated = GOOD.replace("CANARY", "CANARY2")

    assert again() == GOOD  # the file does not exist
    for text, read in ((rotated, rotated), ("Endpoint=sb://con", rotated), (GOOD, GOOD)):
        file.write_text(text)
        assert again() == read
    file.write_text(GOOD.replace("contoso", "fabrikam"))
    assert again() == GOOD
