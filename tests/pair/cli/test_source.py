"""Namespaces given by name, opened with the unmodified ambient credential of azure-identity."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from azure.core.credentials import AzureNamedKeyCredential

from sbpair import PairedNamespaceOptions
from sbpair.broker import Broker
from sbpair.pair.cli import namespaces
from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.namespaces import NAME, NamespaceArgument, _host, client_between, syphon_between
from sbpair.pair.ground.extras import install_line
from sbpair.syphon import SyphonOptions
from tests.pair.syphon.pair import parked, put

TOKEN = "CANARY.a-jwt-by-nobody.pineapple"
HOSTS = ("contoso.servicebus.windows.net", "contoso-dr.servicebus.windows.net")


@pytest.fixture
def identity_endpoint():
    """A managed identity endpoint as in App Service: its environment variables and the requests it got."""
    asked = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = {"access_token": TOKEN, "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer"}
            text = json.dumps(body | {"resource": "https://servicebus.azure.net/"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        env = {
            "IDENTITY_ENDPOINT": f"http://127.0.0.1:{server.server_port}/token",
            "IDENTITY_HEADER": "CANARY",
        }
        yield env, asked
        server.shutdown()
        thread.join()


@pytest.fixture
def broker():
    with Broker(dict.fromkeys(HOSTS, 0), open_access=True) as running:
        running.namespace(HOSTS[0]).create_queue("orders")
        running.namespace(HOSTS[1]).create_queue("contoso/x-servicebus-transfer/0")
        yield running


def address(broker, host):
    return f"localhost:{broker.namespace(host).port}"


@pytest.mark.spec("P-42")
def test_the_syphon_accepts_names_and_the_ambient_credential(sbpair, broker, identity_endpoint):
    env, asked = identity_endpoint
    asyncio.run(put(broker.namespace(HOSTS[1]), "contoso/x-servicebus-transfer/0", [parked(1)]))

    done = sbpair(
        "syphon", "--drain", "--json", "--backlogs", "1", "--ca-file", str(broker.ca_file),
        "--primary", "contoso", "--secondary", HOSTS[1],
        "--primary-endpoint-address", address(broker, HOSTS[0]),
        "--secondary-endpoint-address", address(broker, HOSTS[1]), **env,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["completed"] == 1
    assert broker.namespace(HOSTS[0]).counts("orders").active == 1
    assert all("servicebus.azure.net" in path for path in asked)
    assert TOKEN not in done.stdout + done.stderr


def test_the_administration_accepts_token_credentials(sbpair, broker, identity_endpoint):
    env, asked = identity_endpoint

    done = sbpair(
        "backlog", "create", "--count", "2", "--primary-namespace-name", "contoso",
        "--ca-file", str(broker.ca_file), "--secondary", address(broker, HOSTS[1]), **env,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert broker.namespace(HOSTS[1]).counts("contoso/x-servicebus-transfer/1").total == 0
    assert len(asked) == 1


def test_a_missing_credential_is_reported_in_one_line(sbpair, broker):
    done = sbpair(
        "backlog", "create", "--primary-namespace-name", "contoso", "--ca-file", str(broker.ca_file),
        "--secondary", address(broker, HOSTS[1]), AZURE_TOKEN_CREDENTIALS="EnvironmentCredential",
    )  # fmt: skip

    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "az login" in done.stderr


def test_without_azure_identity_the_installing_command_is_shown(monkeypatch):
    namespaces._ambient.cache_clear()
    monkeypatch.setitem(sys.modules, "azure.identity", None)

    with pytest.raises(ConfigurationError, match="--primary is the name") as raised:
        NamespaceArgument("--primary", HOSTS[0]).namespace()
    assert install_line("identity") in str(raised.value)


def test_a_namespace_name_alone_needs_no_credential(sbpair):
    done = sbpair("backlog", "create", "--print", "bicep", "--primary", "contoso")

    assert done.returncode == 0, done.stderr
    assert "contoso~x-servicebus-transfer~" in done.stdout


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("contoso", "contoso.servicebus.windows.net"),
        ("contoso.servicebus.usgovcloudapi.net", "contoso.servicebus.usgovcloudapi.net"),
        ("localhost:5672", "localhost:5672"),
    ],
)
def test_a_name_without_dots_is_in_the_public_cloud(text, host):
    assert NAME.fullmatch(text)
    assert _host(text) == host


@pytest.mark.parametrize(
    "text", ["", "-contoso", "contoso;", "a=b", "a b", "https://contoso", "UPPER_CASE", "a:b"]
)
def test_an_invalid_host_is_not_a_namespace_name(text):
    assert not NAME.fullmatch(text)


def keyed(host, more=""):
    text = f"Endpoint=sb://{host}/;SharedAccessKeyName=n;SharedAccessKey=k{more}"
    return NamespaceArgument("--secondary", host, text)


@pytest.mark.parametrize("more", ["", ";UseDevelopmentEmulator=true"])
async def test_a_pair_may_mix_a_name_and_a_connection_string(monkeypatch, more):
    monkeypatch.setattr(namespaces, "_ambient", lambda: AzureNamedKeyCredential("ambient", "key"))
    by_name, by_string = NamespaceArgument("--primary", HOSTS[0]), keyed(HOSTS[1], more)

    syphon = syphon_between(by_name, by_string, SyphonOptions())
    client = client_between(by_name, by_string, PairedNamespaceOptions(), None)

    assert syphon.backlogs[0] == "contoso/x-servicebus-transfer/0"
    assert [each.uses_tls for each in syphon.namespaces] == [True, not more]
    assert (client.primary.endpoint, client.secondary.endpoint) == HOSTS
    await client.close()
