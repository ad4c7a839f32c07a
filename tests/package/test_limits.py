"""Absurd sizes are refused at once, in one clear line; large but sensible ones still work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.few_lines import few_lines

import mdsd_opt as mo
from mdsd_opt.bench import methods
from mdsd_opt.decoding import k_ary, parse_topology
from mdsd_opt.drafts import count_power, product_form
from mdsd_opt.drafts.support_law import COUNTLESS, count_arrangements, count_choices, count_subsets
from mdsd_opt.errors import InvalidInput, MdsdError, ProblemTooLarge
from mdsd_opt.solvers import solving as registry
from mdsd_opt.solvers import stages_in_reach, truncated_lp
from mdsd_opt.trees import tree_optimum
from mdsd_opt.verifiers import gumbel, rrs

MILLION = 10**6

#: Lines of the package within which a refusal must come: a few for each of a million drafts.
PATIENCE = 3 * MILLION


def law(vocab_size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).dirichlet(np.ones(vocab_size))


def replaced(vocab_size: int, num_drafts: int) -> mo.WithReplacement:
    return mo.WithReplacement(law(vocab_size), num_drafts)


def distinct(vocab_size: int, num_drafts: int) -> mo.WithoutReplacement:
    return mo.WithoutReplacement(law(vocab_size), num_drafts)


def different(vocab_size: int, num_drafts: int) -> mo.IndependentDrafts:
    return mo.IndependentDrafts([law(vocab_size, seed) for seed in range(num_drafts)])


def problem(drafts: Any) -> mo.TransportProblem:
    return mo.TransportProblem(law(drafts.vocab_size, 99), drafts)


def solved(drafts: Any, method: str, **options: Any) -> Callable[[], Any]:
    return lambda: mo.solve(problem(drafts), method, **options)


def verified(name: str, drafts: Any, exact: bool = False) -> Callable[[], Any]:
    def law_given_drafts() -> Any:
        drawn = drafts.sample(np.random.default_rng(0))
        return mo.verifiers.get(name).conditional_law(problem(drafts), drawn, exact=exact)

    return law_given_drafts


def rated(name: str, drafts: Any, **options: Any) -> Callable[[], Any]:
    return lambda: mo.verifiers.get(name, **options).acceptance_rate(problem(drafts))


def listed(drafts: Any, what: str) -> Callable[[], Any]:
    return lambda: getattr(drafts.law("exact" in what), what.split()[-1])()


LOGITS = np.zeros((1, 3))
WIDE = problem(replaced(MILLION, 2))
FEW = np.arange(3000) > 9

LISTS = ("support_law", "exact support_law", "tuple_law", "exact tuple_law")

TOO_LARGE: dict[str, Callable[[], Any]] = {
    **{
        f"{method}, V = {v}, K = {k}, {make.__name__}": solved(make(v, k), method)
        for method in ("full_lp", "dual_lp", "max_flow")
        for v, k, make in [
            (3, MILLION, replaced), (2, 2000, replaced), (5000, MILLION, replaced),
            (22, 19, distinct), (5000, 2500, distinct), (5, 17, different), (3, 40, different),
        ]
    },
    "full_lp, tuples": solved(replaced(3, MILLION), "full_lp", formulation="tuples"),
    **{
        f"{what}, {drafts!r}": listed(drafts, what)
        for what in LISTS
        for drafts in (
            replaced(50, MILLION), replaced(30, 15), distinct(50, 25), different(50, 25),
            mo.MixtureDrafts([(0.5, different(30, 15)), (0.5, replaced(30, 15))]),
            mo.FixedPlusDrafts([0, 1], different(50, 25)),
        )
    },
    "tuples of a whole support": listed(distinct(15, 25), "tuple_law"),
    "exact optimum": lambda: mo.solvers.exact_optimum(problem(replaced(50, MILLION))),
    "exact certificate": lambda: mo.certify(
        problem(replaced(50, MILLION)), mo.solve(problem(replaced(50, MILLION))), exact=True
    ),
    "exact containment": lambda: replaced(50, MILLION).law(True).containment(np.arange(50) < 20),
    "output law": lambda: mo.verifiers.get("rrs").output_law(problem(replaced(50, MILLION))),
    "lp": rated("lp", replaced(3, MILLION)),
    "rrs": rated("rrs", replaced(5000, MILLION)),
    "rrs without replacement": rated("rrs", distinct(5000, 2500)),
    "importance_sampling": rated("importance_sampling", replaced(50, MILLION)),
    "importance_sampling, size": rated("importance_sampling", replaced(5000, 2), size=5000),
    "gumbel": rated("gumbel", replaced(5000, MILLION)),
    "gumbel given drafts": verified("gumbel", replaced(50, 1000)),
    "kseq exact": verified("kseq", replaced(50, MILLION // 10), exact=True),
    "optimal exact": verified("optimal", replaced(50, MILLION // 10), exact=True),
    "potentials": rated(
        "optimal", mo.MixtureDrafts([(0.5, replaced(50, MILLION)), (0.5, different(50, 2))])
    ),
    "potentials of sets": rated(
        "optimal", mo.MixtureDrafts([(0.5, distinct(50, 25)), (0.5, different(50, 2))])
    ),
    "tree optimum": lambda: tree_optimum(lambda w: law(5000), lambda w: law(5000), k_ary(2, 3)),
    "tree optimum, drafts": lambda: tree_optimum(lambda w: law(2), lambda w: law(2), k_ary(99, 1)),
    "audit": lambda: mo.audit("rrs", problem(replaced(8, MILLION)), 0, 1000),
    "audit, probes of edges": lambda: mo.audit("rrs", problem(replaced(3, MILLION)), 0, 100),
    "sample": lambda: replaced(3, 2 * 10**9).sample(np.random.default_rng(0)),
    "rrs in a batch": lambda: mo.acceptance_rates(LOGITS, LOGITS, MILLION, verifier="rrs"),
    "rrs, two thousand million": rated("rrs", replaced(3, 2 * 10**9)),
    "importance_sampling in a batch": lambda: mo.acceptance_rates(
        LOGITS, LOGITS, MILLION, verifier="importance_sampling"
    ),
    "exact certificate of many tokens": lambda: mo.certify(WIDE, mo.solve(WIDE), exact=True),
    "exact optimum of many tokens": lambda: mo.solvers.exact_optimum(WIDE),
    "exact, without replacement": lambda: distinct(3000, 2).law(True).containment(FEW),
    "tuples of one token": listed(distinct(1, 2 * 10**9), "exact tuple_law"),
    "comparison": lambda: mo.compare_draft_schemes(np.zeros((1, 9)), np.zeros((1, 9)), MILLION),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_would_never_end_is_refused_at_once(name: str) -> None:
    with few_lines(PATIENCE), pytest.raises(ProblemTooLarge) as refusal:
        TOO_LARGE[name]()
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    "make",
    [
        lambda k: mo.WithReplacement([0.5, 0.5], k),
        lambda k: mo.WithoutReplacement([0.5, 0.5], k),
        lambda k: mo.GreedyDrafts([0.5, 0.5], k),
        lambda k: mo.TopKDrafts([0.5, 0.5], k),
        lambda k: mo.acceptance_rates(np.zeros((1, 3)), np.zeros((1, 3)), num_drafts=k),
    ],
)
@pytest.mark.parametrize("num_drafts", [2**31, 10**30, 10**5000], ids=["2^31", "10^30", "10^5000"])
def test_more_drafts_than_integers_hold_are_an_error(make: Any, num_drafts: int) -> None:
    with pytest.raises(InvalidInput, match="at most 2,147,483,647"):
        make(num_drafts)


@pytest.mark.parametrize("text", ["9999x9999", "chain9999", "1x9999", "chain1000000", "2x17"])
def test_absurd_trees_are_an_error(text: str) -> None:
    with few_lines(1000), pytest.raises(InvalidInput):
        parse_topology(text)


def test_a_million_drafts_with_replacement_still_work() -> None:
    drafts = replaced(1000, MILLION)
    solution = mo.solve(problem(drafts))
    assert mo.certify(problem(drafts), solution).valid
    assert mo.solve(problem(drafts), "submodular").acceptance_rate == pytest.approx(
        solution.acceptance_rate, abs=1e-9
    )
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 300)), rng.standard_normal((2, 300))
    rates = mo.acceptance_rates(*logits, num_drafts=MILLION)
    for row, rate in enumerate(rates):
        one = mo.TransportProblem.from_logits(logits[0][row], logits[1][row], MILLION)
        assert rate == pytest.approx(mo.solve(one).acceptance_rate, abs=1e-9)  # K ulps of q(H)
    verifier = mo.verifiers.get("optimal")
    drawn = drafts.sample(rng)
    with few_lines(9 * MILLION):  # some for each draft
        assert 0 <= verifier.verify(problem(drafts), drawn, rng).token < 1000


@pytest.mark.parametrize("num_drafts", [MILLION, 2 * 10**9])
@pytest.mark.parametrize("vocab_size", [1, 3])
def test_any_number_of_drafts_is_solved_by_what_lists_nothing(
    vocab_size: int, num_drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is above the others' limits is told; stages are as many as are foretold to be few."""
    monkeypatch.setattr(truncated_lp, "_SECONDS", 0.1)
    drafted = problem(replaced(vocab_size, num_drafts))
    best = mo.solve(drafted).acceptance_rate
    for method in ("full_lp", "dual_lp", "max_flow", "submodular"):
        with suppress(ProblemTooLarge):
            assert mo.solve(drafted, method).acceptance_rate == pytest.approx(best, abs=1e-9)
    solution = mo.solve(drafted, "truncated_lp")
    assert solution.acceptance_rate <= best + 1e-9
    assert solution.stats["stages"] == stages_in_reach(vocab_size, 5) < 200
    assert f"{num_drafts - 1 - solution.stats['stages']:,} of {num_drafts:,}" in solution.message
    assert mo.certify(drafted, solution).valid


