"""Sessions of PyTorch models, with caches of several kinds, and the mistakes made with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TOKENS = 4


class Cached:
    """A model and what it has read; asked for the laws after the last tokens of a text."""

    def __init__(self, model: Any, cache: Any, stale: bool) -> None:
        self.model, self.cache, self.stale = model, cache, stale
        self.num_read = 0

    def laws(self, ids: list[int], first: int) -> Any:
        """Laws after ids[: first + 1], ids[: first + 2], ..., as rows."""
        if self.cache is None:
            logits = self.model(torch.tensor([ids])).logits[0]
            return logits[first:].softmax(-1)
        start = min(self.num_read, first)
        self._cut(start)
        out = self.model(torch.tensor([ids[start:]]), past_key_values=self.cache, use_cache=True)
        self.cache, self.num_read = out.past_key_values, len(ids)
        return out.logits[0, first - start :].softmax(-1)

    def _cut(self, length: int) -> None:
        if self.stale or self.num_read <= length:
            return
        if isinstance(self.cache, tuple):
            self.cache = tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.cache)
        else:
            self.cache.crop(length - self.num_read)  # so many fewer


def chain(
    new_cache: Callable[[], Any] = lambda: None,
    *,
    stale: bool = False,
    generator: Callable[[], Any] = lambda: None,
    gamma: int = 2,
    tokens: int = TOKENS,
) -> Callable[[Any, Any], Any]:
    """Rejection along a chain of drafts; `stale` keeps what was read of refused drafts."""

    @torch.no_grad()
    def generate(target: Any, draft: Any) -> Any:
        source = generator()
        p_model = Cached(target, new_cache(), stale)
        q_model = Cached(draft, new_cache(), stale)
        ids = [0]
        while len(ids) < 1 + tokens:
            before, q = len(ids), []
            for _ in range(gamma):
                q.append(q_model.laws(ids, len(ids) - 1)[-1])
                ids.append(int(torch.multinomial(q[-1], 1, generator=source)))
            p = p_model.laws(ids, before - 1)
            u = torch.rand(gamma, generator=source)
            accepted = 0
            while accepted < gamma:
                x = ids[before + accepted]
                if u[accepted] * q[accepted][x] >= p[accepted][x]:
                    break
                accepted += 1
            left = p[gamma] if accepted == gamma else (p[accepted] - q[accepted]).clamp(min=0)
            ids[before + accepted :] = [int(torch.multinomial(left, 1, generator=source))]
        return torch.tensor([ids[1:]])

    return generate


def new_dynamic_cache() -> Any:
    from transformers import DynamicCache

    return DynamicCache()


OWN = torch.Generator().manual_seed(5)

CORRECT = {
    "no cache": chain(),
    "tuples": chain(tuple),
    "a cache with crop": chain(new_dynamic_cache),
    "a generator that moves on": chain(generator=lambda: OWN),
    "one step": chain(tuple, tokens=1),
}

WRONG = {
    "refused tokens stay in tuples": chain(tuple, stale=True),
    "refused tokens stay in a cache": chain(new_dynamic_cache, stale=True),
    "a seed in every call": chain(generator=lambda: torch.Generator().manual_seed(5)),
}
