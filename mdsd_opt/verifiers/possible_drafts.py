"""Could a scheme have drawn these tokens? If not, no verifier can follow the target."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)

Tokens = NDArray[np.int64]


@singledispatch
def possible(drafts: DraftScheme, tokens: Tokens) -> bool:
    """Whether the draft tuple (K,), padded with -1, has positive probability."""
    members = tuple(np.unique(tokens[tokens >= 0]).tolist())
    return members in set(drafts.support_law().sets())


@possible.register
def _set_law(drafts: DraftSetLaw, tokens: Tokens) -> bool:
    return tuple(np.unique(tokens[tokens >= 0]).tolist()) in drafts.possible_sets


@possible.register
def _with_replacement(drafts: WithReplacement, tokens: Tokens) -> bool:
    return bool(tokens.min() >= 0 and (drafts.q[tokens] > 0).all())


@possible.register
def _without_replacement(drafts: WithoutReplacement, tokens: Tokens) -> bool:
    drawn = _before_padding(tokens)
    size = min(drafts.num_drafts, drafts.support.size)
    if drawn is None or drawn.size != size or np.unique(drawn).size != size:
        return False
    return bool((drafts.q[drawn] > 0).all())


@possible.register(GreedyDrafts)
@possible.register(TopKDrafts)
def _fixed_set(drafts: GreedyDrafts | TopKDrafts, tokens: Tokens) -> bool:
    fixed, drawn = drafts.always_drafted, tokens[tokens >= 0]
    others = drawn[~np.isin(drawn, fixed)]
    if drawn.size - others.size != fixed.size or not np.isin(fixed, drawn).all():
        return False
    return others.size == int(drafts.draws_one) and bool((drafts.last_draw[others] > 0).all())


@possible.register
def _fixed_plus(drafts: FixedPlusDrafts, tokens: Tokens) -> bool:
    fixed = drafts.always_drafted
    return np.array_equal(tokens[: fixed.size], fixed) and possible(
        drafts.drafts, tokens[fixed.size :]
    )


@possible.register
def _mixture(drafts: MixtureDrafts, tokens: Tokens) -> bool:
    pairs = zip(drafts.mixture_weights.tolist(), drafts.components, strict=True)
    return any(
        mass > 0
        and bool((tokens[component.num_drafts :] == -1).all())
        and possible(component, tokens[: component.num_drafts])
        for mass, component in pairs
    )


@possible.register
def _independent(drafts: IndependentDrafts, tokens: Tokens) -> bool:
    return bool(tokens.min() >= 0 and (drafts.q[np.arange(tokens.size), tokens] > 0).all())


def _before_padding(tokens: Tokens) -> Tokens | None:
    """The tokens without the -1 at the end; None if there are any others."""
    drawn = tokens[tokens >= 0]
    return drawn if (tokens[: drawn.size] >= 0).all() else None
