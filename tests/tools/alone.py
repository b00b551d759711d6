"""One part of sbpair without the others, to be imported or built: `python -m tests.tools.alone PART FOLDER`.

The folder gets a source tree with the part, and with what it may stand on: of pair, broker and data get the rooms that
neither send, receive nor forward. `python FOLDER/import_all.py` imports every module of the part, with whatever
sbpair the interpreter has; it fails where one needs what is left out.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.tools.parts import PARTS
from tests.tools.source import ROOT

SENDERS = ("pair/pairing", "pair/paired_client", "pair/syphon", "pair/processor", "pair/public.py")
WITH_SENDERS = {
    "broker": ("broker/testing/pair.py", "broker/testing/processor.py"),
    "data": (
        "data/spark/auto/syphon.py",
        "data/spark/encoded_batch.py",
        "data/spark/syphon_source.py",
    ),
}
"""The only modules of these parts that stand on what sends, receives or forwards."""
IMPORT_ALL = """import importlib.util, pathlib
import sbpair
home = pathlib.Path(sbpair.__file__).parent
left_out = {left_out!r}
has_commands = importlib.util.find_spec("click") is not None
for path in sorted((home / {part!r}).rglob("*.py")):
    name = path.relative_to(home).as_posix()
    if name not in left_out and path.name != "__main__.py" and (has_commands or "cli" not in path.parts):
        importlib.import_module("sbpair." + name[:-3].replace("/", ".").removesuffix(".__init__"))
there = sorted(each.name for each in home.iterdir() if each.is_dir() and each.name != "__pycache__")
print("sbpair", *there, "from", home, *(() if has_commands else ("without commands",)))
"""


def files_of(part: str) -> Iterator[str]:
    """The files of a part and of what it stands on, below sbpair/."""
    home = ROOT / "sbpair"
    folders = (part, *PARTS[part].imports)
    lacks = SENDERS if part in WITH_SENDERS else ()
    yield from ("__init__.py", "py.typed", *(() if lacks else ("aio.py", "events.py")))
    for folder in folders:
        for path in sorted((home / folder).rglob("*")):
            name = path.relative_to(home).as_posix()
            if path.is_file() and "__pycache__" not in path.parts and not name.startswith(lacks):
                yield name


def write(part: str, folder: Path) -> None:
    """Write the source tree of one part."""
    for name in files_of(part):
        target = folder / "sbpair" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / "sbpair" / name, target)
    for name in ("README.md", "LICENSE", "hatch_build.py"):
        shutil.copy2(ROOT / name, folder / name)
    absent = "|".join(PARTS.keys() - {part, *PARTS[part].imports}) or "(?!)"
    project = re.sub(
        rf'^.*"sbpair[./](?:{absent})[./].*\n', "", (ROOT / "pyproject.toml").read_text("utf-8"), flags=re.M
    )
    (folder / "pyproject.toml").write_text(
        project, "utf-8"
    )  # without scripts, plugins and files of the others
    (folder / "import_all.py").write_text(
        IMPORT_ALL.format(part=part, left_out=WITH_SENDERS.get(part, ())), "utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.alone", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    write(asked.part, asked.folder)


if __name__ == "__main__":
    main()
