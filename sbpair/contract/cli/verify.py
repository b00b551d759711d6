"""`sbpair verify`: check the contract with Service Bus against two namespaces."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sbpair.pair.cli import INTERRUPTED
from sbpair.pair.cli.errors import (
    NO_ANSWER,
    CommandError,
    ConfigurationError,
    ExitCode,
    configuration,
    one_line,
    with_step,
)
from sbpair.pair.cli.namespaces import NamespaceArgument, ca_file_option, pair_options
from sbpair.pair.cli.output import notice, plain, redact
from sbpair.pair.cli.parameters import EntityPath
from sbpair.pair.cli.signals import on_first_signal

if TYPE_CHECKING:
    from rich.progress import Progress

    from sbpair.contract.entry import Finding
    from sbpair.contract.plan import Plan, Rights
    from sbpair.contract.record import Recorder
    from sbpair.contract.report import Result
    from sbpair.contract.target import Target
    from sbpair.pair.ground.side import Side

Command = TypeVar("Command", bound=Callable[..., Any])

SHOWN = 12  # names of a list on the terminal
UNTRUSTED = "name the authority that signed it with --ca-file"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of one run."""

    only: tuple[str, ...]
    budget: int | None
    queue: str | None
    keep: bool
    slow: bool
    within: float | None
    yes: bool
    json_file: Path | None
    page_file: Path | None
    record_file: Path | None


