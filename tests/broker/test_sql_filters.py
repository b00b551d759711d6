"""SQL filters and actions: the accepted syntax and the results for a message."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.broker.entities.rules import SqlAction, SqlFilter
from sbpair.broker.entities.rules.evaluation import compile_predicate
from sbpair.broker.entities.rules.message_properties import MessageProperties
from sbpair.broker.entities.rules.parser import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_OPERATORS,
    MAX_STATEMENTS,
    parse_filter,
)
from sbpair.broker.entities.rules.values import EvaluationError
from sbpair.broker.errors import InvalidRuleError
from tests.costs import cpu_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
USER = {
    "a": 1,
    "Half": 0.5,
    "name": "O'Neil & sons",
    "paid": True,
    "nothing": None,
    "odd-name]": "x",
    "at": NOON,
    "span": timedelta(hours=1),
    "id": uuid.UUID(int=7),
    "raw": b"\x00",
    "price": "12",
}
SYSTEM = {"label": "urgent", "to": None, "timetolive": timedelta(minutes=5), "enqueuedtimeutc": NOON}


def condition(
    expression: str, parameters: dict[str, object] | None = None
) -> Callable[[MessageProperties], bool | None]:
    return compile_predicate(parse_filter(expression, parameters or {}))


def truth(expression: str, parameters: dict[str, object] | None = None) -> bool | None:
    return condition(expression, parameters)(MessageProperties(SYSTEM, USER))


def written(expression: str, **user: object):
    return SqlAction(expression).changes(MessageProperties(SYSTEM, user))


TRUE = [
    "a = 1",
    "A = 1",  # names are not case-sensitive
    "a <> 2 AND a != 2 AND a < 2 AND a <= 1 AND a > 0 AND a >= 1",
    "NOT a = 2 AND NOT (a = 3)",
    "a = 2 OR a = 1 AND a = 1",
    "a = 1.0 AND a = 1e0 AND Half = 5E-1",
    "a + 2 * 3 = 7 AND (a + 2) * 3 = 9",
    "-7 / 2 = -3 AND -7 % 3 = -1 AND 7 % -3 = 1",  # as in C#
    "7 / 2.0 = 3.5 AND 5.5 % 2 = 1.5",
    "+a = 1 AND - -a = 1",
    "'x' + 'y' = 'xy'",
    "name = 'O''Neil & sons'",
    "name LIKE 'O%sons' AND name LIKE '_''%' AND name NOT LIKE 'o%'",
    "'50%' LIKE '50!%' ESCAPE '!' AND NOT '500' LIKE '50!%' ESCAPE '!'",
    "a IN (3, 2, 1) AND a NOT IN (2, 3)",
    "paid = TRUE AND paid <> FALSE",
    "nothing IS NULL AND absent IS NULL AND a IS NOT NULL",
    "EXISTS(nothing) AND NOT EXISTS(absent) AND EXISTS(user.a)",
    "EXISTS(sys.Label) AND NOT EXISTS(sys.To)",
    "sys.Label = 'urgent' AND sys.[label] = 'urgent' AND SYS.LABEL = sys.Subject",
    'user.a = 1 AND user.[a] = 1 AND [a] = 1 AND "a" = 1',
    "[odd-name]]] = 'x' AND \"odd-name]\" = 'x'",
    "property('a') = 1 AND p('A') = 1 AND p('a') IS NOT NULL AND EXISTS(p('nothing'))",
    "newid() <> newid()",
    "at + span > at AND at - at < span AND span + span > span",
    "id = id AND raw = raw",
    "at = sys.EnqueuedTimeUtc AND sys.TimeToLive < span",
    "(((a))) = 1",
]
UNKNOWN = [
    "absent = 1",
    "NOT absent = 1",
    "absent <> absent",
    "nothing = NULL",
    "absent + 1 = 1",
    "-absent = 1",
    "absent LIKE '%'",
    "'x' LIKE absent",
    "absent NOT IN (1)",
    "a IN (2, absent)",
    "absent = 1 AND a = 1",
    "absent = 1 OR a = 2",
    "sys.To = 'x'",
    "p(absent) = 1",
]
FALSE = [
    "a = 2",
    "absent = 1 AND a = 2",
    "a IN (2)",
    "name LIKE 'o%'",
    "NOT EXISTS(a)",
    "name = 'o''neil & sons'",
]
FAILS = {
    "a = 'x'": "cannot be compared",
    "paid = 1": "cannot be compared",
    "paid < TRUE": "cannot be compared",
    "raw > raw": "cannot be compared",
    "a + 'x' = 'x'": "number \\+ string is not defined",
    "a LIKE '1'": "LIKE needs strings, not number",
    "name LIKE 'x' ESCAPE 'ab'": "not one character",
    "a / 0 = 1": "division by zero",
    "9223372036854775807 + a = 1": "exceeds 64 bits",
    "-name = 1": "a sign needs a number, not string",
    "p(a) = 1": "property\\(\\) needs a string, not number",
}
REFUSED = {
    "": "Expected a value",
    "a": "is not a predicate",
    "TRUE": "is not a predicate",
    "a =": "Expected a value",
    "a = = 1": "Expected a value",
    "(a = 1": r"Expected \)",
    "a = 1)": "Expected the end",
    "a = 1 = 1": "is a predicate",
    "(a = 1) + 1 = 2": "is a predicate",
    "a AND b": "is a value",
    "a = 1 b": "Expected the end",
    "1 IS NULL": "is not a property",
    "EXISTS(1)": "is not a property",
    "a NOT 1": "Expected IN or LIKE",
    "a IN ()": "Expected a value",
    "a IS 1": "Expected NULL",
    "sys.Nope = 1": "no system property 'Nope'",
    "sys. = 1": "Expected the name of a property",
    "like = 1": "is the keyword LIKE",
    "user.like = 1": "is the keyword LIKE",
    "f(1) = 1": "calls the unknown function f",
    "newid(1) = 1": r"Expected \)",
    "a = @x": "@x has no value",
    "a = 'x": "Unexpected",
    "a = #": "Unexpected '#'",
    "a = 9223372036854775808": "larger than",
    "_a = 1": "Unexpected '_'",
    "SET a = 1": "is the keyword SET",
    "a = " + "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH: f"deeper than {MAX_DEPTH}",
    "NOT " * (MAX_DEPTH + 1) + "a = 1": f"deeper than {MAX_DEPTH}",
    "a = 1" + "+1" * (MAX_OPERATORS + 1): f"more than {MAX_OPERATORS}",
    "a = 1" + " " * MAX_LENGTH: f"at most {MAX_LENGTH}",
}


class TestFilters:
    @pytest.mark.parametrize("expression", TRUE)
    def test_expressions_that_are_true(self, expression):
        assert truth(expression) is True

    @pytest.mark.parametrize("expression", UNKNOWN)
    def test_an_unknown_result_does_not_match(self, expression):
        assert truth(expression) is None

    @pytest.mark.parametrize("expression", FALSE)
    def test_expressions_that_are_false(self, expression):
        assert truth(expression) is False

    @pytest.mark.parametrize("expression", FAILS)
    def test_expressions_without_a_result(self, expression):
        with pytest.raises(EvaluationError, match=FAILS[expression]):
            truth(expression)

    @pytest.mark.parametrize("number", range(len(REFUSED)))
    def test_an_unreadable_expression_is_refused_with_its_position(self, number):
        expression, words = list(REFUSED.items())[number]
        with pytest.raises(InvalidRuleError, match=words):
            SqlFilter(expression)

    def test_parameters_may_have_values_of_any_type(self):
        assert truth("a = @One AND at >= @then", {"@one": 1, "@then": NOON})

    def test_division_of_doubles_by_zero_is_infinite(self):
        assert truth("1.0 / 0 > 1e300 AND -1.0 / 0 < -1e300")
        assert truth("0.0 / 0 <> 0.0 / 0")

    def test_the_longest_chain_of_or_terms_is_read(self):
        expression = " OR ".join(["a=2"] * 145) + " OR a=1"
        assert len(expression) <= MAX_LENGTH
        assert truth(expression)

    def test_a_catastrophic_pattern_is_evaluated_quickly(self):
        text, pattern = "a" * 30_000, "%a_" * 300 + "b"
        asked = MessageProperties({}, {"t": text, "p": pattern})
        judged: list[bool | None] = []
        assert cpu_of(lambda: judged.append(condition("t LIKE p")(asked))) < 5
        assert judged == [False]

    @pytest.mark.spec("S-22")
    @pytest.mark.parametrize(
        "pattern", ["%" + "a_" * 511 + "b", "%" + "_a" * 510 + "b%", "%a_b" * 255, "%" * 1024]
    )
    def test_a_pattern_from_the_message_takes_linear_time(self, pattern):
        asked = MessageProperties({}, {"t": "a" * 65_536, "p": pattern})
        is_like = condition("t LIKE p")
        assert cpu_of(lambda: is_like(asked)) < 0.5

    @pytest.mark.spec("S-22")
    def test_a_pattern_longer_than_an_expression_is_not_evaluated(self):
        asked = MessageProperties({}, {"t": "aaa", "p": "%a" * 512 + "%"})
        with pytest.raises(EvaluationError, match="more than 1024 characters"):
            condition("t LIKE p")(asked)


class TestActions:
    def test_each_statement_sees_the_changes_of_earlier_ones(self):
        changes = written("SET b = a + 1; SET c = b * 10 REMOVE a, SET d = a;", a=1)
        assert changes.user == {"b": 2, "c": 20, "d": None}
        assert changes.removed == {"a"}

    def test_a_changed_property_keeps_its_spelling_and_type(self):
        changes = written(
            "SET PRICE = 13; SET Count = '7'; SET paid = 'TRUE'; SET ratio = 'x'",
            price="12",
            count=1,
            paid=False,
            ratio=0.5,
        )
        assert changes.user == {"price": "13", "count": 7, "paid": True, "ratio": "x"}

    def test_the_last_of_set_and_remove_wins(self):
        assert written("SET b = 1 REMOVE b").user == {}
        assert written("REMOVE a SET a = 2", a=1).removed == set()

    def test_an_action_sets_system_properties_as_text(self):
        changes = written("SET sys.Label = 5; SET sys.To = 'x'; REMOVE sys.ReplyTo; SET b = sys.Label")
        assert changes.system == {"label": "5", "to": "x", "replyto": None}
        assert changes.user == {"b": "5"}

    def test_an_action_cannot_set_the_scheduled_time(self):
        assert written("SET sys.ScheduledEnqueueTimeUtc = '2030-01-01'").system == {}

    def test_removing_a_missing_property_does_nothing(self):
        assert written("REMOVE absent").removed == set()

    @pytest.mark.parametrize(
        ("expression", "words"),
        [
            ("", "Expected SET or REMOVE"),
            ("a = 1", "Expected SET or REMOVE"),
            ("SET a", "Expected ="),
            ("SET a = (b = 1)", "is a predicate"),
            ("SET 1 = 1", "Expected a property"),
            ("SET sys.Nope = 1", "no system property"),
            ("SET sys.SequenceNumber = 1", "cannot be changed by SET"),
            ("REMOVE sys.MessageId", "cannot be changed by REMOVE"),
            ("SET set = 1", "keyword SET"),
            ("REMOVE a;" * (MAX_STATEMENTS + 1), f"more than {MAX_STATEMENTS} statements"),
        ],
    )
    def test_an_unreadable_action_is_refused(self, expression, words):
        with pytest.raises(InvalidRuleError, match=words):
            SqlAction(expression)

    def test_the_maximum_number_of_statements_is_accepted(self):
        assert written("REMOVE a;" * MAX_STATEMENTS, a=1).removed == {"a"}

    @pytest.mark.spec("S-21")
    def test_the_growth_of_a_text_by_an_action_is_bounded(self):
        assert len(written("SET a = a + a" + ";SET a = a + a" * 11, a="x" * 16).user["a"]) == 65_536
        with pytest.raises(EvaluationError, match="more than 65536 characters"):
            written("SET a = a + a" + ";SET a = a + a" * 12, a="x" * 16)

    def test_an_invalid_span_fails(self):
        with pytest.raises(EvaluationError, match="needs a duration"):
            written("SET sys.TimeToLive = 5")


# -- any text

VOCABULARY = """
    a b [c d] sys.Label user.a sys. . ( ) , ; = <> != < <= > >= + - * / % AND OR NOT IN LIKE ESCAPE IS NULL
    EXISTS TRUE FALSE SET REMOVE newid() p( property( 'x' '%_' 1 2.5 1e400 @p ' [ " "e" é ² \x00
"""
WORDS = st.sampled_from(VOCABULARY.split())


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS).map("".join))
)
def test_any_text_is_refused_or_yields_an_expression_that_evaluates(text):
    properties = MessageProperties(SYSTEM, USER)
    with contextlib.suppress(InvalidRuleError, EvaluationError):
        condition(text, {"@p": 1})(properties)
    with contextlib.suppress(InvalidRuleError, EvaluationError):
        SqlAction(text, {"@p": 1}).changes(properties)


# -- against another SQL

NUMBERS = st.one_of(st.integers(-5, 5).map(lambda n: f"({n})"), st.sampled_from(["x", "y", "z", "nil"]))
TEXTS = st.one_of(st.text("ab%_", max_size=4).map(lambda t: f"'{t}'"), st.sampled_from(["s", "t", "nil"]))
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({' '.join(p)})"),
    max_leaves=6,
)
ATOMS = st.one_of(
    st.tuples(SUMS, st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]), SUMS).map(" ".join),
    st.tuples(TEXTS, st.sampled_from(["=", "<>", "<", ">="]), TEXTS).map(" ".join),
    st.tuples(TEXTS, st.sampled_from(["LIKE", "NOT LIKE"]), TEXTS).map(" ".join),
    st.tuples(TEXTS, st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!"]), max_size=4)).map(
        lambda p: f"{p[0]} LIKE '{''.join(p[1])}' ESCAPE '!'"
    ),
    st.tuples(SUMS, st.sampled_from(["IN", "NOT IN"]), st.lists(SUMS, min_size=1, max_size=3)).map(
        lambda p: f"{p[0]} {p[1]} ({', '.join(p[2])})"
    ),
    st.tuples(st.sampled_from("xyzst"), st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
)
PREDICATES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({' '.join(p)})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        inner.map(lambda p: f"NOT {p}"),
        inner.map(lambda p: f"NOT ({p})"),
    ),
    max_leaves=8,
)
NUMBER_OR_NONE = st.one_of(st.none(), st.integers(-5, 5))
TEXT_OR_NONE = st.one_of(st.none(), st.text("ab%_", max_size=6))


@pytest.fixture(scope="module")
def sqlite():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    yield connection
    connection.close()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(PREDICATES, NUMBER_OR_NONE, NUMBER_OR_NONE, NUMBER_OR_NONE, TEXT_OR_NONE, TEXT_OR_NONE)
def test_results_agree_with_sqlite_for_the_common_syntax(sqlite, predicate, x, y, z, s, t):
    if len(predicate) > MAX_LENGTH:
        return
    values = {"x": x, "y": y, "z": z, "s": s, "t": t, "nil": None}
    query = f"SELECT {predicate} FROM (SELECT :x x, :y y, :z z, :s s, :t t, :nil nil)"
    (found,) = sqlite.execute(query, values).fetchone()
    sent = {name: value for name, value in values.items() if value is not None}
    assert condition(predicate)(MessageProperties({}, sent)) is (None if found is None else bool(found)), (
        predicate
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_integer_division_agrees_with_sqlite(a, b):
    properties = MessageProperties({}, {"a": a, "b": b})
    if b == 0:
        with pytest.raises(EvaluationError):
            condition("a / b = 0")(properties)
        return
    quotient = int(math.copysign(abs(a) // abs(b), a * b)) if a else 0
    assert condition("a / b = @q AND a % b = @r", {"@q": quotient, "@r": a - quotient * b})(properties)
