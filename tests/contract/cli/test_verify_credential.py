"""`sbpair verify` of namespaces that are given by name: TLS under an authority of one's own, tokens of a credential."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.broker.auth import SharedAccessPolicy
from sbpair.pair.auth.credential import SCOPE
from sbpair.testing import BearerCredential
from tests.pair.cli.conftest import Run

TLS_PORT = 5671  # what a name means; each broker has an address of its own
OWN = f"127.56.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
HOSTS = {"contoso": OWN, "contoso-dr": OWN.replace("127.56", "127.57")}


@contextmanager
def _identity(credential: BearerCredential) -> Iterator[dict[str, str]]:
    """A managed identity endpoint as in App Service: its environment variables."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = credential.get_token(SCOPE)
            told = {"access_token": token.token, "expires_on": str(token.expires_on), "token_type": "Bearer"}
            text = json.dumps(told | {"resource": SCOPE}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield {
            "IDENTITY_ENDPOINT": f"http://127.0.0.1:{server.server_port}/token",
            "IDENTITY_HEADER": "header",
        }
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.spec("K-1", "K-5", "K-6")
def test_namespaces_by_name_are_checked_with_a_credential_and_a_custom_authority(
    sbpair: Run, tmp_path: Path
) -> None:
    policy = SharedAccessPolicy.generate("principal")
    result, recorded = tmp_path / "result.json", tmp_path / "run.jsonl"
    brokers = [
        Broker(
            {name: TLS_PORT},
            host=host,
            advertise=host,
            tls_directory=tmp_path / name,
            policies={name: [policy]},
        )
        for name, host in HOSTS.items()
    ]
    with (
        brokers[0] as primary,
        brokers[1] as secondary,
        _identity(BearerCredential("principal", policy.primary_key)) as env,
    ):
        authorities = tmp_path / "authorities.pem"
        authorities.write_text("".join(Path(str(each.ca_file)).read_text() for each in (primary, secondary)))
        names = [argument for side, host in zip(("primary", "secondary"), HOSTS.values(), strict=True)
                 for argument in (f"--{side}", f"{host}:{TLS_PORT}")]  # fmt: skip
        done = sbpair(
            "verify", *names, "--ca-file", str(authorities), "--yes", "--only", "sending", "--only", "fidelity",
            "--only", "names", "--only", "wire-7", "--json", str(result), "--record", str(recorded), **env,
        )  # fmt: skip
        untrusted = sbpair("verify", *names, "--yes", "--only", "sending-1", **env)
        left = [*primary.namespace("contoso").queue_names(), *secondary.namespace("contoso-dr").queue_names()]

    assert done.returncode == 0, done.stdout + done.stderr
    findings = {each["id"]: each for each in json.loads(result.read_text("utf-8"))["findings"]}
    websocket = findings.pop("wire-7")
    assert {each["verdict"] for each in findings.values()} == {"holds"}
    assert websocket["verdict"] == "unknown", "its port may be closed by a firewall"
    assert ":443 cannot be reached: Connection refused" in websocket["seen"]
    assert "<" not in websocket["seen"]
    assert (untrusted.returncode, len(untrusted.stderr.splitlines())) == (5, 1)
    assert "certificate" in untrusted.stderr
    assert "--ca-file" in untrusted.stderr
    assert left == []
    text = recorded.read_text("utf-8")
    lines = {line["entry"]: line for line in map(json.loads, text.splitlines()[1:])}
    frames = [each for line in lines.values() for each in line["frames"]]
    passed = b"".join(zlib.decompress(base64.b64decode(packed)) for *_, packed in frames)
    assert b"put-token" in passed
    assert len(lines["fidelity-8"]["connections"]) == 2, "sbpair's own, and the SDK's"
    assert b"azsdk-python-servicebus" in passed
    assert [each["status"] for _, each in lines["sending-1"]["exchanges"]] == [201, 200]
    assert b"eyJhbGci" not in passed + text.encode(), (
        "as every token begins; shorter, chance finds it in what is packed"
    )
    assert not any(host.encode() in passed + text.encode() for host in HOSTS.values())
