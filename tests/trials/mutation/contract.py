"""How much of what is changed in the broker does the contract find? `python -m tests.trials.mutation.contract`.

mutmut's operators change one thing in one function of the broker's entities and frontends. Of all such mutants a
sample, chosen by a seed, is run against the quick entries of `sbpair verify`, each in a process of its own that ends at
the first entry that differs. What survives is judged once, in `judgements.jsonl`: *visible* to a client, with the call
of the SDK that shows it, or not, with the reason. A judgement is known by its function and the content of the line, so
that it is void when the line changes. The command prints what share of the visible mutants is found, for each area of
the broker, and the survivors without a judgement; it exits with 1 when one area is below 90 of 100 or a judgement is
missing.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import multiprocessing
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from importlib import machinery, util
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import gettempdir
from types import CodeType, FrameType
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from sbpair.contract.book import entries
from sbpair.contract.entry import Entry, Finding, Tier, Verdict
from sbpair.contract.plan import Rights, make_plan
from sbpair.contract.rights import rights_of
from sbpair.contract.run import Run
from sbpair.contract.target import Target
from sbpair.pair.ground.side import Side
from tests.trials.mutation import preloaded
from tests.trials.mutation.equivalents import is_same

ROOT = Path(__file__).resolve().parent.parent.parent.parent
BROKER = ROOT / "sbpair" / "broker"
JUDGEMENTS = Path(__file__).with_name("judgements.jsonl")
AIM = 0.9
REACHING = 6  # processes that find out what is reached
LIMIT = 120.0  # seconds for one mutant
QUICK, LONG = 2.0, 20.0  # seconds: entries up to the first go first, and those beyond the second beside them
FOUND, UNKNOWN, HANGS, SURVIVED, BROKEN = "found", "unknown", "hangs", "survived", "broken"
AREAS = {
    "sessions": ("entities/sessions", "frontends/amqp/session_receiver"),
    "topics and rules": (
        "entities/topic",
        "entities/rule",
        "frontends/rule_form",
        "frontends/admin/rule_fields",
    ),
    "transactions": ("entities/transaction", "frontends/amqp/coordinator"),
    "forwarding": ("entities/forwarding",),
    "partitions": ("entities/partition", "entities/queue."),
    "messages": ("frontends/received_message", "frontends/delivered_message", "entities/stored_message"),
    "requests": ("frontends/amqp/management", "frontends/amqp/request_response", "frontends/amqp/claims"),
    "links": (
        "frontends/amqp/",
        "frontends/__init__",
        "frontends/address",
        "frontends/refusals",
        "entities/allowed_use",
    ),
    "administration": (
        "frontends/admin/",
        "entities/descriptions",
        "entities/quotas",
        "entities/directory",
        "entities/paths",
        "entities/namespace",
    ),
    "storing and settling": ("entities/", "frontends/namespace_frontend"),
}
"""Beginnings of paths below the broker; the first area that has one counts."""

ELSEWHERE = (
    "frontends/rest/",  # the SDK sends and receives over AMQP
    "frontends/dashboard/",  # for people
    "frontends/amqp/jms",  # a JMS client's, with witnesses of its own
    "frontends/amqp/faults",  # what tests ask for
    "entities/audit_recorder",  # what the broker writes for its owner
    "entities/change_log",
)
"""What no call of the SDK reaches."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change in one function: ``was`` and ``now`` are the lines that differ."""

    module: str
    function: str
    was: str
    now: str

    @property
    def area(self) -> str:
        return next(area for area, begins in AREAS.items() if self.module.startswith(begins))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant; ``by`` is the entry that differs first, with what it says."""

    mutant: Mutant
    verdict: str
    by: str = ""


def mutants(module: Path) -> Sequence[tuple[str, Callable[[], tuple[Mutant, str] | None]]]:
    """The mutants of a module by name, each with the text of the module; None for one that is the same program.

    A name changes with its own function only, so that a sample by names stays when other code changes.
    """
    text = module.read_text("utf-8")
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()), None)
    tree = MetadataWrapper(cst.parse_module(text)).visit(visitor)
    originals = functions(text)

    def make(each: Mutation) -> tuple[Mutant, str] | None:
        changed = cst.ensure_type(tree.deep_replace(each.original_node, each.mutated_node), cst.Module).code
        mutated = functions(changed)
        for name, node in originals.items():
            if ast.dump(node) != ast.dump(mutated[name]) and not is_same(node, mutated[name]):
                return Mutant(
                    module.relative_to(BROKER).as_posix(), name, *_difference(text, changed)
                ), changed
        return None

    count: Counter[str] = Counter()
    found = []
    for each in visitor.mutations:
        if isinstance(function := each.contained_by_top_level_function, cst.FunctionDef):
            name = f"{module.relative_to(BROKER)} {function.name.value}"
            count[name] += 1
            found.append((f"{name} {count[name]}", partial(make, each)))
    return found


def functions(text: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and the methods of its classes, by their qualified name."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in ast.parse(text).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        begin = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{begin}{each.name}"
                found[f"{name}'" if name in found else name] = each  # a property and its setter
    return found


def _difference(old: str, new: str) -> tuple[str, str]:
    """The lines in which two texts differ, each joined."""
    before, after = old.splitlines(), new.splitlines()
    pairs = enumerate(zip(before, after, strict=False))
    first = next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))
    before, after = before[first:], after[first:]
    while before and after and before[-1] == after[-1]:
        before.pop(), after.pop()
    return " ".join(map(str.strip, before)), " ".join(map(str.strip, after))


def sources() -> list[Path]:
    """The modules that are mutated."""
    found = [*BROKER.glob("entities/**/*.py"), *BROKER.glob("frontends/**/*.py")]
    return sorted(each for each in found if not each.relative_to(BROKER).as_posix().startswith(ELSEWHERE))


@cache
def judgements(file: Path = JUDGEMENTS) -> Mapping[Mutant, Mapping[str, str]]:
    """What was judged, by mutant: ``shows`` is the call that shows a visible one, ``hidden`` why it is none."""
    lines = (json.loads(line) for line in file.read_text("utf-8").splitlines()) if file.exists() else ()
    return {
        Mutant(*(line.pop(name) for name in ("module", "function", "was", "now"))): line for line in lines
    }


class _Loader(machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


class _Finder:
    """Finds one module in another text."""

    def __init__(self, module: Path, text: str) -> None:
        parts = module.relative_to(ROOT).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._loader = _Loader(self._name, str(module), text)

    def find_spec(self, name: str, *_: object) -> machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return util.spec_from_file_location(name, self._loader.path, loader=self._loader)


Reached = Mapping[tuple[str, str], set[str]]
"""The ids of the entries that reach a function, by module and function."""


def try_out(mutant: Mutant, text: str, ids: set[str], answer: Connection) -> None:
    """Check entries on a broker with this text of a module, and answer with verdict and reason; in a new process."""
    sys.meta_path.insert(0, _Finder(BROKER / mutant.module, text))  # type: ignore[arg-type]
    _be_silent()
    try:
        answer.send(_verdict(ids, answer))
    except Exception as error:  # a broker that does not start
        answer.send((BROKEN, f"{type(error).__name__}: {error}"[:200]))


def _be_silent() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@contextmanager
def _broker() -> Iterator[Mapping[Side, Target]]:
    """The targets of a run: the namespaces of a new broker."""
    from sbpair.broker import Broker
    from tests.contract.conftest import NAMES, over, targets_of

    directory = Path(gettempdir()) / "sbpair-contract-mutants"
    directory.mkdir(exist_ok=True)
    with Broker(dict.fromkeys(NAMES.values(), 0), tls_directory=directory) as broker:
        yield {side: over(target, tls=False) for side, target in targets_of(broker).items()}


def _verdict(ids: set[str], answer: Connection) -> tuple[str, str]:
    """What the entries say; a difference is answered at once, since a broker may not end that loops for ever."""
    unknown: list[str] = []
    chosen = [each for each in quick_entries() if each.id in ids]
    from sbpair.broker.errors import BrokerError

    said = ""
    try:
        with _broker() as targets:
            if said := asyncio.run(_difference_of(targets, chosen, unknown)):
                answer.send((FOUND, said))
    except BrokerError as error:  # it does not start, or does not stop
        unknown.append(str(error))
    return (FOUND, said) if said else (UNKNOWN, unknown[0]) if unknown else (SURVIVED, "")


async def _difference_of(targets: Mapping[Side, Target], chosen: list[Entry], unknown: list[str]) -> str:
    """What differs first: the quick entries before the others, and the longest beside them.

    As the command does, it finds out first whether the namespaces answer at all, and says so if one does not.
    """
    rights = await asyncio.gather(*map(rights_of, targets.values()))
    if down := next((each.down for each in rights if each.down), ""):
        return f"verify: a namespace cannot be reached: {down}"
    longest = [each for each in chosen if each.seconds > LONG]
    beside = asyncio.ensure_future(_first_difference(targets, longest, unknown))
    for least, most in ((0.0, QUICK), (QUICK, LONG)):
        those = [each for each in chosen if least < each.seconds <= most]
        if said := await _first_difference(targets, those, unknown):
            beside.cancel()
            return said
    return await beside


def quick_entries() -> list[Entry]:
    """The entries that decide something within a minute, on a broker here."""
    from tests.contract.test_contract_on_the_broker import ELSEWHERE as UNDECIDED

    return [each for each in entries() if not each.slow and each.id not in UNDECIDED]


async def _first_difference(targets: Mapping[Side, Target], those: list[Entry], unknown: list[str]) -> str:
    differs: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def told(finding: Finding) -> None:
        said = f"{finding.entry.id}: {finding.seen}"
        if finding.verdict is Verdict.DIFFERS and not differs.done():
            differs.set_result(said)
        elif finding.verdict is Verdict.UNKNOWN:
            unknown.append(said)

    running = asyncio.ensure_future(_run(targets, those, told).findings())
    await asyncio.wait((differs, running), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    return differs.result() if differs.done() else ""


def _run(targets: Mapping[Side, Target], those: list[Entry], told: Callable[[Finding], None]) -> Run:
    plan = make_plan(those, {side: Rights(tier=Tier.STANDARD) for side in Side}, run="0badcafe")
    return Run(targets, plan, told=told, keeps=True)


def find_reached(ids: set[str], answer: Connection) -> None:
    """Answer with the functions that each of these entries reaches, one entry after the other; in a new process."""
    calls: set[tuple[str, str]] = set()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(BROKER)):
            code = frame.f_code
            calls.add((code.co_filename[len(str(BROKER)) + 1 :], code.co_qualname.partition(".<locals>")[0]))

    threading.setprofile(called)
    found = []
    with _broker() as targets:
        for each in quick_entries():
            if each.id in ids:
                calls.clear()
                asyncio.run(_run(targets, [each], lambda finding: None).findings())
                found += [(*call, each.id) for call in tuple(calls)]
    answer.send(found)


class Processes:
    """New processes that have imported all but the broker, so many at a time."""

    def __init__(self, at_a_time: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preloaded.__name__])
        self._pool = ThreadPoolExecutor(at_a_time)

    def reached(self) -> Reached:
        """Which entries reach what."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        ids = [each.id for each in sorted(quick_entries(), key=lambda each: each.seconds)]
        shares = [set(ids[n::REACHING]) for n in range(REACHING)]
        for lines in self._pool.map(
            lambda share: self._answer(find_reached, share, limit=10 * LIMIT), shares
        ):
            for module, function, entry_id in lines:
                found[module, function].add(entry_id)
        return found

    def outcomes(self, chosen: Iterable[tuple[Mutant, str]], reached: Reached) -> Iterator[Outcome]:
        """What becomes of each mutant, in their order."""
        return self._pool.map(lambda each: self._outcome(*each, reached), chosen)

    def _outcome(self, mutant: Mutant, text: str, reached: Reached) -> Outcome:
        ids = reached.get((mutant.module, mutant.function.rstrip("'")), set())
        if not ids:
            return Outcome(mutant, SURVIVED, "no entry reaches it")
        return Outcome(mutant, *(self._answer(try_out, mutant, text, ids) or (HANGS, "")))

    def _answer(self, work: Callable[..., None], *what: object, limit: float = LIMIT) -> Any:
        """What a process answers, None if it does not in time."""
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(*what, there), daemon=True)
        process.start()
        there.close()
        try:
            return here.recv() if here.poll(limit) else None
        except EOFError:
            return BROKEN, "its process ended"
        finally:
            process.kill()
            process.join()


