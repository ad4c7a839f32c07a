"""Verifiers that look right and are not, each with the audit that finds it out.

Every one of these is a mistake that is easily made and that no unit test of shapes, ranges and
acceptance rates will show: the tokens look fine, there are only too many of some and too few of
others. Run the file to see what the audit says about each:

    python examples/wrong_verifiers.py              # every entry at its stated sample size
    python examples/wrong_verifiers.py --power 50   # how often it is caught, in 50 audits each
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.base.sampling import filter_tokens

Verify = Callable[[Any, Any, Any, np.random.Generator], Any]


def drawn(weights: Any, uniform: float) -> int:
    """Token drawn in proportion to the weights; one of weight zero is never drawn."""
    support = np.flatnonzero(weights)
    reached = np.cumsum(weights[support])
    place = int(np.searchsorted(reached, uniform * reached[-1], side="right"))
    return int(support[min(place, support.size - 1)])  # the product may round up to the total


def faultless(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """Recursive rejection sampling as it should be, from which the others deviate."""
    residual = target
    for x in drafts:
        if rng.random() * draft[x] < residual[x]:
            return int(x)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return drawn(residual, rng.random())


def skips_duplicates(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """A draft seen before is skipped, as it was rejected once; but so is the residual's update."""
    residual, seen = target, set()
    for x in drafts.tolist():
        if x in seen:
            continue
        seen.add(x)
        if rng.random() * draft[x] < residual[x]:
            return int(x)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return drawn(residual, rng.random())


