"""Audits of recorded steps of an engine that can't be called: did its tokens follow the target?"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.draft_audit import draft_checks
from mdsd_opt.auditing.findings import AcceptedCount, Findings
from mdsd_opt.auditing.looks import unsettled
from mdsd_opt.auditing.output_checks import (
    acceptance_check,
    length_check,
    listed_deviations,
    neighbour_checks,
    num_bins,
    place_checks,
    succession_check,
    uniformity_checks,
)
from mdsd_opt.auditing.sight import Sight
from mdsd_opt.auditing.trace_input import recorded_steps
from mdsd_opt.auditing.trace_rows import FirstTokens, LaterTokens, first_tokens, later_tokens
from mdsd_opt.base.array_types import Tokens, Vector
from mdsd_opt.base.checked import check_truth
from mdsd_opt.base.sampling import FilterKeywords, Sampling, softmax
from mdsd_opt.base.seeds import Rng, generator_of
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    LARGEST_Z,
    NOT_JUDGED,
    AuditOptions,
    Check,
    RateKeywords,
    TokenDeviation,
    budgeted,
    options_of,
    statistics,
)

#: Mean variance of a token, sum p (1 - p), up to which its law counts as certain.
_CERTAIN = 1e-9

#: Most cells of [0, 1]^L in which whole steps are counted.
_MAX_CELLS = 64


class _Keywords(RateKeywords, FilterKeywords, total=False):
    pass


def audit_trace(
    target: Any,
    draft_law: Any,
    drafts: Any,
    tokens: Any,
    *,
    scheme: str = "with_replacement",
    parents: Any = None,
    logits: bool = False,
    sampling: Sampling | None = None,
    rng: Rng = 0,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[_Keywords],
) -> AuditReport:
    r"""Decide from recorded steps whether an engine's tokens followed its target.

    The emitted token of each step is transformed to
    :math:`u_n = \sum_{i \prec y_n} p_{n,i} + v_n\, p_{n,y_n}` with uniform noise :math:`v_n`: these
    are independent and uniform, whatever the targets of the steps are, exactly if every token
    follows its own target. Two orders are used: by probability, and by target / draft ratio, along
    which a wrong verifier moves mass.

    A step may give several tokens, of a chain or a tree of M drafts. Then each token is transformed
    under the law at its node, and the places that a step did not reach are filled up with uniform
    noise, which is what tokens drawn from the target would be transformed to.

    Parameters
    ----------
    target : array_like, shape (N, V), or (N, M + 1, V) for several tokens a step
        Target probabilities of each step (or logits). Rows are read one at a time. Of several
        tokens: at the root, and after each draft; where the drafts were not recorded, before each
        of M + 1 tokens at most.
    draft_law : array_like of the shape of `target`, sequence of N DraftScheme, or None
        Draft probabilities (or logits) at each step; None if they were not recorded: then neither
        the drafts nor the acceptance rate are checked. Of several tokens: an array, by which the
        drafts after the root and after each draft were drawn; where none was drawn it is not read.
    drafts : array_like of int, shape (N, K) or (N, M)
        Draft tokens in draw order, padded with -1. Shape (N, 0) if they were not recorded.
    tokens : array_like of int, shape (N,) or (N, L)
        Tokens that the engine emitted: the token after the accepted prefix of the step (one
        verification), or, with several tokens, the accepted drafts and one more, padded with -1.
    scheme : str
        Scheme by which the drafts were sampled from `draft_law`: "with_replacement",
        "without_replacement", "greedy" or "top_k".
    parents : array_like of int, shape (M,), optional
        For several tokens a step, the node after which each draft was drawn, 0 for the root and i +
        1 for draft i. A chain unless given.
    logits : bool
        `target` and `draft_law` are logits.
    sampling : Sampling, optional
        What the engine promised to make of the logits.
    rng : numpy.random.Generator or int, optional
        Generator for the randomised transform, or its seed, 0 by default.
    options : AuditOptions
        Of which `false_alarm`, `power`, `confidence` and `detect` are read.
    **keywords
        The same by their names; and in place of `sampling` `temperature`, `draft_temperature` (that
        of the target unless given), `top_k`, `top_p`, `min_p` and `joint`, see `Sampling`.

    Returns
    -------
    AuditReport
        `total_variation` and `detectable_bias` speak of the law of the transformed tokens in 64
        bins, averaged over the steps: bias that moves mass the same way along the order of ratios
        (of probabilities where no draft law was given) at most steps shows in full, bias in ever
        other directions cancels. No record can show that, as each law comes once; `direction` says
        so. Where every law has one possible token, nothing is judged. `optimal_acceptance_rate` is
        the mean over the steps. `lossless` speaks of the tokens alone, `drafts_follow_law` of the
        drafts. Of several tokens a step, the acceptance rates are those of the first,
        `accept_length` has all of them, and `total_variation` and `detectable_bias` speak of whole
        steps in at most 64 cells.

    Raises
    ------
    InvalidInput
        Shapes do not fit, or a row is no distribution; the message names it.
    """
    filters: dict[str, Any] = {**keywords}
    others = keywords.keys() - FilterKeywords.__annotations__.keys()
    options = options_of(options, {name: filters.pop(name) for name in others}, RateKeywords)
    check_truth(logits=logits)
    sides = Sampling.of_both(sampling=sampling, **filters)
    if not logits and sides != (Sampling(), Sampling()):
        raise InvalidInput(
            "temperature and filters apply to logits: pass logits=True, or leave them"
        )
    of_target, of_draft = (
        partial(softmax, sampling=side) if logits else (lambda row: row) for side in sides
    )
    steps = recorded_steps(target, draft_law, drafts, tokens, parents, scheme, of_target, of_draft)
    size = len(steps.tokens)
    settings = budgeted(replace(options, num_trials=size), rng)
    rng = generator_of(rng)
    with_drafts = steps.draft_law is not None
    first = first_tokens(steps, rng)
    checks = _checks(first, with_drafts, rng)
    points = (first.by_ratio if with_drafts else first.by_rank)[:, None]
    most, later = num_bins(int((~np.isnan(points)).sum())), None
    if steps.several:
        later = later_tokens(steps, rng, first.wrong_tokens, first.wrong_drafts)
        points = np.hstack([points, later.by_ratio if with_drafts else later.by_rank])
        checks += _later_checks(later, points, with_drafts, rng)
        most = _MAX_CELLS
    outcomes, num_cells = _cells(points, most)
    along = "p/q" if with_drafts else "p"
    scope = f"between {num_cells} bins of places in the laws along {along}, averaged over the steps"
    if later is not None:
        scope = f"between {num_cells} cells of whole steps along {along}"
    known = with_drafts and not np.isnan(first.optima).any()
    recorded = steps.drafts.shape[1] > 0
    overlaps = None if later is None else later.overlaps
    findings = Findings(
        options=settings,
        num_trials=size,
        checks=checks,
        distance=statistics.distance(
            outcomes, np.full(num_cells, 1 / num_cells), settings.confidence
        ),
        sight=Sight(outcomes.size, num_cells, scope),
        tokens=_deviating_tokens(first),
        where="as the first of a step, over all steps",
        wrong_tokens=first.wrong_tokens,
        wrong_drafts=first.wrong_drafts if with_drafts else None,
        accepted=AcceptedCount(int(first.accepted.sum()), size) if recorded else None,
        optimum=float(first.optima.mean()) if known else None,
        accept_length=None if later is None else float(later.lengths.mean()),
        optimal_accept_length=None if overlaps is None else 1 + float(overlaps.mean()),
    )
    report = unsettled(AuditReport.of(findings, "trace"))
    open_laws = first.spread.sum() + (0.0 if later is None else later.spread)
    if report.clean and open_laws <= _CERTAIN * size:
        return replace(report, verdict_class=NOT_JUDGED)
    return report


def _checks(rows: FirstTokens, with_drafts: bool, rng: np.random.Generator) -> list[Check]:
    from scipy import stats

    rank = rows.by_rank[~np.isnan(rows.by_rank)]
    ratio = rows.by_ratio[~np.isnan(rows.by_ratio)]
    of_ranks = _groups(rows.rank_law, rows.rank_group)
    checks = [
        *uniformity_checks(rank, rng, "rank transform", "mass moved between likely and unlikely"),
        Check("rank groups", "likeliest tokens or tail too often", of_ranks),
        Check("single tokens", "one token too often or too rare", _tokens(rows)),
    ]
    if with_drafts:
        looks_for = "mass moved between tokens drafted too often and too rarely"
        checks += uniformity_checks(ratio, rng, "ratio transform", looks_for)
        checks.append(Check("ratio groups", looks_for, _groups(rows.ratio_law, rows.ratio_group)))
    main = ratio if with_drafts else rank
    smooth = 1.0 if main.size == 0 else float(stats.kstest(main, "uniform").pvalue)
    checks.append(Check("Kolmogorov-Smirnov", "a smooth shift along the order", smooth))
    after = statistics.consecutive(statistics.bins_of(main, 4), np.full(4, 0.25), rng)
    looks_for = "tokens that depend on earlier ones"
    checks.append(succession_check(after, main, rng, "succession", looks_for))
    if with_drafts:
        if not np.isnan(rows.optima).any():
            hits, expected = int(rows.accepted.sum()), rows.optima.sum()
            above = statistics.one_sided_bound(hits, rows.optima) if hits > expected else 1.0
            checks.append(acceptance_check(above))
        if rows.draft_uniforms is not None:
            checks += draft_checks(rows.draft_uniforms, rng)
    return checks


def _cells(points: Vector, most: int = _MAX_CELLS) -> tuple[Tokens, int]:
    """Cells of [0, 1]^L into which whole steps fall, by their first places, and their number."""
    points = points[~np.isnan(points).any(axis=1), : int(math.log2(_MAX_CELLS))]
    places = points.shape[1]
    side = max(2, int(most ** (1 / places) + 1e-9))
    return statistics.bins_of(points, side) @ side ** np.arange(places)[::-1], side**places


def _later_checks(
    steps: LaterTokens, points: Vector, with_drafts: bool, rng: np.random.Generator
) -> list[Check]:
    """Checks of whole steps (N, L), of their tokens after the first, and of what was accepted."""
    ratio, rank = (rows[~np.isnan(rows).any(axis=1)] for rows in (steps.by_ratio, steps.by_rank))
    subject = "tokens after the first that do not follow their laws"
    checks = place_checks(rank, rng, "later tokens, by rank", subject)
    if with_drafts:
        checks += place_checks(ratio, rng, "later tokens, by ratio", subject)
    joint = points[~np.isnan(points).any(axis=1)]
    subject = "tokens of a step that depend on each other"
    checks += neighbour_checks(joint, rng, "neighbouring tokens", subject)
    outcomes, num_cells = _cells(points)
    counts = np.bincount(outcomes, minlength=num_cells)
    scores, _ = statistics.split_scores(counts, np.full(num_cells, 1 / num_cells), rng)
    subject = "any change of the law of what a step gives"
    checks.append(Check("whole steps", subject, statistics.chi_square(scores)))
    if steps.overlaps is not None:
        excess = float((steps.lengths - 1 - steps.overlaps).mean())
        width = 2 * steps.by_rank.shape[1]  # accepted drafts and their estimate, both up to depth
        checks.append(length_check(excess, width, len(steps.lengths)))
    if steps.draft_uniforms is not None:
        checks += [
            Check(f"{check.name} (later)", check.looks_for, check.p_value, of_drafts=True)
            for check in draft_checks(steps.draft_uniforms, rng)
        ]
    return checks


def _groups(law: Vector, group: Tokens) -> float:
    """Number of tokens of each group, against the sum of its probabilities."""
    hits = np.bincount(group, minlength=law.shape[1])
    bounds = [
        statistics.poisson_binomial_bound(int(h), law[:, g]) for g, h in enumerate(hits.tolist())
    ]
    return min(1.0, len(bounds) * min(bounds))


def _tokens(rows: FirstTokens) -> float:
    bounds = statistics.poisson_bound(rows.observed, rows.expected)
    share = (rows.expected / rows.expected.sum() + 1.0 / rows.expected.size) / 2.0
    return float(min(1.0, (bounds / share).min()))


def _deviating_tokens(rows: FirstTokens) -> tuple[TokenDeviation, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (rows.observed - rows.expected) / np.sqrt(rows.spread)
    scores = np.where(rows.spread > 0, np.clip(scores, -LARGEST_Z, LARGEST_Z), 0.0)
    bounds = statistics.poisson_bound(rows.observed, rows.expected)
    return listed_deviations(rows.observed, rows.expected, bounds, scores)
