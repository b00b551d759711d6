"""`sbpair broker --config` with both kinds of file, and a clock advanced from outside."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest

from tests.broker.test_configuration import EMULATOR
from tests.waiting import PATIENCE

get, post = partial(httpx.get, timeout=PATIENCE), partial(httpx.post, timeout=PATIENCE)

TOML = """
[broker]
namespace = ["contoso:0"]
driven_time = true
[broker.namespaces.contoso]
port = 1
[broker.namespaces.contoso.queues.orders]
default_message_time_to_live = "1h"
[broker.namespaces.contoso.topics.events.subscriptions.all]
"""


def test_the_configuration_file_creates_entities_and_a_flag_overrides_it(start, tmp_path):
    file = tmp_path / "sbpair.toml"
    file.write_text(TOML, "utf-8")
    running = start("broker", "--config", str(file), "--json")
    printed = json.loads(running.line())
    (row,) = printed["namespaces"]
    assert (row["queues"], row["topics"]) == (["orders"], ["events"])
    assert row["port"] != 1

    headers = {"Authorization": f"Bearer {printed['time_token']}"}
    assert post(printed["time_url"], json={"advance": 60}).status_code == 401
    assert post(printed["time_url"], json={"advance": -1}, headers=headers).status_code == 400
    assert post(printed["time_url"], json={"later": 1}, headers=headers).status_code == 400
    asked = {"advance": 7_200, "advance_connections": 60}
    assert post(printed["time_url"], json=asked, headers=headers).status_code == 204
    assert "faults_url" not in printed
    faults = printed["time_url"].replace("/time", "/faults")
    assert get(faults, headers=headers).status_code == 404
    assert running.stop() == (0, "")


def test_the_emulator_file_is_recognised_by_its_content(start, tmp_path):
    file = tmp_path / "config"
    file.write_text(json.dumps(EMULATOR), "utf-8")
    running = start("broker", "--config", str(file), "--namespace", "sbemulatorns:0", "--json")
    (row,) = json.loads(running.line())["namespaces"]
    assert (row["name"], row["queues"], row["topics"]) == ("sbemulatorns", ["queue.1"], ["topic.1"])
    assert running.stop() == (0, "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_emulator_key_without_effect_is_a_warning_and_an_error_in_strict_mode(
    start, sbpair, tmp_path, encoding
):
    file = tmp_path / "config"
    file.write_bytes(("// of a suite\n" + json.dumps({"$schema": "x"} | EMULATOR)).encode(encoding))
    flags = ("broker", "--config", str(file), "--namespace", "sbemulatorns:0", "--json")
    running = start(*flags)
    assert json.loads(running.line())["namespaces"][0]["queues"] == ["queue.1"]
    code, said = running.stop()
    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith(f"sbpair: warning: {file}: $schema: ignored: no such key")

    refused = sbpair(*flags, "--strict")
    assert refused.returncode == 3
    assert f"{file}: $schema: expected no such key; one of UserConfig" in refused.stderr


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[broker.namespaces.contoso]\nports = 1", "ports: expected no such key; did you mean"),
        ("a.toml", "[broker]\nnamespaces = 3", "broker.namespaces: expected a table"),
        ("a.json", "{", "expected JSON"),
        ("a.json", '{"UserConfig": {"Namespaces": [{"Name": "!"}]}}', "expected the name of a namespace"),
        ("a.json", " " * 1_048_577, "is larger than 1048576 bytes"),
        ("a.json", None, "cannot read"),
    ],
)  # fmt: skip
def test_a_bad_file_is_reported_in_one_line_with_exit_code_3(sbpair, tmp_path, name, text, said):
    file = tmp_path / name
    if text is not None:
        file.write_text(text, "utf-8")
    done = sbpair("broker", "--config", str(file))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert str(file) in done.stderr
