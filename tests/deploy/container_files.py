"""Container files as lists of instructions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from .reading import DEPLOY


@dataclass(frozen=True)
class Instruction:
    """``RUN pip install .`` has the verb ``RUN`` and the rest as arguments."""

    verb: str
    arguments: str

    def words(self) -> list[str]:
        """The arguments of the form that starts no shell."""
        return list(json.loads(self.arguments))


class ContainerFile:
    """A container file of samples/deploy, by its name without ``.Dockerfile``."""

    def __init__(self, name: str) -> None:
        self.path: Path = DEPLOY / f"{name}.Dockerfile"
        lines = [line for line in self.path.read_text("utf-8").splitlines() if not line.startswith("#")]
        text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
        self.instructions = [
            Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()
        ]

    def all(self, verb: str) -> list[Instruction]:
        """The instructions of this verb, in order."""
        return [each for each in self.instructions if each.verb == verb]

    def stages(self) -> list[list[Instruction]]:
        """The instructions of each stage, from its FROM on."""
        starts = [index for index, each in enumerate(self.instructions) if each.verb == "FROM"]
        ends = [*starts[1:], len(self.instructions)]
        return [self.instructions[start:end] for start, end in zip(starts, ends, strict=True)]

    def command(self) -> list[str]:
        """The command of the container: ENTRYPOINT and CMD."""
        (entry,), (arguments,) = self.all("ENTRYPOINT"), self.all("CMD")
        return [*entry.words(), *arguments.words()]