def _file_option(flag: str, name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    """A flag that names a file to write; the command receives it as ``name``."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(flag, name, type=kind, metavar=metavar, help=text)


@click.command("verify")
@pair_options
@ca_file_option
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="An entry or a subject, such as locks-3 or locks; repeat for more. By default all.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="OPERATIONS",
    help="Leave out what would cost more than this many operations.",
)
@click.option(
    "--queue",
    type=EntityPath(),
    help="An empty queue of the primary: without the Manage right, run on it what can run there.",
)
@click.option("--slow", is_flag=True, help="Also the entries that wait for minutes, such as idle links.")
@click.option(
    "--within",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="End after this time, whatever is still open; by default the plan says after which.",
)
@click.option("--keep", is_flag=True, help="Keep the entities that it creates; --clean deletes them.")
@click.option("--clean", is_flag=True, help="Delete what earlier runs left behind, and check nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_file_option("--json", "json_file", "FILE", "Write the result as JSON, without names of namespaces.")
@_file_option("--out", "page_file", "PAGE", "Write the result as an HTML page.")
@_file_option(
    "--record",
    "record_file",
    "FILE",
    "Keep what passed in the run, without keys, tokens and host names, to replay it.",
)
def command(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
    ca_file: str | None,
    only: tuple[str, ...],
    budget: int | None,
    queue: str | None,
    slow: bool,
    within: float | None,
    keep: bool,
    clean: bool,
    yes: bool,
    json_file: Path | None,
    page_file: Path | None,
    record_file: Path | None,
) -> int:
    """Check what sbpair assumes about Service Bus against yours.

    Each entry of the contract is a sentence about the service on which a promise rests, and a
    check of it. Before anything is created, it prints what it will create, how many operations
    that costs and how long it takes, and asks. Everything that it creates has a name that begins
    with sbpair-verify-, and is deleted at the end, after Ctrl-C too; --clean deletes what a
    killed run left. Nothing else is touched. It needs Manage, or with --queue Send and Listen.
    If one of the namespaces cannot be reached, the entries of the other are checked.

    Exit code 0: everything that could be checked holds; 1: something differs; 5: a namespace
    cannot be reached, or nothing could be checked; 130: it was interrupted.

    \b
    Examples:
      sbpair verify --out page.html --json result.json
      sbpair verify --only locks --only pings-2
      sbpair verify --clean
    """
    from sbpair.pair.ground.side import Side

    with configuration():
        targets = {
            Side.PRIMARY: _target(primary, Side.PRIMARY, ca_file),
            Side.SECONDARY: _target(secondary, Side.SECONDARY, ca_file),
        }
    if clean:
        return _clean(targets, yes)
    options = VerifyOptions(only, budget, queue, keep, slow, within, yes, json_file, page_file, record_file)
    rights = asyncio.run(_rights(targets, options))
    plan = _plan(options, rights)
    _show_plan(plan, options)
    if plan.runnable and not yes:
        click.confirm("Go on?", abort=True, err=True)
    began, at = time.monotonic(), datetime.now(UTC)
    tiers = {str(side): each.tier.name.capitalize() if each.tier is not None else "unknown"
             for side, each in rights.items()}  # fmt: skip
    findings = _run(targets, plan, options, tiers)
    code = _finish(plan, findings, tiers, at, time.monotonic() - began, targets, options)
    is_down = any(each.down for each in rights.values())
    return ExitCode.UNAVAILABLE if code == ExitCode.OK and is_down else code


def _target(argument: NamespaceArgument, side: Side, ca_file: str | None) -> Target:
    from sbpair.contract.tapped_socket import tapped
    from sbpair.contract.target import Target
    from sbpair.pair.auth.dialling import trusting

    return Target(
        argument.namespace(ca_file),
        lambda exchanged=None: argument.administration(str(side), ca_file, exchanged=exchanged),
        lambda new_tap=None: argument.client(
            str(side), ca_file, None if new_tap is None else tapped(trusting(ca_file), new_tap)
        ),
    )


async def _rights(targets: Mapping[Side, Target], options: VerifyOptions) -> dict[Side, Rights]:
    """Return the rights in both namespaces. Raises CommandError when neither can be reached."""
    from sbpair.contract.rights import TIMEOUT, rights_of
    from sbpair.pair.ground.side import Side

    timeout = min(TIMEOUT, options.within or TIMEOUT)
    named = {side: options.queue if side is Side.PRIMARY else None for side in targets}
    asked = (rights_of(target, named[side], timeout=timeout) for side, target in targets.items())
    found = dict(zip(targets, await asyncio.gather(*asked), strict=True))
    if all(each.down for each in found.values()):
        down = found[Side.PRIMARY].down
        step = UNTRUSTED if "certificate" in down else NO_ANSWER.next_step
        raise CommandError(with_step(CommandError(down, NO_ANSWER.code), step), NO_ANSWER.code)
    return found


def _plan(options: VerifyOptions, rights: Mapping[Side, Rights]) -> Plan:
    from sbpair.contract.book import entries
    from sbpair.contract.naming import new_run
    from sbpair.contract.plan import make_plan, select

    try:
        selected = select(entries(), options.only)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return make_plan(
        selected, rights, run=new_run(), queue=options.queue, budget=options.budget, slow=options.slow
    )


def _show_plan(plan: Plan, options: VerifyOptions) -> None:
    from sbpair.contract.report import KINDS

    created = [f"{side}/{name}" for side, name in plan.created]
    click.echo(f"{len(plan.runnable)} of {len(plan.steps)} entries can be checked.")
    if created:
        click.echo(
            f"It creates{'' if options.keep else ', and deletes at the end,'} {len(created)} entities:"
        )
        for name in created[:SHOWN]:
            click.echo(f"  {plain(name)}")
        if len(created) > SHOWN:
            click.echo(f"  and {len(created) - SHOWN} more, all named sbpair-verify-{plan.run}-...")
    price = plan.price
    click.echo(f"It costs about {price.total} operations:")
    for kind, words in KINDS.items():
        click.echo(f"  {asdict(price)[kind]:6} {words}")
    bound = plan.bound if options.within is None else options.within
    click.echo(
        f"It takes about {plan.seconds:.0f} s with namespaces nearby, longer from far away, "
        f"and ends after {bound:.0f} s in any case (--within)."
    )


def _run(
    targets: Mapping[Side, Target], plan: Plan, options: VerifyOptions, tiers: dict[str, str]
) -> list[Finding]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=console, transient=True) as progress:
        return asyncio.run(_with_progress(targets, plan, options, tiers, progress))


async def _with_progress(
    targets: Mapping[Side, Target],
    plan: Plan,
    options: VerifyOptions,
    tiers: dict[str, str],
    progress: Progress,
) -> list[Finding]:
    from sbpair.contract.run import Run

    bar = progress.add_task("checking", total=len(plan.steps), left="")
    began = time.monotonic()

    def told(_: Finding) -> None:
        left = max(plan.seconds - (time.monotonic() - began), 0.0)
        progress.update(bar, advance=1, left=f"about {left:.0f} s left")

    recorder = _recorder(targets, plan, options.record_file, tiers)
    run = Run(targets, plan, keeps=options.keep, told=told, within=options.within, recorder=recorder)
    running = asyncio.ensure_future(run.findings())
    on_first_signal(running.cancel, INTERRUPTED)
    try:
        return await running
    except asyncio.CancelledError:
        if not (options.keep or run.left):
            notice("stopped; what it created is deleted", "verify")
        raise KeyboardInterrupt from None
    finally:
        for side, why in run.left.items():
            notice(f"what it created may be left on the {side} ({why}); --clean deletes it", "verify")
        if recorder is not None:
            recorder.close()
            if recorder.failure:
                notice(f"the recording is not complete: {recorder.failure}", "verify")


def _recorder(
    targets: Mapping[Side, Target], plan: Plan, file: Path | None, tiers: dict[str, str]
) -> Recorder | None:
    from sbpair.contract.record import Recorder

    if file is None:
        return None
    try:
        return Recorder(file, plan, names_of(targets), redact, tiers)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error


def _finish(
    plan: Plan,
    findings: list[Finding],
    tiers: dict[str, str],
    at: datetime,
    seconds: float,
    targets: Mapping[Side, Target],
    options: VerifyOptions,
) -> int:
    from sbpair.contract.entry import Verdict
    from sbpair.contract.report import Result, as_json, headline, page

    nameless = tuple(replace(each, seen=_nameless(each.seen, targets)) for each in findings)
    result = Result(plan.run, at, tiers, plan.price, seconds, nameless)
    _show(result)
    if options.json_file is not None:
        _write(options.json_file, json.dumps(as_json(result), indent=1) + "\n")
    if options.page_file is not None:
        _write(options.page_file, page(result))
    click.echo(headline(result))
    counts = result.counts
    if counts[Verdict.DIFFERS]:
        return ExitCode.FAILED
    return ExitCode.OK if counts[Verdict.HOLDS] else ExitCode.UNAVAILABLE


def names_of(targets: Mapping[Side, Target]) -> dict[str, Side]:
    """Return the host names, with and without a port, and the side of each."""
    return {
        name: side
        for side, target in targets.items()
        for name in (target.namespace.name, target.namespace.netloc)
    }


def _nameless(seen: str, targets: Mapping[Side, Target]) -> str:
    """Return the observation without secrets and namespace names."""
    names = names_of(targets)
    for name in sorted(names, key=len, reverse=True):
        seen = seen.replace(name, f"({names[name]})")
    return redact(seen)


def _show(result: Result) -> None:
    from sbpair.contract.entry import Verdict

    why: dict[str, list[str]] = {}
    for each in result.findings:
        if each.verdict is Verdict.DIFFERS:
            click.echo(f"DIFFERS  {each.entry.id}: {plain(each.entry.sentence)}")
            click.echo(f"    seen:  {plain(each.seen)}")
            click.echo(f"    breaks: {', '.join(each.entry.breaks)}")
        elif each.verdict is Verdict.UNKNOWN:
            why.setdefault(each.seen, []).append(each.entry.id)
    for seen, ids in why.items():
        named = ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
        click.echo(f"unknown  {named}: {plain(seen)}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error


def _clean(targets: Mapping[Side, Target], yes: bool) -> int:
    """Delete the leftovers of earlier runs on each side that answers. Raises AzureError when neither does."""
    from azure.core.exceptions import AzureError

    from sbpair.contract.administration import clean, leftovers

    found, failures = {}, []
    for side, target in targets.items():
        try:
            found[side] = leftovers(target)
        except AzureError as error:
            notice(f"the {side} cannot be asked: {one_line(error)}", "verify")
            failures.append(error)
    if not found:
        raise failures[0]
    names = [f"{side}/{plain(each.name)}" for side, those in found.items() for each in those]
    for name in names:
        click.echo(f"  {name}")
    if names and not yes:
        click.confirm(f"Delete these {len(names)}?", abort=True, err=True)
    for side, those in found.items():
        clean(targets[side], those)
    click.echo(f"{len(names)} deleted" if names else "nothing was left behind")
    return ExitCode.UNAVAILABLE if failures else ExitCode.OK
