r"""Audits of drafts: are they really drawn from the law the verifier assumes?

The conditional law of every draft given the earlier ones is known for every scheme. With F_k its
distribution function in a fixed order of the tokens and v_k uniform noise,
:math:`u_k = F_k(x_k^-) + v_k \Pr(x_k \mid x_1..x_{k-1})` is uniform and independent of the earlier
ones exactly if the tuples follow the scheme (Rosenblatt's transform, randomised).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.checks import (
    Sight,
    by_rank,
    deviations,
    direction_check,
    merged_cells,
    neighbour_checks,
    num_bins,
    place_checks,
    recurrence_checks,
    sight_of,
)
from mdsd_opt.auditing.findings import Findings
from mdsd_opt.auditing.pace import settled
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.subject import ViolationLog, check_arguments, checked_tuples
from mdsd_opt.base.arrays import Flags, Tokens, Vector, to_numpy
from mdsd_opt.base.checked import Rng, check_function, generator_of
from mdsd_opt.base.foreign import foreign, ran
from mdsd_opt.drafts import DraftScheme, checked_draft_scheme
from mdsd_opt.evidence import (
    AuditOptions,
    Check,
    Options,
    RateKeywords,
    TokenDeviation,
    budgeted,
    options_of,
    statistics,
)

#: Most tuples whose law is compared with the frequencies one by one, and pairs of places looked at.
_MAX_TUPLES, _MAX_PAIRS = 20_000, 20_000

#: Bins of single drafts, transformed.
_BINS = 64

#: Shares of the draft law at which prefix sets end.
_PREFIX_SHARES = (0.25, 0.5, 0.75, 0.9, 0.99)


@foreign("the sampler under audit")
def audit_drafts(
    sample: Callable[..., Any],
    drafts: DraftScheme,
    rng: Rng = 0,
    num_trials: int | None = None,
    *,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[RateKeywords],
) -> AuditReport:
    r"""Decide whether draft tuples follow the law of a scheme.

    A verifier is lossless for the draft law it is told. Checked are the law of each draft given
    the earlier ones (transformed to uniforms), consecutive drafts on a grid, drafts given those of
    earlier calls (as in `audit`), single tokens, repeats of a token within a tuple, the containment
    probabilities :math:`Q(H)` of several prefix sets, the whole tuple law where it has at most
    20,000 tuples, and tuples the scheme cannot draft.

    Parameters
    ----------
    sample : callable or DraftScheme
        ``sample(rng) -> (K,)`` or ``sample(rng, size) -> (size, K)`` token ids in draw order,
        padded with -1; the second form if it takes two arguments. What it draws from PyTorch,
        Python's `random` and `numpy.random` is answered by the audit, see `mdsd_opt.audit`.
    drafts : DraftScheme
        The law assumed.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    num_trials : int, optional
        Draft tuples: by default 100,000.
    options : AuditOptions
        Its `num_trials`, `false_alarm`, `power`, `confidence` and `detect` are read.
    **keywords
        The last four by their names.

    Returns
    -------
    AuditReport
        Report with ``lossless`` meaning "drawn from this law"; without acceptance rates.
        `total_variation` compares the tuple law where it was enumerated, else the laws of the
        single drafts given the earlier ones, in 64 bins.

    Raises
    ------
    InvalidInput
        `sample` raises, or returns something else than token ids of the right shape.
    """
    checked_draft_scheme(drafts)
    asked = options_of(options, keywords, RateKeywords)
    if num_trials is not None:
        asked = replace(asked, num_trials=num_trials)
    settings = budgeted(asked, rng, num_trials=100_000, num_drafts=drafts.num_drafts)
    rng = generator_of(rng)
    tuples = np.empty((0, drafts.num_drafts), np.int64)

    def look(options: Options) -> list[AuditReport]:
        nonlocal tuples
        more = drawn_tuples(sample, drafts, rng, options.num_trials - len(tuples))
        tuples = np.concatenate([tuples, more])
        evidence = examine(tuples, drafts, rng)
        findings = Findings(
            options=options,
            num_trials=len(tuples),
            checks=evidence.checks,
            distance=statistics.distance(
                evidence.outcomes, evidence.probabilities, options.confidence
            ),
            sight=evidence.sight,
            tokens=_deviating_tokens(drafts, evidence.possible),
            where="among the drafts",
            wrong_drafts=evidence.log,
        )
        return [AuditReport.of(findings, "drafts")]

    return settled(look, settings)[0]


@dataclass(frozen=True, slots=True, eq=False)
class DraftEvidence:
    """Evidence of draft tuples about their law, and what the checks of it can see.

    The tuples that the scheme can draft have shape (n, K); those that it cannot are logged.
    Outcomes are indices of tuples where their law was enumerated, else bins of transformed drafts;
    `probabilities` is the law of these.
    """

    checks: tuple[Check, ...]
    possible: Tokens
    log: ViolationLog
    outcomes: Tokens
    probabilities: Vector
    sight: Sight


def examine(tuples: Tokens, drafts: DraftScheme, rng: np.random.Generator) -> DraftEvidence:
    """Results of all checks of draft tuples (N, K) that exist for their scheme."""
    points, can_be_drawn = transform(drafts, tuples, rng)
    log = ViolationLog()
    for row in tuples[~can_be_drawn]:
        log.add("impossible drafts", row, f"drafts {row.tolist()} cannot be drawn under {drafts!r}")
    possible, uniforms = tuples[can_be_drawn], points[can_be_drawn]
    checks = [
        *draft_checks(uniforms, rng),
        *_token_checks(drafts, possible),
        *_set_checks(drafts, possible),
    ]
    outcomes = statistics.bins_of(uniforms.ravel(), _BINS)
    probabilities = np.full(_BINS, 1.0 / _BINS)
    size, scope = len(uniforms), "between bins of single drafts, given the earlier ones"
    sight = Sight(size, num_bins(size), scope)
    if drafts.count_tuples() <= min(_MAX_TUPLES, max(len(tuples) // 5, 1)):
        outcomes, probabilities = _as_tuples(drafts, possible)
        cells = merged_cells(probabilities, by_rank(probabilities), outcomes.size)
        p_value = statistics.chi_square(cells.scores(outcomes, rng)[0])
        checks.append(Check("whole tuples", "any change of the tuple law", p_value))
        sight = sight_of(probabilities, cells, outcomes.size, "between classes of tuples by rank")
        checks += [direction_check(law, outcomes) for law in sight.laws]
    every = tuple(replace(check, of_drafts=True) for check in checks)
    return DraftEvidence(every, possible, log, outcomes, probabilities, sight)


def transform(
    drafts: DraftScheme, tuples: Tokens, rng: np.random.Generator
) -> tuple[Vector, Flags]:
    """Random choices (N, J) behind draft tuples (N, K), and which tuples the scheme can draft.

    Rows of impossible tuples mean nothing. `UnsupportedScheme` where the law has to be listed and
    has too many tuples.
    """
    below, mass, possible = drafts.uniform_intervals(tuples)
    return below + rng.random(mass.shape) * mass, possible


def drawn_tuples(sample: Any, drafts: DraftScheme, rng: np.random.Generator, size: int) -> Tokens:
    """Call a sampler of any form, and check the shape of its result."""
    if isinstance(sample, DraftScheme):  # or a callable
        return sample.sample(rng, size)
    check_function("a callable or a draft scheme", sample=sample)
    by_size = _takes_size(sample)
    check_arguments(sample, "rng, size" if by_size else "rng", name="sample")
    with foreign("sample", "sample failed with"), served(rng) as serving:
        raw = (
            ran(sample(serving.rng, size))
            if by_size
            else [to_numpy(sample(serving.rng), "drafts") for _ in range(size)]
        )
        tuples = to_numpy(raw, "the drafts returned by sample")
    return checked_tuples(tuples, (size, drafts.num_drafts), "sample")


def _takes_size(sample: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(sample)
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [p for p in signature.parameters.values() if p.kind in kinds]
    many = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values())
    return many or len(places) >= 2


def draft_checks(uniforms: Vector, rng: np.random.Generator) -> list[Check]:
    """Checks of the transformed drafts: each place, given the one before, given earlier tuples."""
    checks = [
        *place_checks(
            uniforms, rng, "each draft", "a draft that does not follow its law given earlier ones"
        ),
        *neighbour_checks(uniforms, rng, "neighbouring drafts", "drafts that depend on each other"),
        *recurrence_checks(
            uniforms, rng, "succession of drafts", "drafts that depend on those of earlier calls"
        ),
    ]
    return [replace(check, of_drafts=True) for check in checks]


def _token_checks(drafts: DraftScheme, tuples: Tokens) -> list[Check]:
    p_values = []
    for places, law in drafts.independent_places():
        counts = np.bincount(tuples[:, places].ravel(), minlength=law.size)
        p_values.append(statistics.single_tokens(counts, law))
    if not p_values:
        return []
    smallest = min(1.0, len(p_values) * min(p_values))
    return [Check("single tokens", "one token drafted too often or too rarely", smallest)]


def _set_checks(drafts: DraftScheme, tuples: Tokens) -> list[Check]:
    """Checks of repeats within a tuple, and of containment in prefix sets."""
    result = []
    repeats = _repeat_probabilities(drafts)
    if repeats:
        pairs = list(repeats)
        hits = np.array([int((tuples[:, i] == tuples[:, j]).sum()) for i, j in pairs])
        each = statistics.two_sided(hits, len(tuples), np.array([repeats[pair] for pair in pairs]))
        smallest = float(min(1.0, len(pairs) * each.min()))
        result.append(Check("repeats", "a token drafted twice too often or too rarely", smallest))
    subsets = _prefix_sets(drafts.propensity())
    if subsets:
        inside = [int((subset[tuples] | (tuples < 0)).all(axis=1).sum()) for subset in subsets]
        contained = [min(max(drafts.containment(subset), 0.0), 1.0) for subset in subsets]
        each = statistics.two_sided(np.array(inside), len(tuples), np.array(contained))
        smallest = float(min(1.0, len(subsets) * each.min()))
        looks_for = "tuples inside a set of likely drafts too often or too rarely"
        result.append(Check("containment", looks_for, smallest))
    return result


def _repeat_probabilities(drafts: DraftScheme) -> dict[tuple[int, int], float]:
    """Probability that drafts at two places are the same token, for the first independent pairs."""
    laws = {place: q for places, q in drafts.independent_places() for place in places}
    pairs = islice(combinations(sorted(laws), 2), _MAX_PAIRS)
    return {(i, j): float(laws[i] @ laws[j]) for i, j in pairs}


def _prefix_sets(propensity: Vector) -> list[Flags]:
    order = np.argsort(-propensity, kind="stable")
    reached = np.cumsum(propensity[order])
    ends = np.searchsorted(reached, np.array(_PREFIX_SHARES) * reached[-1]) + 1
    subsets = []
    for end in np.unique(np.minimum(ends, propensity.size - 1)).tolist():
        if end > 0:
            subset = np.zeros(propensity.size, dtype=np.bool_)
            subset[order[:end]] = True
            subsets.append(subset)
    return subsets


def _as_tuples(drafts: DraftScheme, tuples: Tokens) -> tuple[Tokens, Vector]:
    """Index of every tuple in the enumerated law, and that law."""
    listed, masses = drafts.tuple_law()
    merged: dict[tuple[int, ...], float] = {}
    for row, mass in zip(listed.tolist(), masses.tolist(), strict=True):
        if mass > 0:
            merged[tuple(row)] = merged.get(tuple(row), 0.0) + mass
    place = {key: n for n, key in enumerate(merged)}
    rows = drafts.as_listed(tuples).tolist()
    indices = np.array([place[tuple(row)] for row in rows], dtype=np.int64)
    return indices, np.array(list(merged.values()))


def _deviating_tokens(drafts: DraftScheme, tuples: Tokens) -> tuple[TokenDeviation, ...]:
    known: Sequence[tuple[list[int], Vector]] = drafts.independent_places()
    if not known:
        return ()
    places, law = known[0]
    return deviations(np.bincount(tuples[:, places].ravel(), minlength=law.size), law)
