"""Laws of a step: the draft's from their source, and the target's on their way into the tree.

Relaxed, the law after a node is the closest one for the drafts drawn there; at a leaf it stays.
Whether a step goes on after a token is decided before the next one is known, so that the mean
divergence of the whole text is the sum over its tokens (chain rule), and total variation at most
the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, cast

from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Text, look_like_probabilities, to_numpy
from mdsd_opt.base.sampling import Sampling, checked_softmax
from mdsd_opt.decoding.language_models import spread, token_ids_of, tree_logits
from mdsd_opt.drafts import SchemeMaker, composition_of
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import relaxed_by
from mdsd_opt.trees import (
    Accepted,
    BinnedDrafts,
    BinnedLaw,
    Node,
    TopDown,
    Topology,
    TreeRule,
    bin_tables,
    integer_weights,
    is_host,
    on_device,
    settle,
    token_ids,
    undrafted_table,
)

#: Names of the rules that decide from sums over bins.
DEVICE_RULES = ("traversal_hull", "level_sequential", "optimal")


class HostLaws:
    """Laws as float64 arrays, for every rule and scheme."""

    def __init__(
        self, target: Any, draft: Any, make: SchemeMaker, sampling: Sampling, drafting: Sampling
    ) -> None:
        self.make = make  # drafts of a node from a row of `drafts` and their number
        self._sampling, self._drafting = asdict(sampling), asdict(drafting)
        self._target, self._draft = tree_logits(target), tree_logits(draft)
        self._drafted, self._vocab_size = token_ids_of(draft), 0

    def drafts(self, text: Sequence[int], continuations: Sequence[Text]) -> Floats:
        """Draft laws after some continuations of a text, one per row."""
        own = self._logits(self._draft(text, continuations), "draft")
        return checked_softmax(spread(own, self._drafted, self._vocab_size), **self._drafting)

    def set_targets(self, text: Sequence[int], nodes: Sequence[Node]) -> None:
        """Give every node its target law, computed when a rule reads it."""
        logits = self._logits(self._target(text, [node.tokens for node in nodes]), "target")
        drafts = nodes[0].drafts
        if drafts is not None and drafts.vocab_size > logits.shape[-1]:
            raise InvalidInput(
                f"the draft has {drafts.vocab_size} tokens, the target {logits.shape[-1]}: say in "
                "token_ids of the draft which of the target's they are"
            )
        self._vocab_size = logits.shape[-1]
        for node, row in zip(nodes, logits, strict=True):
            node.target_by(partial(checked_softmax, row, **self._sampling))

    def _logits(self, answer: Any, model: str) -> NDArray[Any]:
        """What a model answers; `InvalidInput` if in the first step these are probabilities."""
        logits = to_numpy(answer, "logits")
        if not self._vocab_size and logits.shape[-1] > 1 and look_like_probabilities(logits):
            raise InvalidInput(
                f"what the {model} gives is not negative and sums to one, as probabilities do: "
                "give their logarithms; or add a constant, if they are logits"
            )
        return logits

    def output(self, outcome: Accepted) -> Text:
        """Tokens of a step; `InvalidInput` where a rule gave others."""
        given: Any = outcome
        known = range(self._vocab_size)
        if not (isinstance(given, Accepted) and given[0] and all(x in known for x in given[0])):
            raise InvalidInput(f"the rule returned {given!r:.60}: give an Accepted of tokens")
        return outcome.tokens


class DeviceLaws:
    """Laws as integer weights on the logits' device; the host gets tables of nodes with drafts.

    The models have a method ``tree_tensor(ids, continuations)``, as `TreeModel` does.
    """

    def __init__(
        self, target: Any, draft: Any, replaced: bool, sampling: Sampling, drafting: Sampling
    ) -> None:
        for model in (target, draft):
            if not hasattr(model, "tree_tensor"):
                raise InvalidInput(
                    f"{type(model).__name__} has no tensors to decide on: give a TreeModel, or "
                    "leave on_device out"
                )
        self._target, self._draft, self._replaced = target, draft, replaced
        self._drafted, self._vocab_size = token_ids_of(draft), 0
        self._sampling, self._drafting = sampling, drafting

    def make(self, law: Any, num_drafts: int) -> Any:
        """Drafts of a node from a row of `drafts` and their number."""
        return BinnedDrafts(law, num_drafts, self._replaced)

    def drafts(self, text: Sequence[int], continuations: Sequence[Text]) -> Any:
        """Weights of the draft's laws after some continuations of a text, one per row."""
        own = self._draft.tree_tensor(text, continuations)
        logits = spread(own, self._drafted, self._vocab_size)
        return integer_weights(logits, self._drafting)

    def set_targets(self, text: Sequence[int], nodes: Sequence[Node]) -> None:
        """Give every node its target law, and the root the tokens of its tree."""
        logits = self._target.tree_tensor(text, [node.tokens for node in nodes])
        self._vocab_size = logits.shape[-1]
        weigh: Any = partial(integer_weights, sampling=self._sampling)
        tables = {}
        inner = [n for n, node in enumerate(nodes) if node.drafts is not None]
        if inner:  # but in a text's first step
            targets = weigh(logits.index_select(0, on_device(inner, logits.device)))
            drafts: list[Any] = [nodes[n].drafts for n in inner]
            counts = [one.num_drafts for one in drafts]
            padded = [[*nodes[n].draws, *[0] * (max(counts) - nodes[n].draws.size)] for n in inner]
            of_inner = bin_tables(
                targets,
                [one.weights.to(targets.device) for one in drafts],
                token_ids(padded, targets.device),
                counts,
                drafts[0].replaced,
            )
            tables = dict(zip(inner, of_inner, strict=True))
        for n, node in enumerate(nodes):  # one end of the tree at most is a leaf
            table = tables[n] if n in tables else undrafted_table(partial(weigh, logits[n]))
            law: Any = BinnedLaw.target_of(table)
            node.target = law
            if node.draws.dtype == object:
                for promised, token in zip(node.draws, table.draws, strict=True):
                    promised.keep(token)
        if nodes[0].draws.dtype == object:
            settle(nodes[0])

    def output(self, outcome: Accepted) -> Text:
        """Tokens of a step."""
        return outcome.tokens


