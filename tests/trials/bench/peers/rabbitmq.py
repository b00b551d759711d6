"""RabbitMQ: one node, from the Debian release in a directory.

Release 4 speaks AMQP 1.0 natively; 3.10 by a plugin that translates to AMQP 0.9.1. In release 4 the durable queue is a
quorum queue: a classic queue accepts durable messages without a sync.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.trials.bench.peers.peer import DURABLE_QUEUE, QUEUE, STARTS_WITHIN, Peer, ServerProcess, free_ports
from tests.trials.bench.raw_client import Endpoint

NODE = "sbpair-bench@localhost"
SCRIPTS = "/usr/lib/rabbitmq/bin"
# /proc is mounted for the process alone, and is gone with it.
INSIDE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec")
ENTER = 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"'
# Erlang's name server would start by itself, as a daemon that stays; this one belongs to the server's process group.
SERVE = 'epmd & until epmd -names >/dev/null 2>&1; do sleep 0.05; done; exec "$0"'
QUORUM = '[{<<"x-queue-type">>, longstr, <<"quorum">>}]'


@dataclass(frozen=True, slots=True)
class Release:
    """How one release differs from another."""

    name: str
    prefix: str  # of a queue's address
    plugins: str
    queues: tuple[tuple[str, str, str], ...]  # name, whether it is durable, arguments


RELEASE_3 = Release(
    "rabbitmq3",
    "/amq/queue/",
    "[rabbitmq_amqp1_0].\n",
    ((QUEUE, "false", "[]"), (DURABLE_QUEUE, "true", "[]")),
)
RELEASE_4 = Release(
    "rabbitmq4", "/queues/", "[].\n", ((QUEUE, "true", "[]"), (DURABLE_QUEUE, "true", QUORUM))
)


class RabbitMq(Peer):
    """A node in the release's directory, which only root can enter. Raises OSError when it does not start."""

    def __init__(self, release: Release, root: Path) -> None:
        self.name, self._root = release.name, root
        self._directory = Path(tempfile.mkdtemp(prefix="sbpair-bench-", dir=root / "tmp"))
        inside = Path("/tmp") / self._directory.name
        (self._directory / "plugins").write_text(release.plugins)
        port, between_nodes, names = free_ports(3)
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(inside),
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(between_nodes),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(inside / "data"),
            "RABBITMQ_LOG_BASE": str(inside / "log"),
            "RABBITMQ_CONFIG_FILE": str(inside / "none"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(inside / "plugins"),
            "RABBITMQ_PID_FILE": str(inside / "pid"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
        }
        command = self._inside("/bin/sh", "-ec", SERVE, f"{SCRIPTS}/rabbitmq-server")
        self._server = ServerProcess(command, self._directory, self._environment)
        self.pid = self._server.pid
        try:
            self._server.wait_for_port(port)
            self.version = self._configure(release)
        except BaseException:
            self.close()
            raise
        self.endpoint = Endpoint(port, "guest", "guest", "localhost", prefix=release.prefix)

    def _inside(self, *command: str) -> list[str]:
        return [*INSIDE, ENTER, str(self._root), *command]

    def _configure(self, release: Release) -> str:
        """Declare the queues; the node's version."""
        declared = [
            f'{{new, _}} = rabbit_amqqueue:declare({{resource, <<"/">>, queue, <<"{queue}">>}}, '
            f'{durable}, false, {arguments}, none, <<"guest">>)'
            for queue, durable, arguments in release.queues
        ]
        expression = ", ".join([*declared, "rabbit_misc:version()."])
        done = subprocess.run(
            self._inside(f"{SCRIPTS}/rabbitmqctl", "-n", NODE, "eval", expression),
            env=self._environment, capture_output=True, text=True, timeout=STARTS_WITHIN, check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"it refuses its queues: {done.stderr[-500:] or done.stdout[-500:]}")
        return done.stdout.strip().strip('"')

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)
