"""Audits of callables and verifiers: what they accept, what they say, what they refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from wrong_verifiers import faultless

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.auditing import load_verifier
from mdsd_opt.auditing.audit_report import BIAS_LADDER
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.evidence import LEAST_CALLS, unseen_bias
from mdsd_opt.verifiers import Verdict

TARGET = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
DRAFT = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
SCHEMES = {
    "with_replacement": mo.WithReplacement(DRAFT, 2),
    "without_replacement": mo.WithoutReplacement(DRAFT, 2),
    "greedy": mo.GreedyDrafts(DRAFT, 3),
    "top_k": mo.TopKDrafts(DRAFT, 2),
    "independent": mo.IndependentDrafts([DRAFT, TARGET[::-1]]),
    "set_law": mo.DraftSetLaw(5, {(0, 1): 0.5, (2,): 0.3, (): 0.2}),
    "fixed_plus": mo.FixedPlusDrafts([3], mo.WithReplacement(DRAFT, 2)),
    "mixture": mo.MixtureDrafts(
        [(0.5, mo.WithReplacement(DRAFT, 1)), (0.5, mo.WithoutReplacement(DRAFT, 2))]
    ),
}
PROBLEM = mo.TransportProblem(TARGET, SCHEMES["with_replacement"])


def supported() -> list[tuple[str, str]]:
    return [
        (name, scheme)
        for name in verifiers.names()
        for scheme, drafts in SCHEMES.items()
        if verifiers.get(name).supports(drafts)
    ]


def samples_target(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    return int(rng.choice(target.size, p=target))


def simulates(name: str) -> bool:
    """Whether a verifier draws its drafts itself, so that there is no law given drafts."""
    return hasattr(verifiers.get(name), "simulate")


@pytest.mark.parametrize(
    ("name", "scheme"), [case for case in supported() if not simulates(case[0])]
)
def test_every_verifier_passes_by_enumeration(name: str, scheme: str) -> None:
    report = mo.audit(name, mo.TransportProblem(TARGET, SCHEMES[scheme]), 0, 500)
    assert report.method == "enumeration"
    assert report.clean, report.verdict
    assert report.p_value is None
    assert report.total_variation < 1e-9
    assert report.acceptance_rate is not None
    assert report.optimal_acceptance_rate is not None
    assert report.acceptance_rate <= report.optimal_acceptance_rate + 1e-9
    if name == "optimal":
        gap = 1e-6 if scheme in ("independent", "set_law") else 1e-12
        assert report.acceptance_rate == pytest.approx(report.optimal_acceptance_rate, abs=gap)
    assert report.num_edge_probes > 0


#: One scheme of each verifier, as enumeration looks at all; all of those that it cannot look at.
OF_EACH = dict(reversed(supported()))
SAMPLED = [case for case in supported() if simulates(case[0]) or OF_EACH[case[0]] == case[1]]


@pytest.mark.parametrize(("name", "scheme"), SAMPLED)
def test_every_verifier_passes_by_sampling(name: str, scheme: str) -> None:
    """False alarms: at most 1e-6 for each."""
    problem = mo.TransportProblem(TARGET, SCHEMES[scheme])
    report = mo.audit(name, problem, 1, 1_000, method="sampling", edge_probes=64)
    assert report.method == "sampling"
    assert report.clean, report.verdict
    assert report.p_value is not None
    assert report.drafts_follow_law is (True if simulates(name) else None)
    if not simulates(name):
        exact = float(verifiers.get(name).enumerated_acceptance_rate(problem))
        assert report.acceptance_interval is not None
        low, high = report.acceptance_interval
        assert low - 0.05 <= exact <= high + 0.05


def test_drafts_and_outputs_drawn_together() -> None:
    class Coupled:
        """Both from one race of exponentials; the drafts at a temperature."""

        def __init__(self, draft: Any) -> None:
            self.draft = draft

        def simulate(self, problem: Any, rng: np.random.Generator, size: int) -> Any:
            clocks = rng.standard_exponential((size, 2, 5))
            with np.errstate(divide="ignore"):
                drafts = (clocks / self.draft).argmin(axis=2)
                return drafts, (clocks.min(axis=1) / problem.target).argmin(axis=1)

    report = mo.audit(Coupled(DRAFT), PROBLEM, 0, 4_000)
    assert report.faultless
    assert report.drafts_follow_law
    warmer = np.sqrt(DRAFT) / np.sqrt(DRAFT).sum()
    report = mo.audit(Coupled(warmer), PROBLEM, 0, 4_000)
    assert report.clean
    assert not report.drafts_follow_law
    assert not report.faultless
    assert "DRAFTS DO NOT FOLLOW" in report.verdict
    with pytest.raises(InvalidInput, match="draws its own drafts"):
        mo.audit(Coupled(DRAFT), PROBLEM, 0, 100, method="driven")


def test_a_verifier_is_taken_as_object_name_or_callable() -> None:
    verifier = verifiers.get("optimal")

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Verdict:
        return verifier.verify(
            mo.TransportProblem(target, mo.WithReplacement(draft, 2)), drafts, rng
        )

    reports = [
        mo.audit(v, PROBLEM, 3, 300, method="sampling", edge_probes=0)
        for v in (verifier, "optimal", verify)
    ]
    assert len({r.p_value for r in reports}) == 1  # the same decisions for the same generator
    assert all(r.clean for r in reports)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_callable_is_given(scheme: str) -> None:
    drafts = SCHEMES[scheme]
    seen: list[Any] = []

    def verify(target: Any, draft: Any, tokens: Any, rng: np.random.Generator) -> int:
        seen.append(draft)
        assert target.dtype == np.float64
        assert not target.flags.writeable
        assert tokens.shape == (drafts.num_drafts,)
        tokens[:] = 0  # its own copy
        return samples_target(target, draft, tokens, rng)

    report = mo.audit(verify, mo.TransportProblem(TARGET, drafts), 0, 200)
    assert report.clean, report.verdict
    if scheme in ("with_replacement", "without_replacement", "greedy", "top_k"):
        np.testing.assert_allclose(seen[0], DRAFT)
    elif scheme == "independent":
        assert isinstance(seen[0], list)
        np.testing.assert_allclose(seen[0][1], TARGET[::-1])
    else:
        assert seen[0] is drafts


def test_batched_callables() -> None:
    calls = []

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        calls.append(drafts.shape)
        return rng.choice(5, size=len(drafts), p=target)

    report = mo.audit(verify, PROBLEM, 0, 100_000, batched=True)
    assert report.clean
    assert [n for n, _ in calls if n > 1] == [65_536, 34_464]
    assert report.detectable_bias < 0.02

    def biased(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return np.where(rng.random(len(drafts)) < 0.05, 0, verify(target, draft, drafts, rng))

    report = mo.audit(biased, PROBLEM, 0, 20_000, batched=True)
    assert not report.clean
    assert report.total_variation == pytest.approx(0.03, abs=0.01)
    assert report.total_variation_interval.low > 0.01
    assert report.total_variation_interval.high < 0.06
    assert report.tokens[0].token == 0
    assert report.tokens[0].z is not None
    assert report.tokens[0].z > 5


def test_a_score_beyond_all_tails_is_told_as_a_bound() -> None:
    def first(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return drafts[:, 0]

    report = mo.audit(first, PROBLEM, 0, 200_000, batched=True)
    assert report.tokens[0].z is not None
    assert abs(report.tokens[0].z) == 40.0
    assert "|z| > 40" in str(report)
    assert "z = +40" not in str(report)
    assert "z = -40" not in str(report)


def stating(law: Any) -> Any:
    """Always token 0, whatever law is stated."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return 0

    verify.conditional_law = lambda target, draft, drafts: law  # type: ignore[attr-defined]
    return verify


