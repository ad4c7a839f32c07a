"""Rates at which the drafts of each place are passed, from logits and from decoded steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import Opened, as_logits, to_numpy
from mdsd_opt.base.sampling import softmax
from mdsd_opt.decoding.language_models import tree_logits
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Node, RateTable, initial_rates, rates_from_alphas

#: Number of visits that the table before any observation counts for.
PRIOR_VISITS = 16.0

#: Most positions of a text that are measured, from its end.
_MOST_POSITIONS = 64


def place_rates(
    target_logits: Any,
    draft_logits: Any,
    max_drafts: int,
    scheme: str = "without_replacement",
    temperature: float = 1.0,
    **options: Any,
) -> RateTable:
    r"""Chance that the draft of each place is passed, of 1, 2, ... drafts.

    :math:`\alpha_{j+1} - \alpha_j` with :math:`\alpha_k` the optimal acceptance rate of k drafts,
    averaged over the positions: what the j-th draft adds to those before it.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
    max_drafts : int
        K.
    scheme : str
        As `drafts` of `acceptance_rates`.
    temperature : float
    **options
        More of `acceptance_rates`: `draft_temperature`, filters, `verifier`, `kind`, `pad`,
        `draft_token_ids`.

    Returns
    -------
    ndarray, shape (K + 1, K)
        [k, j] for place j, from 0, of k drafts; zero for j >= k.
    """
    if max_drafts < 1:
        raise InvalidInput(f"max_drafts is {max_drafts}: give at least 1")
    alphas = _mean_rates(
        target_logits, draft_logits, max_drafts, scheme, temperature=temperature, **options
    )[1]
    return rates_from_alphas(alphas)


def measured_rates(
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    max_drafts: int,
    scheme: str = "without_replacement",
    **options: Any,
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
    **options
        As for `place_rates`.
    """
    ask_target, ask_draft = tree_logits(target), tree_logits(draft)
    rates = RunningRates(initial_rates(max_drafts))
    for text in texts:
        start = max(len(text) - _MOST_POSITIONS, 0) + 1
        ahead = [tuple(text[start:end]) for end in range(start, len(text) + 1)]
        read = list(text[:start])
        count, alphas = _mean_rates(
            ask_target(read, ahead), ask_draft(read, ahead), max_drafts, scheme, **options
        )
        rates.add(rates_from_alphas(alphas), count)
    return rates.table


def _mean_rates(
    target_logits: Any, draft_logits: Any, max_drafts: int, scheme: str, **options: Any
) -> tuple[int, Any]:
    """Number of positions, and mean acceptance rates of 1, 2, ... drafts."""
    from mdsd_opt.batch import acceptance_rates

    found = acceptance_rates(
        target_logits, draft_logits, num_drafts=range(1, max_drafts + 1), drafts=scheme, **options
    )
    rates = to_numpy(found, "rates").reshape(-1, max_drafts)
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


def confidence_rates(
    target_logits: Any,
    draft_logits: Any,
    max_drafts: int,
    scheme: str = "without_replacement",
    edges: Sequence[float] = (0.3, 0.6, 0.9),
    **options: Any,
) -> ConfidenceRates:
    """Same as `place_rates` for each range of confidence; rare ranges are nearer to the mean.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
    max_drafts : int
    scheme : str
    edges : sequence of float
        Limits between the ranges of max q, ascending.
    **options
        As for `place_rates`.
    """
    if list(edges) != sorted(set(edges)):
        raise InvalidInput(f"edges are {list(edges)}: give them ascending, each once")
    kind = options.pop("kind", None)
    target = _rows(target_logits, "target_logits", kind)
    draft = _rows(draft_logits, "draft_logits", kind)
    options["kind"] = "logits"
    warmth = options.get("draft_temperature")
    if warmth is None:
        warmth = options.get("temperature", 1.0)
    names = ("top_k", "top_p", "min_p", "joint")
    filters = {name: options[name] for name in names if name in options}
    confidence = softmax(draft, warmth, **filters).max(axis=-1)
    bins = np.searchsorted(edges, confidence, side="right")
    everywhere = place_rates(target, draft, max_drafts, scheme, **options)
    tables = []
    for n in range(len(edges) + 1):
        rates = RunningRates(everywhere)
        inside = bins == n
        if inside.any():
            found = place_rates(target[inside], draft[inside], max_drafts, scheme, **options)
            rates.add(found, int(inside.sum()))
        tables.append(rates.table)
    return ConfidenceRates(tuple(edges), tuple(tables))


def _rows(logits: Any, name: str, kind: str | None) -> NDArray[Any]:
    array = as_logits(Opened.of(logits, name), kind).numpy()
    return array.reshape(-1, array.shape[-1])


class RunningRates:
    """A table that follows what is observed, step after step.

    A tree that is planned from steps that are over is as lossless as any other fixed tree.

    Parameters
    ----------
    table : ndarray, shape (K + 1, K)
        Table before anything is observed; it counts for 16 visits of a node.
    """

    def __init__(self, table: RateTable) -> None:
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
