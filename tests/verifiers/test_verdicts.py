"""Random verdicts of all verifiers: their law, their strictness, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from support import oracles
from support.strategies import SCHEMES, problems
from support.verifier_table import EXAMPLES, PAIRS, SINGLE_MODEL, TABLE, P, Q, counts_for, example

from mdsd_opt import (
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    solve,
    verifiers,
)
from mdsd_opt.auditing.driving import Budget, driven_tree
from mdsd_opt.auditing.randomness.sources import DOUBLE
from mdsd_opt.auditing.tape import Tape
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import (
    InvalidDistribution,
    InvalidInput,
    ProblemTooLarge,
    UnknownName,
    UnsupportedScheme,
)
from mdsd_opt.verifiers import Decision, Uniforms, Verifier
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.lp import LinearProgramme
from mdsd_opt.verifiers.rrs import RecursiveRejection

ALL_PAIRS = pytest.mark.parametrize(("name", "scheme"), PAIRS)


LAST = float(np.nextafter(1.0, 0.0))
CORNERS = [Uniforms(*(LAST if bits >> k & 1 else 0.0 for k in range(4))) for bits in range(16)]


# --- their law ---


def check_proper(law: Any) -> None:
    """A distribution that numpy draws from as it is."""
    assert law.min() >= 0
    assert law.sum() == pytest.approx(1, abs=1e-12)
    np.random.default_rng(0).choice(law.size, p=law)


@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("name", TABLE)
@given(st.data())
def test_conditional_laws_are_distributions(name: str, data: st.DataObject) -> None:
    """Zeros and ties, in numbers that are not dyadic."""
    problem, verifier = data.draw(problems(TABLE[name])), verifiers.get(name)
    assume(verifier.supports(problem.drafts))
    rng = np.random.default_rng(0)
    floats = TransportProblem(rng.dirichlet(problem.target + 1e-3), problem.drafts)
    for which in (problem, floats):
        for drafts in which.drafts.sample(rng, 3):
            try:
                law = verifier.conditional_law(which, drafts)
            except UnsupportedScheme:  # so many drafts are too many for this one
                reject()
            check_proper(law)


#: Acceptance probabilities whose float64 sum exceeds one here: (name, p, q, drafts), unnormalised.
OVER_ONE = [
    ("kseq", [1, 2, 2], [5, 3, 3], [0, 0, 1]),
    ("lp", [2, 2, 1], [2, 4, 1], [1, 0]),
    ("lp", [1, 1, 3, 2], [2, 1, 0, 2], [3, 1, 3]),
]


@pytest.mark.parametrize(("name", "p", "q", "drafts"), OVER_ONE)
def test_rounding_leaves_no_negative_probability(
    name: str, p: list[int], q: list[int], drafts: list[int]
) -> None:
    laws = WithReplacement(np.array(q) / sum(q), len(drafts))
    problem = TransportProblem(np.array(p) / sum(p), laws)
    check_proper(verifiers.get(name).conditional_law(problem, drafts))


def test_a_law_that_is_wrong_by_more_than_rounding_stays_wrong() -> None:
    """Else an audit would find a rule faultless that accepts more than there is."""
    decision = Decision(np.array([0.9, 0.3]), np.array([0.0, 0.0, 1.0]))
    law = decision.law(np.array([0, 1]), 3)
    np.testing.assert_allclose(law, [0.9, 0.3, -0.2])


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), num_drafts=st.integers(1, 3))
@pytest.mark.parametrize(
    ("name", "scheme"),
    [x for x in PAIRS if x[1] in (*SINGLE_MODEL, "independent") and x[0] != "gumbel"],
)
def test_batches_decide_as_single_verdicts(
    name: str, scheme: str, seed: int, num_drafts: int
) -> None:
    rng, verifier = np.random.default_rng(seed), verifiers.get(name)
    (num_drafts,) = counts_for(verifier, num_drafts)
    target, draft = rng.dirichlet(np.ones(7), 4), rng.dirichlet(np.ones(7), (4, num_drafts))
    if scheme == "independent":
        schemes: list[DraftScheme] = [IndependentDrafts(q) for q in draft]
    else:
        draft = draft[:, 0]
        schemes = [SINGLE_MODEL[scheme](q, num_drafts) for q in draft]
    drafts = np.stack([s.sample(rng) for s in schemes])
    uniforms = rng.random((4, 4))
    for threads in (1, 3):
        batch = verifier.verify_batch(target, draft, drafts, uniforms, scheme, num_threads=threads)
        for n in range(4):
            problem = TransportProblem(target[n], schemes[n])
            single = verifier.verify(problem, drafts[n], Uniforms(*uniforms[n]))
            assert batch.tokens[n] == single.token
            assert batch.accepted[n] == single.accepted
            place = -1 if single.draft_index is None else single.draft_index
            assert batch.draft_index[n] == place


def test_a_batch_names_its_first_bad_row() -> None:
    target, draft = np.full((5, 4), 0.25), np.full((5, 4), 0.25)
    target[3, 0], draft[4, 1] = np.nan, -1.0
    for num_threads in (1, 3):
        with pytest.raises(InvalidDistribution, match="row 3: "):
            verifiers.get("optimal").verify_batch(
                target, draft, [[0, 1]] * 5, np.random.default_rng(0), num_threads=num_threads
            )


def test_an_empty_batch_has_no_verdicts() -> None:
    none = verifiers.get("optimal").verify_batch(
        np.empty((0, 4)), np.empty((0, 4)), np.empty((0, 2), np.int64), np.random.default_rng(0)
    )
    assert none.tokens.shape == none.accepted.shape == none.draft_index.shape == (0,)


# --- drawn verdicts, integrated over their uniforms ---


class Asked(Uniforms):
    """Uniforms that are answered by a tape, each as it is first asked for."""

    mixing = property(lambda self: self.answer("mixing"))
    draft = property(lambda self: self.answer("draft"))
    acceptance = property(lambda self: self.answer("acceptance"))
    residual = property(lambda self: self.answer("residual"))

    @classmethod
    def of_tape(cls, tape: Tape) -> Asked:
        asked = cls(0.5, 0.5, 0.5, 0.5)
        asked.tape, asked.answers = tape, {}
        return asked

    def answer(self, name: str) -> float:
        if name not in self.answers:
            self.answers[name] = float(self.tape.uniforms(DOUBLE, (1,))[0])
        return self.answers[name]


def drawn_law(verifier: Verifier, problem: TransportProblem, drafts: Any) -> np.ndarray:
    """Law of the token of `verify`, by the lengths of the steps of its uniforms, shape (V,)."""

    def run(tape: Tape) -> int:
        return verifier.verify(problem, drafts, Asked.of_tape(tape)).token

    law = np.zeros(problem.vocab_size)
    for leaf in driven_tree(run, 8, 0, Budget(10**6), 0).outcomes():
        law[leaf.outcome] += leaf.mass
    return law


def check_drawn(verifier: Verifier, problem: TransportProblem, most: int = 3) -> None:
    tuples, mass = problem.drafts.tuple_law()
    for drafts in tuples[mass > 0][:: -(-int((mass > 0).sum()) // most)]:
        law = verifier.conditional_law(problem, drafts)
        np.testing.assert_allclose(drawn_law(verifier, problem, drafts), law, rtol=0, atol=1e-10)


#: Beside the table's own, a target with ties of p/q.
TARGETS = {"example": P, "tie": [0.075, 0.15, 0.3, 0.1, 0.375]}


@pytest.mark.parametrize("target", TARGETS)
@ALL_PAIRS
def test_drawn_verdicts_have_the_law_that_is_stated(name: str, scheme: str, target: str) -> None:
    verifier = verifiers.get(name)
    check_drawn(verifier, TransportProblem(TARGETS[target], example(scheme, verifier)))


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
def test_drawn_verdicts_of_bins_have_the_law_that_is_stated(scheme: str) -> None:
    check_drawn(verifiers.get("optimal", binned=True), TransportProblem(P, EXAMPLES[scheme]))


class WrongDraw(RecursiveRejection):
    """Decides rightly for its only K, and draws the residual by the number that did not accept."""

    only_num_drafts = 2

    def _verify(self, problem: TransportProblem, tokens: Any, uniforms: Uniforms) -> Any:
        same = Uniforms(0.0, 0.0, uniforms.acceptance, uniforms.acceptance)
        return super()._verify(problem, tokens, same)


@pytest.mark.parametrize("scheme", SINGLE_MODEL)
def test_a_wrong_draw_beside_a_right_decision_is_seen(scheme: str) -> None:
    right, wrong = RecursiveRejection(), WrongDraw()
    if not wrong.takes_kind(SINGLE_MODEL[scheme]):
        pytest.skip("not lossless for these")
    problem = TransportProblem(P, example(scheme, wrong))
    check_drawn(right, problem)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_drawn(wrong, problem)


# --- strictness ---


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=25)
@given(data=st.data())
def test_impossible_tokens_never_come_out_of_rationals(name: str, data: st.DataObject) -> None:
    verifier, problem = verifiers.get(name), data.draw(problems(TABLE[name], max_drafts=2))
    assume(verifier.supports(problem.drafts))
    check_strictness(verifier, problem)


def check_strictness(verifier: Verifier, problem: TransportProblem) -> None:
    """Whatever the uniforms are; the first and the last value of each, in all combinations."""
    tuples, mass = problem.drafts.tuple_law()
    for drafts in tuples[mass > 0]:
        for uniforms in CORNERS:
            assert problem.target[verifier.verify(problem, drafts, uniforms).token] > 0
        law = verifier.conditional_law(problem, drafts)
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        assert not law[problem.target == 0].any()


@pytest.mark.parametrize(
    ("name", "scheme"), [pair for pair in PAIRS if pair[1] in (*SINGLE_MODEL, "independent")]
)
def test_target_and_draft_that_agree_but_for_a_grain(name: str, scheme: str) -> None:
    """Rounding leaves no residual here, yet token 2 can be drafted, and must not come out."""
    p, q = [0.5, 0.5, 0.0], [0.5, 0.5, 1e-17]
    single, verifier = SINGLE_MODEL.get(scheme), verifiers.get(name)
    (k,) = counts_for(verifier, 2)
    drafts = IndependentDrafts([q] * k) if single is None else single(q, k)
    check_strictness(verifier, TransportProblem(p, drafts))


class StoppedClocks:
    """A generator whose exponentials are all zero, which a real one gives once in 2^53 draws."""

    def standard_exponential(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape)


def test_gumbel_races_have_no_impossible_winner() -> None:
    problem = TransportProblem([0.0, 0.4, 0.6], WithReplacement([0.0, 0.0, 1.0], 2))
    generator: Any = StoppedClocks()
    drafts, tokens = verifiers.get("gumbel").simulate(problem, generator, 3)  # type: ignore[attr-defined]
    assert (drafts == 2).all()
    assert (tokens == 1).all()


# --- refusals ---


@pytest.mark.parametrize(
    ("name", "scheme"),
    [(name, scheme) for name in TABLE for scheme in SCHEMES if scheme not in TABLE[name]],
)
def test_a_scheme_it_is_not_lossless_for_is_an_error(name: str, scheme: str) -> None:
    verifier = verifiers.get(name)
    problem = TransportProblem(P, example(scheme, verifier))
    assert not verifier.supports(problem.drafts)
    drafts = problem.drafts.sample(np.random.default_rng(0))
    for use in (
        lambda: verifier.acceptance_rate(problem),
        lambda: verifier.output_law(problem),
        lambda: verifier.conditional_law(problem, drafts),
        lambda: verifier.verify(problem, drafts, np.random.default_rng(0)),
    ):
        with pytest.raises(UnsupportedScheme, match="is not lossless for"):
            use()


Q4 = [0.6, 0.2, 0.0, 0.2]
IMPOSSIBLE = {
    "with_replacement": (WithReplacement(Q4, 2), [[0, 2], [-1, 0], [0, -1]]),
    "without_replacement": (
        WithoutReplacement(Q4, 2),
        [[0, 0], [0, 2], [0, -1], [-1, 0], [-1, -1]],
    ),
    "greedy": (GreedyDrafts(Q4, 2), [[1, 3], [0, 0], [0, 2], [0, -1]]),
    "top_k": (TopKDrafts(Q4, 2), [[0, 3], [2, 3], [0, 0], [0, -1]]),
    "independent": (IndependentDrafts([Q4, [0.5, 0.0, 0.5, 0.0]]), [[0, 1], [2, 2], [-1, 0]]),
    "set_law": (DraftSetLaw(4, {(0, 2): 1.0, (1,): 0.0}), [[0, 1], [1, -1], [0, 0]]),
    "mixture": (
        MixtureDrafts([(0.5, WithReplacement(Q4, 1)), (0.5, WithoutReplacement(Q4, 2))]),
        [[0, 0], [2, -1], [-1, 0], [0, 2]],
    ),
    "fixed_plus": (
        FixedPlusDrafts([2], WithReplacement(Q4, 1)),
        [[0, 2], [2, -1], [2, 2]],
    ),
    "mixed_models": (
        MixtureDrafts([(0.5, IndependentDrafts([Q4, [1, 0, 0, 0]])), (0.5, TopKDrafts(Q4, 1))]),
        [[0, 1], [1, -1], [2, 0], [-1, 0]],
    ),
    "fixed_beside_any": (
        FixedPlusDrafts([2], DraftSetLaw(4, {(0,): 0.5, (0, 1): 0.5})),
        [[0, 2, -1], [2, 1, -1], [2, 3, 1]],
    ),
}


@ALL_PAIRS
def test_drafts_that_cannot_have_been_drawn_are_an_error(name: str, scheme: str) -> None:
    verifier, (drafts, tuples) = verifiers.get(name), IMPOSSIBLE[scheme]
    (k,) = counts_for(verifier, drafts.num_drafts)
    if k != drafts.num_drafts:  # of another number tokens that are never drawn, and none
        drafts = SINGLE_MODEL[scheme](Q4, k)
        tuples = [[2] * k, [-1] * k]
    problem = TransportProblem([0.5, 0.3, 0.2, 0.0], drafts)
    for row in tuples:
        for use in (
            lambda row=row: verifier.conditional_law(problem, row),
            lambda row=row: verifier.verify(problem, row, np.random.default_rng(0)),
        ):
            with pytest.raises(InvalidInput, match="cannot be drawn under"):
                use()


@settings(max_examples=100)
@given(problem=problems(SCHEMES))
def test_drafts_that_can_be_drawn_are_taken(problem: TransportProblem) -> None:
    naive = verifiers.get("naive_target")
    drawn = problem.drafts.sample(np.random.default_rng(0), 20)
    for drafts in (*drawn, *oracles.listed(problem.drafts)):
        np.testing.assert_allclose(naive.conditional_law(problem, drafts), problem.target)


def test_bad_drafts_and_names_are_kind_errors() -> None:
    problem, rng = TransportProblem(P, WithReplacement(Q, 2)), np.random.default_rng(0)
    verifier = verifiers.get("optimal")
    with pytest.raises(UnsupportedScheme, match="'greedy' takes any K"):
        verifiers.get("spechub").acceptance_rate(TransportProblem(P, GreedyDrafts(Q, 3)))
    with pytest.raises(InvalidInput, match="2 token ids"):
        verifier.verify(problem, [0], rng)
    with pytest.raises(InvalidInput, match="outside"):
        verifier.verify(problem, [0, 9], rng)
    with pytest.raises(InvalidInput, match="2 token ids"):
        verifier.verify(problem, [0.0, 1.0], rng)
    with pytest.raises(UnknownName, match="'optimal'"):
        verifiers.get("optimum")
    with pytest.raises(InvalidInput, match="not rational"):
        verifiers.get("importance_sampling").output_law(problem, exact=True)
    with pytest.raises(InvalidInput, match="four for each"):
        verifier.verify_batch(P[None], Q[None], [[0, 1]], np.zeros((1, 3)))
    with pytest.raises(ProblemTooLarge, match="audit"):
        verifier.output_law(TransportProblem(P, WithReplacement(Q, 12)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImportanceSampling(size=0), "size is 0"),
        (lambda: ImportanceSampling(rule="ration"), "Did you mean 'ratio'"),
        (lambda: ImportanceSampling(order="pq"), "surplus"),
    ],
)
def test_options_of_importance_sampling_are_checked(
    make: Callable[[], Verifier], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_lp_refuses_solutions_without_a_fitting_plan() -> None:
    problem = TransportProblem([0.5, 0.3, 0.2], WithReplacement([0.2, 0.2, 0.6], 2))
    with pytest.raises(InvalidInput, match="has no plan"):
        LinearProgramme(solution=solve(problem))
    with pytest.raises(InvalidInput, match="gives no plan"):
        LinearProgramme(method="subset_selection").acceptance_rate(problem)
    larger = TransportProblem([0.25] * 4, WithReplacement([0.25] * 4, 2))
    with pytest.raises(InvalidInput, match="larger vocabulary"):
        LinearProgramme(solution=solve(larger, "max_flow")).acceptance_rate(problem)
