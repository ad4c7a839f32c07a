"""What tables say of how sure their numbers are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import mdsd_opt as mo
from mdsd_opt.base.frames import Table
from mdsd_opt.bench import BenchReport, Record
from mdsd_opt.cli.output import rich_table, that_fit
from mdsd_opt.cli.verbs.decode import compared_view
from mdsd_opt.corpora import RateRow, rates_table
from mdsd_opt.corpora import rates_conclusion as conclusion
from mdsd_opt.data import sample_logits_path
from mdsd_opt.decoding import ComparedRule, Metrics
from mdsd_opt.evidence import MeanInterval


def shown(table: Table) -> str:
    console = Console(width=240)
    with console.capture() as captured:
        console.print(rich_table(table))
    return f"{captured.get()}\n{table.caption}"


def row(verifier: str, half_width: float, scheme: str = "without_replacement") -> RateRow:
    rate = MeanInterval(0.5, 0.5 - half_width, 0.5 + half_width, 9)
    return RateRow(scheme, 3, verifier, rate)


def test_a_single_group_has_no_interval() -> None:
    alone = shown(rates_table([row("optimal", np.nan)], ""))
    assert "no interval: one group alone" in alone


def test_the_options_of_an_advice_have_room_on_a_terminal_with_their_speed() -> None:
    costs: Any = {"target_ms": 20.0, "draft_ms": 2.0}
    sides = (np.load(sample_logits_path())[name][:4] for name in ("target", "draft"))
    by_logits = mo.advise(*sides, **costs).tables()[0]
    assert "planned16/4" in [cells[1] for cells in by_logits.cells()]
    counted = mo.advise_from_counts(by_position=[720, 500, 340], steps=1000, **costs)
    for part in (by_logits, counted.tables()[0]):
        assert "speed-up" in that_fit(part, 80).headings
        assert that_fit(part, 100).headings == part.headings


def test_simulated_rates_are_marked() -> None:
    simulated, exact = row("rrs", 0.01), row("rrs", 0.01, "with_replacement")
    assert simulated.estimated
    assert simulated.to_dict()["estimated"] is True
    assert exact.to_dict()["estimated"] is False
    assert "‡ simulated" in shown(rates_table([simulated], ""))
    assert "‡" not in shown(rates_table([exact], ""))


def test_a_table_ends_with_what_to_take() -> None:
    rows = [
        RateRow(scheme, k, verifier, MeanInterval(mean + k / 100, 0.0, 1.0, 9))
        for scheme, verifier, mean in (
            ("with_replacement", "optimal", 0.8),
            ("without_replacement", "optimal", 0.85),
            ("without_replacement", "rrs", 0.7),
        )
        for k in (1, 4, 8)
    ]
    assert conclusion(rows) == (
        "take K = 8 (without replacement, 'optimal'): the last K that adds 0.01 or more to the K "
        "before, and the largest asked for (0.860 at K = 1, +0.030 at 4, +0.040 at 8); 'rrs' "
        "gives away 0.150 there"
    )
    assert conclusion(rows[:1]) == "K = 1 (with replacement, 'optimal') accepts 0.810"


def test_drafts_that_gain_next_to_nothing_are_not_taken() -> None:
    rows = [
        RateRow("greedy", k, "optimal", MeanInterval(mean, 0.0, 1.0, 9))
        for k, mean in ((1, 0.5), (2, 0.7), (3, 0.709), (4, 0.7195), (5, 0.72), (6, 0.72))
    ]
    assert conclusion(rows) == (
        "take K = 4 (greedy, 'optimal'): the last K that adds 0.01 or more to the K before "
        "(0.500 at K = 1, +0.200 at 2, +0.009 at 3, +0.011 at 4)"
    )
    assert conclusion(rows[3:]) == (
        "take K = 4 (greedy, 'optimal'): no further K adds 0.01 to the K before (0.720 at K = 4)"
    )
    equal = [
        RateRow("greedy", 1, name, MeanInterval(mean, 0.0, 1.0, 9))
        for name, mean in (("optimal", 0.6), ("rrs", 0.6 + 1e-15))
    ]
    assert conclusion(equal) == "K = 1 (greedy, 'optimal') accepts 0.600"
    never = [RateRow("greedy", k, "optimal", MeanInterval(0.0, 0.0, 0.0, 9)) for k in (1, 2)]
    assert conclusion(never) == "take no drafts: none is ever accepted, up to K = 2"


def test_empty_cells_are_explained() -> None:
    both = [row("optimal", 0.01), row("greedy", 0.01, "greedy")]
    assert "empty: no such verifier" in shown(rates_table(both, ""))
    assert "empty" not in shown(rates_table(both[:1], ""))


@pytest.mark.parametrize("width", [30, 50, 60, 80, 120, 400])
def test_what_has_no_room_is_dropped_from_the_right(width: int) -> None:
    verifiers = [name for name in mo.verifiers.names() if name != "lp"]
    rows = [
        RateRow(scheme, k, verifier, MeanInterval(0.1 + 0.01 * i + 0.001 * k, 0.1, 0.2, 9))
        for scheme in ("with_replacement", "top_k")
        for i, verifier in enumerate(verifiers)
        for k in (1, 2, 3)
        if scheme == "top_k" or i < 4
    ]
    whole = rates_table(rows, "title")
    assert whole.headings[2:5] == ["optimal", "rrs", "kseq"]
    assert whole.headings.index("naive target") > len(verifiers)
    shown = that_fit(whole, width)
    assert shown.headings == whole.headings[: len(shown.headings)]
    console = Console(width=width)
    with console.capture() as captured:
        console.print(rich_table(shown))
    assert "…" not in captured.get()
    more = replace(whole, columns=whole.columns[: len(shown.columns) + 1])
    wide = Console(width=400)
    with wide.capture() as captured:
        wide.print(rich_table(more))
    needed = max(map(len, captured.get().splitlines()))
    assert needed > width or len(more.columns) == len(shown.columns)


def test_benchmarks_say_what_kind_of_gap_they_show() -> None:
    record = Record(
        "b", "r", "p", 10, 2, "float64", 1, 0, 3, 1.0, 1.0, gap=1e-9, gap_kind="certificate"
    )
    report = BenchReport((record,), {})
    (table,) = report.tables()
    assert "certificate" in shown(table)
    assert report.conclusion() == [
        "b: at V = 10, r takes 1 ms; largest gap of all 1e-09 (certificate, r)"
    ]
    other = replace(record, problem="hard", median_ms=0.5)
    assert (
        BenchReport((record, other), {})
        .conclusion()[0]
        .startswith("b: at V = 10, on hard, K = 2, r takes 0.5 ms;")
    )


def test_rules_are_compared_with_intervals() -> None:
    """Two prompts, half and all of the steps with an accepted draft."""
    metrics = [Metrics(num_steps=10, num_tokens=20, num_hits=5 * n) for n in (1, 2)]
    rows = [ComparedRule("optimal", metrics)]
    # 0.75 ± 3.1766 by t on one degree of freedom, and no rate is outside of [0, 1]
    view = compared_view(rows, 2, False)
    assert "0.7500 [0.00, 1.00]" in shown(view.all_tables[0])
    (found,) = view.document.to_dict()["rows"]
    assert found["acceptance_rate"]["mean"] == 0.75
    assert found["acceptance_rate"]["high"] == 1.0
