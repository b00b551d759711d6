"""What a run will do is decided before it does anything."""

from __future__ import annotations

import pytest

from sbpair.contract.book import entries
from sbpair.contract.cli.doctor import command as doctor
from sbpair.contract.entry import Tier
from sbpair.contract.plan import Powers, make_plan, select
from sbpair.pair.ground.side import Side
from tests.tools.proofs import ROOT

ALL = {side: Powers(tier=Tier.PREMIUM) for side in Side}
NO_MANAGE = {side: Powers(manage=False, why="the administration API answers 401") for side in Side}


@pytest.mark.spec("K-1")
def test_a_plan_names_what_it_creates_with_the_prefix_and_the_run() -> None:
    plan = make_plan(entries(), ALL, run="0badcafe")

    assert plan.created
    assert all(name.startswith("sbpair-verify-0badcafe-") for _, name in plan.created)
    assert len({name.casefold() for _, name in plan.created}) == len(plan.created)


@pytest.mark.spec("K-1")
def test_without_manage_only_what_needs_a_plain_queue_runs_and_only_on_a_named_one() -> None:
    unnamed = make_plan(entries(), NO_MANAGE, run="0badcafe")
    named = make_plan(entries(), NO_MANAGE, run="0badcafe", queue="scratch")

    assert all(not step.entry.entities for step in unnamed.runnable)
    assert any(step.entry.entities for step in named.runnable)
    assert not named.created
    assert all("Manage" in step.obstacle for step in named.steps if step.obstacle and not step.entry.slow)


@pytest.mark.spec("K-1")
def test_a_budget_is_not_exceeded() -> None:
    plan = make_plan(entries(), ALL, run="0badcafe", budget=20)

    assert 0 < plan.price.total <= 20
    assert any("budget" in step.obstacle for step in plan.steps)


@pytest.mark.spec("K-1")
def test_entries_are_chosen_by_id_or_subject_and_an_unknown_one_is_said() -> None:
    assert {each.subject for each in select(entries(), ["locks"])} == {"locks"}
    assert [each.id for each in select(entries(), ["locks-3"])] == ["locks-3"]
    with pytest.raises(ValueError, match="locks-999"):
        select(entries(), ["locks-999"])


@pytest.mark.spec("K-4")
def test_what_a_tier_lacks_is_not_run() -> None:
    basic = {side: Powers(tier=Tier.BASIC) for side in Side}
    plan = make_plan(entries(), basic, run="0badcafe")

    assert all(step.entry.tier is Tier.BASIC for step in plan.runnable)
    assert any("Basic tier lacks" in step.obstacle for step in plan.steps)


@pytest.mark.spec("K-7")
def test_the_readme_and_the_doctor_say_how_to_verify_and_what_it_costs() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    standard = make_plan(entries(), {side: Powers(tier=Tier.STANDARD) for side in Side}, run="0badcafe")

    assert f"checks {len(entries())} assumptions" in readme
    assert f"about {round(standard.price.total, -1)} operations" in readme
    assert "sbpair verify" in (doctor.help or "")


@pytest.mark.spec("K-1")
def test_entries_of_a_namespace_that_is_down_are_not_run_and_the_others_are() -> None:
    powers = {Side.PRIMARY: Powers(tier=Tier.PREMIUM), Side.SECONDARY: Powers(manage=False, down="no route")}
    plan = make_plan(entries(), powers, run="0badcafe")

    assert {side for side, _ in plan.created} == {Side.PRIMARY}
    assert any(step.obstacle == "the secondary cannot be reached: no route" for step in plan.steps)


@pytest.mark.spec("K-4")
def test_an_emulator_that_takes_any_token_is_not_asked_to_refuse_one() -> None:
    powers = {side: Powers(takes_any_token=True) for side in Side}
    plan = make_plan(entries(), powers, run="0badcafe")

    told = {step.entry.id for step in plan.steps if step.obstacle == "this emulator takes any token"}
    assert told == {each.id for each in entries() if each.access}
    assert told


@pytest.mark.spec("K-1")
def test_without_manage_no_entry_calls_the_administration() -> None:
    plan = make_plan(entries(), NO_MANAGE, run="0badcafe", queue="scratch")

    assert not any(step.entry.manages for step in plan.runnable)


@pytest.mark.spec("K-1")
def test_a_run_has_a_bound_that_grows_with_what_it_does() -> None:
    everything = make_plan(entries(), ALL, run="0badcafe")
    one = make_plan(select(entries(), ["sending-1"]), ALL, run="0badcafe")

    assert everything.bound > everything.seconds
    assert everything.bound > one.bound > 60
