"""Flags are derived from the options dataclass: name, type, default, help and range."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sbpair import PairedNamespaceOptions
from sbpair.pair.cli.option_flags import field_docs, flag_name, options_as_flags, options_from
from sbpair.pair.cli.parameters import DurationType, span_text
from sbpair.syphon import SyphonOptions

BOTH = (PairedNamespaceOptions, SyphonOptions)


def made(options, *arguments, names=None):
    """Parse these arguments; return the options of the command."""

    @click.command()
    @options_as_flags(options, names=names)
    def command():
        return options_from(options, names=names)

    return command.main(list(arguments), standalone_mode=False)


@pytest.mark.parametrize("options", BOTH)
def test_without_flags_the_dataclass_defaults_apply(options):
    assert made(options) == options()


@pytest.mark.parametrize("options", BOTH)
def test_every_field_has_a_flag_with_its_documentation(options):
    @click.command()
    @options_as_flags(options)
    def command(): ...

    shown = " ".join(
        CliRunner().invoke(command, ["--help"], terminal_width=400, max_content_width=400).output.split()
    )
    docs = field_docs(options)
    for field in dataclasses.fields(options):
        assert flag_name(field.name, {}) in shown
        assert docs[field.name].split(":")[0] in shown


def test_flag_values_reach_the_field_of_their_name():
    got = made(
        SyphonOptions, "--backlogs", "3", "--retry-backoff-max", "1500ms", "--allowed-destinations", "a",
        "--allowed-destinations", "b", "--ca-file", "ca.pem",
        names={"backlog_queue_count": "backlogs", "connection_verify": "ca_file"},
    )  # fmt: skip

    assert got == SyphonOptions(
        backlog_queue_count=3,
        retry_backoff_max=timedelta(seconds=1.5),
        allowed_destinations=("a", "b"),
        connection_verify="ca.pem",
    )


@pytest.mark.parametrize("names", [{}, {"connection_verify": "ca_file"}])
def test_the_environment_variable_of_a_renamed_flag_follows_its_name(names, monkeypatch):
    monkeypatch.setenv("SBPAIR_CA_FILE", "ca.pem")

    assert made(SyphonOptions, names=names).connection_verify == ("ca.pem" if names else None)
    assert made(SyphonOptions, f"--{'ca-file' if names else 'connection-verify'}", "my.pem", names=names) == (
        SyphonOptions(connection_verify="my.pem")
    )


@pytest.mark.parametrize("options", BOTH)
def test_the_help_of_a_flag_names_its_values_and_no_requirement(options):
    @click.command()
    @options_as_flags(options)
    def command(): ...

    shown = CliRunner().invoke(command, ["--help"], terminal_width=400, max_content_width=400).output
    assert "--ordering [none|session]" in shown
    assert not re.search(r"\b[A-Z]-\d", shown)


def test_an_invalid_choice_is_a_usage_error_that_lists_the_choices():
    with pytest.raises(click.BadParameter, match="'none', 'session'"):
        made(SyphonOptions, "--ordering", "strict")


def test_a_boolean_flag_is_true_when_given():
    assert made(PairedNamespaceOptions, "--assume-backlogs-exist").assume_backlogs_exist is True


@pytest.mark.parametrize("value", ["0", "-1", "1000000"])
def test_a_number_out_of_range_is_a_usage_error_that_names_the_flag(sbpair, pair_environment, value):
    done = sbpair("syphon", "--backlogs", value, **pair_environment)

    assert done.returncode == 2
    assert "--backlogs must be" in done.stderr
    assert value in done.stderr


@pytest.mark.parametrize("value", ["ten", "1.5", ""])
def test_an_invalid_number_is_a_usage_error(sbpair, pair_environment, value):
    done = sbpair("syphon", "--backlogs", value, **pair_environment)

    assert done.returncode == 2
    assert "--backlogs" in done.stderr


@pytest.mark.parametrize("value", ["61m", "0.5ms"])
def test_a_span_out_of_range_is_a_usage_error(value):
    with pytest.raises(click.UsageError, match="--retry-backoff-max must be"):
        made(SyphonOptions, "--retry-backoff-max", value)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1 m", "", "m", "1d", "\uff11s", "9" * 30])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(click.BadParameter, match="not a duration"):
        DurationType().convert(text, None, None)


@given(st.integers(0, 10**9))
def test_a_duration_is_parsed_as_written(milliseconds):
    span = timedelta(milliseconds=milliseconds)

    assert abs(DurationType().convert(span_text(span), None, None) - span) < timedelta(microseconds=1)
