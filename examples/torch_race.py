r"""Lists from one race in PyTorch alone: one text with any drafter or none, to paste elsewhere.

One exponential for each (seed, position, token) decides everything at a position:

    output    argmin E / p     the plain sample of the target p by this noise, whatever was drafted
    drafts    K least E / q    a draw of K distinct tokens from the draft q by the same noise
    accept    while the output of a position is among its drafts

so that nobody has to keep q, and a seed gives one text, token by token, with a better drafter, a
worse one, or none. p and q are probabilities after temperature and filters; noise depends on the
position, so that texts of one seed share it where they are equally long: give each request a seed
of its own. Any device; the integers wrap alike on all of them.

    python examples/torch_race.py     # three drafters, one text

Reference: mdsd_opt, docs/theory/race-lists.md, which has the exact acceptance rate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Multipliers and shifts of splitmix64, as signed integers.
_WEYL = -7046029254386353131
_MIX = ((30, -4658895280553007687), (27, -7723592293110705685))


def exponentials(seed: int, position: int, vocab_size: int, device: str = "cpu") -> Tensor:
    """Standard exponentials [V] of a seed and a position, float64."""
    tokens = torch.arange(vocab_size, dtype=torch.int64, device=device)
    key = _hashed(_hashed(torch.tensor(seed, device=device)) + position)
    bits = _hashed(_hashed(key + tokens) + _WEYL)
    # 53 bits and a half, so that no uniform is 0 or 1
    uniform = ((bits >> 11) & ((1 << 53) - 1)).double().add(0.5) / 2.0**53
    return -uniform.log()


def _hashed(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 [Steele et al., 2014]; shifts are of unsigned numbers."""
    x = x + _WEYL
    for shift, factor in _MIX:
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def output(p: Tensor, noise: Tensor) -> int:
    """The output token: the plain sample of p [V] by this noise."""
    return int((noise / p.double()).argmin())  # p = 0 is never first: the quotient is inf


def drafts(q: Tensor, noise: Tensor, num_drafts: int) -> list[int]:
    """At most K distinct tokens, drawn from q [V] by the same noise, in the order of draws."""
    possible = min(num_drafts, int((q > 0).sum()))
    return (noise / q.double()).topk(possible, largest=False).indices.tolist()


def generate(
    target: Callable[[list[int]], Tensor],
    draft: Callable[[list[int]], Tensor] | None,
    length: int,
    *,
    seed: int,
    num_drafts: int = 3,
    depth: int = 2,
) -> tuple[list[int], int]:
    """A text, and the number of steps: passes of the target, each over one tree of drafts.

    Each step drafts K children of the last token, K of each of these, and so on. The target's laws
    of the whole tree are one pass in an engine; here they are asked for where the text goes.
    """
    text: list[int] = []
    steps = 0
    while len(text) < length:
        steps += 1
        for _ in range(depth + 1):
            noise = exponentials(seed, len(text), target(text).numel())
            guessed = [] if draft is None else drafts(draft(text), noise, num_drafts)
            text.append(output(target(text), noise))
            if text[-1] not in guessed:
                break
    return text[:length], steps


def main() -> None:
    """Print one text by three drafters, and how many steps each took."""
    vocab_size, words = 50, 60
    table = torch.randn(vocab_size + 1, vocab_size, generator=torch.Generator().manual_seed(0))

    other = torch.randn(vocab_size + 1, vocab_size, generator=torch.Generator().manual_seed(1))

    def model(away: float) -> Callable[[list[int]], Tensor]:
        logits = 2 * table + away * other
        return lambda text: torch.softmax(logits[text[-1] if text else -1], -1)

    target = model(0.0)
    for name, draft in (("none", None), ("good", model(0.3)), ("poor", model(2.0))):
        text, steps = generate(target, draft, words, seed=7)
        print(f"{name:5} {steps:3} steps for {words} tokens: {text[:12]} ...")


if __name__ == "__main__":
    main()