def decides_on_device(
    target: Any, draft: Any, make: SchemeMaker, rule: TreeRule, tree: Any
) -> bool:
    """Whether the target is on a device, and all that decides there can do so.

    Trees that merge draws that coincide need to know them while they are drawn.
    """
    device = getattr(target, "device", None)
    if device is None or is_host(device) or not hasattr(draft, "tree_tensor"):
        return False
    return not getattr(tree, "merges", False) and not _why_on_host(make, rule)


def require_device_rule(make: SchemeMaker, rule: TreeRule) -> bool:
    """Whether drafts are drawn with replacement; `InvalidInput` if the device does not decide."""
    reason = _why_on_host(make, rule)
    if reason:
        raise InvalidInput(reason)
    return cast(Any, composition_of(make)).is_replaced


def _why_on_host(make: SchemeMaker, rule: TreeRule) -> str:
    """Reason why the device does not decide; "" if it does."""
    composed = composition_of(make)
    if composed is None or not composed.is_random:
        return (
            "decisions on the device are for drafts with_replacement and without_replacement; "
            "others are for the host: leave on_device out"
        )
    host_only = getattr(rule, "host_only", TreeRule.host_only)  # of a user's own rule
    if not host_only:
        return ""
    name, decide = getattr(rule, "name", type(rule).__name__), ", ".join(DEVICE_RULES)
    return f"rule {name!r} decides on the host only: {host_only}; on the device decide {decide}"


class Distance(NamedTuple):
    """Distance of one token's law from the target, or of several tokens' law together."""

    kl: float = 0.0
    tv: float = 0.0


def check_tree(tree: Any, rule: TreeRule) -> None:
    """Raise `InvalidInput` unless the relaxed law after a text is one law, as the rule needs it.

    A rule that decides at one node after another takes any tree. Others weigh whole paths: the law
    after a text must not depend on which places its tokens came to, so each level has one K.
    """
    if isinstance(rule, TopDown) or (isinstance(tree, Topology) and _is_even(tree)):
        return
    raise InvalidInput(
        f"with relaxed targets, rule {rule.name!r} takes trees with the same number of drafts at "
        "all nodes of a level, such as 4x3 or chain5; token-level verifiers, such as optimal, take "
        "all trees"
    )


def _is_even(topology: Topology) -> bool:
    if topology.merges:  # as many drafts as paths have come to a node
        return False
    size = 1
    for depth in range(topology.depth):
        counts = [k for place, k in topology.num_drafts.items() if len(place) == depth]
        if len(counts) != size or len({*counts}) > 1:
            return False
        size *= counts[0]
    return True


def relax_targets(root: Node, budget: Mapping[str, float]) -> dict[Text, Distance]:
    """Relax the law after every node that has drafts; return the distances by the node's tokens.

    The nodes of the tree have targets; the budget is that of `mdsd_opt.relax`, for each token.
    """
    distances: dict[Text, Distance] = {}
    for node in root.walk():
        if node.drafts is not None:
            relaxed = relaxed_by(TransportProblem(node.target, node.drafts), budget)
            node.target = relaxed.target
            distances[node.tokens] = Distance(relaxed.kl, float(relaxed.tv))
    return distances


def distance_of(tokens: Text, distances: Mapping[Text, Distance]) -> Distance:
    """Distance of the tokens that a step outputs, together."""
    met = [distances.get(tokens[:n], Distance()) for n in range(len(tokens))]
    return Distance(sum(x.kl for x in met), sum(x.tv for x in met))
