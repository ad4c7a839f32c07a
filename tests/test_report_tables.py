"""What tables say of how sure their numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mdsd_opt.bench.record import Record, Report
from mdsd_opt.decoding.comparison import ComparedRule
from mdsd_opt.decoding.generation import Metrics
from mdsd_opt.report.bench_tables import records_table
from mdsd_opt.report.decoding import compared_document, compared_table
from mdsd_opt.report.intervals import MeanInterval
from mdsd_opt.report.rates import RateRow
from mdsd_opt.report.tables import rates_table


def shown(table: Any) -> str:
    console = Console(width=240)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def row(verifier: str, half_width: float, scheme: str = "without_replacement") -> RateRow:
    rate = MeanInterval(0.5, 0.5 - half_width, 0.5 + half_width, 9)
    return RateRow(scheme, 3, verifier, rate)


def test_a_narrow_table_says_how_wide_its_intervals_are() -> None:
    rows = [row("optimal", 0.01), row("rrs", 0.0213)]
    wide, narrow = (shown(rates_table(rows, "", intervals)) for intervals in (True, False))
    assert "0.5000 ± 0.0213" in wide
    assert "±" in narrow
    assert "up to ± 0.0213" in narrow
    assert "up to" not in wide


def test_a_single_group_has_no_interval() -> None:
    alone = shown(rates_table([row("optimal", np.nan)], ""))
    assert "no interval where none is shown" in alone


@pytest.mark.parametrize("intervals", [True, False])
def test_simulated_rates_are_marked(intervals: bool) -> None:
    simulated, exact = row("rrs", 0.01), row("rrs", 0.01, "with_replacement")
    assert simulated.estimated
    assert simulated.to_dict()["estimated"] is True
    assert exact.to_dict()["estimated"] is False
    assert "‡ estimated by simulation" in shown(rates_table([simulated], "", intervals))
    assert "‡" not in shown(rates_table([exact], "", intervals))


def test_benchmarks_say_what_kind_of_gap_they_show() -> None:
    record = Record(
        "b", "r", "p", 10, 2, "float64", 1, 0, 3, 1.0, 1.0, gap=1e-9, gap_kind="certificate"
    )
    assert "certificate" in shown(records_table(Report((record,), {})))


def test_rules_are_compared_with_intervals() -> None:
    """Two prompts, half and all of the steps with an accepted draft."""
    metrics = [Metrics(num_steps=10, num_tokens=20, num_hits=5 * n) for n in (1, 2)]
    rows = [ComparedRule("optimal", metrics)]
    assert "0.7500 ± 3.1766" in shown(compared_table(rows, 2, False))  # t on one degree of freedom
    (found,) = compared_document(rows, 2, False)["rows"]
    assert found["acceptance_rate"]["mean"] == 0.75
    assert found["acceptance_rate"]["high"] > 0.75
