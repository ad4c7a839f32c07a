"""Trees of drafts for every draw that can be made, and the exact law of the texts after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

Text = tuple[int, ...]


def every_draw(run: Callable[[Any], Any]) -> Iterator[tuple[float, Any]]:
    """What a function of a way to draw gives for each of the possible draws, and its chance."""
    choices: list[tuple[int, int]] = []  # taken and possible, draw by draw
    while True:
        met, chance = 0, 1.0

        def draw(laws: Any) -> Any:
            nonlocal met, chance
            tokens = []
            for law in laws:
                possible = law.nonzero()[:, 0].tolist()
                if met == len(choices):
                    choices.append((0, len(possible)))
                tokens.append(possible[choices[met][0]])
                chance *= float(law[tokens[-1]])
                met += 1
            return torch.tensor(tokens)

        found = run(draw)
        yield chance, found
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        if not choices:
            return
        choices[-1] = (choices[-1][0] + 1, choices[-1][1])


@dataclass(frozen=True)
class Asked:
    """What the tree operation is given, for one request."""

    candidates: Any
    next_token: Any
    next_sibling: Any
    target_probs: Any
    laws: Any
    rows: Any

    def law(self, target: Any, length: int) -> Any:
        """The law of texts by the rule for certain children and a drawn one.

        What a step leaves of a text is completed by the target.
        """
        vocab_size = self.target_probs.shape[-1]
        law = np.zeros((vocab_size,) * length)
        rest = text_law(target, length, vocab_size)

        def complete(text: Text, mass: float) -> None:
            here = rest[text]
            law[text] += mass * here / max(here.sum(), 1e-300)

        def visit(node: int, text: Text, mass: float) -> None:
            kids, child = [], int(self.next_token[0, node])
            while child >= 0:
                kids.append(child)
                child = int(self.next_sibling[0, child])
            left = self.target_probs[0, node].double().numpy().copy()
            tokens = {kid: int(self.candidates[0, kid]) for kid in kids}
            rows = {kid: int(self.rows[0, kid]) for kid in kids}
            drawn = [k for k in kids if rows[k] >= 0 and self.laws[rows[k], tokens[k]] > 0]
            accept = 0.0
            if drawn:
                q = self.laws[rows[drawn[0]]].double().numpy()
                accept = min(1.0, left[tokens[drawn[0]]] / q[tokens[drawn[0]]])
                left = np.maximum(left - q, 0)
                left *= (1 - accept) / max(left.sum(), 1e-300)
            for kid, token in tokens.items():
                taken = left[token] + (accept if drawn and kid == drawn[0] else 0.0)
                left[token] = 0
                visit(kid, (*text, token), mass * taken)
            for token, chance in enumerate(left):
                complete((*text, token), mass * chance)

        visit(0, (), 1.0)
        return law


def text_law(target: Any, length: int, vocab_size: int) -> Any:
    """The law of texts by the target alone, shape (V, ..., V)."""
    law = np.empty((vocab_size,) * length)
    for text in product(range(vocab_size), repeat=length):
        law[text] = np.prod([target(text[:i])[text[i]] for i in range(length)])
    return law


def distance(laws: Iterator[tuple[float, Asked]], target: Any, length: int, v: int) -> float:
    """Total variation between the law of the texts after all trees and the target's."""
    law, total = np.zeros((v,) * length), 0.0
    for chance, asked in laws:
        law += chance * asked.law(target, length)
        total += chance
    assert abs(total - 1) < 1e-5
    return float(np.abs(law - text_law(target, length, v)).sum() / 2)
