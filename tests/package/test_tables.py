"""What public functions return tells itself in tables, in every form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt import bench, cddlib_checks, corpora, decoding, trees
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Table, flat
from mdsd_opt.base.logits import Logits

RNG = np.random.default_rng(0)
TARGET = 2.0 * RNG.standard_normal((3, 4, 6))
DRAFT = TARGET + RNG.standard_normal(TARGET.shape)
PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
COSTS: Any = {"target_ms": 20.0, "draft_ms": 2.0}

RESULTS: dict[str, Any] = {
    "advise": lambda: mo.advise(TARGET, DRAFT, max_drafts=3, rows_ms={1: 20, 64: 30}, **COSTS),
    "advise_from_counts": lambda: mo.advise_from_counts(by_position=([7, 5], 10), **COSTS),
    "compare_draft_schemes": lambda: mo.compare_draft_schemes(TARGET, DRAFT, 2, inclusion=True),
    "best_draft_filter": lambda: mo.best_draft_filter(
        TARGET, DRAFT, 2, filters=[mo.Sampling(top_k=2)], temperatures=[0.9]
    ),
    "compare_drafts": lambda: mo.compare_drafts(TARGET, {"a": DRAFT, "b": TARGET}, 2, **COSTS),
    "rate_rows": lambda: corpora.rate_rows(
        LogitsSample.of(Logits(TARGET, DRAFT)), ["with_replacement"], [1, 2], ["optimal", "rrs"]
    ),
    "solve": lambda: mo.solve(PROBLEM),
    "plan_tree": lambda: trees.plan_tree(decoding.place_rates(TARGET, DRAFT, 3), 4),
    "check": lambda: cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2),
    "bench": lambda: bench.run(["decisions"], quick=True, rounds=1, vocab_sizes=[16]),
    "audit": lambda: mo.audit("rrs", PROBLEM, rng=0, num_trials=300),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_tables_in_every_form(name: str) -> None:
    tables = RESULTS[name]().tables()
    assert tables
    for table in tables:
        assert isinstance(table, Table)
        records = json.loads(json.dumps(table.records(), allow_nan=False))
        assert len(records) == len(table.rows) == len(table.cells())
        assert all([*record] == [column.key for column in table.columns] for record in records)
        assert len(table.csv().splitlines()) >= 1 + len(records)
        assert all(key.count(".") < 2 for key in flat(records[0]))  # a cell is no whole row
        assert table.markdown().count("\n|") == 2 + len(records)
        for line in table.caption.splitlines():
            assert line in table.markdown()
            assert line in table.latex()
        assert table.latex().count(r"\\") >= 1 + len(records)
        lines = str(table).splitlines()
        title, caption = len(table.title.splitlines()), len(table.caption.splitlines())
        assert len(lines) == title + 1 + len(table.first().rows) + caption


def test_titles_keep_names_of_files_and_cells_what_they_say() -> None:
    table = Table.of("run.npz: 6\n\npositions", ("claim", "gap"), [("p0 >= q0", "0e+00")])
    assert table.markdown().startswith("run.npz: 6; positions\n")
    assert r"\caption{run.npz: 6; positions.}" in table.latex()
    assert r"\caption{a|b.log.}" in Table.of("a|b.log", ("name",), [("a",)]).latex()
    assert r"\caption{Claims.}" in Table.of("claims", ("name",), [("a",)]).latex()
    assert f"p0  {99 * 'x'}" in str(
        Table.of("", ("claim", "value"), [("p0", 99 * "x")], ("value",))
    )
    assert r"p0 $\ge$ q0 & $0$ \\" in table.latex()
