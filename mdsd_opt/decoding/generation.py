"""Decoding with trees of drafts, step after step, and its metrics."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

from mdsd_opt.base.arrays import Text
from mdsd_opt.base.checked import (
    Rng,
    check_function,
    check_truth,
    checked_integer,
    drawn_seed,
    generator_of,
    of_kind,
)
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.base.sampling import Sampling, SamplingKeywords
from mdsd_opt.decoding.growth import growth_of
from mdsd_opt.decoding.language_models import FeatureFeed, tree_logits
from mdsd_opt.decoding.step_laws import (
    DeviceLaws,
    HostLaws,
    check_tree,
    decides_on_device,
    distance_of,
    relax_targets,
    require_device_rule,
)
from mdsd_opt.drafts import SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers import checked_relax
from mdsd_opt.trees import (
    MAX_DEPTH,
    Node,
    Race,
    Topology,
    Tree,
    TreeRule,
    get_rule,
    parse_topology,
)


class ContextEnds(UserWarning):
    """The text ends because a model reads no more tokens."""


@dataclass(frozen=True, slots=True)
class Metrics(Result):
    """Counts and times of some steps of decoding.

    Attributes
    ----------
    num_steps : int
        Target calls.
    num_tokens : int
        Tokens of the output.
    num_accepted : int
        Drafts among them.
    num_passed : int
        Drafts that were accepted, with those that the end of the output cut off.
    num_hits : int
        Steps in which at least one draft was accepted.
    num_drafted : int
        Nodes of all trees.
    draft_seconds, target_seconds, verify_seconds : float
    kl, tv : float
        Distances of the laws of the output's tokens from the target, summed: KL in nats, whose mean
        is that of the whole text, and total variation, whose sum is at least that of the whole
        text. 0 unless targets are relaxed.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_accepted: int = 0
    num_passed: int = 0
    num_hits: int = 0
    num_drafted: int = 0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    verify_seconds: float = 0.0
    kl: float = 0.0
    tv: float = 0.0

    columns: ClassVar = (
        "num_steps", "num_tokens", "num_accepted", "num_passed", "num_hits", "num_drafted",
        "draft_seconds", "target_seconds", "verify_seconds", "kl", "tv",
        "first_token_acceptance_rate", "accept_length", "accepted_per_step", "seconds_per_token",
        "verify_share", "kl_per_token", "tv_per_token",
        Column("acceptance_rate", of="first_token_acceptance_rate"),  # its old name
    )  # fmt: skip

    @property
    def first_token_acceptance_rate(self) -> float:
        """Share of steps in which the first token was a draft."""
        return self.num_hits / self.num_steps if self.num_steps else float("nan")

    @property
    def accept_length(self) -> float:
        """Tokens per target call, the extra token included; also called block efficiency."""
        return self.num_tokens / self.num_steps if self.num_steps else float("nan")

    @property
    def accepted_per_step(self) -> float:
        """Accepted drafts per target call, including those that the end of the output cut off."""
        return self.num_passed / self.num_steps if self.num_steps else float("nan")

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.target_seconds + self.verify_seconds

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self.num_tokens if self.num_tokens else float("nan")

    @property
    def kl_per_token(self) -> float:
        return self.kl / self.num_tokens if self.num_tokens else float("nan")

    @property
    def tv_per_token(self) -> float:
        return self.tv / self.num_tokens if self.num_tokens else float("nan")

    @property
    def verify_share(self) -> float:
        """Share of the time that the verifier takes."""
        return self.verify_seconds / self.seconds if self.seconds else float("nan")

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: Metrics) -> Metrics:
        return Metrics(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Generation(Result):
    """Tokens after the prompt, with metrics, and the reason why they end.

    Attributes
    ----------
    tokens : tuple of int
    metrics : Metrics
    ended_by : str
        "stop" (a stop token), "length" (`max_new_tokens`) or "context".
    """

    tokens: Text
    metrics: Metrics
    ended_by: str

    columns: ClassVar = ("tokens", "ended_by", "*metrics")


def generate(
    target: Any,
    draft: Any,
    prompt: Sequence[int],
    *,
    tree: Tree | str = "4x3",
    scheme: str | SchemeMaker = "with_replacement",
    rule: TreeRule | str = "traversal_hull",
    max_new_tokens: int = 64,
    rng: Rng = 0,
    stop_tokens: Collection[int] = (),
    on_device: bool | None = None,
    on_step: Callable[[Text, Metrics], None] | None = None,
    relax: Mapping[str, float] | None = None,
    **sampling: Unpack[SamplingKeywords],
) -> Generation:
    """Continue a prompt; the output follows the target exactly, whatever the draft.

    Parameters
    ----------
    target, draft : model
        A function from token ids to the logits of the next token, or an object with a method
        ``logits(ids, rows)`` or ``tree_logits(ids, continuations)``, see `tree_logits`. A draft may
        know a part of the vocabulary (`token_ids`) and read the target's hidden states (`features`,
        `read`), see `mdsd_opt.decoding.language_models`.
    prompt : sequence of int
        Token ids, at least one.
    tree : Topology, PlannedTree, DynamicTree or str
        "4x3", "chain5", "sparse", "planned16", "dynamic24".
    scheme : str or callable
        Scheme by which the drafts of a node are drawn: a name, or a function (q, num_drafts) ->
        scheme.
    rule : TreeRule or str
        One of `rule_names()`. "race" draws its drafts itself, distinct ones, by noise of a seed and
        the text: the same `rng` gives the same text whatever draft and tree are.
    max_new_tokens : int
        New tokens for each prompt, at most.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator, which goes on.
    stop_tokens : collection of int
        The output ends after the first of them.
    on_device : bool, optional
        Leave the laws where the models' logits are, and decide by sums over bins of p/q: exactly
        lossless, and accepting next to what the rule accepts. For `TreeModel`, drafts with and
        without replacement, and the rules "traversal_hull", without its first tries one by one,
        "level_sequential" and "optimal", which goes down from the root. By default so wherever the
        target is on a device, and models, drafts, tree and rule are such that it can be done.
    on_step : callable, optional
        Called after every step with its tokens and the metrics so far.
    relax : mapping, optional
        A budget for each token, as ``{"kl": 0.01}`` (or "tv", "chi2", "acceptance_rate", see
        `mdsd_opt.relax`): the output follows the closest laws within it instead of the target, and
        the metrics tell how far from the target that was. Rules for whole trees take trees with one
        number of drafts at each level; token-level verifiers all trees.
    **sampling
        temperature, draft_temperature, top_k, top_p, min_p, joint, sampling and draft_sampling, as
        of `mdsd_opt.Logits`.

    Returns
    -------
    Generation
        Shorter where a model's context ends, after a warning (`ContextEnds`).

    Raises
    ------
    InvalidInput
        A parameter out of range, an empty prompt or one that fills the context, or a tree that
        cannot be relaxed for the rule or on the device.
    """
    if on_step is not None:
        check_function(on_step=on_step)
    tokens: Text = ()
    metrics = Metrics()
    for new, metrics in generate_steps(
        target, draft, prompt, tree=tree, scheme=scheme, rule=rule, max_new_tokens=max_new_tokens,
        rng=rng, stop_tokens=stop_tokens, on_device=on_device, relax=relax, **sampling,
    ):  # fmt: skip
        tokens += new
        if on_step is not None:
            on_step(new, metrics)
    if tokens and tokens[-1] in {*stop_tokens}:
        ended_by = "stop"
    else:
        ended_by = "context" if len(tokens) < max_new_tokens else "length"
    return Generation(tokens, metrics, ended_by)


def generate_batch(
    target: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    *,
    rng: Rng = 0,
    on_step: Callable[[int, Text, Metrics], None] | None = None,
    **options: Any,
) -> Iterator[Generation]:
    """Continue prompts one after another; each text has the law that it has alone.

    There is one cache at a time, whatever the number of prompts. What a prompt has in common with
    the beginning of the text before it is not read again, by models that keep what they read.

    Parameters
    ----------
    target, draft : model
    prompts : sequence of sequences of int
        Token ids. All are looked at before the first is continued.
    rng : numpy.random.Generator or int, optional
        Prompt n is continued as `generate` does with ``rng + n``; a generator draws the seed.
    on_step : callable, optional
        Called after every step with the prompt's number, the step's tokens, and the metrics of
        this prompt so far.
    **options
        As for `generate`.

    Yields
    ------
    Generation
        Generation of each prompt, once it is continued.

    Raises
    ------
    InvalidInput
        As for `generate`; the message numbers an unfit prompt, from 1.
    """
    require_room(target, draft, prompts)
    seed = drawn_seed(rng)
    return (
        generate(
            target, draft, prompt, rng=seed + n,
            on_step=None if on_step is None else partial(on_step, n), **options,
        )
        for n, prompt in enumerate(prompts)
    )  # fmt: skip


def require_room(target: Any, draft: Any, prompts: Sequence[Sequence[int]]) -> None:
    """Raise `InvalidInput` for the first prompt that is empty or fills the models' context."""
    context = _context_length(target, draft)
    for model in (target, draft):
        tree_logits(model)
    for n, prompt in enumerate(of_kind(prompts, Collection, "prompts", "token ids"), start=1):
        of_kind(prompt, Collection, "the prompt", "token ids")
        name = "the prompt" if len(prompts) == 1 else f"prompt {n} of {len(prompts)}"
        if len(prompt) == 0:
            raise InvalidInput(f"{name} is empty: give at least one token")
        if len(prompt) >= context:
            raise InvalidInput(
                f"{name} has {len(prompt):,} tokens, and the models read {context:,} with the "
                "drafts: shorten it"
            )


def generate_steps(
    target: Any,
    draft: Any,
    prompt: Sequence[int],
    *,
    tree: Tree | str = "4x3",
    scheme: str | SchemeMaker = "with_replacement",
    rule: TreeRule | str = "traversal_hull",
    max_new_tokens: int = 64,
    rng: Rng = 0,
    stop_tokens: Collection[int] = (),
    on_device: bool | None = None,
    relax: Mapping[str, float] | None = None,
    **sampling: Unpack[SamplingKeywords],
) -> Iterator[tuple[Text, Metrics]]:
    """Iterate over the steps of `generate`: the tokens of each step, and the metrics so far."""
    require_room(target, draft, [prompt])
    checked_integer(max_new_tokens, "max_new_tokens", 0, 2**31)
    for token in of_kind(stop_tokens, Collection, "stop_tokens", "token ids"):
        checked_integer(token, "one of stop_tokens", -1)
    stop_tokens = {*stop_tokens}
    if on_device is not None:
        check_truth(on_device=on_device)
    tree = parse_topology(tree) if isinstance(tree, str) else tree
    growth = growth_of(tree)
    verifier = get_rule(rule) if isinstance(rule, str) else rule
    if not hasattr(verifier, "verify"):
        raise InvalidInput(f"rule is {rule!r}: give the name of one, or a TreeRule")
    if relax is not None:
        if on_device:
            raise InvalidInput("relaxed targets are made on the host: leave on_device out")
        relax = checked_relax(relax)
        check_tree(tree, verifier)
    make = scheme_maker(scheme)
    if on_device is None:
        on_device = relax is None and decides_on_device(target, draft, make, verifier, tree)
    rng = generator_of(rng)
    race = None
    if isinstance(verifier, Race):
        _check_race(tree, scheme, draft, on_device or relax is not None)
        seed = int(rng.integers(2**62)) if verifier.seed is None else verifier.seed
        verifier = race = Race(seed)
    sides = Sampling.of_both(**sampling)
    feed = FeatureFeed(target, draft)
    laws: HostLaws | DeviceLaws
    if on_device:
        laws = DeviceLaws(target, draft, require_device_rule(make, verifier), *sides)
    else:
        laws = HostLaws(target, draft, make, *sides)

    text = [checked_integer(token, "a token of the prompt", 0) for token in prompt]
    start, metrics, context = len(text), Metrics(), _context_length(target, draft)

    def drafted_laws(continuations: Sequence[Text]) -> Any:
        feed.tell(text)
        return laws.drafts(text, continuations)

    def step() -> tuple[Text, Metrics]:  # whose trees and laws do not outlive it
        began = time.perf_counter()
        waits = feed.waits and not metrics.num_steps
        if waits:
            root = Node((), ())
        else:
            depth = min(context - len(text), MAX_DEPTH)
            if race is None:
                root = growth.grow(drafted_laws, laws.make, rng, depth)
            else:
                root = race.grow(drafted_laws, growth.shape.topology.cut(depth), text)
        drafted = time.perf_counter()
        laws.set_targets(text, root.walk())
        weighed = time.perf_counter()
        distances = {} if relax is None else relax_targets(root, relax)
        outcome = verifier.verify(root, rng)
        new = laws.output(outcome)
        decided = time.perf_counter()
        if not waits:
            growth.observe(root, outcome.tokens[: outcome.num_accepted])

        tokens = _cut(new, max_new_tokens - (len(text) - start), stop_tokens)
        return tokens, Metrics(
            num_steps=1,
            num_tokens=len(tokens),
            num_accepted=min(outcome.num_accepted, len(tokens)),
            num_passed=outcome.num_accepted,
            num_hits=int(outcome.num_accepted > 0),
            num_drafted=len(root.walk()) - 1,
            draft_seconds=drafted - began,
            target_seconds=weighed - drafted,
            verify_seconds=decided - weighed,
            **distance_of(outcome.tokens[: len(tokens)], distances)._asdict(),
        )

    while len(text) - start < max_new_tokens:
        if len(text) >= context:
            warnings.warn(
                f"the text ends after {len(text) - start:,} new tokens: with {len(text):,} tokens "
                "it fills the models' context",
                ContextEnds,
                stacklevel=2,
            )
            break
        tokens, step_metrics = step()
        text += tokens
        metrics += step_metrics
        yield tokens, metrics
        if tokens[-1] in stop_tokens:
            break


def _check_race(tree: Any, scheme: Any, draft: Any, elsewhere: bool) -> None:
    """Raise where a race cannot draw the drafts: its noise is that of the target's tokens."""
    if not isinstance(tree, Topology):
        raise InvalidInput(f"rule 'race' takes trees of one shape, such as '3x2': not {tree!r:.40}")
    if scheme not in ("with_replacement", "without_replacement"):  # the default, and what it does
        raise InvalidInput(f"rule 'race' draws its drafts itself: leave out the scheme {scheme!r}")
    if elsewhere:
        raise InvalidInput("rule 'race' decides on the host, by p: leave out on_device, relax")
    if getattr(draft, "token_ids", None) is not None:
        raise InvalidInput("rule 'race' takes drafts that know all of the target's tokens")


def _context_length(*models: Any) -> int:
    """Number of tokens that all models read, as far as they say."""
    lengths = (getattr(model, "context_length", None) for model in models)
    return min((length for length in lengths if length is not None), default=sys.maxsize)


def _cut(tokens: Text, room: int, stop_tokens: Collection[int]) -> Text:
    """Tokens of a step, up to a stop token, and no more than there is room for."""
    tokens = tokens[:room]
    for n, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: n + 1]
    return tokens
