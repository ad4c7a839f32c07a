"""Functions that verify chains, as packages write them: right ones pass, wrong ones do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import CORRECT, LOSSY, drawn, limit_laws, mistaken, residual, standard
from support.text_sessions import pick

import mdsd_opt as mo
from mdsd_opt.auditing import chains, on_laws
from mdsd_opt.auditing.laws import edge_laws, standard_laws
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput, UnknownName


def audited(verify: Any, **options: Any) -> Any:
    settings = {
        "num_drafts": 2,
        "num_trials": 500,
        "driven_checks": 5,
    } | options
    return mo.audit_chain(verify, rng=0, **settings)


def assert_passes(report: Any, *small: str) -> None:
    """Exactly right on these small laws, and without a deviation on the wide ones."""
    assert report.verdict_class == "no deviation", report.verdict
    assert report.clean
    tried = {one.law: one for one in report.tried}
    assert [*tried] == [*small, "wide", "long tail"]
    for name in small:
        assert tried[name].report.method == "driven"
        assert tried[name].verdict_class == "lossless"
        assert 0.0 < tried[name].report.detectable_bias < 0.06  # unseen by 80 checks
    for name in ("wide", "long tail"):
        assert tried[name].report.method == "sampling"
        assert tried[name].verdict_class == "no deviation"
        assert 0.0 < tried[name].report.detectable_bias < 0.35
    assert report.detectable_bias == max(one.report.detectable_bias for one in report.tried)
    assert report.lossless == (report.detectable_bias < 0.05)
    assert f"{report.detectable_bias:.2g}" in report.verdict


@cache
def of_mistaken(name: str) -> Any:
    """On laws that show each of these mistakes; their tests look for no more than the worst."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        limit_laws(monkeypatch, "random", "certain target")
        return audited(LOSSY[name], num_trials=1000)


@pytest.fixture
def only_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return partial(limit_laws, monkeypatch)


#: Audited on all laws; other correct code without those that take the most calls to drive.
ON_ALL = ("block", "standard")


@pytest.mark.parametrize("name", sorted({*CORRECT} - {"gumbel"}))
def test_correct_code_passes(name: str, only_on: Callable[..., None]) -> None:
    laws = [one.name for one in standard_laws(1)]
    assert len(laws) == 10
    if name not in ON_ALL:
        laws = ["tied", "peaked", "zeros", "certain target"]
        only_on(*laws)
    report = audited(CORRECT[name])
    assert_passes(report, *laws)
    assert [one.vocab_size for one in report.tried][-2:] == [32, 2_048]
    levels = report.coverage.levels
    assert all(x.accepted > 0 < x.refused and x.accepted + x.refused < 1 + 1e-9 for x in levels)
    assert "V up to 2,048" in report.verdict
    assert f"{len(laws)} were driven, exact up to {report.num_checks:,} random checks" in (
        report.verdict
    )


@pytest.mark.parametrize("name", LOSSY)
def test_planted_mistakes_are_found(name: str) -> None:
    report = of_mistaken(name)
    assert report.verdict_class == "lossy", report.verdict
    assert report.total_variation > 0.05
    if report.worst.report.method == "sampling":
        assert report.total_variation_interval.low > 0
        assert "total variation" in report.verdict


def test_a_cut_shows_only_where_there_are_more_tokens_than_it_keeps() -> None:
    found = {one.law: one for one in of_mistaken("top ten after a refusal").tried}
    assert found["random"].verdict_class == "lossless"
    assert found["wide"].verdict_class == "lossy"
    assert found["long tail"].verdict_class == "lossy"


def test_a_draft_without_alternatives_is_tried(only_on: Callable[..., None]) -> None:
    """One that is looked up, for which engines have code of their own: here wrong code."""
    only_on("random", "certain draft")
    verify = mistaken(left=lambda p, q, x: p if q[x] == 1 else residual(p, q))
    found = {
        one.law: one.verdict_class for one in audited(verify, num_drafts=1, num_trials=200).tried
    }
    assert (found["random"], found["certain draft"]) == ("lossless", "lossy")


def test_where_one_token_is_possible_there_is_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "standard_laws", lambda drafts: edge_laws()[:4])
    verify = mistaken(left=lambda p, q, x: p if q[x] == 1 else residual(p, q))
    report = audited(verify, num_drafts=1, num_trials=200)
    assert (report.worst.law, report.cause) == ("certain draft", "")


