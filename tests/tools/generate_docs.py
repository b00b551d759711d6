"""Write the parts of docs/ that the code already says: `python -m tests.tools.generate_docs`.

A page marks a block; what is between its two comments is replaced:

    <!-- generated:options -->
    ...
    <!-- /generated:options -->

A page that needs packages which are not installed is left as it is, and named. test_docs.py fails when a block is
stale. ``tests/tools/blocks`` has the blocks by subject.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.tools import public
from tests.tools.blocks import (
    api,
    broker,
    cloud,
    command_line,
    contract,
    evidence,
    observation,
    pairing,
    processor,
    samples,
    spark,
    syphon,
)
from tests.tools.source import DOCS, ROOT
from tests.trials.alternatives import page as alternatives
from tests.trials.clients import page as clients
from tests.trials.grey import page as grey
from tests.trials.tampering import page as tampering

BLOCK = re.compile(r"(<!-- generated:([\w-]+) -->\n)(.*?)(<!-- /generated:\2 -->)", re.DOTALL)
BLOCKS: dict[str, Callable[[], str]] = {
    name: block
    for subject in (
        pairing,
        syphon,
        processor,
        broker,
        cloud,
        command_line,
        contract,
        observation,
        evidence,
        api,
        samples,
        spark,
        alternatives,
        clients,
        grey,
        tampering,
    )
    for name, block in subject.BLOCKS.items()
}


def rendered(text: str) -> str:
    """Return a page with every block regenerated. Raises KeyError on an unknown block."""
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}{match[4]}", text)


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def main() -> None:
    logging.getLogger("sbpair").setLevel(logging.ERROR)  # blocks that run a broker
    for page in pages():
        name, before = page.relative_to(ROOT), page.read_text("utf-8")
        try:
            after = rendered(before)
        except ImportError as error:
            sys.stdout.write(f"left {name} as it is: {error}\n")
            continue
        if after != before:
            page.write_text(after, "utf-8")
            sys.stdout.write(f"wrote {name}\n")
    try:
        if public.add_what_is_new():
            sys.stdout.write("added new public names to tests/tools/public.txt\n")
    except ImportError as error:
        sys.stdout.write(f"left tests/tools/public.txt as it is: {error}\n")


if __name__ == "__main__":
    main()
