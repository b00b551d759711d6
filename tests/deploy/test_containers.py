"""The container files and the compose file start commands that exist, without root, and from a pinned base."""

from __future__ import annotations

import re

import pytest
import yaml

from .container_files import ContainerFile
from .reading import DEPLOY, ROOT, STRING, parsed

FILES = ("syphon", "broker")
EXACT = re.compile(r"python:3\.\d+\.\d+-slim-[a-z]+( AS build)?")


@pytest.fixture
def compose():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))


@pytest.mark.spec("R-190")
@pytest.mark.parametrize("name", FILES)
def test_a_container_copies_existing_files_runs_unprivileged_and_has_a_pinned_base(name):
    file = ContainerFile(name)
    for each in file.all("COPY"):
        *sources, _ = each.arguments.split()
        if not each.arguments.startswith("--from"):
            assert all((ROOT / source).exists() for source in sources), each
    assert [each.arguments for each in file.all("USER")] == ["65532:65532"]
    assert all(EXACT.fullmatch(each.arguments) for each in file.all("FROM"))
    assert len({each.arguments.split()[0] for each in file.all("FROM")}) == 1


def test_the_command_of_the_syphon_container_parses(credentials):
    program, *words = [
        word.replace("/run/secrets/sbpair_", f"{credentials}/") for word in ContainerFile("syphon").command()
    ]

    given = parsed(words)

    assert program == "/opt/sbpair/bin/sbpair"
    assert given["primary"].connection_string == STRING.format("contoso")
    (health,) = ContainerFile("syphon").all("HEALTHCHECK")
    assert f"127.0.0.1:{given['status_port']}/live" in health.arguments


def test_the_command_of_the_broker_container_parses():
    file = ContainerFile("broker")
    program, *words = file.command()

    given = parsed(words)

    assert program == "/opt/sbpair/bin/sbpair"
    (volume,), (health,) = file.all("VOLUME"), file.all("HEALTHCHECK")
    assert str(given["data"]) == volume.arguments
    ports = [word.rpartition(":")[2] for word in words if re.fullmatch(r"[\w-]+:\d+", word)]
    assert file.all("EXPOSE")[0].arguments.split() == [*ports, "8080"]
    assert given["page"] == ("0.0.0.0", 8080)
    assert all(port in health.arguments for port in ports)


@pytest.mark.spec("R-190")
def test_compose_starts_both_unprivileged_and_publishes_on_loopback_only(compose, credentials):
    syphon, broker = compose["services"]["syphon"], compose["services"]["broker"]
    for service in (syphon, broker):
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "65532:65532"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert (ROOT / service["build"]["dockerfile"]).is_file()
    words = [word.replace("/run/secrets/sbpair_", f"{credentials}/") for word in syphon["command"]]
    given = parsed(words)
    assert given["status_host"] == "0.0.0.0"
    assert {f"/run/secrets/{name}" for name in syphon["secrets"]} == {
        word.removeprefix("file:") for word in syphon["command"] if word.startswith("file:")
    }
    assert set(syphon["secrets"]) == set(compose["secrets"])
    assert int(syphon["stop_grace_period"].removesuffix("s")) > 15
    assert broker["volumes"] == ["broker:/data"]


@pytest.mark.spec("R-133")
@pytest.mark.parametrize("name", FILES)
def test_copied_files_reach_the_build_context_and_keys_do_not(name):
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line]
    assert "*" in lines
    admitted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source.removeprefix("./")
        for each in ContainerFile(name).all("COPY")
        if not each.arguments.startswith("--from")
        for source in each.arguments.split()[:-1]
    }
    assert copied == admitted
