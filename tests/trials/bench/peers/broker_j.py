"""Apache Qpid Broker-J with its Derby store. Only durable messages are stored."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tests.trials.bench.peers.peer import DURABLE_QUEUE, QUEUE, Peer, ServerProcess, free_ports
from tests.trials.bench.raw_client import Endpoint


def configuration(port: int) -> dict[str, object]:
    """A port of AMQP 1.0 on loopback, a user, and a virtual host that creates the two queues when they are used."""
    policies = [
        {
            "pattern": queue,
            "createdOnPublish": "true",
            "createdOnConsume": "true",
            "nodeType": "queue",
            "attributes": {"durable": durable},
        }
        for queue, durable in ((QUEUE, "false"), (DURABLE_QUEUE, "true"))
    ]
    host = {"type": "DERBY", "nodeAutoCreationPolicies": policies}
    return {
        "name": "bench",
        "modelVersion": "9.1",
        "authenticationproviders": [
            {
                "name": "plain",
                "type": "Plain",
                "secureOnlyMechanisms": [],
                "users": [{"name": "guest", "type": "managed", "password": "guest"}],
            }
        ],
        "ports": [
            {
                "name": "amqp",
                "port": port,
                "bindingAddress": "127.0.0.1",
                "authenticationProvider": "plain",
                "protocols": ["AMQP_1_0"],
                "virtualhostaliases": [{"name": "nameAlias", "type": "nameAlias"}],
            }
        ],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }


class BrokerJ(Peer):
    """A broker of the jars in ``home/lib``. Raises OSError when it does not start."""

    name = "broker-j"
    part = 20  # a sync for each message: some hundred a second

    def __init__(self, home: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sbpair-bench-broker-j-"))
        (port,) = free_ports(1)
        config = self._directory / "config.json"
        config.write_text(json.dumps(configuration(port)))
        command = ["java", f"-Dderby.stream.error.file={self._directory / 'derby.log'}"]
        command += ["-cp", str(home / "lib" / "*"), "org.apache.qpid.server.Main"]
        command += ["-icp", str(config), "-prop", f"qpid.work_dir={self._directory / 'work'}"]
        self._server = ServerProcess(command, self._directory)
        self.pid = self._server.pid
        try:
            self._server.wait_for_line("BRK-1004")  # it listens before its virtual host is active
        except BaseException:
            self.close()
            raise
        (jar,) = (home / "lib").glob("qpid-broker-core-*.jar")
        self.version = jar.stem.removeprefix("qpid-broker-core-")
        self.endpoint = Endpoint(port, "guest", "guest", "default")  # the virtual host

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)
