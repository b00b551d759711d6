"""The container files without a builder: each instruction is executed below a directory, and the containers are run.

    python -m tests.trials.containers

COPY and RUN are executed as written, with `/` replaced by the directory. Then the commands of broker and syphon run as
the user of their file, who may write only to the volume, and the health checks run until they pass. Free ports
replace those of the files. Needs a package index. Without root, or with an interpreter that only its owner may run, the
commands run as the current user, and the report says so. Exit code 1 when a step fails.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.deploy.container_files import ContainerFile, Instruction
from tests.deploy.reading import ROOT

PATIENCE = 120.0  # seconds
PYTHON = os.path.realpath(sys.executable)
PORTS = ("5672", "5673", "9464")
STRING = re.compile(r"Endpoint=sb://\S+")


@dataclass
class Container:
    """A container file whose steps were carried out below ``root``."""

    file: ContainerFile
    root: Path
    ports: dict[str, str]

    def placed(self, text: str) -> str:
        """The text with the paths and ports of this machine."""
        for port, other in self.ports.items():
            text = re.sub(rf"\b{port}\b", other, text)
        return re.sub(r"(?<![\w./])/(opt|data|src|run)\b", rf"{self.root}/\1", text)

    def environment(self) -> dict[str, str]:
        given = [each.arguments for each in self.file.stages()[-1] if each.verb == "ENV"]
        pairs = [pair.split("=", 1) for line in given for pair in shlex.split(line)]
        return {"TMPDIR": "/nonexistent", **{name: self.placed(value) for name, value in pairs}}

    def build(self) -> None:
        """Carry out the stages in order: they are given one file system."""
        for stage in self.file.stages():
            cwd = self.root
            for each in stage:
                match each.verb:
                    case "WORKDIR":
                        cwd = self.root / each.arguments.lstrip("/")
                        cwd.mkdir(parents=True)
                    case "COPY" if not each.arguments.startswith("--from"):
                        self._copy(each, cwd)
                    case "RUN":
                        self._run(each.arguments, cwd)

    def _copy(self, instruction: Instruction, cwd: Path) -> None:
        *sources, target = instruction.arguments.split()
        for source in sources:
            origin, to = ROOT / source, cwd / target
            if origin.is_dir():
                shutil.copytree(origin, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(origin, to)

    def _run(self, command: str, cwd: Path) -> None:
        program = f'python() {{ {shlex.quote(PYTHON)} "$@"; }}; {self.placed(command)}'
        if os.geteuid() != 0:
            program = program.replace("-o 65532 -g 65532", "")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(["bash", "-euc", program], cwd=cwd, env=kept, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr[-2000:]}")

    @contextmanager
    def running(self) -> Iterator[Running]:
        """The command of the container, as its user; ends with SIGTERM, which must give exit code 0."""
        number = user_of(self.file)
        words = [self.placed(word) for word in self.file.command()]
        process = subprocess.Popen(
            words,
            cwd="/",
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **identity(number),
        )
        running = Running(self, process, number)
        try:
            yield running
        except BaseException:
            process.kill()
            raise
        finally:
            running.end()
        if process.returncode:
            raise RuntimeError(
                f"{words[1]} ended with {process.returncode}: {''.join(running.lines)[-2000:]}"
            )


class Running:
    """A container that runs."""

    def __init__(self, container: Container, process: subprocess.Popen[str], user: int | None) -> None:
        self.lines: list[str] = []
        self._container, self._process, self._user = container, process, user
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)

    def healthy(self) -> None:
        """Run the health check until it passes. Raises RuntimeError when the container ends, or it takes too long."""
        (check,) = self._container.file.all("HEALTHCHECK")
        command = Instruction("CMD", self._container.placed(check.arguments.partition("CMD ")[2])).words()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            done = subprocess.run(
                command, capture_output=True, env={}, timeout=PATIENCE, **identity(self._user)
            )
            if done.returncode == 0:
                return
            time.sleep(0.2)
        raise RuntimeError(f"never healthy: {''.join(self.lines)[-2000:]}")

    def strings(self) -> list[str]:
        """The connection strings that it printed."""
        until = time.monotonic() + PATIENCE
        while len(found := STRING.findall("".join(self.lines))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def user_of(file: ContainerFile) -> int | None:
    """The user of a container; None when this process cannot become that user and run Python."""
    (user,) = file.all("USER")
    number = int(user.arguments.split(":")[0])
    if os.geteuid() != 0:
        return None
    try:
        subprocess.run([PYTHON, "-c", ""], check=True, capture_output=True, cwd="/", **identity(number))
    except (OSError, subprocess.CalledProcessError):
        return None
    return number


def identity(user: int | None) -> dict[str, Any]:
    """The keywords with which a process becomes this user."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def free_ports(count: int) -> list[str]:
    """Ports that are free, and below those that the system hands out: no other program gets one by chance."""
    found: list[str] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(str(port))
        if len(found) == count:
            return found
    raise RuntimeError("no ports are free")


def trial() -> int | None:
    """Build and run both; return the user. Raises RuntimeError for a step that fails."""
    with TemporaryDirectory() as scratch, ExitStack() as stack:
        Path(scratch).chmod(0o755)
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        made = {}
        for name in ("broker", "syphon"):
            root = Path(scratch) / name
            root.mkdir()
            made[name] = Container(ContainerFile(name), root, ports)
            made[name].build()
        broker = stack.enter_context(made["broker"].running())
        broker.healthy()
        secrets = made["syphon"].root / "run" / "secrets"
        secrets.mkdir(parents=True)
        for side, text in zip(("primary", "secondary"), broker.strings(), strict=True):
            file = secrets / f"sbpair_{side}"
            with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY, 0o400), "w") as out:
                out.write(text)
            if (user := user_of(made["syphon"].file)) is not None:
                os.chown(file, user, user)
        syphon = stack.enter_context(made["syphon"].running())
        syphon.healthy()
        return user_of(made["syphon"].file)


def main() -> int:
    began = time.monotonic()
    try:
        user = trial()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    who = "as the current user" if user is None else f"as user {user}"
    print(f"both containers were built, became healthy and ended, {who}, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
