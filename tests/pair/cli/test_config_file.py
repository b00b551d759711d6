"""--config: a TOML file of flags, below the environment and the command line; every mistake is named."""

from __future__ import annotations

import os

import pytest

from sbpair.pair.cli import main

KEY = "SharedAccessKeyName=n;SharedAccessKey=CANARY+/=%pineapple+key/7aQ="


@pytest.fixture
def bicep(sbpair, tmp_path):
    """Run a command that needs no network with this configuration file."""

    def run(content, *arguments, mode=0o600, **env):
        file = tmp_path / "sbpair.toml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)
        return sbpair("backlog", "create", "--print", "bicep", "--config", str(file), *arguments, **env)

    return run


def count(done):
    assert done.returncode == 0, done.stderr
    return int(done.stdout.partition("backlogCount int = ")[2].split()[0])


def label(done):
    return done.stdout.partition("backlog queues of ")[2].split(".")[0]


def test_a_top_level_key_applies_to_every_command_with_the_flag(bicep):
    done = bicep('primary = "contoso"\nbacklogs = 3\nwindow = 7\n')

    assert (count(done), label(done)) == (3, "contoso")


@pytest.mark.parametrize("key", ["primary_namespace_name", "primary-namespace-name"])
def test_keys_are_spelled_like_flags_or_fields(bicep, key):
    assert label(bicep(f'{key} = "fabrikam"')) == "fabrikam"


@pytest.mark.parametrize("key", ["backlogs", "backlog_queue_count", "backlog-queue-count"])
def test_the_backlog_queue_count_applies_to_all_commands_in_either_spelling(bicep, key):
    assert count(bicep(f'primary = "contoso"\n{key} = 4')) == 4


@pytest.mark.parametrize("key", ["backlogs", "backlog_queue_count"])
def test_syphon_options_may_be_spelled_like_flags_or_fields(sbpair, tmp_path, pair_environment, key):
    file = tmp_path / "sbpair.toml"
    file.write_text(f"[syphon]\n{key} = 0\n")

    done = sbpair("syphon", "--config", str(file), **pair_environment)

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--backlogs must be" in done.stderr
    assert "--config" in done.stderr


def test_the_nearest_table_wins_and_other_commands_are_ignored(bicep):
    done = bicep(
        'primary = "a"\n[backlog]\nprimary = "b"\nbacklogs = 2\n'
        '[backlog.create]\nprimary = "c"\n[backlog.list]\nbacklogs = 9'
    )

    assert (count(done), label(done)) == (2, "c")


def test_flags_override_the_environment_which_overrides_the_file(bicep):
    content = 'primary = "in-the-file"\nbacklogs = 3'

    assert label(bicep(content, SBPAIR_PRIMARY="in-the-environment")) == "in-the-environment"
    by_flag = bicep(content, "--primary", "by-flag", "--backlogs", "4", SBPAIR_PRIMARY="in-the-environment")
    assert (label(by_flag), count(by_flag)) == ("by-flag", 4)


def test_the_environment_may_name_the_configuration_file(sbpair, tmp_path):
    file = tmp_path / "sbpair.toml"
    file.write_text('primary = "contoso"\n')

    assert label(sbpair("backlog", "create", "--print", "bicep", SBPAIR_CONFIG=str(file))) == "contoso"


def test_paths_are_relative_to_the_file(bicep, tmp_path):
    (tmp_path / "primary").write_text(f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}")

    assert label(bicep('primary = "file:primary"')) == "contoso"
    assert f"cannot read {tmp_path}/elsewhere" in bicep('primary = "file:elsewhere"').stderr


def test_lists_and_switches_reach_their_flags(sbpair, tmp_path, pair_environment):
    file = tmp_path / "sbpair.toml"
    file.write_text('entity = "orders"\n[drill]\ndry-run = true\n')
    refused = sbpair("drill", "--config", str(file), **pair_environment)
    file.write_text('[drill]\nentity = "orders"\nwith_syphon = true\nwait = "3m"\n')
    drill = sbpair("drill", "--dry-run", "--config", str(file), **pair_environment)
    file.write_text('[doctor]\nqueue = ["orders", 7]\n')
    doctor = sbpair("doctor", "--config", str(file), **pair_environment)

    assert "unknown key [drill] dry-run" in refused.stderr
    assert "run a syphon in this process" in drill.stdout
    assert "for at most 180 s" in drill.stdout
    assert "[doctor] queue must be text" in doctor.stderr


