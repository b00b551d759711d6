"""`sbpair audit --state` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sbpair.pair.cli.errors import ConfigurationError, ExitCode
from sbpair.pair.cli.group import cli
from tests.data.audit.story import Story


def audit(journals: Path, *options: str) -> Result:
    return CliRunner().invoke(
        cli,
        ["audit", "--journal", str(journals), *options],
        standalone_mode=False,
    )


def daily(journals: Path, state: Path, *options: str) -> Result:
    return audit(journals, "--state", str(state), *options)


def refused(result: Result) -> str:
    assert isinstance(result.exception, ConfigurationError)
    return str(result.exception)


def told(directory: Path) -> Story:
    """A message that was parked and came home; on the next day one that did not."""
    story = Story(directory)
    sender, syphon = story.sender(), story.syphon()
    sender.parked("m")
    story.pause()
    syphon.forwarded("m")
    story.now = 86_400.0
    sender.parked("lost")
    story.now += 60.0
    syphon.drained()
    return story


@pytest.mark.spec("R-146")
def test_each_run_prints_its_result_and_the_page(tmp_path: Path) -> None:
    told(tmp_path / "journals").end()
    for _ in range(2):
        result = daily(tmp_path / "journals", tmp_path / "state")
        assert result.return_value == ExitCode.FAILED, result.output
        assert "2 messages: lost 1, waiting 0" in result.stdout
        assert f"report: {tmp_path}/state/current/days.html" in result.stdout
    page = (tmp_path / "state" / "current" / "days.html").read_text("utf-8")
    assert "<td>2026-11-22</td>" in page
    assert "<svg" in page


@pytest.mark.spec("R-146")
def test_with_since_earlier_days_do_not_count(tmp_path: Path) -> None:
    story = told(tmp_path / "journals")
    story.now = 3 * 86_400.0
    story.sender().sent("later")
    story.end()
    result = daily(tmp_path / "journals", tmp_path / "state", "--since", "2026-11-24")

    assert result.return_value == ExitCode.OK, result.output
    assert "1 messages: lost 0, waiting 0; all accounted for" in result.stdout


@pytest.mark.spec("R-147")
def test_a_silent_role_makes_the_exit_code_1(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    story.sender().sent("m")
    assert daily(tmp_path / "journals", tmp_path / "state").return_value == ExitCode.OK

    result = daily(tmp_path / "journals", tmp_path / "state", "--heartbeat", "broker=1h")
    story.end()

    assert result.return_value == ExitCode.FAILED
    assert "no journal of a broker has a record" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--out", "elsewhere"), "give --out for one audit, or --state for one that goes on every day"),
        (("--heartbeat", "syphon"), "--heartbeat syphon: not ROLE=SPAN"),
        (("--heartbeat", "cook=1h"), "--heartbeat cook=1h: not ROLE=SPAN; roles are"),
        (("--heartbeat", "syphon=often"), "--heartbeat syphon=often: 'often' is not a duration"),
    ],
)
def test_an_invalid_flag_is_a_configuration_error(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    told(tmp_path / "journals").end()
    result = daily(tmp_path / "journals", tmp_path / "state", *options)

    assert said in refused(result)


def test_daily_audit_flags_with_journal_directories_are_refused(tmp_path: Path) -> None:
    told(tmp_path / "journals").end()
    journals = str(tmp_path / "journals")
    for options, said in (
        (("--out", str(tmp_path / "out"), "--since", "2026-11-01"), "go with --state"),
        (("--state", journals), "is in the directory of the journals"),
        (("--state", f"{journals}/state"), "choose one outside it"),
        ((), "give --out for one audit"),
    ):
        assert said in refused(audit(tmp_path / "journals", *options))
    for _ in range(2):
        assert (
            daily(tmp_path / "journals", tmp_path / "state", "--skew", "2s").return_value == ExitCode.FAILED
        )
    assert "with another skew" in refused(daily(tmp_path / "journals", tmp_path / "state"))
