"""The blocks of the docs about what the tests prove, and with which clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.tools.source import ROOT, table


def proved(letters: str) -> str:
    """Each id that begins with one of these, who saw it hold, and the tests that say so."""
    return table(("id", "client", "tests"), list(_proved(letters)))


def faults_driven() -> str:
    """The same for each fault, with what it is."""
    from tests.tools.proofs import rows_of

    text = (ROOT / "docs" / "spec" / "promises.md").read_text("utf-8")
    what = {row.id: row.cells[1] for row in rows_of(text)}
    return table(
        ("id", "fault", "client", "tests"), [(name, what[name], *rest) for name, *rest in _proved("F")]
    )


def _proved(letters: str) -> Iterator[tuple[str, str, str]]:
    """An id, who saw it, and the tests: by id, then in the order of the clients."""
    from tests.tools.proofs import CLIENTS, all_proofs

    order = list(CLIENTS)
    found: dict[tuple[str, int, int], list[str]] = {}
    for proof in all_proofs():
        letter, _, number = proof.id.partition("-")
        if letter in letters:
            tests = found.setdefault((letter, int(number), order.index(proof.client)), [])
            tests.append(f"`{proof.test.removeprefix('test_').replace('_', ' ')}` ({proof.file})")
    for (letter, n, who), tests in sorted(found.items()):
        yield f"{letter}-{n}", order[who], "; ".join(tests)


def proof_clients() -> str:
    from tests.tools.proofs import CLIENTS

    return table(("client", "description"), [(name, doc) for name, doc in CLIENTS.items()])


def interop() -> str:
    """What each foreign client does, and the test that says so."""
    from tests.interop.matrix import CAPABILITIES, PEERS, cells

    found = cells()
    rows = [
        (doc, *(_tests_of(found.get((peer, capability), [])) for peer in PEERS))
        for capability, doc in CAPABILITIES.items()
    ]
    return table(("it", *PEERS), rows)


def _tests_of(files: list[str]) -> str:
    names = [Path(file).stem.removeprefix("test_").replace("_", " ") for file in files]
    links = (f"[{name}](../../tests/{file})" for name, file in zip(names, files, strict=True))
    return "<br/>".join(links) or "-"


def interop_reasons() -> str:
    from tests.interop.matrix import CANNOT

    return table(("client", "cannot", "why"), [(peer, what, why) for (peer, what), why in CANNOT.items()])


def live() -> str:
    """What the SDK's own tests gave, plain and with paired senders, and those that cannot pass."""
    from tests.trials.live.record import KINDS, OUTCOMES, read, rows
    from tests.trials.live.report import known_failures

    words = {"passed": "passed", "listed": "listed", "skipped": "left out"}
    header = ("tests", *(f"{words[outcome]}, {kind}" for kind in KINDS for outcome in OUTCOMES))
    told = "".join(
        f"{kind.capitalize()}: {run['date']}, azure-servicebus {run['sdk']}, Python {run['python']}; "
        f"{run['again']} ran again, alone.\n"
        for kind, run in sorted(read().items(), reverse=True)
    )
    listed = [(f"`{test}`", reason) for test, reason in known_failures(is_paired=True).items()]
    return f"{told}\n{table(header, rows())}\n{table(('listed', 'why it cannot pass'), listed)}"


BLOCKS: dict[str, Callable[[], str]] = {
    "interop": interop,
    "interop-reasons": interop_reasons,
    "live": live,
    "proof-clients": proof_clients,
    "proofs": partial(proved, "QT"),
    "security-proved": partial(proved, "S"),
    "findings-proved": partial(proved, "R"),
    "consumers-proved": partial(proved, "C"),
    "order-proved": partial(proved, "O"),
    "everyone-proved": partial(proved, "E"),
    "pair-proved": partial(proved, "P"),
    "half-down-proved": partial(proved, "H"),
    "accepting-proved": partial(proved, "AB"),
    "outside-proved": partial(proved, "X"),
    "contract-proved": partial(proved, "K"),
    "cloud-proved": partial(proved, "W"),
    "promises-proved": partial(proved, "G"),
    "faults-driven": faults_driven,
}
