"""Recorded steps of an engine that can't be called: did its tokens follow the target?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.arrays import to_numpy
from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.draft_audit import draft_checks
from mdsd_opt.auditing.findings import Accepted, Findings
from mdsd_opt.auditing.output_checks import listed_deviations, num_bins, uniformity_checks
from mdsd_opt.auditing.report import AuditReport, Check, TokenDeviation
from mdsd_opt.auditing.settings import Settings, generator_of
from mdsd_opt.auditing.trace_rows import TraceRows, schemes_of, transform_rows
from mdsd_opt.distributions import check_sampling_parameters, softmax
from mdsd_opt.errors import InvalidInput

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


def audit_trace(
    target: Any,
    draft_law: Any,
    drafts: Any,
    tokens: Any,
    *,
    scheme: str = "with_replacement",
    logits: bool = False,
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    rng: np.random.Generator | int = 0,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    confidence: float = 0.99,
) -> AuditReport:
    r"""Settle from recorded steps whether an engine's tokens followed its target.

    The emitted token of each step is transformed to
    :math:`u_n = \sum_{i \prec y_n} p_{n,i} + v_n\, p_{n,y_n}` with uniform noise :math:`v_n`: these
    are independent and uniform, whatever the targets of the steps are, exactly if every token
    follows its own target. Two orders are used: by probability, and by target / draft ratio, along
    which a wrong verifier moves mass.

    Parameters
    ----------
    target : array_like, shape (N, V)
        Target probabilities of each step (or logits). Rows are read one at a time.
    draft_law : array_like of shape (N, V), sequence of N DraftScheme, or None
        Draft probabilities (or logits) at each step; None if they were not recorded: then neither
        the drafts nor the acceptance rate are checked.
    drafts : array_like of int, shape (N, K)
        In draw order, padded with -1. Shape (N, 0) if they were not recorded.
    tokens : array_like of int, shape (N,)
        What the engine emitted: the token after the accepted prefix of the step (one verification).
    scheme : str
        How the drafts were sampled from `draft_law`: "with_replacement", "without_replacement",
        "greedy" or "top_k".
    logits : bool
        `target` and `draft_law` are logits; the parameters from `temperature` to `min_p` say what
        the engine promised to make of them, see `softmax`.
    rng : numpy.random.Generator or int
        For the randomised transform.
    false_alarm, power, confidence : float
        As in `audit`.

    Returns
    -------
    AuditReport
        `total_variation` and `detectable_bias` speak of the law of the transformed tokens in 64
        bins, averaged over the steps: bias that moves mass the same way along the order of ratios
        (of probabilities where no draft law was given) at most steps shows in full, bias in ever
        other directions cancels. `optimal_acceptance_rate` is the mean over the steps. `lossless`
        speaks of the tokens alone, `drafts_follow_law` of the drafts.

    Raises
    ------
    InvalidInput
        Shapes do not fit, or a row is no distribution; the message names it.
    """
    check_sampling_parameters(temperature, top_k, top_p, min_p)
    given, draft_rows, tokens = _checked(target, drafts, tokens)
    settings = Settings(false_alarm, power, confidence, len(tokens))
    if not logits and (temperature, top_k, top_p, min_p) != (1.0, None, None, None):
        raise InvalidInput(
            "temperature and filters apply to logits: pass logits=True, or leave them"
        )
    rng = generator_of(rng)
    cold = temperature if draft_temperature is None else draft_temperature
    filtered = partial(softmax, top_k=top_k, top_p=top_p, min_p=min_p)
    of_target = partial(filtered, temperature=temperature) if logits else _as_they_are
    of_draft = partial(filtered, temperature=cold) if logits else _as_they_are
    size, vocab_size = given.shape
    schemes = None
    if draft_rows.shape[1]:
        schemes = schemes_of(draft_law, scheme, size, draft_rows.shape[1], vocab_size, of_draft)
    rows = transform_rows(given, schemes, draft_rows, tokens, of_target, rng)
    points = rows.by_rank if schemes is None else rows.by_ratio
    points = points[~np.isnan(points)]
    bins = num_bins(points.size)
    outcomes = np.minimum((points * bins).astype(np.int64), bins - 1)
    known = schemes is not None and not np.isnan(rows.optima).any()
    recorded = draft_rows.shape[1] > 0
    return Findings(
        subject="trace",
        settings=settings,
        checks=_checks(rows, schemes is not None, rng),
        distance=statistics.distance(outcomes, np.full(bins, 1 / bins), confidence),
        outcomes=points.size,
        cells=bins,
        tokens=_deviating_tokens(rows),
        wrong_tokens=rows.wrong_tokens,
        wrong_drafts=None if schemes is None else rows.wrong_drafts,
        accepted=Accepted(int(rows.accepted.sum()), size) if recorded else None,
        optimum=float(rows.optima.mean()) if known else None,
    ).report()


def _as_they_are(row: Any) -> Any:
    return row


def _checked(target: Any, drafts: Any, tokens: Any) -> tuple[Any, Tokens, Tokens]:
    rows = target if hasattr(target, "shape") else to_numpy(target, "target")
    if len(rows.shape) != 2 or 0 in rows.shape:
        raise InvalidInput(
            f"target has shape {tuple(rows.shape)}: give one row of probabilities or logits for "
            "each step, shape (N, V)"
        )
    size, vocab_size = rows.shape
    emitted = to_numpy(tokens, "tokens")
    if emitted.shape != (size,) or emitted.dtype.kind not in "iu":
        raise InvalidInput(
            f"tokens has shape {emitted.shape} and dtype {emitted.dtype}: give one token id for "
            f"each of the {size} steps"
        )
    _require_in_vocabulary(emitted, 0, vocab_size, "token")
    proposed = to_numpy(drafts, "drafts")
    if proposed.shape == (size, 0):  # none recorded
        proposed = proposed.astype(np.int64)
    if proposed.ndim != 2 or len(proposed) != size or proposed.dtype.kind not in "iu":
        raise InvalidInput(
            f"drafts has shape {proposed.shape} and dtype {proposed.dtype}: give token ids of "
            f"shape ({size}, K), padded with -1"
        )
    _require_in_vocabulary(proposed, -1, vocab_size, "draft")
    return rows, proposed.astype(np.int64), emitted.astype(np.int64)


def _require_in_vocabulary(ids: NDArray[Any], lowest: int, vocab_size: int, name: str) -> None:
    wrong = (ids < lowest) | (ids >= vocab_size)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise InvalidInput(
            f"step {int(place[0])}: {name} {int(ids[tuple(place)])} lies outside "
            f"0..{vocab_size - 1}: is this the vocabulary of the logits?"
        )


def _checks(rows: TraceRows, with_drafts: bool, rng: np.random.Generator) -> list[Check]:
    from scipy import stats

    rank = rows.by_rank[~np.isnan(rows.by_rank)]
    ratio = rows.by_ratio[~np.isnan(rows.by_ratio)]
    checks = [
        *uniformity_checks(rank, rng, "rank transform", "mass moved between likely and unlikely"),
        Check("rank groups", "likeliest tokens or tail too often", _groups(rows, ratio=False)),
        Check("single tokens", "one token too often or too rare", _tokens(rows)),
    ]
    if with_drafts:
        looks_for = "mass moved between tokens drafted too often and too rarely"
        checks += uniformity_checks(ratio, rng, "ratio transform", looks_for)
        checks.append(Check("ratio groups", looks_for, _groups(rows, ratio=True)))
    main = ratio if with_drafts else rank
    smooth = 1.0 if main.size == 0 else float(stats.kstest(main, "uniform").pvalue)
    checks.append(Check("Kolmogorov-Smirnov", "a smooth shift along the order", smooth))
    quarters = np.minimum((main * 4).astype(np.int64), 3)
    after = statistics.consecutive(quarters, np.full(4, 0.25), rng)
    checks.append(Check("succession", "tokens that depend on the one before", after))
    if with_drafts:
        if not np.isnan(rows.optima).any():
            above = rows.accepted.sum() > rows.optima.sum()
            p_value = (
                statistics.one_sided_bound(int(rows.accepted.sum()), rows.optima) if above else 1.0
            )
            checks.append(Check("acceptance", "acceptance above the optimum", p_value))
        if rows.draft_uniforms is not None:
            checks += draft_checks(rows.draft_uniforms, rng)
    return checks


def _groups(rows: TraceRows, ratio: bool) -> float:
    """How often each group of tokens came, against the sum of its probabilities."""
    law, group = (rows.ratio_law, rows.ratio_group) if ratio else (rows.rank_law, rows.rank_group)
    hits = np.bincount(group, minlength=law.shape[1])
    bounds = [
        statistics.poisson_binomial_bound(int(h), law[:, g]) for g, h in enumerate(hits.tolist())
    ]
    return min(1.0, len(bounds) * min(bounds))


def _tokens(rows: TraceRows) -> float:
    bounds = statistics.poisson_bound(rows.observed, rows.expected)
    share = (rows.expected / rows.expected.sum() + 1.0 / rows.expected.size) / 2.0
    return float(min(1.0, (bounds / share).min()))


def _deviating_tokens(rows: TraceRows) -> tuple[TokenDeviation, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (rows.observed - rows.expected) / np.sqrt(rows.spread)
    scores = np.where(rows.spread > 0, np.clip(scores, -40.0, 40.0), 0.0)
    bounds = statistics.poisson_bound(rows.observed, rows.expected)
    return listed_deviations(rows.observed, rows.expected, bounds, scores)
