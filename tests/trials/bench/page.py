"""Generates docs/evidence/performance.md and its plots from a stored run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.trials.bench.aims import AIMS, Figure, of

DOCS = Path(__file__).parents[3] / "docs" / "evidence"
PLOTS = DOCS / "performance"
LIMITS = Path(__file__).parent / "limits.md"
PLAIN = {"name", "unit", "n", "median", "p95", "least", "most", "by"}
SECTIONS = {
    "bench_amqp": "The AMQP engine",
    "bench_broker": "The broker, and others",
    "bench_bulk": "Another client's bulk work",
    "bench_start": "Start",
    "bench_restart": "Start with a million messages on disk",
    "bench_store": "The store on disk, and the disk alone",
    "bench_memory": "Memory",
    "bench_waiting": "Growth",
    "bench_expiry": "Expiry",
    "bench_send": "The paired sender while healthy",
    "bench_order": "The order of sessions",
    "bench_crowd": "Many asyncio sends at once",
    "bench_first_send": "The first send of a new client",
    "bench_failover": "Failing over and back",
    "bench_syphon": "The syphon, and relays with the SDK",
    "bench_stuck": "The syphon past stuck destinations",
    "bench_landing": "Landing on the secondary, and the way home",
    "bench_processor": "The processor, and receiving with the SDK",
}
HEAD = """# Performance