def zeroes_the_token(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """After a rejection the token itself is struck out, instead of subtracting q."""
    residual = target
    for x in drafts:
        if rng.random() * draft[x] < residual[x]:
            return int(x)
        residual = residual.copy()
        residual[x] = 0.0
        residual = residual / residual.sum()
    return drawn(residual, rng.random())


def accepts_at_zero(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """`<=` where `<` is meant: at u = 0 an impossible token is accepted."""
    residual = target
    for x in drafts:
        if rng.random() * draft[x] <= residual[x]:
            return int(x)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return drawn(residual, rng.random())


def tests_independently(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """Every draft is tested against the target itself, as if it were the first."""
    for x in drafts:
        if rng.random() * draft[x] < target[x]:
            return int(x)
    return drawn(np.maximum(target - draft, 0.0), rng.random())


def resamples_the_target(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """After all rejections a token is drawn from the target, not from the residual."""
    residual = target
    for x in drafts:
        if rng.random() * draft[x] < residual[x]:
            return int(x)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return drawn(target, rng.random())


def reuses_the_uniform(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """The uniform of the last test draws from the residual too, though the test bent its law."""
    residual = target
    for x in drafts:
        uniform = rng.random()
        if uniform * draft[x] < residual[x]:
            return int(x)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return drawn(residual, uniform)


def forgets_to_renormalise(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """Tests with the draft's probabilities before its top-k filter, which kept 90 % of the mass."""
    return faultless(target, 0.9 * draft, drafts, rng)


def races_in_half_precision(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    """Ignores the drafts and samples by a race of exponentials, of uniforms with 11 bits.

    The quickest clock is 2**-11 over the probability, so unlikely tokens always come too late.
    """
    uniforms = np.floor(rng.random(target.size) * 2048) / 2048
    with np.errstate(divide="ignore"):
        return int(np.argmin(-np.log(uniforms) / target))


def shares_its_uniforms(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
    """Every row of a batch uses the same uniforms: right one by one, wrong together."""
    tests, last = rng.random(drafts.shape[1]).tolist(), float(rng.random())
    tokens = np.full(len(drafts), -1)
    residual = target
    for k, uniform in enumerate(tests):
        x = drafts[:, k]
        tokens = np.where((tokens < 0) & (uniform * draft[x] < residual[x]), x, tokens)
        residual = np.maximum(residual - draft, 0.0)
        residual = residual / residual.sum()
    return np.where(tokens < 0, drawn(residual, last), tokens)


@dataclass(frozen=True, slots=True)
class WrongVerifier:
    """A verifier, or a sampler of drafts, with a problem on which its mistake shows.

    Attributes
    ----------
    name, description : str
    verify : callable
        ``(target, draft, drafts, rng) -> token``
    problem : TransportProblem
        The target that is promised and the drafts that are drawn.
    num_trials : int
        Sample size at which an audit finds it out with a probability of at least 99 %.
    total_variation : float
        Exact distance of the law of one output from the target (of a draft from q, where the
        drafts are wrong). 0 if the mistake shows elsewhere.
    sample : callable, optional
        How the drafts are really drawn, where that is the mistake.
    batched : bool
        See `mdsd_opt.audit`.
    """

    name: str
    description: str
    verify: Verify
    problem: mo.TransportProblem
    num_trials: int
    total_variation: float
    sample: Callable[[np.random.Generator, int], Any] | None = None
    batched: bool = False

    def audit(self, rng: np.random.Generator | int, num_trials: int | None = None) -> Any:
        """Audit the half that is wrong."""
        trials = num_trials or self.num_trials
        if self.sample is not None:
            return mo.audit_drafts(self.sample, self.problem.drafts, rng, trials)
        options = {"method": "sampling", "batched": self.batched}  # what so many trials can see
        return mo.audit(self.verify, self.problem, rng, trials, **options)


TARGET = np.array([0.30, 0.25, 0.20, 0.15, 0.10, 0.00])
DRAFT = np.array([0.10, 0.15, 0.30, 0.10, 0.25, 0.10])
ZIPF = np.arange(1.0, 257.0) ** -1.5
ZIPF /= ZIPF.sum()


def _with_raw_target(raw: Any) -> Verify:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return faultless(raw, draft, drafts, rng)

    return verify


def _filters_the_target(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    return faultless(filter_tokens(target, top_p=0.85), draft, drafts, rng)


def _two_per_cent_off(rng: np.random.Generator, size: int) -> Any:
    q = DRAFT + np.array([0.02, 0.0, 0.0, 0.0, -0.02, 0.0])
    return mo.WithReplacement(q, 3).sample(rng, size)


def gallery() -> tuple[WrongVerifier, ...]:
    """All wrong verifiers."""
    three = mo.TransportProblem(TARGET, mo.WithReplacement(DRAFT, 3))
    short_target = filter_tokens(TARGET, top_p=0.85)
    short_draft = filter_tokens(DRAFT, top_p=0.85)
    filtered = mo.TransportProblem(short_target, mo.WithReplacement(short_draft, 3))
    top_two = mo.TransportProblem(TARGET, mo.TopKDrafts(DRAFT, 2))
    repeating = mo.TransportProblem([0.5, 0.0, 0.5], mo.WithReplacement([0.1, 0.55, 0.35], 3))
    single = mo.TransportProblem([0.4, 0.25, 0.35], mo.WithReplacement([0.25, 0.7, 0.05], 1))
    long_tail = mo.TransportProblem(ZIPF, mo.WithReplacement(np.full(256, 1 / 256), 2))

    def of(verify: Verify, problem: mo.TransportProblem, trials: int, tv: float) -> Any:
        description = (verify.__doc__ or "").partition("\n")[0]
        return WrongVerifier(verify.__name__, description, verify, problem, trials, tv)

    return (
        of(skips_duplicates, repeating, 1_000, 0.127875),
        of(zeroes_the_token, three, 1_000, 0.12286369047619047),
        of(accepts_at_zero, three, 100, 0.0),
        of(tests_independently, three, 1_000, 0.145125),
        of(resamples_the_target, three, 2_000, 0.0955625),
        of(reuses_the_uniform, single, 700, 0.15),
        of(forgets_to_renormalise, three, 10_000, 0.036779226776037),
        WrongVerifier(
            "top_p_on_the_draft_only",
            "Both sides promise top-p 0.85; the target is used unfiltered.",
            _with_raw_target(TARGET),
            filtered,
            100,
            0.1,
        ),
        WrongVerifier(
            "top_p_on_the_target_only",
            "No filter is promised; the target is cut to top-p 0.85 all the same.",
            _filters_the_target,
            three,
            200,
            0.1,
        ),
        WrongVerifier(
            "top_k_as_if_sampled",
            "The two likeliest tokens are drafted for certain, and tested as if drawn from q.",
            faultless,
            top_two,
            100,
            7 / 15,
        ),
        of(races_in_half_precision, long_tail, 5_000, 0.0350854),
        WrongVerifier(
            "shares_its_uniforms",
            "Every row of a batch uses the same uniforms: right one by one, wrong together.",
            shares_its_uniforms,
            three,
            300,
            0.0,
            batched=True,
        ),
        WrongVerifier(
            "draft_law_off_by_two_per_cent",
            "Drafts come from a law at total variation 0.02 of the one verified with.",
            faultless,
            three,
            7_000,
            0.02,
            sample=_two_per_cent_off,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--power", type=int, default=0, metavar="AUDITS")
    audits = parser.parse_args().power
    for wrong in gallery():
        print(f"\n{wrong.name}: {wrong.description}")
        if audits:
            caught = sum(not wrong.audit(seed).lossless for seed in range(audits))
            print(f"  caught in {caught} of {audits} audits of {wrong.num_trials:,} trials")
        else:
            print(f"  {wrong.audit(0).verdict}")


if __name__ == "__main__":
    main()