def test_stages_go_as_far_as_they_are_foretold_to_take_seconds() -> None:
    for vocab_size, size in ((3, 3), (50, 50), (100_000, 5)):
        stages = min(stages_in_reach(vocab_size, size), 30)
        drafted = problem(replaced(vocab_size, stages + 1))
        solution = mo.solve(drafted, "truncated_lp", size=size)
        assert solution.stats["stages"] == stages
        assert "not used" not in solution.message
    assert stages_in_reach(MILLION, MILLION) == 0


def test_rows_of_a_table_that_are_not_used_say_why(
    tmp_path: Any, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncated_lp, "_SECONDS", 0.1)
    path = tmp_path / "big.json"
    mo.save_problem(problem(replaced(3, MILLION)), path)
    rows = run_cli.document("solve", path)["methods"]
    refused = {row["method"]: row["refused"] for row in rows if "refused" in row}
    assert {*refused} >= {"full_lp", "dual_lp", "max_flow"}
    assert not {*refused} & {"subset_selection", "submodular", "truncated_lp"}
    assert all("takes 500,001,500,001 terms" in told for told in refused.values())
    assert all(row["valid"] for row in rows if "refused" not in row)


def test_no_row_takes_longer_than_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it takes less than ten seconds; a limit that is given is each method's."""
    given: list[float] = []
    clock = iter(range(0, 10**6, 100))

    def slow(problem: mo.TransportProblem, *, time_limit: float) -> Any:
        given.append(time_limit)
        raise InvalidInput("slow")

    monkeypatch.setattr(methods, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    for name in ("slow", "slower"):
        monkeypatch.setitem(
            registry.METHODS.registered, name, mo.solvers.Method(solve=slow, name=name)
        )
    small = problem(replaced(3, 2))
    methods.method_rows(small, ["slow", "slower"])
    methods.method_rows(small, ["slow", "slower"], time_limit=3.0)
    assert given == [100, 100, 200, 200, 3.0, 3.0, 3.0, 3.0]  # on a small problem first


def test_estimates_take_fewer_samples_where_each_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some seconds of them; each has its standard error, whatever their number."""
    drawn: dict[str, list[int]] = {"rrs": [], "gumbel": []}

    def estimated(*given: Any) -> Any:
        drawn["rrs"].append(given[4])
        return [0.5] * len(given[3]), [0.1] * len(given[3])

    def simulate(self: Any, problem: Any, rng: Any, size: int) -> Any:
        drawn["gumbel"].append(size)
        return np.zeros((size, 2), dtype=int), np.zeros(size, dtype=int)

    monkeypatch.setattr(rrs, "estimated_rates", estimated)
    monkeypatch.setattr(gumbel.GumbelList, "simulate", simulate)
    for num_drafts in (8, 64, 250, 1000):
        mo.verifiers.get("rrs").acceptance_rate(problem(distinct(1200, num_drafts)))
    for vocab_size, num_drafts in ((100, 4), (50_000, 4), (3, MILLION)):
        mo.verifiers.get("gumbel").acceptance_rate(problem(replaced(vocab_size, num_drafts)))
    assert drawn == {"rrs": [2000, 2000, 960, 60], "gumbel": [2000, 1342, 89]}


def test_an_audit_of_a_thousand_drafts_ends() -> None:
    report = mo.audit("optimal", problem(replaced(8, 1000)), 0, 20, edge_probes=4)
    assert report.num_violations == 0


@pytest.mark.parametrize("num_drafts", [65, 100, 1000])
def test_slopes_of_high_powers_against_fractions(num_drafts: int) -> None:
    q = [Fraction(n) for n in (0, 1, 2, 2, 40, 955)]
    q = [x / sum(q) for x in q]
    order = np.array([1, 0, 4, 3, 2, 5])
    drafts = mo.WithReplacement(q, num_drafts)
    inside = Fraction(0)
    for i, slope in zip(order, drafts.prefix_slopes(order), strict=True):
        after = inside + q[i]
        exact = (
            (after**num_drafts - inside**num_drafts) / q[i]
            if q[i]
            else num_drafts * inside ** (num_drafts - 1)
        )
        assert slope == pytest.approx(float(exact), rel=1e-11, abs=1e-300)
        inside = after


@pytest.mark.parametrize("num_drafts", [2, 17, 300])
def test_identical_models_are_one_coordinate(num_drafts: int) -> None:
    q = law(5)
    drafts = mo.IndependentDrafts([q.copy() for _ in range(num_drafts)])
    for exact in (False, True):
        form = product_form(drafts.law(exact))
        assert form is not None
        assert form.powers.tolist() == [[num_drafts]]
    with few_lines(PATIENCE):
        solution = mo.solve(problem(drafts), "submodular")
        certificate = mo.certify(problem(drafts), solution, exact=num_drafts < 300)
    assert certificate.valid
    assert solution.acceptance_rate == pytest.approx(
        mo.solve(problem(mo.WithReplacement(q, num_drafts))).acceptance_rate, abs=1e-9
    )


def test_seventeen_different_models_are_solved() -> None:
    with few_lines(PATIENCE):
        solution = mo.solve(problem(different(5, 17)), "submodular")
    assert solution.status is mo.Status.OPTIMAL


def test_slopes_along_chains_are_differences_of_the_polynomial() -> None:
    drafts = mo.MixtureDrafts(
        [(Fraction(1, 3), mo.WithReplacement([Fraction(1, 4), Fraction(3, 4)], 5)),
         (Fraction(2, 3), mo.IndependentDrafts([[Fraction(1, 4), Fraction(3, 4)],
                                                [Fraction(1, 2), Fraction(1, 2)]]))]
    )  # fmt: skip
    form, rounded = product_form(drafts.law(True)), product_form(drafts)
    assert form is not None
    assert rounded is not None
    low = np.array([Fraction(1, 5), Fraction(1, 7)], dtype=object)
    high = np.array([Fraction(4, 5), Fraction(1)], dtype=object)
    orders = np.array([[0, 1], [1, 0]])
    slopes = form.chain_slopes(low, high, orders)
    for order, found in zip(orders, slopes, strict=True):
        x = low.copy()
        for r in order:
            before = form.value(x)
            x[r] = high[r]
            assert found[r] == (form.value(x) - before) / (high[r] - low[r])
    floats = rounded.chain_slopes(low.astype(float), high.astype(float), orders)
    np.testing.assert_allclose(floats, slopes.astype(float), rtol=1e-13)


def test_counts_are_exact_until_they_are_countless() -> None:
    assert count_choices(40, 20) == 137846528820
    assert count_choices(3, 5) == 0
    assert count_power(3, 50) == 3**50
    assert count_arrangements(10, 3) == 720
    assert count_subsets(4, range(5)) == (16, 32)
    assert count_choices(10**6, 5 * 10**5) == COUNTLESS
    assert count_power(2, 2**31) == count_arrangements(10**6, 10**6) == COUNTLESS
    assert count_subsets(10**6, range(10**6)) == (COUNTLESS, COUNTLESS)


def test_absurd_numbers_in_a_problem_file_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "problem.json"
    for count in ("1" + 30 * "0", "1" + 4000 * "0"):
        path.write_text(
            '{"target": [1], "drafts": {"scheme": "with_replacement", "q": [1], '
            f'"num_drafts": {count}}}}}'
        )
        with pytest.raises(MdsdError, match="num_drafts"):
            mo.load_problem(path)
