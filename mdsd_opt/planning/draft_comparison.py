"""Several drafts of one target on the same texts: which accepts most, and what two together do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Unpack

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.checked import check_truth, checked_integer, checked_names, of_kind
from mdsd_opt.base.frames import Result
from mdsd_opt.base.logits import Logits, LogitsKeywords
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning.advice import Advice, advise
from mdsd_opt.planning.costs import COST_NAMES
from mdsd_opt.planning.draft_search import DraftRows, Rated
from mdsd_opt.planning.options import speedup_cell

#: Keywords of `advise` that each draft has alike.
_COSTS = ("max_drafts", *(x for x in COST_NAMES if x not in ("target_ms", "draft_ms")))

#: Positions whose laws are mixed at once: some 80 MB at V = 150,000.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class DraftRate(Rated):
    """Optimal acceptance rate of a draft with K drafts, and its distance from the best draft.

    It is behind the best single draft of this K; negative where two together are ahead.

    Attributes
    ----------
    draft : str
        Its name; "a | b" where each token is drawn from one of two, by a coin.
    num_drafts : int
    """

    draft: str
    num_drafts: int

    columns: ClassVar = ("draft", "num_drafts", "*acceptance", "behind")


@dataclass(frozen=True, slots=True, eq=False)
class DraftComparison(Result):
    """Drafts of one target at the same positions.

    Attributes
    ----------
    scheme : str
    num_positions : int
    rates : tuple of DraftRate
        Every draft, and every two together, at every K.
    advice : dict of str to Advice
        What each draft brings at its costs, where these are given.
    """

    scheme: str
    num_positions: int
    rates: tuple[DraftRate, ...]
    advice: dict[str, Advice] = field(default_factory=dict)

    columns: ClassVar = (
        "scheme", "num_positions", "rates", "best", "fastest", "by_batch", "advice",
    )  # fmt: skip

    @property
    def best(self) -> dict[int, str]:
        """Single draft that accepts most, by K; of equal ones the first."""
        single = [row for row in self.rates if " | " not in row.draft]
        return {
            k: max((x for x in single if x.num_drafts == k), key=lambda x: x.acceptance.mean).draft
            for k in dict.fromkeys(row.num_drafts for row in single)
        }

    @property
    def fastest(self) -> str | None:
        """Draft with the largest speed-up; None without costs."""
        return max(self.advice, key=lambda x: self.advice[x].speedup) if self.advice else None

    @property
    def by_batch(self) -> dict[int, str]:
        """Fastest draft by the texts together, "none" for plain decoding; of costs by rows."""
        gains: dict[int, dict[str, float]] = {}
        for name, advice in self.advice.items():
            for point in advice.batches:
                of = gains.setdefault(point.batch_size, {"none": 1.0})
                of[name] = max(point.tree, point.chain)
        return {batch: max(of, key=of.__getitem__) for batch, of in gains.items()}

    @property
    def sentences(self) -> list[str]:
        """Decision in words: the best by K, the fastest, and what two together bring."""
        sentences = []
        for k, name in self.best.items():
            others = [x for x in self.rates if x.num_drafts == k and x.draft != name]
            near = [x.draft for x in others if " | " not in x.draft and not x.behind.low > 0]
            pairs = [x for x in others if " | " in x.draft]
            tied = f", not told apart from {', '.join(near)}" if near else ""
            line = f"K = {k}: {name} accepts most{tied}"
            if pairs:
                most = max(pairs, key=lambda x: x.acceptance.mean)
                sign = "more" if most.behind.mean < 0 else "less"
                ends = sorted(abs(x) for x in (most.behind.low, most.behind.high))
                sure = most.behind.low * most.behind.high > 0
                within = f" [{ends[0]:.4f}, {ends[1]:.4f}]" if sure else " (not told apart)"
                line += f"; {most.draft} {abs(most.behind.mean):.4f} {sign}{within}"
            sentences.append(f"{line}.")
        if self.fastest is not None:
            sentences.append(f"Fastest: {self.fastest}. {self.advice[self.fastest].sentence}")
        return sentences

    def __str__(self) -> str:
        """Table of at most 80 columns, with the sentences below."""
        form = "{:<32.32} {:>4} {:>19.19} {:>19.19}"
        lines = [form.format("draft", "K", "acceptance", "behind the best")]
        for row in self.rates:
            shown = row.acceptance.shown, row.behind.shown
            lines.append(form.format(row.draft, row.num_drafts, *shown))
        for name, advice in self.advice.items():
            best = advice.rows[0]
            cell = speedup_cell(best.speedup)
            lines.append(f"{name}: {best.tree_name or 'none'}, speed-up {cell}")
        return "\n".join([*lines, *self.sentences])


def compare_drafts(
    target_logits: Any,
    drafts: Mapping[str, Any],
    num_drafts: int | Sequence[int] = (1, 2, 3, 4),
    scheme: str = "with_replacement",
    *,
    mixtures: bool = True,
    target_ms: Any = None,
    draft_ms: Any = None,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    costs: Mapping[str, Any] | None = None,
    **options: Unpack[LogitsKeywords],
) -> DraftComparison:
    r"""Compare drafts of one target on the same texts, and what a mixture of two would bring.

    Of a mixture every token is drawn from one of two drafts, by a coin:
    :math:`q = (q_a + q_b) / 2`, a draft like any other, with its optimum.

    Parameters
    ----------
    target_logits : array_like, shape (..., V)
    drafts : mapping of str to array_like, shape (..., V)
        Logits of each draft at the same positions, by its name.
    num_drafts : int or sequence of int
        K.
    scheme : str
        Scheme by which the K drafts are drawn, as for `acceptance_rates`.
    mixtures : bool
        Whether every two drafts are tried together; not where a draft has a part of the tokens.
    target_ms, draft_ms : optional
        Milliseconds of passes, as for `advise`, or those of each draft by its name. With them
        `DraftComparison.advice` has the best tree and the speed-up of each draft.
    sequence : array_like of int, optional
        Text of each position, for the intervals; for arrays [B, T, V] it is the first axis unless
        given.
    confidence : float
        Confidence of the intervals, which are over texts; differences are of the same positions.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.
    costs : mapping, optional
        Further arguments of `advise`, such as ``{"rows_ms": {1: 20, 64: 40}, "batch_size": 8}``.
    **options
        How laws are read from the logits, see `mdsd_opt.Logits`.

    Returns
    -------
    DraftComparison

    Raises
    ------
    InvalidInput
        Fewer than two drafts, or arrays that do not fit each other.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> drafts = {"a": [[2.0, 1.0, 0.5]], "b": [[0.0, 1.0, 0.0]]}
    >>> mo.compare_drafts([[2.0, 1.0, 0.0]], drafts).best[1]
    'a'
    """
    wanted = "logits of two or more drafts by their names, as {'a': ..., 'b': ...}"
    if len(checked_names([*of_kind(drafts, Mapping, "drafts", wanted)], "drafts")) < 2:
        raise InvalidInput(f"drafts has {len(drafts)}: give {wanted}")
    check_truth(mixtures=mixtures)
    if any(" | " in name for name in drafts):
        raise InvalidInput('a name of a draft has " | " in it, which stands for two together')
    ks = [*num_drafts] if isinstance(num_drafts, Iterable) else [num_drafts]
    ks = sorted({checked_integer(k, "num_drafts") for k in ks})
    if not ks:
        raise InvalidInput("num_drafts is empty: give some K, such as (1, 2, 4)")
    if draft_ms is not None and target_ms is None:
        raise InvalidInput("draft_ms goes with target_ms")
    further = of_kind({} if costs is None else costs, Mapping, "costs", "a mapping")
    if not {*further} <= {*_COSTS}:
        raise InvalidInput(f"costs has {[*further]!r:.60}: give some of {', '.join(_COSTS)}")
    pairs = {name: Logits(target_logits, of, **options) for name, of in drafts.items()}
    rows = {name: DraftRows.of(pair, sequence, num_threads) for name, pair in pairs.items()}
    shapes = {name: pair.draft.shape[:-1] for name, pair in pairs.items()}
    if len({*shapes.values()}) > 1:
        raise InvalidInput(f"the drafts have positions {shapes}: give the same of each")
    two = [
        (a, b) for a, b in combinations(drafts, 2)
        if mixtures and pairs[a].draft.shape == pairs[b].draft.shape
        and pairs[a].reading.draft_token_ids is pairs[b].reading.draft_token_ids is None
    ]  # fmt: skip
    columns: dict[str, Floats] = {}
    with progress_bar("drafts", len(rows) + len(two), progress) as advance:
        for name in drafts:
            columns[name] = rows[name].rates(ks, scheme)
            advance(1)
        for a, b in two:
            columns[f"{a} | {b}"] = _mixed(rows[a], rows[b], ks, scheme)
            advance(1)
    first = next(iter(rows.values()))
    rates: list[DraftRate] = []
    for column, k in enumerate(ks):
        of_k = {name: x[:, column] for name, x in columns.items()}
        best = max((of_k[name] for name in drafts), key=lambda x: float(x.mean()))
        rated = first.rated(of_k, best, confidence)
        rates += (DraftRate(*means, name, k) for name, means in rated.items())
    advice = {}
    for name, pair in pairs.items() if target_ms is not None else ():
        own = draft_ms[name] if isinstance(draft_ms, Mapping) and name in draft_ms else draft_ms
        advice[name] = advise(
            pair, target_ms=target_ms, draft_ms=2.0 if own is None else own, sequence=sequence,
            schemes=[scheme], confidence=confidence, num_threads=num_threads, **further,
        )  # fmt: skip
    return DraftComparison(scheme, len(first), tuple(rates), advice)


def _mixed(a: DraftRows, b: DraftRows, ks: list[int], scheme: str) -> Floats:
    """Rates of tokens that are each drawn from one of two drafts, shape (N, len(ks))."""
    parts = []
    for start in range(0, len(a), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        laws = [x.of_draft.law(x.draft[some]) for x in (a, b)]
        with np.errstate(divide="ignore"):
            mixed = np.log(0.5 * (laws[0] + laws[1]))
        part = replace(a, target=a.target[some], draft=mixed, of_draft=Sampling())
        parts.append(part.rates(ks, scheme))
    return np.concatenate(parts)
