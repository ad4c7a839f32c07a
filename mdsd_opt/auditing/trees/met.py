"""Counts of drafts of trees that were accepted and refused in the calls of an audit."""

from __future__ import annotations

import math
from collections import defaultdict

from mdsd_opt.auditing.report import Coverage, Level
from mdsd_opt.trees.draft_tree import Node, Tokens


class Met:
    """Counts, by depth, of accepted and refused drafts.

    Parameters
    ----------
    depth : int
        Levels of drafts.
    """

    def __init__(self, depth: int) -> None:
        self._accepted, self._refused = [0.0] * depth, [0.0] * depth
        self._all = self._tokens = 0.0
        #: Tokens that came after all or some drafts were refused, by the text before them.
        self._after: defaultdict[Tokens, set[int]] = defaultdict(set)

    def add(self, root: Node, outcome: Tokens, weight: float) -> None:
        """Count an outcome: the path of accepted drafts, and one more token."""
        node = root
        self._all += weight
        self._tokens += weight * len(outcome)
        for level, token in enumerate(outcome):
            if not node.children:
                return  # all drafts on the way were accepted
            first = int(node.draws[0])
            if token != first:
                self._after[node.tokens].add(token)
            if level == len(outcome) - 1:
                self._refused[level] += weight
                return
            self._accepted[level] += weight
            node = node.children[token]

    @property
    def mean_length(self) -> float:
        """Mean number of tokens of a call."""
        return self._tokens / (self._all or math.nan)

    @property
    def coverage(self) -> Coverage:
        """Coverage of the calls so far."""
        several = {len(text) for text, tokens in self._after.items() if len(tokens) > 1}
        all_calls = self._all or 1.0
        pairs = enumerate(zip(self._accepted, self._refused, strict=True))
        return Coverage(
            tuple(Level(a / all_calls, r / all_calls, n in several) for n, (a, r) in pairs)
        )
