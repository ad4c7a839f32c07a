"""What stands in for a function's surroundings: models that are rows of laws, draws, a library."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch


class Rows:
    """A language model that gives the n-th of these laws after n + 1 tokens, whatever they are."""

    def __init__(self, laws: Any) -> None:
        self._logits = laws.log()[None]

    def __call__(self, ids: Any, **_: Any) -> Any:
        return SimpleNamespace(logits=self._logits[:, : ids.shape[1]], past_key_values=None)


class Tables:
    """A language model of tables: the law after a prompt of one token and any text."""

    def __init__(self, law: Callable[[tuple[int, ...]], Any]) -> None:
        self._law = law

    def __call__(self, ids: Any) -> Any:
        text = tuple(ids[0, 1:].tolist())
        laws = [self._law(text[:n]) for n in range(len(text) + 1)]
        return SimpleNamespace(logits=torch.tensor(np.log(laws), dtype=torch.float32)[None])


class Replayed:
    """A function that draws tokens: first the drafts at hand, in their order, then by itself."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw
        self.drafts: list[Any] = []

    def __call__(self, weights: Any, *args: Any, **named: Any) -> Any:
        if not self.drafts:
            return self._draw(weights, *args, **named)
        return self.drafts.pop(0).reshape((*weights.shape[:-1], 1))


class Overlaid:
    """A library with some of its names bound to something else."""

    def __init__(self, library: Any, **names: Any) -> None:
        self._library = library
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def mlx_in_numpy() -> Any:
    """The few functions of `mlx.core` that a verifier uses, in NumPy; draws from its generator."""

    def softmax(logits: Any) -> Any:
        weights = np.exp(logits - np.max(logits))
        return weights / weights.sum()

    def categorical(logits: Any) -> Any:
        return np.int64(np.random.choice(logits.size, p=softmax(logits)))  # noqa: NPY002

    random = SimpleNamespace(
        uniform=lambda: np.float64(np.random.random()),  # noqa: NPY002
        categorical=categorical,
    )
    return SimpleNamespace(
        softmax=softmax, log=np.log, maximum=np.maximum, sum=np.sum, argmax=np.argmax, random=random
    )
