"""What a run will do is decided before it does anything."""

from __future__ import annotations

import pytest

from sbpair.contract.book import entries
from sbpair.contract.cli.doctor import command as doctor
from sbpair.contract.entry import Tier
from sbpair.contract.plan import Rights, make_plan, select
from sbpair.pair.ground.side import Side
from tests.tools.proofs import ROOT

ALL = {side: Rights(tier=Tier.PREMIUM) for side in Side}
NO_MANAGE = {side: Rights(manage=False, why="the administration API answers 401") for side in Side}


@pytest.mark.spec("K-1")
def test_a_plan_names_its_entities_with_prefix_and_run() -> None:
    plan = make_plan(entries(), ALL, run="0badcafe")

    assert plan.created
    assert all(name.startswith("sbpair-verify-0badcafe-") for _, name in plan.created)
    assert len({name.casefold() for _, name in plan.created}) == len(plan.created)


@pytest.mark.spec("K-1")
def test_without_manage_only_entries_for_a_plain_named_queue_run() -> None:
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
def test_entries_are_chosen_by_id_or_subject_and_an_unknown_one_is_reported() -> None:
    assert {each.subject for each in select(entries(), ["locks"])} == {"locks"}
    assert [each.id for each in select(entries(), ["locks-3"])] == ["locks-3"]
    with pytest.raises(ValueError, match="locks-999"):
        select(entries(), ["locks-999"])


@pytest.mark.spec("K-4")
def test_entries_that_a_tier_lacks_are_not_run() -> None:
    basic = {side: Rights(tier=Tier.BASIC) for side in Side}
    plan = make_plan(entries(), basic, run="0badcafe")

    assert all(step.entry.tier is Tier.BASIC for step in plan.runnable)
    assert any("Basic tier lacks" in step.obstacle for step in plan.steps)


@pytest.mark.spec("K-7")
def test_the_readme_and_the_doctor_explain_verify_and_its_cost() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    standard = make_plan(entries(), {side: Rights(tier=Tier.STANDARD) for side in Side}, run="0badcafe")

    assert f"checks {len(entries())} assumptions" in readme
    assert f"about {round(standard.price.total, -1)} operations" in readme
    assert "sbpair verify" in (doctor.help or "")


@pytest.mark.spec("K-1")
def test_entries_of_an_unreachable_namespace_are_skipped() -> None:
    powers = {Side.PRIMARY: Rights(tier=Tier.PREMIUM), Side.SECONDARY: Rights(manage=False, down="no route")}
    plan = make_plan(entries(), powers, run="0badcafe")

    assert {side for side, _ in plan.created} == {Side.PRIMARY}
    assert any(step.obstacle == "the secondary cannot be reached: no route" for step in plan.steps)


@pytest.mark.spec("K-4")
def test_an_emulator_that_accepts_any_token_skips_the_refusal_check() -> None:
    powers = {side: Rights(takes_any_token=True) for side in Side}
    plan = make_plan(entries(), powers, run="0badcafe")

    told = {step.entry.id for step in plan.steps if step.obstacle == "this emulator takes any token"}
    assert told == {each.id for each in entries() if each.access}
    assert told


@pytest.mark.spec("K-1")
def test_no_entry_calls_the_administration_without_manage() -> None:
    plan = make_plan(entries(), NO_MANAGE, run="0badcafe", queue="scratch")

    assert not any(step.entry.manages for step in plan.runnable)


@pytest.mark.spec("K-1")
def test_the_time_limit_of_a_run_grows_with_its_entries() -> None:
    everything = make_plan(entries(), ALL, run="0badcafe")
    one = make_plan(select(entries(), ["sending-1"]), ALL, run="0badcafe")

    assert everything.bound > everything.seconds
    assert everything.bound > one.bound > 60
