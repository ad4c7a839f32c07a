"""Sentences and lines of reports: one table, whose names are those of the reports' fields."""

from dataclasses import dataclass, fields, replace
from string import Formatter
from typing import ClassVar

import pytest

from mdsd_opt.auditing import (
    AuditReport,
    EngineAudit,
    PortfolioReport,
    TextAuditReport,
    TreeAuditReport,
)
from mdsd_opt.base.frames import Column, If, told
from mdsd_opt.evidence import FACTS, PARTS, Violation
from mdsd_opt.evidence.sentences import SENTENCES
from mdsd_opt.servers import BetsOutcome, ServerReport

_CLASSES = (
    AuditReport, TreeAuditReport, TextAuditReport, PortfolioReport, ServerReport, EngineAudit
)  # fmt: skip
KINDS = {kind.kind: kind for kind in _CLASSES}

#: Kinds that say of every class what all kinds say.
_AS_ALL = ("single", "trees", "texts")


@dataclass(frozen=True)
class Dish:
    name: str
    grams: float | None = None
    spices: tuple[str, ...] = ()
    cook: "Dish | None" = None

    parts: ClassVar = {
        "heavy": lambda dish: dish.grams > 100,
        "weight": If("grams", If("heavy", "HEAVY, {mass}", "{mass}"), "unknown"),
        "mass": "{grams:.1f} g",
    }


def _names(words):
    """Names of fields and parts in words, also in their conditions, and in the parts they need."""
    if isinstance(words, If):
        test = {words.condition.split(".")[0]} if isinstance(words.condition, str) else set()
        names = test | _names(words.then) | _names(words.otherwise)
    elif isinstance(words, str):
        found = [name for _, name, _, _ in Formatter().parse(words) if name]
        names = {name.split(".")[0].split("[")[0] for name in found} - {"0", "1"}
    else:
        return set()
    return names.union(*(_names(PARTS.get(name)) for name in names))


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_in_the_words_of_a_kind_is_a_part_or_a_field(kind):
    sentences = [
        said for (_, *of), said in SENTENCES.items()
        if of[:1] == [kind] or (not of and kind in _AS_ALL)
    ]  # fmt: skip
    lines = [words for fact in FACTS[kind] for words in (fact.heading, fact.shown)]
    known = {*(field.name for field in fields(KINDS[kind])), *dir(KINDS[kind])}
    names = {name for said in (*sentences, *lines) for name in _names(said)}
    assert sentences
    assert names <= known | PARTS.keys()
    assert {fact.key.split(".")[0] for fact in FACTS[kind]} <= known


def test_words_are_chosen_by_fields_and_parts():
    assert told("{name}: {weight}", Dish("soup")) == "soup: unknown"
    assert told("{name}: {weight}", Dish("soup", 50.0)) == "soup: 50.0 g"
    assert told("{name}: {weight}, {0}{1}", Dish("soup", 500.0), 1, "!") == (
        "soup: HEAVY, 500.0 g, 1!"
    )


def test_a_value_with_braces_is_no_format():
    assert told("{name} and {0}", Dish("{grams}"), "{1}") == "{grams} and {1}"


def test_a_column_has_a_line_for_each_value_and_none_without_one():
    dish = Dish("soup", 0.0, ("salt", "", "dill"), Dish("Ann"))
    assert [*Column("grams").lines(dish)] == [("grams", "0.0")]
    assert [*Column("spices", "spice {1} ({0})").lines(dish)] == [
        ("spice 1 (salt)", "salt"),
        ("spice 3 (dill)", "dill"),
    ]
    assert [*Column("cook.name").lines(dish)] == [("cook.name", "Ann")]
    assert [*Column("cook.name").lines(dish.cook)] == []
    assert [*Column("", "length", "{0} letters of {name}", of=lambda x: len(x.name)).lines(dish)]


def _server(**own):
    bets = BetsOutcome(tokens=10)
    return ServerReport(
        verdict_class="no deviation", method="sampling", false_alarm=1e-6, power=0.99,
        tolerance=0.01, detectable_bias=0.02, later=bets, first=bets, control=bets, **own
    )  # fmt: skip


def test_times_are_left_out_where_reports_are_compared():
    assert _server(seconds=10.0) == _server(seconds=20.0)
    assert _server(seconds=10.0) != _server(seconds=10.0, requests=3)
    timed = [
        (kind.__name__, field.name) for kind in _CLASSES for field in fields(kind)
        if not field.compare
    ]  # fmt: skip
    assert {name for _, name in timed} == {"seconds"}
    assert len(timed) == 4


def test_a_finding_that_has_no_sentence_is_an_error():
    with pytest.raises(StopIteration):
        replace(_server(), finding="no such finding").verdict  # noqa: B018


def test_messages_are_told_letter_for_letter():
    wrong = Violation("out of vocabulary", (), "{token} 7 of {0}")
    report = AuditReport(
        verdict_class="lossy", method="sampling", false_alarm=1e-6, power=0.99, num_violations=1,
        violations=(wrong,), subject="verifier",
    )  # fmt: skip
    assert report.verdict == "NOT LOSSLESS: 1 impossible outcomes, e.g. {token} 7 of {0}."
    assert ("out of vocabulary", "{token} 7 of {0}") in report.rows()


def test_rows_are_a_table():
    report = _server()
    (table,) = report.tables()
    answer = ("answer", report.answer())
    assert [tuple(line.values()) for line in table.records()] == [answer, *report.rows()]
    assert report.verdict in table.markdown()