WRONG = {
    b'backlogz = 3\nprimary = "a"': "unknown key backlogz; did you mean backlogs?",
    b"zzz = 1": "unknown key zzz; there are: ",
    b"[syphn]\nwindow = 1": "no command [syphn]; did you mean syphon?",
    b"[backlog.creat]\ncount = 1": "no command [backlog.creat]; did you mean create?",
    b"[syphon]\nentity = 'a'": "unknown key [syphon] entity",
    b"[backlog.purge]\nyes = true": "unknown key [backlog.purge] yes",
    b"backlogs = '10'": "backlogs must be a whole number, not str",
    b"backlogs = true": "backlogs must be a whole number, not bool",
    b"backlogs = 1.5": "backlogs must be a whole number, not float",
    b"backlogs = 1000000": "backlogs: 1000000 is not in the range",
    b"primary = 5": "primary must be text, not int",
    b"primary = ['a']": "primary must be text, not list",
    b"[syphon]\ndrain = 'yes'": "[syphon] drain must be true or false, not str",
    b"[syphon]\nretry_backoff_max = '1 fortnight'": "'1 fortnight' is not a duration",
    b"[syphon]\nretry_backoff_max = nan": "not a duration",
    b"[syphon]\nallowed_destinations = 'a'": "[syphon] allowed_destinations must be a list of text",
    b"[doctor]\nrole = 'boss'": "[doctor] role: 'boss' is not one of",
    b"backlogs = 1\nbacklogs = 2": "is not TOML: Cannot overwrite a value",
    b"backlogs = 1\n[syphon]\n[syphon]": "is not TOML",
    b"backlogs": "is not TOML",
    b"\xff": "is not UTF-8",
    b"\x00": "is not TOML",
    b"# " + b"a" * 1_048_576: "is larger than",
}


@pytest.mark.parametrize(("content", "says"), WRONG.items(), ids=list(WRONG.values()))
def test_a_mistake_is_reported_with_file_key_and_expected_value(tmp_path, capsys, content, says):
    file = tmp_path / "sbpair.toml"
    file.write_bytes(content)

    with pytest.raises(SystemExit) as ended:
        main(["backlog", "create", "--print", "bicep", "--primary", "contoso", "--config", str(file)])
    written = capsys.readouterr()

    assert (ended.value.code, written.out) == (3, "")
    assert says in written.err
    assert "sbpair.toml" in written.err
    assert len(written.err.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"\n# nothing\n", b"\xef\xbb\xbfbacklogs = 10\r\n"])
def test_an_empty_file_and_a_byte_order_mark_are_fine(bicep, content):
    assert count(bicep(content, "--primary", "contoso")) == 10


def test_an_unreadable_file_is_named(sbpair, tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        done = sbpair("backlog", "list", "--config", str(path))

        assert done.returncode == 3
        assert f"cannot read {path}" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_inaccessible_file_is_named(bicep):
    assert "Permission denied" in bicep("backlogs = 1", mode=0).stderr


@pytest.mark.spec("S-13")
def test_a_key_in_a_file_that_others_may_read_is_refused(bicep):
    content = f'primary = "Endpoint=sb://contoso.servicebus.windows.net/;{KEY}"'

    for mode in (0o644, 0o640):
        done = bicep(content, mode=mode)
        assert done.returncode == 3
        assert "contains a key and is readable by others" in done.stderr
    private = bicep(content)
    assert (private.returncode, label(private)) == (0, "contoso")
    assert "warning" in private.stderr
    assert "env:NAME" in private.stderr


def test_help_needs_no_configuration_and_reads_none(sbpair, tmp_path):
    done = sbpair("drill", "--help", SBPAIR_CONFIG=str(tmp_path / "missing.toml"))

    assert (done.returncode, done.stderr) == (0, "")
    assert "--config FILE" in done.stdout