All figures on this page were measured by `python -m tests.trials.bench --again docs/evidence/performance.json` and are
stored in [performance.json](performance.json), with those of the earlier run. `python -m tests.trials.bench --docs`
generates this page from that file. Compared systems were measured alternately in the same run, under the same
conditions, so the ratios are more reliable than the absolute figures. *Range* gives the lowest and the highest round.
The figures are those of the commit in the table; parts that are newer are *not measured* here. The broker announces
[the service's numbers](../reference/broker.md#the-services-numbers-over-amqp) over AMQP; before 2026-11-29 it announced
those of `sbpair --fast`, which stands beside it where it is compared with other brokers. The figures of the
audit and of the Spark sources and sinks are in [Spark figures](spark.md).
[Where the time goes](#where-the-time-goes) explains the limits.

"""


def write(stored: Mapping[str, Any]) -> None:
    """Write the page and its plots."""
    (DOCS / "performance.md").write_text(text(stored))
    PLOTS.mkdir(exist_ok=True)
    for module, (name, draw) in DRAWN.items():
        mine = [figure for figure in stored["figures"] if figure["by"] == module]
        if mine:
            _draw(PLOTS / name, draw, mine)
    print(f"wrote {DOCS / 'performance.md'}")


def text(stored: Mapping[str, Any]) -> str:
    """The page of a stored run."""
    figures: list[Figure] = stored["figures"]
    parts = [HEAD, *_settings(stored), "## Targets\n\n"]
    parts += _aims(figures, stored.get("earlier", {}).get("figures", ()))
    for module, title in SECTIONS.items():
        mine = [figure for figure in figures if figure["by"] == module]
        if not mine:
            continue
        parts += [
            f"\n## {title}\n\n",
            f"```bash\npython -m tests.trials.bench.{module}\n```\n\n",
            *TABLES.get(module, _figures)(mine),
        ]
        if module in DRAWN:
            parts.append(f"\n![{title}](performance/{DRAWN[module][0]})\n")
    return "".join([*parts, LIMITS.read_text("utf-8")])


def _settings(stored: Mapping[str, Any]) -> Iterable[str]:
    on = stored["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in on["libraries"].items())
    peers = sorted({f"{f['peer']} {f['version']}" for f in stored["figures"] if f.get("version")})
    rows = {
        "processor": f"{on['processor']}, {on['cores']} cores, {on['memory_gb']} GB",
        "system": f"{on['system']}, Python {on['python']}",
        "versions": f"{libraries}; brokers: {', '.join(peers) or 'none'}",
    }
    for name, run in {"run": stored, "earlier run": stored.get("earlier")}.items():
        if run is not None:
            of_it = run["machine"]
            rows[name] = (
                f"{of_it['at']}, commit {of_it['commit']}, {run['seconds']} s; "
                f"load of the machine {of_it['load_before']} before, {run['load_after']} after"
            )
    for name, at in stored.get("measured_again", {}).items():
        rows[f"bench_{name} again"] = (
            f"{at['at']}, commit {at['commit']}; load of the machine {at['load_before']} before"
        )
    yield from _table(("", ""), rows.items())
    if stored["quick"]:
        yield "\nThis was a quick run, of small rounds: it shows that all runs, and no more.\n"
    if on["load_before"] > on["cores"]:
        yield "\nThe machine was busy with other work: absolute figures are too low, and ratios are noisy.\n"
    yield "\n"


def _aims(figures: Sequence[Figure], earlier: Sequence[Figure]) -> Iterable[str]:
    rows = []
    for aim in AIMS:
        found, before = aim.figure.find(figures), aim.figure.find(earlier)
        bound = f"{aim.sign} {aim.bound:,g}"
        former = [] if not earlier else ["" if before is None else _number(before["median"])]
        if found is None:
            rows.append((aim.what, bound, "not measured", *former, "", ""))
            continue
        holds = aim.holds(_median(found))
        why = "" if holds else aim.because(figures)
        rows.append((aim.what, bound, _number(found["median"]), *former, "yes" if holds else "**no**", why))
    former = ["earlier run"] if earlier else []
    yield from _table(("target", "bound", "median", *former, "met", "reason if not met"), rows)


def _figures(figures: Sequence[Figure]) -> Iterable[str]:
    rows = []
    for figure in figures:
        labels = ", ".join(
            f"{key} {value}" for key, value in figure.items() if key not in PLAIN | {"version"}
        )
        spread = f"{_number(figure['least'])} … {_number(figure['most'])}" if "least" in figure else ""
        rows.append(
            (
                str(figure["name"]),
                labels,
                _number(figure["median"]),
                spread,
                str(figure["n"]),
                str(figure["unit"]),
            )
        )
    yield from _table(("figure", "of", "median", "range", "rounds", "unit"), rows)


def _crowds(figures: Sequence[Figure]) -> Iterable[str]:
    """Sends of both clients side by side, by distance and number of tasks; then what else was measured."""
    cells = {(str(f["network"]), int(str(f["tasks"]))): None for f in figures if f["name"] == "crowd.rate"}
    rows = [
        (
            network,
            f"{tasks:,}",
            *(
                "" if found is None else _number(found["median"])
                for name, labels in (
                    ("crowd.rate", {"client": "sdk"}),
                    ("crowd.rate", {"client": "paired"}),
                    ("crowd.rate_over_sdk", {}),
                    ("crowd.p99", {"client": "sdk"}),
                    ("crowd.p99", {"client": "paired"}),
                    ("crowd.p99_over_sdk", {}),
                    ("crowd.failed", {"client": "sdk"}),
                    ("crowd.failed", {"client": "paired"}),
                )
                for found in [of(name, network=network, tasks=tasks, **labels).find(figures)]
            ),
        )
        for network, tasks in cells
    ]
    head = (
        "round trip",
        "sends at once",
        "SDK, 1/s",
        "paired, 1/s",
        "ratio",
        "SDK, p99 ms",
        "paired, p99 ms",
    )
    yield from _table((*head, "ratio", "SDK, raised", "paired, raised"), rows)
    yield "\n"
    yield from _figures([figure for figure in figures if "network" not in figure])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n"


def _median(figure: Figure) -> float:
    return float(str(figure["median"]))


def _number(value: object) -> str:
    number = float(str(value))
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


# -- plots


def _draw(path: Path, draw: Callable[[Any, Sequence[Figure]], None], figures: Sequence[Figure]) -> None:
    import matplotlib as mpl  # late: the text needs none of it

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "sbpair", "svg.fonttype": "none"}
    )  # the same run draws the same file
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(6.4, 2.8))
    draw(axes, figures)
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def _brokers(axes: Any, figures: Sequence[Figure]) -> None:
    """Messages a second, ours and theirs side by side."""
    whats = [f"broker.{what}" for what in ("enqueue", "receive_each", "receive_ranged", "durable_enqueue")]
    peers = list(dict.fromkeys(str(figure["peer"]) for figure in figures if "peer" in figure))
    for index, peer in enumerate(peers):
        found = [of(what, peer=peer).find(figures) for what in whats]
        heights = [0.0 if figure is None else _median(figure) for figure in found]
        axes.bar([at + index * 0.16 for at in range(len(whats))], heights, 0.16, label=peer)
    names = [what.removeprefix("broker.").replace("_", " ") for what in whats]
    axes.set_xticks([at + 0.08 * (len(peers) - 1) for at in range(len(whats))], names, fontsize=8)
    axes.set_ylabel("messages a second")
    axes.legend(fontsize=8)


def _growth(axes: Any, figures: Sequence[Figure]) -> None:
    """The cost of a message by what waits behind it."""
    costs = [figure for figure in figures if figure["name"] == "waiting.message"]
    for kind in dict.fromkeys(str(figure["kind"]) for figure in costs):
        mine = [figure for figure in costs if figure["kind"] == kind]
        axes.plot(
            [figure["waiting"] for figure in mine], [_median(figure) for figure in mine], "o-", label=kind
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("messages that wait")
    axes.set_ylabel("µs a message")
    axes.legend(fontsize=7, ncols=2)


def _relays(axes: Any, figures: Sequence[Figure]) -> None:
    """Messages a second of each relay on each network, on a scale of powers of ten."""
    rates = [figure for figure in figures if figure["name"] == "syphon.relay"]
    relays = list(dict.fromkeys(str(figure["relay"]) for figure in rates))
    networks = list(dict.fromkeys(str(figure["network"]) for figure in rates))
    for index, relay in enumerate(relays):
        found = [of("syphon.relay", relay=relay, network=network).find(rates) for network in networks]
        heights = [0.0 if figure is None else _median(figure) for figure in found]
        axes.bar([at + index * 0.16 for at in range(len(networks))], heights, 0.16, label=relay)
    axes.set_xticks([at + 0.32 for at in range(len(networks))], networks, fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("messages a second")
    axes.legend(fontsize=7)


TABLES: Mapping[str, Callable[[Sequence[Figure]], Iterable[str]]] = {"bench_crowd": _crowds}
DRAWN = {
    "bench_broker": ("broker.svg", _brokers),
    "bench_waiting": ("growth.svg", _growth),
    "bench_syphon": ("syphon.svg", _relays),
}
