r"""Forecasts of what a draft tree accepts, by the rates of positions: along texts or by the mean.

With :math:`a_{tk}` what the k-th draft adds to the acceptance rate at position t, a step that
begins there accepts

.. math:: W_t(\text{place}) = \sum_k a_{tk}\, (1 + W_{t+1}(\text{place}, k))

drafts. Where no position follows the mean rates take its place. That is along the text that was
measured; the accepted drafts of a step are likelier tokens than those of the text, which this
leaves out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.corpora import (
    RatesConfig,
    combinations,
    open_corpus,
    rates_by_position,
    results_of,
    score_corpus,
)
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Place, Topology, chain, k_ary, plans_by_size, rates_from_alphas

#: Largest number of drafts after a node: the rates of more are hardly higher.
MAX_WIDTH = 16

#: Sizes and depths of plans that are compared.
_GRID = (*range(1, 17), 20, 24, 32, 48, 64)


class TreeForecasts:
    """Forecasts of trees whose drafts are drawn by one scheme.

    Parameters
    ----------
    scheme : str
    alphas : ndarray, shape (N, K)
        Acceptance rates of 1 .. K drafts at every position.
    following : ndarray, shape (N + 1,)
        Next position of each, as in `PositionRates`.
    """

    def __init__(self, scheme: str, alphas: Floats, following: Integers) -> None:
        self.scheme = scheme
        self.table = rates_from_alphas(alphas.mean(axis=0))
        gains = np.diff(alphas, axis=1, prepend=0.0)
        self._gains = np.vstack([gains, gains.mean(axis=0)])
        self._following = following

    @cached_property
    def _is_followed(self) -> bool:
        return bool((self._following < len(self._gains) - 1).any())

    def candidates(self, max_drafts: int) -> list[TreeCandidate]:
        """Plans that accept most within each size and depth."""
        by_shape: dict[frozenset[tuple[Place, int]], TreeCandidate] = {}
        sizes = [size for size in _GRID if size <= max_drafts]
        for n, depth in enumerate(sizes):
            for plan in plans_by_size(self.table, sizes[n:], depth):
                tree = named(plan.topology)
                key = frozenset(tree.num_drafts.items())
                by_shape.setdefault(key, TreeCandidate(self, tree, plan.expected_accepted))
        return list(by_shape.values())

    def accepted(self, tree: Topology) -> Floats:
        """Accepted drafts by position, whose mean is the forecast, shape (N,).

        Along the texts where positions follow each other, else with independent positions, each
        with what it contributes to the forecast.
        """
        if self._is_followed:
            return self._along(tree, self._following)[()]
        return self._influence(tree)

    def lasting(self, tree: Topology) -> Floats:
        """Accepted drafts if positions beyond a text's end are as easy as its last, shape (N,)."""
        stays = self._following == len(self._gains) - 1
        stays[-1] = False
        return self._along(tree, np.where(stays, np.arange(stays.size), self._following))[()]

    def independent(self, tree: Topology) -> float:
        """Forecast where the positions of a path are independent."""
        return float(self._along(tree, np.full_like(self._following, -1))[()].mean())

    def persistent(self, tree: Topology) -> float:
        """Forecast where every position of a path is as easy as the first."""
        return float(self._along(tree, np.arange(self._following.size))[()].mean())

    def _order(self, count: int) -> Integers:
        """Draws of a node in the order of a plan's children, the likeliest to be accepted first."""
        return np.argsort(-self._gains[-1, :count], kind="stable")

    def _along(self, tree: Topology, following: Integers) -> dict[Place, Floats]:
        """Values W of every node that has drafts, by the position where the step begins."""
        rows = [np.arange(len(self._gains) - 1)]
        for _ in range(tree.depth):
            rows.append(following[rows[-1]])
        worth: dict[Place, Floats] = {}
        for place in sorted(tree.num_drafts, key=len, reverse=True):
            gains = self._gains[rows[len(place)]]
            worth[place] = np.zeros(len(gains))
            for rank, column in enumerate(self._order(tree.num_drafts[place])):
                worth[place] += gains[:, column] * (1.0 + worth.get((*place, rank), 0.0))
        return worth

    def _influence(self, tree: Topology) -> Floats:
        """Forecast with independent positions, as a sum over their rates, shape (N,)."""
        mean, gains = self._gains[-1], self._gains[:-1]
        worth: dict[Place, float] = {}
        for place in sorted(tree.num_drafts, key=len, reverse=True):
            order = self._order(tree.num_drafts[place])
            worth[place] = sum(
                float(mean[column]) * (1.0 + worth.get((*place, rank), 0.0))
                for rank, column in enumerate(order)
            )
        total = np.full(len(gains), worth[()])
        reached: dict[Place, float] = {(): 1.0}
        for place in sorted(tree.num_drafts, key=len):
            for rank, column in enumerate(self._order(tree.num_drafts[place])):
                child = (*place, rank)
                reached[child] = reached[place] * float(mean[column])
                share = reached[place] * (1.0 + worth.get(child, 0.0))
                total += share * (gains[:, column] - mean[column])
        return total


