"""Every public result is tables, in every form: all that public functions say that they return."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from support.documents import json_schemas
from support.faces import public_functions

import mdsd_opt as mo
from mdsd_opt import bench, cddlib_checks, corpora, decoding
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Table, flat
from mdsd_opt.base.logits import Logits

#: What functions return to go on with, beside what others of them take.
NO_RESULTS = {
    "Answer": "a text that is audited",
    "Corpus": "shards that are read",
    "Engine": "functions that are audited",
    "Format": "a way to read",
    "KernelUse": "a profile of kernels",
    "Manifest": "what a folder of shards says of itself",
    "Method": "a way to solve",
    "PublishedRule": "a line of a page",
    "ScoredTree": "tensors of an engine",
    "Serving": "a context to audit in",
    "Trace": "steps that are audited",
    "TransportLP": "a programme to solve",
}


def classes(hint: Any) -> Iterator[type]:
    """Our classes in an annotation."""
    for part in get_args(hint) or [hint]:
        if get_args(part):
            yield from classes(part)
        elif inspect.isclass(part) and part.__module__.startswith("mdsd_opt."):
            yield part


@cache
def declared() -> tuple[set[type], set[type]]:
    """Classes of what public functions return, and of what they take."""
    given: set[type] = set()
    taken: set[type] = set()
    for function in map(inspect.unwrap, public_functions().values()):
        known = json_schemas.names_of(function.__module__)
        for parameter, words in function.__annotations__.items():
            hint = eval(words, known) if isinstance(words, str) else words
            (given if parameter == "return" else taken).update(classes(hint))
    return given, taken


def test_every_result_of_a_public_function_has_tables() -> None:
    given, taken = declared()
    assert len(given) > 40
    without = {x.__name__ for x in given - taken if not hasattr(x, "tables")}
    assert without == {x.__name__ for x in given} & {*NO_RESULTS}, "derive it from frames.Result"


PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
TARGET = 2.0 * np.random.default_rng(0).standard_normal((2, 3, 5))
DRAFT = TARGET + np.random.default_rng(1).standard_normal(TARGET.shape)
COSTS = {"target_ms": 20.0, "draft_ms": 2.0}
RESULTS: list[Callable[[], Any]] = [
    lambda: mo.solve(PROBLEM),
    lambda: mo.certify(PROBLEM, mo.solve(PROBLEM), exact=True),
    lambda: mo.relax(PROBLEM, kl=0.01),
    lambda: mo.worst_case("rrs", 2),
    lambda: mo.worst_case("level_sequential", 2, levels=2),
    lambda: mo.acceptance_interval({1: -0.5, 2: -2.0}, {1: -0.7, 3: -2.0}, 2, vocab_size=9),
    lambda: mo.accepted_rates([1, 0, 2], 2, 3)[0],
    lambda: mo.advise(TARGET, DRAFT, max_drafts=3, rows_ms={1: 20, 64: 30}, **COSTS),
    lambda: mo.advise_from_counts(by_position=([7, 5], 10), **COSTS),
    lambda: mo.allocate_rows([[0.5, 0.7], [0.3, 0.4]], 3),
    lambda: mo.audit("rrs", PROBLEM, num_trials=200),
    lambda: mo.compare_draft_schemes(TARGET, DRAFT, 2, inclusion=True),
    lambda: mo.best_draft_filter(TARGET, DRAFT, 2, filters=[mo.Sampling(top_k=2)]),
    lambda: corpora.rate_rows(
        LogitsSample.of(Logits(TARGET, DRAFT)), ["with_replacement"], [1, 2], ["optimal", "rrs"]
    ),
    lambda: mo.compare_drafts(TARGET, {"a": DRAFT, "b": TARGET}, 2, **COSTS),
    lambda: mo.best_draft_temperature(TARGET[0, 0], DRAFT[0, 0], 2),
    lambda: decoding.plan_tree(decoding.initial_rates(2), 4),
    lambda: decoding.value_bound(PROBLEM.target, PROBLEM.target, [2.0, 1.0]),
    lambda: decoding.Generation((1, 2), decoding.Metrics(2, 2), "length"),
    lambda: cddlib_checks.prove_laws("p0 >= q0**3", 2),
    lambda: cddlib_checks.search_laws(lambda p, q: p[0] - q[0], 2, trials=20),
    lambda: cddlib_checks.conjectures()["acceptance_one"],
    lambda: cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2),
    lambda: bench.run(["solvers"], methods=["full_lp"], vocab_sizes=(4,), quick=True, rounds=1),
]


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_tables_have_every_form(number: int) -> None:
    result = RESULTS[number]()
    assert type(result) in declared()[0] or isinstance(result, list)  # rows of rates
    tables = result.tables()
    assert tables
    for table in tables:
        assert type(table) is Table
        records = json.loads(json.dumps(table.records(), allow_nan=False))
        assert len(records) == len(table.rows) == len(table.cells()) > 0
        assert all([*record] == [column.key for column in table.columns] for record in records)
        assert len(table.csv().splitlines()) >= 1 + len(records)
        assert all(key.count(".") < 2 for key in flat(records[0]))  # a cell is no whole row
        assert table.markdown().count("\n|") == 2 + len(records)
        assert "tabular" in table.latex()
        assert table.latex().count(r"\\") >= 1 + len(records)
        for line in table.caption.splitlines():
            assert line in table.markdown()
            assert line in table.latex()
        title, caption = len(table.title.splitlines()), len(table.caption.splitlines())
        assert len(str(table).splitlines()) == title + 1 + len(table.first().rows) + caption


def test_titles_keep_names_of_files_and_cells_what_they_say() -> None:
    table = Table.of("run.npz: 6\n\npositions", ("claim", "gap"), [("p0 >= q0", "0e+00")])
    assert table.markdown().startswith("run.npz: 6; positions\n")
    assert r"\caption{run.npz: 6; positions.}" in table.latex()
    assert r"\caption{a|b.log.}" in Table.of("a|b.log", ("name",), [("a",)]).latex()
    assert r"\caption{Claims.}" in Table.of("claims", ("name",), [("a",)]).latex()
    cut = Table.of("", ("claim", "value"), [("p0", 99 * "x")], ("value",))
    assert f"p0  {99 * 'x'}" in str(cut)
    assert r"p0 $\ge$ q0 & $0$ \\" in table.latex()
