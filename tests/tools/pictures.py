"""The picture of `sbpair demo` in the README: `python -m tests.tools.pictures` plays a demo, and writes what it drew.

The frames of the live display are one file, docs/images/demo.svg; a browser shows one after the other.
"""

from __future__ import annotations

import copy
import io
import re
import sys
import threading
from pathlib import Path

from rich.console import Console

from sbpair.contract.cli.demo.plan import make_plan
from sbpair.contract.cli.demo.scoreboard import Score, Scoreboard, picture
from sbpair.contract.cli.demo.story import Story

OUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "demo.svg"
MESSAGES, OUTAGE, SEED = 600, 6.0, 4
EVERY = 0.25  # seconds between two looks at the score
FRAMES, SHOWN, LAST_SHOWN = 11, 0.9, 4.0  # how many, and for how many seconds each of them and the last
COLUMNS, LINES = 88, 28
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # no request leaves the page


def played() -> list[Score]:
    """The score of a demo every quarter of a second, and at its end."""
    board = Scoreboard(MESSAGES, lambda _: None)
    story = Story(make_plan(MESSAGES, OUTAGE, SEED, 0, "none"), board, None, has_consumers=False)
    ended, scores = threading.Event(), list[Score]()

    def play() -> None:
        try:
            story.run()
        finally:
            ended.set()

    player = threading.Thread(target=play)
    player.start()
    while not ended.wait(EVERY):
        scores.append(copy.deepcopy(board.read()))
    player.join()
    return [*scores, board.read()]


def chosen(scores: list[Score]) -> list[Score]:
    """So many of them as the picture has frames, evenly, the last one included."""
    last = len(scores) - 1
    return [scores[round(last * number / (FRAMES - 1))] for number in range(FRAMES)]


def drawn(score: Score, number: int) -> str:
    """One frame as SVG."""
    console = Console(record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True)
    console.print(picture(score))
    for _ in range(LINES - len(console.export_text(clear=False).splitlines())):
        console.print()
    return FONT.sub("", console.export_svg(title="sbpair demo", unique_id=f"frame{number}"))


def animated(frames: list[str]) -> str:
    """The frames as one SVG, each shown in its turn."""
    box = re.search(r'viewBox="([^"]+)"', frames[0])
    assert box is not None
    whole = SHOWN * (len(frames) - 1) + LAST_SHOWN
    rules = ["svg > svg { visibility: hidden }"]
    for number in range(len(frames)):
        begins = 100 * SHOWN * number / whole
        ends = 100.0 if number == len(frames) - 1 else 100 * SHOWN * (number + 1) / whole
        rules.append(
            f"@keyframes show{number} {{ 0%, {begins:.3f}% {{ visibility: hidden }} "
            f"{begins + 0.001:.3f}%, {ends - 0.002:.3f}% {{ visibility: visible }} "
            f"{ends - 0.001:.3f}%, 100% {{ visibility: {'visible' if ends == 100 else 'hidden'} }} }}\n"
            f"#frame{number} {{ animation: show{number} {whole:.1f}s infinite }}"
        )
    parts = [
        frame.replace("<svg ", f'<svg id="frame{number}" ', 1).strip() for number, frame in enumerate(frames)
    ]
    return (
        f'<svg viewBox="{box[1]}" xmlns="http://www.w3.org/2000/svg" role="img">\n'
        "<title>sbpair demo: an outage, the failover, and every message coming home</title>\n"
        f"<style>{chr(10).join(rules)}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    frames = [drawn(score, number) for number, score in enumerate(chosen(played()))]
    OUT.write_text(animated(frames), "utf-8")
    sys.stdout.write(f"wrote {OUT.name}, {OUT.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
