"""Twenty minutes of outages on real processes: nothing may be lost, and nothing may grow without bound.

    python -m tests.trials.soak [--minutes 20] [--period 30] [--down 10] [--rate 80] [--picture soak.svg]

Two brokers on disk, a blocking and an asyncio sender, a syphon and a consumer. The
primary is down at the end of each period, in turn refusing, resetting and silent. Once a second the memory,
descriptors and threads of each process are recorded; see flatness for the criterion. Progress goes to
standard error; prints one line of JSON; exit code 1 when a message is lost or unexpected, when there are more copies
than ambiguities explain, when something grows, or when a process does not end cleanly.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from .course import Plan, Report, Soak


def told(report: Report) -> dict[str, object]:
    """The figures, for machines."""
    found, notes = report.found, report.notes
    return {
        "seconds": report.plan.seconds,
        "outages": report.outages,
        "sent": found.sent,
        "acknowledged": found.acknowledged,
        "stored_in": dict(sorted(notes.stored_in.items())),
        "raised": notes.raised,
        "lost": len(found.lost),
        "unexpected": len(found.unexpected),
        "duplicates": found.duplicates,
        "ambiguous": notes.ambiguous.total(),
        "repeated_by_syphon": len(report.repeated_by_syphon),
        "repeats_allowed": report.repeats_allowed,
        "delivered_again": notes.delivered_again,
        "syphon": report.syphon,
        "exit_codes": report.exit_codes,
        "growth": {
            process: {what: [each.before, each.after, round(each.allowed, 1)] for what, each in mine.items()}
            for process, mine in report.trends.items()
        },
        "not_flat": report.not_flat,
        "is_right": report.is_right,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="default %(default)s")
    parser.add_argument("--period", type=float, default=30.0, help="seconds (default %(default)s)")
    parser.add_argument("--down", type=float, default=10.0, help="of it, seconds (default %(default)s)")
    parser.add_argument("--rate", type=float, default=80.0, help="messages a second (default %(default)s)")
    parser.add_argument("--picture", type=Path, help="write what was held over time here: .svg, .png")
    parser.add_argument("--keep", type=Path, help="keep the logs and the data of the processes here")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the processes are ended by Ctrl-C and by this
    plan = Plan(asked.minutes * 60, asked.period, asked.down, asked.rate, sample_every=1.0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = Soak(plan, folder).run()
    print(json.dumps(told(report)))
    if asked.picture is not None:
        from .picture import draw

        draw(report, asked.picture)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
