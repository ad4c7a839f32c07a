"""Verifiers: lossless, accepting as often as they say, and never an impossible token."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import mdsd_opt as mo
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.verifiers import Uniforms, Verifier
from stress import reference
from stress.problems import BUILDERS, Case, draw_case
from stress.tally import Tally, Trial

CLOSED_FORM, PROGRAMME = 1e-12, 1e-9

#: So that exact laws over all draft tuples take some tens of milliseconds.
SIZES = ((1, 3), (2, 3), (3, 2), (3, 3), (4, 2))

#: The law of this one has as many terms as it has tuples, tokens and drafts multiplied.
GUMBEL_SIZES = ((1, 3), (2, 2), (3, 1), (3, 2))

#: A problem in this many is also enumerated in Fractions.
_EXACT_SHARE = 0.25

_ENDS = (0.0, 0.5, float(np.nextafter(1.0, 0.0)))

_FORMS = {name: mo.verifiers.get(name) for name in mo.verifiers.names()}
_FORMS["optimal, collapsed"] = mo.verifiers.get("optimal", binned=True)


def check(rng: np.random.Generator, tally: Tally) -> None:
    """Every verifier with every draft scheme it is lossless for."""
    for name, verifier in _FORMS.items():
        for scheme in BUILDERS:
            case = draw_case(rng, scheme, GUMBEL_SIZES if name == "gumbel" else SIZES)
            if not verifier.supports(case.problem.drafts):
                continue
            with tally.trial(f"{name}: {scheme}", lambda case=case: str(case)) as trial:
                _law(rng, trial, verifier, case)
                _rate(trial, name, verifier, case)
                _verdicts(rng, trial, verifier, case)
            if verifier.rational and rng.random() < _EXACT_SHARE:
                kind = f"{name}: {scheme}, exactly"
                with tally.trial(kind, lambda case=case: str(case)) as trial:
                    _exactly(trial, name, verifier, case)


def _law(rng: np.random.Generator, trial: Trial, verifier: Verifier, case: Case) -> None:
    problem = case.problem
    law = verifier.output_law(problem)
    for i, exact in enumerate(case.target.exact):
        trial.near(law[i], exact, CLOSED_FORM, f"output law of token {i}")
    impossible = np.array(case.target.numerators) == 0
    for tokens in _possible_tuples(case):
        given = verifier.conditional_law(problem, tokens)
        trial.that((given >= 0).all(), f"law given {tokens.tolist()} is {given.tolist()}")
        trial.that(not given[impossible].any(), f"law given {tokens.tolist()}: impossible token")
        if (given >= 0).all():
            rng.choice(given.size, p=given)


def _possible_tuples(case: Case) -> np.ndarray:
    tuples, masses = case.drafts.scheme.tuple_law()
    return tuples[masses > 0].astype(np.int64)


def _rate(trial: Trial, name: str, verifier: Verifier, case: Case) -> None:
    problem, optimum = case.problem, case.optimum
    rate = verifier.acceptance_rate(problem)
    enumerated = verifier.enumerated_acceptance_rate(problem)
    trial.that(not hasattr(rate, "standard_error"), "an estimate on a tiny problem")
    gap = getattr(rate, "gap", 0.0)
    if name != "optimal, collapsed":
        trial.near(rate, enumerated, CLOSED_FORM, "acceptance rate against enumeration")
    trial.that(rate <= optimum + Fraction(PROGRAMME), f"rate {rate!r} above {float(optimum)!r}")
    if hasattr(rate, "gap"):
        trial.between(rate, optimum, rate + gap, CLOSED_FORM, "optimum within the gap")
    exact = _known_rate(name, case)
    if exact is not None:
        trial.near(rate, exact, PROGRAMME if name == "lp" else CLOSED_FORM, "acceptance rate")


def _known_rate(name: str, case: Case) -> Fraction | None:
    """What the verifier's own formula gives in Fractions, where there is one."""
    p, drafts, k = case.target, case.drafts.scheme, case.problem.num_drafts
    ordered = isinstance(drafts, PrefixDraftScheme)
    if name in ("greedy", "spechub", "lp") or (name == "optimal" and ordered):
        return case.optimum
    if name == "naive_target":
        return reference.naive_target(p, case.drafts.contained)
    q = case.drafts.model
    if name == "rrs" and isinstance(drafts, mo.WithReplacement):
        return reference.rejection(p.exact, [q.exact] * k)
    if name == "rrs" and isinstance(drafts, mo.WithoutReplacement):
        return reference.successive_rejection(p.exact, q.exact, k)
    if name == "single_draft":
        return reference.single_draft(p.exact, q.exact, k)
    if name == "kseq":
        return reference.kseq(p, q, k)
    return None


def _verdicts(rng: np.random.Generator, trial: Trial, verifier: Verifier, case: Case) -> None:
    """Random numbers at the ends of their range included."""
    problem = case.problem
    for tokens in case.drafts.scheme.sample(rng, 4):
        uniforms = np.where(rng.random(4) < 0.5, rng.choice(_ENDS, 4), rng.random(4))
        verdict = verifier.verify(problem, tokens, Uniforms(*uniforms.tolist()))
        where = f"drafts {tokens.tolist()}, uniforms {uniforms.tolist()}: {verdict}"
        trial.that(case.target.numerators[verdict.token] > 0, f"impossible token, {where}")
        trial.that(verdict.accepted == (verdict.token in tokens), f"accepted is wrong, {where}")
        place = tokens.tolist().index(verdict.token) if verdict.accepted else None
        trial.that(verdict.draft_index == place, f"draft_index is wrong, {where}")


def _exactly(trial: Trial, name: str, verifier: Verifier, case: Case) -> None:
    law = verifier.output_law(case.problem, exact=True)
    trial.that(list(law) == case.target.exact, f"exact output law {[str(x) for x in law]}")
    rate = verifier.enumerated_acceptance_rate(case.problem, exact=True)
    trial.that(rate <= case.optimum, f"exact rate {rate} above {case.optimum}")
    exact = _known_rate(name, case)
    if name in ("kseq", "lp"):  # a root that is no rational; a plan that an LP found in floats
        trial.near(rate, exact, CLOSED_FORM if name == "kseq" else PROGRAMME, "exact rate")
    elif exact is not None:
        trial.that(rate == exact, f"exact rate {rate}, not {exact}")
