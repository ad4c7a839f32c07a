"""Named sets of transport problems that solvers are set beside each other on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.base.sampling import softmax
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import IndependentDrafts
from mdsd_opt.problem import TransportProblem

Build = Callable[[], TransportProblem]

#: What a set holds, by name.
SETS = {
    "small": "problems that every method solves: 4 to 10 tokens, K = 2 and 3, three schemes",
    "hard": "ties, zeros, p = q, one token that holds nearly all, masses of 1e-15: 12 to 60 tokens",
    "real": "bundled positions of a real model, 49,152 tokens, K = 2 and 4, two schemes",
}
_SCHEMES = ("with_replacement", "without_replacement")


def problem_set(name: str) -> list[tuple[str, Build]]:
    """Problems of a set with their kinds, in their order; each is built when it is asked for."""
    builds = {"small": _small, "hard": _hard, "real": _real}[name]()
    return sorted(builds, key=lambda x: x[0])


def _of_logits(target: Any, draft: Any, num_drafts: int, scheme: str) -> Build:
    return partial(TransportProblem.from_logits, target, draft, num_drafts, drafts=scheme)


def _small() -> Iterator[tuple[str, Build]]:
    for size, num_drafts in ((4, 2), (6, 2), (10, 2), (4, 3), (6, 3)):
        rng = np.random.default_rng(size)
        target, draft = rng.normal(size=(2, size))
        for scheme in _SCHEMES:
            yield scheme, _of_logits(target, draft, num_drafts, scheme)
        models = [softmax(draft + x) for x in rng.normal(size=(num_drafts, size))]
        yield "independent", partial(TransportProblem, softmax(target), IndependentDrafts(models))


def _hard() -> Iterator[tuple[str, Build]]:
    for size in (12, 60):
        rng = np.random.default_rng(size)
        target, draft = 2.5 * rng.normal(size=(2, size))
        one_hot, zeros = draft.copy(), target.copy()
        one_hot[size // 2] = 60.0
        zeros[::2] = -np.inf
        kinds = {
            "ties": (np.round(target), np.round(draft)),
            "zeros": (zeros, draft),
            "equal": (draft, draft),
            "one token": (target, one_hot),
            "tiny masses": (np.where(rng.random(size) < 0.5, target, -34.5), draft),
            "far": (8.0 * target, draft),
        }
        for kind, (one, other) in kinds.items():
            for scheme in _SCHEMES:
                yield f"{kind}, {scheme}", _of_logits(one, other, 2, scheme)


def _real() -> Iterator[tuple[str, Build]]:
    def build(place: int, num_drafts: int, scheme: str) -> TransportProblem:
        sample = load_logits(sample_logits_path())
        target, draft = (
            side.reshape(-1, side.shape[-1])[place] for side in (sample.target, sample.draft)
        )
        return _of_logits(target, draft, num_drafts, scheme)()

    for place in (0, 13, 27):
        for num_drafts in (2, 4):
            for scheme in _SCHEMES:
                yield f"position {place}, {scheme}", partial(build, place, num_drafts, scheme)
