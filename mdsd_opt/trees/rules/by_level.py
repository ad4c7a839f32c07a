"""Rules that go from the root down, level by level.

Top-down rules run any verification algorithm at every node; the level-sequential one has masses
from the root down and decides from the leaves up; in a race, drafts and output of every node come
first on the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from mdsd_opt.base.arrays import Law, Text, Vector
from mdsd_opt.drafts import WithoutReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.trees.device_laws import BinnedLaw
from mdsd_opt.trees.draft_tree import DraftModel, Node
from mdsd_opt.trees.rules.rule import Accepted, Stop, TreeRule, completed, taken
from mdsd_opt.trees.token_split import split_with_tries, token_split
from mdsd_opt.trees.topology import Topology
from mdsd_opt.verifiers import Verifier, get


class TopDown(TreeRule):
    """Verify the drafts of the root; go on from the token that comes out, while it is a draft.

    Lossless wherever the verifier is for the draft scheme. Cost: one verification for each token.
    Source: [SpecInfer], [Hu25].
    """

    name: ClassVar[str] = "top_down"

    def __init__(self, verifier: str | Verifier = "optimal") -> None:
        self._verifier = get(verifier) if isinstance(verifier, str) else verifier
        name = self._verifier.name
        self.host_only = "" if name == "optimal" else f"{name!r} asks for every token's probability"

    def stops(self, root: Node) -> list[Stop]:
        stops: list[Stop] = []
        waiting = [(root, 1.0)]
        while waiting:
            node, probability = waiting.pop()
            if node.drafts is None:
                stops.append(Stop(node, probability))
                continue
            masses, rest = self._decided(node)
            waiting += [
                (node.children[token], probability * mass)
                for token, mass in masses.items()
                if mass > 0.0
            ]
            if rest.probability > 0.0:
                stops.append(Stop(node, probability * rest.probability, rest.masses))
        return stops

    def _decided(self, node: Node) -> tuple[dict[int, float], Stop]:
        """Probability of each draft to come out, and the rest of the token's law."""
        assert node.drafts is not None
        if isinstance(node.target, BinnedLaw):
            # the extra token may be a draft again, by no more than the bins lose
            split = token_split(node.target, node.drafts, node.draws, node.values)
            left = max(1.0 - sum(split.masses.values()), 0.0)
            return split.masses, Stop(node, left, node.target - split.kept)
        problem = TransportProblem(node.target, node.drafts)
        law = self._verifier.conditional_law(problem, node.draws)
        rest = law.copy()
        rest[list(node.children)] = 0.0
        masses = {token: float(law[token]) for token in node.children}
        return masses, Stop(node, float(rest.sum()), rest)

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Decide at the nodes on the way down only."""
        node = root
        while node.drafts is not None:
            if isinstance(node.target, BinnedLaw):
                masses, rest = self._decided(node)
                ways = [Stop(node.children[t], mass, rest.masses) for t, mass in masses.items()]
                way = taken([*ways, rest], rng.random())
                if way is rest:
                    return Accepted((*node.tokens, rest.draw(rng.random())), node.depth)
                node = way.node
                continue
            problem = TransportProblem(node.target, node.drafts)
            token = self._verifier.verify(problem, node.draws, rng).token
            if token not in node.children:
                return Accepted((*node.tokens, token), node.depth)
            node = node.children[token]
        return super().verify(node, rng)


class LevelSequential(TreeRule):
    """Transport a whole level to the next, node after node, each with what the others left.

    Lossless for all drafts with a prefix order. With one draft a node it is block verification,
    with one level the optimal token rule. Without replacement it may accept less than `Traversal`
    where only one draft of a node has drafts after it. Cost: one token rule for every node with
    drafts. Source: the idea is that of layer verification (AdaptFM, ICML 2026), the plan of a node
    in closed form is of this package.
    """

    name: ClassVar[str] = "level_sequential"
    host_only = ""

    def stops(self, root: Node) -> list[Stop]:
        levels: list[tuple[list[Stop], float]] = []
        one = root.target.sum() * 0 + 1  # in the numbers of the target, which may be Fractions
        masses = [(root, one)]
        while masses:
            ends, rest, masses = _next_level(masses, one)
            levels.append((ends, rest))
        stops: list[Stop] = []
        reach: float = 1
        for ends, rest in reversed(levels):  # each step given that no deeper one has ended
            ended: float = 0
            for end in ends:
                share = min(max(end.probability / rest, 0), 1) if rest > 0 else 0
                if reach * share > 0:
                    stops.append(replace(end, probability=reach * share))
                ended += share
            reach *= max(1 - ended, 0)
        return completed(stops, root, reach)


def _next_level(
    masses: list[tuple[Node, float]], one: float
) -> tuple[list[Stop], float, list[tuple[Node, float]]]:
    """Mean ends at the nodes of a level, the probability that nothing goes on, the next level."""
    ends: list[Stop] = []
    following: list[tuple[Node, float]] = []
    remains = mean = one  # of what may go on: given these draws, and on average
    for node, mass in sorted(masses, key=lambda item: (-item[1], item[0].tokens)):
        if node.drafts is None:
            ends.append(Stop(node, mass))
            continue
        demand = min(mass / mean, 1) if mean > 0 else 0
        target = demand * node.target
        split = split_with_tries(target, demand, node.drafts, node.draws, node.values)
        for token, share in split.masses.items():
            if share > 0:
                following.append((node.children[token], remains * share))
        alpha, rest = split.alpha, partial(_rest, node, mass, mean, split.kept)
        ends.append(Stop(node, mass - mean * alpha, rest))
        remains *= max(1 - sum(split.masses.values()), 0)
        mean *= 1 - alpha
    return ends, mean, following


def _rest(node: Node, mass: float, mean: float, kept: Law) -> Law:
    return mass * node.target - mean * kept


class Race(TopDown):
    r"""Draft the K first of q at every node, output the first of p, on one exponential a token.

    The noise after a text is made of a seed and of that text, so that the output
    :math:`\arg\min_i E_i / p_i` is a function of these: a seed gives one text with any draft model
    and any tree, or with none. The drafts are the K least :math:`E_i / q_i`, which are distinct;
    `mdsd_opt.decoding.generate` draws them by this rule, with a seed from its generator. Trees that
    were drawn elsewhere, without replacement, are verified by the law of the output given their
    drafts, which takes a small vocabulary. Lossless. Source: this package.

    Parameters
    ----------
    seed : int, optional
        One that is not negative; `generate` draws one unless it is given.
    """

    name: ClassVar[str] = "race"

    def __init__(self, seed: int | None = None) -> None:
        super().__init__("race")
        self.seed = seed
        self._text: Text = ()
        self._grown: Node | None = None

    def noise(self, text: Sequence[int], vocab_size: int) -> Vector:
        """Exponentials (V,) of what follows a text."""
        high, low = divmod(self.seed or 0, 1 << 32)
        # the length, as NumPy takes keys for equal that zeros behind them tell apart
        key = [low, high, len(text) + 1, *text]
        return np.random.default_rng(key).standard_exponential(vocab_size)

    def grow(self, model: DraftModel, topology: Topology, text: Sequence[int]) -> Node:
        """Draw the tree of drafts after a text, one level after another."""
        self._text = tuple(text)
        self._grown = root = Node((), ())
        level = [root]
        while inner := [(n, k) for n in level if (k := len(n.next_places(topology)))]:
            laws, level = model([node.tokens for node, _ in inner]), []
            for (node, num_drafts), law in zip(inner, laws, strict=True):
                drafts = WithoutReplacement(law, num_drafts)
                order = np.argsort(self._arrivals(node, drafts.q))[:num_drafts]
                draws = np.full(num_drafts, -1)
                draws[: order.size] = np.where(drafts.q[order] > 0, order, -1)
                level += node.add_drafts(drafts, draws)
        return root

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Go down while the output is a draft; `rng` is for trees that were drawn elsewhere."""
        if root is not self._grown:
            return super().verify(root, rng)
        node = root
        while True:
            token = int(self._arrivals(node, node.target).argmin())
            if token not in node.children:
                return Accepted((*node.tokens, token), node.depth)
            node = node.children[token]

    def _arrivals(self, node: Node, law: Vector) -> Vector:
        """When the tokens arrive in the race of a law after a node: never, if they cannot come."""
        with np.errstate(divide="ignore"):
            arrivals: Vector = self.noise((*self._text, *node.tokens), law.size) / law
        return arrivals