def test_a_stated_law_is_enumerated_and_the_sampler_held_against_it() -> None:
    class Honest:
        def __call__(self, target: Any, draft: Any, drafts: Any, rng: Any) -> int:
            return samples_target(target, draft, drafts, rng)

        def conditional_law(self, target: Any, draft: Any, drafts: Any) -> Any:
            return target

    class Liar(Honest):
        def __call__(self, target: Any, draft: Any, drafts: Any, rng: Any) -> int:
            return int(drafts[0]) if target[drafts[0]] > 0 else 0

    class Lossy:
        def __call__(self, target: Any, draft: Any, drafts: Any, rng: Any) -> int:
            return int(rng.choice(5, p=self.conditional_law()))

        def conditional_law(self, *_: Any) -> Any:
            return np.array([0.5, 0.0, 0.2, 0.2, 0.1])

    honest = mo.audit(Honest(), PROBLEM, 0, 2_000)
    assert honest.method == "enumeration"
    assert honest.clean
    liar = mo.audit(Liar(), PROBLEM, 0, 2_000)
    assert not liar.clean
    assert liar.total_variation == pytest.approx(0)
    assert liar.p_value is not None
    assert "sampler against its law" in liar.verdict
    lossy = mo.audit(Lossy(), PROBLEM, 0, 2_000)
    assert not lossy.clean
    assert lossy.law_proven_lossless is False
    assert lossy.total_variation == pytest.approx(0.1)
    assert lossy.tokens[0].z is None
    assert lossy.sampler_p_value is not None
    assert lossy.sampler_p_value > 1e-6  # it does what it states
    assert dict(lossy.rows())["stated law lossless"].startswith("refuted")
    impossible = np.array([0.5, 0.1, 0.2, 0.1, 0.1])
    wrong = mo.audit(stating(impossible), PROBLEM, 0, 100)
    assert wrong.p_value is None
    assert wrong.violations[0].kind == "impossible token"


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (np.full(4, 0.25), r"shape \(4,\)"),
        (np.array([0.5, 0.5, 0.5, 0, 0]), "sum 1.5"),
        (np.array([1.5, -0.5, 0, 0, 0]), "smallest entry is -0.5"),
        (np.array([np.nan, 0, 0, 0, 1]), "no distribution"),
    ],
)
def test_a_malformed_law_is_an_error(law: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mo.audit(stating(law), PROBLEM, 0, 100)


class Tensor:
    """A 0-d array of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "wrap", [int, np.int32, np.uint8, np.array, lambda i: np.array([i]), Tensor]
)
def test_integer_answers_of_any_kind_count(wrap: Any) -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return wrap(samples_target(target, draft, drafts, rng))

    assert mo.audit(verify, PROBLEM, 0, 300).clean


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (5, "out of vocabulary", r"token 5, outside 0\.\.4"),
        (-1, "out of vocabulary", "token -1"),
        (2.0, "not a token", r"2\.0, which is no integer"),
        (float("nan"), "not a token", "nan"),
        (None, "not a token", "None"),
        ("2", "not a token", "'2'"),
        (True, "not a token", "True"),
        (np.array([1, 2]), "not a token", "array"),
        (1, "impossible token", "token 1, whose target probability is zero"),
    ],
)
def test_wrong_answers_are_violations(answer: Any, kind: str, message: str) -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return answer if drafts[0] == 3 else samples_target(target, draft, drafts, rng)

    report = mo.audit(verify, PROBLEM, 0, 300, edge_probes=0, method="sampling")
    assert not report.clean
    assert report.p_value == 0.0
    assert report.num_violations > 50
    assert len(report.violations) == 8
    assert report.violations[0].kind == kind
    assert report.violations[0].drafts[0] == 3
    assert re.search(message, report.violations[0].message)


def test_wrong_answers_of_a_batch_are_violations() -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return np.where(drafts[:, 0] == 3, 7, rng.choice(5, size=len(drafts), p=target))

    report = mo.audit(verify, PROBLEM, 0, 300, batched=True, edge_probes=0)
    assert not report.clean
    assert report.violations[0].kind == "out of vocabulary"
    report = mo.audit(lambda *a: np.full(len(a[2]), 0.5), PROBLEM, 0, 300, batched=True)
    assert report.violations[0].kind == "not a token"
    assert report.num_violations == 300


def test_exceptions_on_some_drafts_are_violations() -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        if drafts[0] == drafts[1]:
            raise KeyError("twice")
        return samples_target(target, draft, drafts, rng)

    report = mo.audit(verify, PROBLEM, 0, 300, edge_probes=0)
    assert not report.clean
    assert report.violations[0].kind == "exception"
    assert "KeyError: 'twice'" in report.violations[0].message


def test_a_callable_that_always_fails_is_no_verifier() -> None:
    def raises(*given: Any) -> int:
        raise TypeError(len(given))

    with pytest.raises(InvalidInput, match=r"every call.*TypeError.*target, draft, drafts, rng"):
        mo.audit(raises, PROBLEM, 0, 100)
    with pytest.raises(InvalidInput, match=r"batch of drafts of shape \(100, 2\).*TypeError"):
        mo.audit(raises, PROBLEM, 0, 100, batched=True)
    with pytest.raises(InvalidInput, match=r"shape \(3,\) for drafts of shape \(100, 2\)"):
        mo.audit(lambda *_: np.zeros(3, int), PROBLEM, 0, 100, batched=True)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"verify": 3}, InvalidInput, "verify is a int"),
        ({"verify": "optimum"}, UnknownName, "Did you mean 'optimal'"),
        ({"rng": 0.5}, InvalidInput, "the seed is 0.5"),
        ({"method": "guess"}, UnknownName, "unknown method 'guess'"),
        ({"method": "enumeration"}, InvalidInput, "needs a verifier of mdsd_opt or a callable"),
        (
            {"method": "driven", "sample": SCHEMES["greedy"].sample},
            InvalidInput,
            "leave out sample",
        ),
        ({"sample": lambda rng, size: np.zeros((3, 3))}, InvalidInput, r"shape \(3, 3\)"),
        ({"sample": 7}, InvalidInput, "sample is 7"),
    ],
)
def test_arguments_are_validated(arguments: dict[str, Any], error: Any, message: str) -> None:
    given = {"verify": samples_target, "problem": PROBLEM, "rng": 0, "num_trials": 50} | arguments
    with pytest.raises(error, match=message):
        mo.audit(**given)


def test_a_verifier_for_other_drafts_is_refused() -> None:
    unsupported = [
        (name, drafts)
        for name in verifiers.names()
        for drafts in SCHEMES.values()
        if not verifiers.get(name).supports(drafts)
    ]
    for name, drafts in unsupported:
        with pytest.raises(UnsupportedScheme):
            mo.audit(name, mo.TransportProblem(TARGET, drafts), 0, 10)


def test_too_many_tuples_to_enumerate() -> None:
    with pytest.raises(ProblemTooLarge, match="25 draft tuples over 5 tokens"):
        mo.audit("optimal", PROBLEM, 0, 10, method="enumeration", max_tuples=24)
    report = mo.audit("optimal", PROBLEM, 0, 50, max_tuples=24, edge_probes=0)
    assert report.method == "sampling"


def test_drafts_of_another_law_show_in_the_output() -> None:
    """The negative control of every audit: right verifier, wrong drafts."""
    other = mo.WithReplacement([0.3, 0.2, 0.3, 0.2, 0.0], 2)
    report = mo.audit(faultless, PROBLEM, 0, 4_000, sample=other.sample)
    assert not report.clean
    assert report.drafts_follow_law is False
    report = mo.audit(faultless, PROBLEM, 0, 4_000, sample=PROBLEM.drafts.sample)
    assert report.faultless


def test_acceptance_above_the_optimum_is_never_lossless() -> None:
    """Accepting whatever can be accepted: caught by the acceptance rate as well."""
    target, draft = np.full(3, 1 / 3), np.array([0.8, 0.1, 0.1])

    def greedy(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return int(drafts[0])

    problem = mo.TransportProblem(target, mo.WithReplacement(draft, 1))
    report = mo.audit(greedy, problem, 0, 1_000, method="sampling")
    acceptance = next(check for check in report.checks if check.name == "acceptance")
    assert acceptance.p_value < 1e-20
    assert report.acceptance_rate == 1.0


def test_reports_say_how_large_a_bias_they_could_see() -> None:
    report = mo.audit(samples_target, PROBLEM, 0, 5_000, method="sampling")
    assert report.trials_needed(report.detectable_bias) == pytest.approx(5_000, rel=0.01)
    assert report.trials_needed(0.01, power=0.5) < report.trials_needed(0.01)
    assert f"{report.detectable_bias:.2g}" in report.verdict
    with pytest.raises(InvalidInput, match="bias 0"):
        report.trials_needed(0)
    few = mo.audit(samples_target, PROBLEM, 0, 10, method="sampling")
    assert few.detectable_bias == few.trial_bias == 1.0
    assert few.verdict_class == "no deviation"
    assert few.clean
    assert not few.lossless
    assert "too few trials" in few.verdict


def test_lossless_is_said_only_where_no_larger_bias_could_have_stayed_hidden() -> None:
    driven = mo.audit(faultless, PROBLEM, 0, 200, method="driven")
    assert driven.verdict_class == "lossless"
    assert driven.detectable_bias == pytest.approx(unseen_bias(16 * 200, 0.99), rel=0.02)
    assert driven.lossless
    assert driven.trial_bias > 0.05  # of the trials alone
    some, many = (
        mo.audit(samples_target, PROBLEM, 0, trials, method="sampling") for trials in (500, 15_000)
    )
    assert some.verdict_class == many.verdict_class == "no deviation"
    assert many.detectable_bias < 0.05 < some.detectable_bias < 1.0
    assert many.lossless
    assert not some.lossless
    for wrong in (lambda *_: 0, lambda *_: 9):
        report = mo.audit(wrong, PROBLEM, 0, 1_000)
        assert report.verdict_class == "lossy"
        assert not report.lossless
        assert 0.0 <= report.detectable_bias <= 1.0


def test_enumeration_says_what_it_proved_and_what_the_trials_can_see() -> None:
    """The law of a verifier that leaves the target once in a thousand calls is still lossless."""

    class RarelyWrong:
        def __call__(self, target: Any, draft: Any, drafts: Any, rng: Any) -> int:
            return 0 if rng.random() < 1e-3 else samples_target(target, draft, drafts, rng)

        def conditional_law(self, target: Any, draft: Any, drafts: Any) -> Any:
            return target

    report = mo.audit(RarelyWrong(), PROBLEM, 0, 4_000)
    assert report.clean
    assert report.law_proven_lossless
    assert report.tolerance == 1e-9
    true_bias = 1e-3 * (1 - TARGET[0])
    assert report.detectable_bias > 10 * true_bias
    assert report.trials_needed(report.detectable_bias) == pytest.approx(4_000, rel=0.01)
    assert report.total_variation < 1e-12
    assert report.total_variation_interval.low <= true_bias <= report.total_variation_interval.high
    assert report.total_variation_interval.high > 0.01
    assert report.acceptance_interval is not None
    low, high = report.acceptance_interval
    assert report.sampled_acceptance_rate is not None
    assert low < report.sampled_acceptance_rate < high
    assert report.acceptance_rate == pytest.approx(low, abs=0.05)
    assert report.sampler_p_value is not None
    assert report.sampler_p_value > 1e-6
    assert "the stated law is lossless (enumerated)" in report.verdict
    assert f"4,000 trials, where a bias of {report.detectable_bias:.2g}" in report.verdict
    rows = dict(report.rows())
    assert rows["bias that may be hidden"].startswith(f"below {report.detectable_bias:.3g} in any")
    assert "4,000 trials" in rows["acceptance rate of the calls"]
    assert rows["stated law lossless"].startswith("proven")
    as_dict = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert as_dict["law_proven_lossless"] is True
    assert as_dict["sampled_acceptance_rate"] == report.sampled_acceptance_rate
    assert report.verdict_class == "no deviation"  # what is proven is what it states
    few = mo.audit(RarelyWrong(), PROBLEM, 0, 5)
    assert few.detectable_bias == 1.0
    assert not few.lossless
    assert "too few" in few.verdict


def test_reports_become_json_and_text() -> None:
    report = mo.audit(lambda *_: 1, PROBLEM, 0, 5_000, method="sampling")
    as_dict = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert as_dict["violations"][0]["kind"] == "impossible token"
    assert list(as_dict["trials_needed"]) == [str(b) for b in BIAS_LADDER]
    assert as_dict["acceptance_interval"]["low"] <= as_dict["acceptance_rate"]
    text = str(report)
    assert "NOT LOSSLESS: 5,000 impossible outcomes" in text
    assert "false alarm below 1e-06" in text


def test_false_alarms_come_as_rarely_as_stated() -> None:
    """At a stated rate of 5 %, at most 5 % (Bonferroni: rather fewer)."""
    alarms = sum(
        not mo.audit(
            lambda p, q, x, rng: rng.choice(5, size=len(x), p=p),
            PROBLEM,
            seed,
            500,
            batched=True,
            false_alarm=0.05,
            edge_probes=0,
        ).clean
        for seed in range(300)
    )
    assert alarms <= 30  # Pr(more | 5 %) < 1e-4


def test_a_time_budget_instead_of_a_number(clock: Clock) -> None:
    slow = clock.slow(samples_target, 0.05)
    report = mo.audit(slow, PROBLEM, 0, seconds=20, edge_probes=0, method="sampling")
    assert 360 < report.num_trials < 400  # the others told how long one takes
    assert report.clean
    expected = mo.audit(
        samples_target, PROBLEM, 0, report.num_trials, edge_probes=0, method="sampling"
    )
    assert report.detectable_bias == expected.detectable_bias
    assert report.notes == ()  # it was asked for a time, and nothing was left out
    ended = mo.audit(slow, PROBLEM, 0, 40, seconds=60, edge_probes=0, method="sampling")
    assert ended.num_trials == 40
    assert ended.notes == ()
    stopped = mo.audit(slow, PROBLEM, 0, 4_000, seconds=6, edge_probes=0, method="sampling")
    assert stopped.num_trials == 89
    (note,) = stopped.notes
    assert note.startswith("the time was up: 89 of 4,000 calls were made; all of it needs about ")
    assert stopped.verdict_class == "no deviation"
    assert not stopped.lossless

    def batch(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return rng.choice(5, size=len(drafts), p=target)

    slow = clock.slow(batch, 4.0)
    report = mo.audit(slow, PROBLEM, 0, seconds=10, batched=True, edge_probes=0)
    assert report.num_trials == 3 * 65_536
    assert report.clean


def test_what_takes_hours_says_so_after_the_least_calls(clock: Clock) -> None:
    report = mo.audit(clock.slow(samples_target, 60.0), PROBLEM, 0, edge_probes=64)
    assert report.num_trials == LEAST_CALLS
    assert report.answer() == "TOO WEAK"
    assert any("minutes at the speed of this function: give seconds=" in x for x in report.notes)


def test_one_token_vocabulary() -> None:
    problem = mo.TransportProblem([1.0], mo.WithReplacement([1.0], 2))
    assert mo.audit("optimal", problem, 0, 50).clean
    report = mo.audit(lambda *_: 0, problem, 0, 50)
    assert report.clean
    assert report.acceptance_rate == report.optimal_acceptance_rate == 1.0


def test_loading_a_verifier_from_a_string() -> None:
    assert load_verifier("optimal") is verifiers.get("optimal")
    assert load_verifier("math:floor")(2.5) == 2
    with pytest.raises(InvalidInput, match=r"module:function, or one of: .*optimal"):
        load_verifier("unknown")
    with pytest.raises(InvalidInput, match="cannot load 'no_such_module:f': ModuleNotFoundError"):
        load_verifier("no_such_module:f")
    with pytest.raises(InvalidInput, match="AttributeError"):
        load_verifier("math:no_such_function")
    with pytest.raises(InvalidInput, match="math:pi is 3"):
        load_verifier("math:pi")