def test_rounding_of_float32_passes(only_on: Callable[..., None]) -> None:
    only_on("peaked")

    def rounds(p: Any, q: Any, drafts: Any) -> list[int]:
        """PyTorch tells the audit of what type its numbers are, and NumPy does not."""
        p, q = (law.astype(np.float32).astype(np.float64) for law in (p, q))
        return CORRECT["block"](p, q, drafts)

    report = audited(rounds, num_trials=200)
    assert report.verdict_class == "edge"
    assert (report.answer(detect=1.0), report.edge_mass) == ("EDGE", None)
    assert 1e-9 < report.total_variation < 1e-6


def test_numbers_from_elsewhere_are_sampled_on_every_law(
    only_on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cannot be driven: without enough calls on each law, what is right would never pass."""
    only_on("random", "tied")
    for name in ("_FIRST_CALLS", "_BESIDE_SUSPECT"):
        monkeypatch.setattr(on_laws, name, 100)
    system = random.Random(7)  # made before the audit, which does not answer it

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        tokens = [pick(row, system.random()) for row in p]
        return tokens[: 1 + next((n for n, x in enumerate(drafts) if x != tokens[n]), len(drafts))]

    report = audited(verify, num_drafts=1, num_trials=300)
    assert report.verdict_class == "no deviation"
    assert [one.report.num_trials for one in report.tried] == [300] * 4


def test_what_ties_tokens_of_a_wide_law_is_not_said_to_be_seen() -> None:
    target, draft = np.random.default_rng(0).normal(size=(2, 3, 40))
    report = audited(CORRECT["standard"], laws=(target, draft))
    assert report.direction == "in any direction of one place's law"
    assert f"a bias of {report.detectable_bias:.2g} {report.direction} " in report.verdict


def test_an_edge_is_no_bias_and_its_size_is_told(only_on: Callable[..., None]) -> None:
    only_on("tied", "zeros", "certain target")
    report = audited(mistaken(accept=lambda u, p, q: u * q <= p))
    assert report.verdict_class == "edge"
    assert not report.clean
    assert 0 < report.edge_mass < 1e-15
    assert "EDGE ONLY of probability" in report.verdict


def test_calls_that_fail_are_no_evidence(only_on: Callable[..., None]) -> None:
    only_on("tied")

    def broken(p: Any, q: Any, drafts: Any) -> list[int]:
        if drafts[0] == 1:
            raise KeyError("draft")
        return standard(p, q, drafts)

    report = audited(broken)
    assert report.verdict_class == "not judged"
    assert "KeyError" in report.verdict

    def lossy_as_well(p: Any, q: Any, drafts: Any) -> list[int]:
        if drafts[0] == 1:
            raise KeyError("draft")
        return [int(drafts[0]), 0]

    assert audited(lossy_as_well).verdict_class == "lossy"


def test_zeros_may_be_refused_and_the_report_says_so(only_on: Callable[..., None]) -> None:
    only_on("random", "zeros", "certain target")

    def careful(p: Any, q: Any, drafts: Any) -> list[int]:
        if (p <= 0).any():
            raise ValueError("probabilities must be positive")
        return standard(p, q, drafts)

    report = audited(careful)
    assert report.verdict_class == "no deviation", report.verdict
    assert [one.verdict_class for one in report.tried if one.report] == [
        "lossless",
        "no deviation",
        "no deviation",
    ]
    assert "refused: zeros, certain target" in report.verdict

    def careless(p: Any, q: Any, drafts: Any) -> list[int]:
        if (p <= 0).any():
            raise ZeroDivisionError
        return standard(p, q, drafts)

    assert audited(careless).verdict_class == "not judged"


def test_where_drafts_are_never_accepted_nothing_is_settled(only_on: Callable[..., None]) -> None:
    only_on("random", "certain target")
    report = audited(lambda p, q, drafts: [drawn(p[0])])
    assert report.verdict_class == "not judged"
    assert "an accepted draft at level 1" in report.verdict
    only_certain = mistaken(accept=lambda u, p, q: p > 0.999, left=lambda p, q, x: p)
    assert audited(only_certain).verdict_class == "not judged"


def logits_of(verify: Any) -> Any:
    def from_logits(p: Any, q: Any, drafts: Any) -> Any:
        weights = [np.exp(row - row.max(axis=-1, keepdims=True)) for row in (p, q)]
        return verify(*(row / row.sum(axis=-1, keepdims=True) for row in weights), drafts)

    return from_logits


@pytest.mark.parametrize("takes", ["logits", "log_probabilities"])
@pytest.mark.parametrize("batch", [False, True])
def test_what_it_takes(takes: str, batch: bool, only_on: Callable[..., None]) -> None:
    only_on("zeros", "certain target")

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        if not batch:
            return logits_of(standard)(p, q, drafts)
        assert p.shape[0] == q.shape[0] == drafts.shape[0] == 1
        return np.array(logits_of(standard)(p[0], q[0], drafts[0]))[None]

    assert_passes(audited(verify, takes=takes, batch=batch), "zeros", "certain target")


def test_wrong_use_is_said() -> None:
    with pytest.raises(UnknownName, match="takes"):
        audited(standard, takes="odds")
    with pytest.raises(InvalidInput, match="num_drafts is 0"):
        audited(standard, num_drafts=0)
    with pytest.raises(InvalidInput, match="neither tokens"):
        audited(lambda p, q, drafts: "yes")
    with pytest.raises(InvalidInput, match=r"called with \(p, q, drafts\), and takes \(p\): too"):
        audited(lambda p: p)
    with pytest.raises(InvalidInput, match="verify is 3"):
        audited(3)


def test_verifiers_of_the_package_on_laws_of_all_kinds() -> None:
    report = mo.audit_portfolio("rrs", num_drafts=2, num_trials=1000)
    assert report.verdict_class == "no deviation", report.verdict
    assert len(report.tried) == 11
    for one in report.tried:  # it states its law, but calls need not follow what is stated
        assert one.verdict_class == "no deviation"
        assert one.vocab_size > 32 or one.report.law_proven_lossless
    wrong = mo.audit_portfolio(
        lambda target, draft, drafts, rng: int(drafts[0]),
        num_drafts=2,
        num_trials=1000,
    )
    assert wrong.verdict_class == "lossy"


def test_drafts_of_one_s_own_are_tried_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "own_law_of_drafts:law"
    (tmp_path / "own_law_of_drafts.py").write_text("def law(q, earlier):\n    return q\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(SINGLE_MODEL_SCHEMES, name, mo.WithReplacement)  # taken back in the end
    del SINGLE_MODEL_SCHEMES[name]
    few: Any = {"num_drafts": 2, "num_trials": 100, "method": "sampling"}
    told = "on drafts that are drawn in other ways"
    own = mo.audit_portfolio("naive_target", scheme=name, **few)
    assert not any(note.startswith(told) for note in own.notes)
    assert any(note.startswith(told) for note in mo.audit_portfolio("naive_target", **few).notes)


def test_decisions_that_depend_on_earlier_calls_are_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mdsd_opt.auditing import on_laws

    methods, calls = [], [0]

    class Spied(on_laws.OneProblem):
        def __init__(self, verify: Any, problem: Any, rng: Any, options: Any) -> None:
            methods.append(options.method)
            super().__init__(verify, problem, rng, options)

    def alternating(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        calls[0] += 1
        shares = np.cumsum(target)[:-1]
        u = rng.random()
        return int(np.searchsorted(shares, u if calls[0] % 2 else 1.0 - u, "right"))

    monkeypatch.setattr(on_laws, "OneProblem", Spied)
    report = mo.audit_portfolio(alternating, num_drafts=2, num_trials=100)
    assert any(note.startswith("answers depend on earlier calls") for note in report.notes)
    assert any("drawn in other ways" in note for note in report.notes)
    assert "driven" not in methods


def test_trees_on_laws_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    from mdsd_opt.auditing import tree_rule
    from mdsd_opt.decoding import get_rule

    monkeypatch.setattr(
        tree_rule, "_OPTIMUM_WORK", 1_000
    )  # a bound in place of the optimum is enough
    report = mo.audit_portfolio(
        get_rule("traversal").verify, tree="2x2", num_trials=400, driven_checks=3
    )
    assert report.verdict_class == "no deviation", report.verdict
    assert {len(one.report.coverage.levels) for one in report.tried} == {2}


def not_renormalised(root: Any, rng: np.random.Generator) -> list[int]:
    """Recursive rejection whose residual keeps the scale it has."""
    row, q = root.target, root.drafts.q
    for x in root.draws.tolist():
        if rng.random() * q[x] < row[x]:
            return [x, drawn(root.children[x].target)]
        row = np.maximum(row - q, 0.0)
    return [drawn(row if row.sum() > 0 else residual(root.target, q))]


def test_a_residual_of_one_token_hides_its_scale_and_the_audit_looks_further() -> None:
    tables = (TableModel(3, 6), TableModel(3, 7))
    report = mo.audit_tree(not_renormalised, *tables, "2x1", rng=0, driven_checks=5)
    assert report.verdict_class == "lossy", report.verdict
    assert "V = 5" in report.verdict