def main(words: list[str] | None = None) -> int:
    """Run the command with these words (default: the process's)."""
    asked = _arguments(words)
    known = [each for module in sources() if asked.only in str(module) for each in mutants(module)]
    known.sort(key=lambda each: sha256(f"{asked.seed} {each[0]}".encode()).digest())
    made = filter(None, (make() for _, make in known))
    chosen = list(islice(made, asked.skip, asked.skip + asked.sample))
    before = _outcomes(asked.out)
    survived = {mutant for mutant, each in before.items() if each.verdict != FOUND}
    chosen = [each for each in chosen if (each[0] in survived if asked.again else each[0] not in before)]
    if asked.trusting:
        hidden = [each for each in chosen if "hidden" in judgements().get(each[0], ())]
        before |= {mutant: Outcome(mutant, SURVIVED, "judged hidden") for mutant, _ in hidden}
        chosen = [each for each in chosen if each not in hidden]
    processes, outcomes = Processes(asked.n), before
    for each in processes.outcomes(chosen, _kept(asked.reached, processes.reached)) if chosen else ():
        outcomes[each.mutant] = each
        if asked.out is not None:
            with asked.out.open("a", encoding="utf-8") as file:
                print(json.dumps(asdict(each), ensure_ascii=False), file=file)
    verdicts = dict(Counter(each.verdict for each in outcomes.values()))
    print(f"{len(outcomes)} of about {len(known)} mutants: {verdicts}")
    measured = measure(outcomes.values())
    if asked.into is not None:
        shares = {"seed": asked.seed, "of": len(known), "areas": measured}
        asked.into.write_text(json.dumps(shares, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return report(measured)


def _outcomes(file: Path | None) -> dict[Mutant, Outcome]:
    """What was found until now, by mutant; what was found last counts."""
    lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else ()
    found = (
        Outcome(**{**json.loads(line), "mutant": Mutant(**json.loads(line)["mutant"])}) for line in lines
    )
    return {each.mutant: each for each in found}


def _kept(file: Path | None, find: Callable[[], Reached]) -> Reached:
    """What is reached, from a file if there is one, else found and written to it."""
    if file is not None and file.exists():
        return {(module, function): set(ids) for module, function, ids in json.loads(file.read_text("utf-8"))}
    found = find()
    if file is not None:
        file.write_text(json.dumps([[*name, sorted(ids)] for name, ids in found.items()]), "utf-8")
    return found


Area = dict[str, Any]
"""Of one area: the numbers of ``hidden`` and ``found`` mutants, those that are ``missed``, and ``unjudged`` ones."""


def measure(outcomes: Iterable[Outcome]) -> dict[str, Area]:
    """What share of the visible mutants is found, by area."""
    judged = judgements()
    areas: dict[str, Area] = {name: {"hidden": 0, "found": 0, "missed": [], "unjudged": []} for name in AREAS}
    for each in outcomes:
        mutant, area = each.mutant, areas[each.mutant.area]
        if each.verdict == FOUND:
            area["found"] += 1
        elif mutant not in judged:
            area["unjudged"].append(asdict(mutant))
        elif "hidden" in judged[mutant]:
            area["hidden"] += 1
        else:
            area["missed"].append({**asdict(mutant), **judged[mutant]})
    return areas


def report(areas: Mapping[str, Area]) -> int:
    """Print what share of the visible mutants is found; 1 if that is too little, or a judgement is missing."""
    shares = []
    for name, area in areas.items():
        found, visible = area["found"], area["found"] + len(area["missed"])
        shares += [found / visible] if visible else []
        if visible:
            print(f"{name:22} {found / visible:6.1%}  {found} of {visible} visible ones")
        for each in area["missed"]:
            print(f"    {_line(each)}: {each['shows']}")
    found, missed = (sum(map(count, areas.values())) for count in (_found, _missed))
    print(f"{'together':22} {found / (found + missed or 1):6.1%}")
    unjudged = [each for area in areas.values() for each in area["unjudged"]]
    for each in unjudged:
        print(f"without a judgement: {_line(each)}")
    return int(bool(unjudged) or any(share < AIM for share in shares))


def _found(area: Area) -> int:
    return int(area["found"])


def _missed(area: Area) -> int:
    return len(area["missed"])


def _line(each: Mapping[str, str]) -> str:
    return f"{each['module']} {each['function']}: {each['was']}  ->  {each['now']}"


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.mutation.contract", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="mutants (default 400)")
    parser.add_argument("--skip", type=int, default=0, help="mutants that an earlier run tried")
    parser.add_argument("--reached", type=Path, metavar="FILE", help="what entries reach, kept for the next")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default 1)")
    parser.add_argument("--only", default="", help="of modules whose path has this text")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where outcomes are, and are added to; what is there is not tried again",
    )
    parser.add_argument("--again", action="store_true", help="try again those of the sample that survived")
    parser.add_argument("--trusting", action="store_true", help="do not try again what was judged hidden")
    parser.add_argument("--into", type=Path, metavar="FILE", help="where to write the shares, for the page")
    parser.add_argument("-n", type=int, default=4, help="mutants at a time (default 4)")
    return parser.parse_args(words)


if __name__ == "__main__":
    raise SystemExit(main())