@dataclass(frozen=True, eq=False)
class TreeCandidate:
    """A tree for one scheme, with its accepted drafts where positions are independent."""

    forecasts: TreeForecasts
    tree: Topology
    planned: float

    @property
    def scheme(self) -> str:
        return self.forecasts.scheme

    @cached_property
    def accepted(self) -> Floats:
        """Accepted drafts by position, along the texts where they are known, shape (N,)."""
        return self.forecasts.accepted(self.tree)

    @property
    def tokens(self) -> float:
        """Tokens that a step brings by this forecast."""
        return 1.0 + float(self.accepted.mean())


def named(tree: Topology) -> Topology:
    """Tree under the name that `parse_topology` reads, where it has one."""
    width, depth = max(tree.num_drafts.values()), tree.depth
    if tree.num_nodes == depth:
        return chain(depth)
    even = tree.num_nodes == sum(width**n for n in range(1, depth + 1))
    return k_ary(width, depth) if even else tree


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True, eq=False)
class PositionRates:
    """Acceptance rates of 1, 2, ..., K drafts at every position.

    Attributes
    ----------
    by_scheme : mapping of str to ndarray, shape (N, K)
    texts : ndarray of int64, shape (N,), optional
        Text of each position; None where positions stand for themselves.
    following : ndarray of int64, shape (N + 1,)
        Next position of the same text, or N where that is not known; N follows N.
    takes_order : bool
        Whether the places of rows in their texts are not named, and taken for their order.
    """

    by_scheme: Mapping[str, Floats]
    texts: Integers | None
    following: Integers
    takes_order: bool = False

    @property
    def num_positions(self) -> int:
        return self.following.size - 1

    @property
    def num_followed(self) -> int:
        """Number of positions whose next one is known."""
        return int((self.following[:-1] < self.num_positions).sum())


def rates_of_sample(
    sample: LogitsSample,
    config: RatesConfig,
    kind: str | None = "logits",
    num_threads: int | None = None,
    progress: bool = False,
    reading: Mapping[str, Any] | None = None,
) -> PositionRates:
    """Rates of logits in memory or in mapped files, with `following_positions`.

    `reading` are keywords of `Logits`, in place of those of the configuration.
    """
    if sample.num_positions == 0:
        raise InvalidInput(f"{sample.source} holds no position: its arrays are empty")
    combined = combinations(config.schemes, config.verifiers, config.num_drafts)
    options = {**(config.options if reading is None else reading), "num_threads": num_threads}
    tables = rates_by_position(sample, combined, kind, progress, options)
    by_scheme = {scheme: rates for (scheme, _, _), rates in zip(combined, tables, strict=True)}
    places = None if sample.position is None else sample.position.ravel()
    following = following_positions(sample.num_positions, sample.texts, places)
    takes_order = sample.sequence is not None and places is None
    return PositionRates(by_scheme, sample.texts, following, takes_order)


def rates_of_paths(
    paths: Paths,
    config: RatesConfig,
    kind: str | None = "logits",
    num_threads: int | None = None,
    progress: bool = False,
) -> PositionRates:
    """Rates of one or two files, or of a folder of shards, whose results are kept."""
    files = [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]
    if len(files) != 1 or not Path(files[0]).is_dir():
        sample = load_logits(files[0] if len(files) == 1 else files)
        return rates_of_sample(sample, config, kind, num_threads, progress)
    if kind not in (None, "logits"):
        raise InvalidInput(f"kind is {kind!r}, and {files[0]} is a folder: shards hold logits")
    tasks, _ = score_corpus(files[0], config, num_threads=num_threads, progress=progress)
    shards = [*results_of(tasks)]
    if any(shard.sequence is None for shard in shards):
        raise InvalidInput(f"{files[0]} does not name the text of each position ('sequence')")
    rates = np.concatenate([shard.rates for shard in shards])
    texts = np.concatenate([shard.sequence for shard in shards])
    names = [column.scheme for column in config.columns]
    by_scheme = {
        scheme: rates[:, [n for n, name in enumerate(names) if name == scheme]]
        for scheme in dict.fromkeys(names)
    }
    manifest = open_corpus(files[0]).manifest
    spaced = manifest is not None and manifest.settings.get("num_positions") is not None
    following = following_positions(len(rates), None if spaced else texts)
    return PositionRates(by_scheme, texts, following)


def following_positions(
    count: int,
    texts: Integers | None,
    places: Integers | None = None,
) -> Integers:
    """Index of the next position of the same text, shape (count + 1,); `count` where there is none.

    Without `places` in the texts, rows of a text come one after another.
    """
    following = np.full(count + 1, count, np.int64)
    if texts is None or count < 2:
        return following
    order = np.lexsort((np.arange(count) if places is None else places, texts))
    adjacent = np.diff(texts[order]) == 0
    if places is not None:
        adjacent &= np.diff(places[order]) == 1
    following[order[:-1][adjacent]] = order[1:][adjacent]
    return following


def rates_config(
    schemes: Sequence[str], verifier: str, max_drafts: int, sampling: Mapping[str, Any]
) -> RatesConfig:
    """Configuration of rates: all schemes that go with the verifier at each of 1 .. K drafts."""
    counts = range(1, max_drafts + 1)
    complete = [
        scheme
        for scheme, _, numbers in combinations(schemes, [verifier], counts)
        if len(numbers) == max_drafts
    ]
    if not complete:
        raise InvalidInput(
            f"{verifier} has no rates of {', '.join(schemes)} at each of 1 to {max_drafts} drafts"
        )
    return RatesConfig.of(complete, [verifier], counts, **sampling)
