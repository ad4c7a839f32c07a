"""Audits of recorded steps of an engine that can't be called: did its tokens follow the target?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.checks import (
    Hidden,
    Sight,
    acceptance_check,
    length_check,
    listed_deviations,
    optimum,
    recurrence_checks,
)
from mdsd_opt.auditing.draft_audit import draft_checks, transform
from mdsd_opt.auditing.findings import AcceptedCount, Findings
from mdsd_opt.auditing.pace import unsettled
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.trace_files import RecordedSteps, recorded_steps
from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.checked import Rng, check_truth, generator_of
from mdsd_opt.base.sampling import FilterKeywords, Sampling, softmax
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    LARGEST_Z,
    NOT_JUDGED,
    AuditOptions,
    Check,
    Interval,
    RateKeywords,
    TokenDeviation,
    budgeted,
    options_of,
    statistics,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.servers import BETS, Bets, Law, Shown, detectable_distance

#: Tokens of a wide law that are bet on one by one.
_ALONE = 1_024


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

    Each token is bet on under its own target, as in `mdsd_opt.audit_tokens`: on what wrong
    verifiers would give, by the target, the draft's law, and earlier tokens. The wealth of a bet on
    a faultless engine reaches 1/alpha with a probability of alpha at most, whatever the targets
    are.

    A step may give several tokens, of a chain or a tree of M drafts. Then each token is bet on
    under the law at its node. Whether a place is reached depends on what came before it, so its
    token need not follow its law; yet bets stay fair, as if the target had filled up the places
    that were not reached: on draws from the target no bet wins or loses on average.

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
        Generator of what spreads tokens over their probabilities, or its seed, 0 by default.
    options : AuditOptions
        Its `false_alarm`, `power`, `confidence` and `detect` are read.
    **keywords
        The same by their names; and in place of `sampling` `temperature`, `draft_temperature` (that
        of the target unless given), `top_k`, `top_p`, `min_p` and `joint`, see `Sampling`.

    Returns
    -------
    AuditReport
        `total_variation` and `detectable_bias` speak of a token, averaged over all of them; bias
        towards none of the laws bet on may stay hidden, as each law comes once, and `direction`
        says so. Where every law has one possible token, nothing is judged.
        `optimal_acceptance_rate` is the mean over the steps. `lossless` speaks of the tokens alone,
        `drafts_follow_law` of the drafts. Of several tokens a step, the acceptance rates are those
        of the first, and `accept_length` has all of them.

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
    seen = _Seen(steps, generator_of(rng))
    bets, knows_drafts = seen.bets, steps.draft_law is not None
    low = bets.distance_at_least(1 - settings.confidence)
    findings = Findings(
        options=settings,
        num_trials=size,
        checks=seen.checks(),
        distance=(max(bets.distance(), low), Interval(low, 1.0)),
        sight=_Sight(bets.num_uncertain, 2),
        tokens=seen.deviations(),
        where="as the first of a step, over all steps",
        wrong_tokens=seen.wrong_tokens,
        wrong_drafts=seen.wrong_drafts if knows_drafts else None,
        accepted=AcceptedCount(seen.accepted, size) if steps.drafts.shape[1] else None,
        optimum=float(seen.optima.mean()) if seen.knows_optima else None,
        accept_length=float(seen.lengths.mean()) if steps.several else None,
        optimal_accept_length=None if seen.most is None else 1 + float(seen.most.mean()),
    )
    report = unsettled(AuditReport.of(findings, "trace"))
    if report.clean and not bets.num_uncertain:
        return replace(report, verdict_class=NOT_JUDGED)
    return report


class _Sight(Sight):
    """What bets on so many tokens see."""

    def hidden(self, level: float, power: float) -> Hidden:
        from scipy import special

        size = detectable_distance(self.outcomes, 0.0, level, float(special.ndtri(power)))
        return Hidden(size, BETS)


class _Seen:
    """Recorded steps, read one law at a time: bets on their tokens, and what was drafted."""

    def __init__(self, steps: RecordedSteps, rng: np.random.Generator) -> None:
        size, vocab_size = len(steps.tokens), int(steps.target.shape[-1])
        self.steps, self.rng = steps, rng
        self.bets = Bets(int(rng.integers(1 << 32)))
        self.wrong_tokens, self.wrong_drafts = ViolationLog(), ViolationLog()
        self.expected, self.places = np.zeros(vocab_size), np.full(size, np.nan)
        self.optima = np.full(size, np.nan)
        self.lengths = (steps.tokens >= 0).sum(axis=1)
        self.first = steps.tokens[:, 0]
        drafts = steps.tree.drafts_after(0, steps.drafts)
        self.accepted = int((drafts == self.first[:, None]).any(axis=1).sum())
        is_chain = steps.several and steps.draft_law is not None and steps.tree.is_chain
        self.most = np.zeros(size) if is_chain else None
        self._uniforms: dict[int, Vector] = {}
        self._are_even = True
        self._before: int | None = None
        self._previous: Law | None = None
        for n in range(size):
            self._read(n)

    def _read(self, n: int) -> None:
        steps, drafts = self.steps, self.steps.drafts[n]
        law, scheme_after = cache(partial(steps.law, n)), cache(partial(steps.scheme, n))
        row = steps.tokens[n, : self.lengths[n]].tolist()
        path = steps.tree.path(drafts, row[:-1]) if drafts.size else list(range(len(row)))
        root, scheme = law(0), scheme_after(0)
        self.expected += root
        if scheme is not None:
            best = optimum(TransportProblem(root, scheme))
            self.optima[n] = np.nan if best is None else best
        if path is None:
            message = f"step {n}: {tuple(row[:-1])} was accepted, which is no path of its drafts"
            self.wrong_tokens.add("not a path", drafts, message)
        for place, (node, token) in enumerate(zip(path or [0], row, strict=False)):
            if law(node)[token] <= 0:
                where = f" in place {place}" if place else ""
                message = (
                    f"step {n}: token {token} came out{where}, whose target probability is zero"
                )
                self.wrong_tokens.add("impossible token", drafts, message)
                break
            scheme = scheme_after(node)
            q = None if scheme is None else scheme.propensity()
            stated, draft, cell = _laws(law(node), q, token)
            name = hash(law(node).tobytes())
            shown = Shown(name, place, self._before, None, self._previous, draft)
            found, self._before, self._previous = self.bets.add(cell, stated, shown), cell, stated
            if not place and found is not None:
                self.places[n] = found
        for node in range(len(steps.tree.children)):
            if (scheme := scheme_after(node)) is not None:
                self._add_drafts(n, node, scheme)
        if self.most is not None:
            self.most[n] = _overlap(drafts.tolist(), law, scheme_after)

    def _add_drafts(self, n: int, node: int, scheme: DraftScheme) -> None:
        row = self.steps.drafts_after(n, node)
        points, possible = transform(scheme, row[None], self.rng)
        if not possible[0]:
            where = f" after node {node}" if node else ""
            message = f"step {n}: drafts {row.tolist()}{where} cannot be drawn under {scheme!r}"
            self.wrong_drafts.add("impossible drafts", row, message)
        if node not in self._uniforms:  # what is not drawn stays noise
            self._uniforms[node] = self.rng.random((len(self.first), points.size))
        if self._uniforms[node].shape[1] == points.size:
            self._uniforms[node][n] = points[0]
        else:  # a different number of random choices at some steps
            self._are_even = False

    @property
    def knows_optima(self) -> bool:
        return not np.isnan(self.optima).any()

    def checks(self) -> list[Check]:
        """A check for each bet, whose p-value is one over its wealth; of repeats; of drafts."""
        checks = [
            Check(name, f"tokens that the bet on {name} foretells", math.exp(-max(won, 0.0)))
            for name, won in self.bets.parts(0.0).items()
        ]
        points = self.places[~np.isnan(self.places)][:, None]
        looks_for = "tokens that depend on earlier ones"
        checks += recurrence_checks(points, self.rng, "succession", looks_for)
        if self.knows_optima:
            expected = self.optima.sum()
            above = self.accepted > expected
            bound = statistics.one_sided_bound(self.accepted, self.optima) if above else 1.0
            checks.append(acceptance_check(bound))
        if self.most is not None:
            excess = float((self.lengths - 1 - self.most).mean())
            width = 2 * self.steps.tree.depth  # accepted drafts and their estimate, up to depth
            checks.append(length_check(excess, width, len(self.lengths)))
        if self._uniforms and self._are_even:
            checks += draft_checks(np.hstack(list(self._uniforms.values())), self.rng)
        return checks

    def deviations(self) -> tuple[TokenDeviation, ...]:
        """Tokens that came first too often or too rarely."""
        expected, observed = self.expected, np.bincount(self.first, minlength=self.expected.size)
        scores = (observed - expected) / np.sqrt(np.maximum(expected, 1e-300))
        scores = np.where(expected > 0, np.clip(scores, -LARGEST_Z, LARGEST_Z), 0.0)
        bounds = statistics.poisson_bound(observed, expected)
        return listed_deviations(observed, expected, bounds, scores)


def _laws(p: Vector, q: Vector | None, token: int) -> tuple[Law, Law | None, int]:
    """Laws of a target and a draft, and the number of a token in them.

    Of wide ones the likeliest tokens alone stand for themselves; those with p within a factor of
    two, and p/q within a quarter of an octave, are one.
    """
    ids = np.arange(p.size)
    if p.size > 4 * _ALONE:
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = np.clip(-np.log2(p), 0, 63).astype(np.int64)
            along = np.zeros(p.size) if q is None else np.nan_to_num(4 * np.log2(p / q))
        group = p.size + 64 * octaves + np.clip(along, -32, 31).astype(np.int64) + 32
        ids = np.where(p > np.partition(p, -_ALONE)[-_ALONE], ids, group)
    draft = None if q is None else Law.of(np.bincount(ids, weights=q) / q.sum())
    return Law.of(np.bincount(ids, weights=p)), draft, int(ids[token])


def _overlap(
    chain: list[int],
    law: Callable[[int], Vector],
    scheme_after: Callable[[int], DraftScheme | None],
) -> float:
    r"""Sum over the levels of a chain of :math:`r_i = \min(1, r_{i-1} p_i(x_i) / q_i(x_i))`.

    Its mean over chains is what block verification accepts, and no lossless rule accepts more
    (arXiv 2403.10444).
    """
    total, ratio = 0.0, 1.0
    for node, token in enumerate(chain):  # node by node
        scheme = scheme_after(node)
        if token < 0 or scheme is None:
            break
        q = float(scheme.next_law(np.empty(0, dtype=np.int64))[token])
        p = float(law(node)[token])
        ratio = min(1.0, ratio * p / q) if q > 0 else 1.0
        total += ratio
    return total
