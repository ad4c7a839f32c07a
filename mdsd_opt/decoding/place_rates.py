"""Rates at which the drafts of each place are passed, from logits and from decoded steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.checked import checked_integer, floats, of_kind
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.decoding.language_models import tree_logits
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import (
    MAX_TABLE,
    Node,
    RateTable,
    checked_rates,
    initial_rates,
    rates_from_alphas,
)
from mdsd_opt.verifiers import Verifier

#: Number of visits that the table before any observation counts for.
PRIOR_VISITS = 16.0

#: Most positions of a text that are measured, from its end.
_MOST_POSITIONS = 64


@of_logits(late=("temperature",))
def place_rates(
    target_logits: Any,
    draft_logits: Any,
    max_drafts: int,
    scheme: str = "without_replacement",
    *,
    verifier: str | Verifier = "optimal",
    num_threads: int | None = None,
    **options: Unpack[LogitsKeywords],
) -> RateTable:
    r"""Chance that the draft of each place is passed, of 1, 2, ... drafts.

    :math:`\alpha_{j+1} - \alpha_j` with :math:`\alpha_k` the optimal acceptance rate of k drafts,
    averaged over the positions: what the j-th draft adds to those before it.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    max_drafts : int
        K.
    scheme : str
        As `drafts` of `acceptance_rates`.
    verifier, num_threads : optional
        As for `acceptance_rates`.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`.

    Returns
    -------
    ndarray, shape (K + 1, K)
        [k, j] for place j, from 0, of k drafts; zero for j >= k.
    """
    checked_integer(max_drafts, "max_drafts", most=MAX_TABLE)
    pair = Logits.of(target_logits, draft_logits, options)
    _, alphas = _mean_rates(pair, max_drafts, scheme, verifier, num_threads=num_threads)
    return rates_from_alphas(alphas)


def measured_rates(
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    max_drafts: int,
    scheme: str = "without_replacement",
    *,
    verifier: str | Verifier = "optimal",
    num_threads: int | None = None,
    **options: Unpack[LogitsKeywords],
) -> RateTable:
    """Same as `place_rates` for two models on some texts; short ones are nearer to `initial_rates`.

    Parameters
    ----------
    target, draft : model
        As for `generate`.
    texts : sequence of sequences of int
        Token ids; of each the last 64 positions are measured, in one pass.
    max_drafts : int
    scheme : str
    verifier, num_threads, **options
        As for `place_rates`.
    """
    ask_target, ask_draft = tree_logits(target), tree_logits(draft)
    rates = RunningRates(initial_rates(max_drafts))
    for text in of_kind(texts, Iterable, "texts", "token ids of each"):
        of_kind(text, Collection, "one of texts", "token ids")
        start = max(len(text) - _MOST_POSITIONS, 0) + 1
        ahead = [tuple(text[start:end]) for end in range(start, len(text) + 1)]
        read = list(text[:start])
        pair = Logits(ask_target(read, ahead), ask_draft(read, ahead), **options)
        count, alphas = _mean_rates(pair, max_drafts, scheme, verifier, num_threads=num_threads)
        rates.add(rates_from_alphas(alphas), count)
    return rates.table


def _mean_rates(
    pair: Logits, max_drafts: int, *how: Any, num_threads: int | None
) -> tuple[int, Any]:
    """Number of positions, and mean acceptance rates of 1, 2, ... drafts."""
    from mdsd_opt.batch import acceptance_rates

    by_position = acceptance_rates(pair, range(1, max_drafts + 1), *how, num_threads=num_threads)
    rates = to_numpy(by_position, "rates").reshape(-1, max_drafts)
    if len(rates) == 0:
        raise InvalidInput("the logits have no positions: give at least one row")
    return len(rates), rates.mean(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class ConfidenceRates:
    """A table for each range of the draft model's confidence, max q(.|w).

    Attributes
    ----------
    edges : tuple of float
        Ascending, n of them.
    tables : tuple of ndarray, shape (K + 1, K)
        n + 1 of them.
    """

    edges: tuple[float, ...]
    tables: tuple[RateTable, ...]

    def __call__(self, law: Floats) -> RateTable:
        """Table after a node of this draft law."""
        return self.tables[int(np.searchsorted(self.edges, law.max(), side="right"))]


@of_logits()
def confidence_rates(
    target_logits: Any,
    draft_logits: Any,
    max_drafts: int,
    scheme: str = "without_replacement",
    edges: Sequence[float] = (0.3, 0.6, 0.9),
    *,
    verifier: str | Verifier = "optimal",
    num_threads: int | None = None,
    **options: Unpack[LogitsKeywords],
) -> ConfidenceRates:
    """Same as `place_rates` for each range of confidence; rare ranges are nearer to the mean.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    max_drafts : int
    scheme : str
    edges : sequence of float
        Limits between the ranges of max q, ascending.
    verifier, num_threads, **options
        As for `place_rates`.
    """
    limits = floats(edges, "edges")
    if limits.ndim != 1 or not (np.diff(limits, prepend=-np.inf) > 0.0).all():
        raise InvalidInput(f"edges are {edges}: give numbers ascending, each once")
    pair = Logits.of(target_logits, draft_logits, options)
    reading = pair.reading
    common: dict[str, Any] = {"verifier": verifier, "num_threads": num_threads}
    target, draft = (side.reshape(-1, side.shape[-1]) for side in pair.placed())
    bins = np.searchsorted(limits, reading.draft.law(draft).max(axis=-1), side="right")
    everywhere = place_rates(pair, max_drafts, scheme, **common)
    tables = []
    for n in range(limits.size + 1):
        rates = RunningRates(everywhere)
        inside = bins == n
        if inside.any():
            part = Logits(target[inside], draft[inside], **reading.options)
            rates.add(place_rates(part, max_drafts, scheme, **common), int(inside.sum()))
        tables.append(rates.table)
    return ConfidenceRates(tuple(limits.tolist()), tuple(tables))


class RunningRates:
    """A table that follows what is observed, step after step.

    A tree that is planned from steps that are over is as lossless as any other fixed tree.

    Parameters
    ----------
    table : ndarray, shape (K + 1, K)
        Table before anything is observed; it counts for 16 visits of a node.
    """

    def __init__(self, table: RateTable) -> None:
        table = checked_rates(table)
        self._visits = np.full(len(table), PRIOR_VISITS)
        self._passes = PRIOR_VISITS * table

    @property
    def table(self) -> RateTable:
        """Mean so far, shape (K + 1, K)."""
        return self._passes / self._visits[:, None]

    @property
    def max_drafts(self) -> int:
        return self._visits.size - 1

    def add(self, table: RateTable, visits: float) -> None:
        """Count a table that was measured at so many nodes."""
        self._passes += visits * table
        self._visits += visits

    def observe(self, root: Node, accepted: Sequence[int]) -> None:
        """Count the nodes that a step has reached, and the drafts of each that it has passed.

        Parameters
        ----------
        root : Node
        accepted : sequence of int
            Drafts that were accepted, from the root on.
        """
        for node, token in self._come_to(root, accepted):
            count = node.draws.size
            self._visits[count] += 1.0
            if token is not None:
                self._passes[count, node.children[token].place[-1]] += 1.0

    def _come_to(self, root: Node, accepted: Sequence[int]) -> Iterator[tuple[Node, int | None]]:
        """Nodes with drafts that a step reached, and the draft of each that it has passed."""
        node = root
        for token in (*accepted, None):
            if not 0 < node.draws.size <= self.max_drafts:
                break
            yield node, token
            if token is not None:
                node = node.children[token]
