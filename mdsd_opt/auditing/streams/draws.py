"""Draws that a sampler is asked for, and the tokens that it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.foreign import describe, ran
from mdsd_opt.errors import ForeignFault, InvalidInput

#: What a draw is for, in the order in which an engine asks for it at a position.
ROLES = ("draft", "accept", "residual", "target")

#: Pairs of roles of which one position of a text has one at most.
EXCLUSIVE = {frozenset({"accept", "target"}), frozenset({"residual", "target"})}

#: Requests of a batch.
BATCH = 256

#: Laws of the draws whose dependence is looked at.
TARGET = np.array([0.4, 0.3, 0.2, 0.1])
LAWS = dict.fromkeys(ROLES, TARGET) | {"accept": np.array([0.5, 0.5])}


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One token that a sampler shall draw, of one request of a batch.

    Attributes
    ----------
    request : int
        Name of the request: no two have the same, in one call or in several.
    seed : int or None
        Seed that the user gave the request; None for one without.
    position : int
        Place of the token in the text, from 0.
    role : str
        "draft": a token of the draft; "accept": token 1 accepts that draft, 0 refuses it;
        "residual": the token after a refusal; "target": a plain sample, without or behind drafts.
    logits : ndarray, shape (V,)
        Log-probabilities of the law that the token shall follow; -inf for a token that cannot come.
        For "accept" V is 2.
    """

    request: int
    seed: int | None
    position: int
    role: str
    logits: Vector


#: A sampler: requests of one batch to a token each.
Sampler = Callable[[list[StreamRequest]], Any]


class CallFailed(Exception):
    """A call gave no tokens; the kind of violation, and what happened."""


def logits_of(law: Sequence[float] | Vector) -> Vector:
    """Log-probabilities of a law, not to be written to."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(law, dtype=np.float64))
    logits.setflags(write=False)
    return logits


def answered(sampler: Sampler, requests: list[StreamRequest]) -> Integers:
    """Tokens of one batch, checked."""
    try:
        tokens = to_numpy(ran(sampler(requests)), "the answer")
    except ForeignFault:
        raise
    except Exception as error:  # it is not ours: anything may come
        raise CallFailed("exception", describe(error)) from error
    if tokens.shape != (len(requests),) or tokens.dtype.kind not in "iub":
        shape = f"shape {tokens.shape} and dtype {tokens.dtype}"
        told = f"{len(requests)} requests were answered with {shape}: give a token for each"
        raise CallFailed("not a token", told)
    for token, asked in zip(tokens.tolist(), requests, strict=True):
        if not 0 <= token < asked.logits.size or asked.logits[token] == -np.inf:
            told = f"token {token} for {asked.role}, which its law rules out"
            raise CallFailed("impossible token", told)
    return tokens.astype(np.int64)


def in_child(asker: Asker, asked: list[list[int | None]], positions: int) -> list[Integers]:
    """Tokens of requests with these seeds: the job of another process."""
    return [asker.drawn(seeds, positions) for seeds in asked]


@dataclass(slots=True, eq=False)
class Asker:
    """Asks a sampler for draws, each request under a name of its own."""

    sampler: Sampler
    roles: Sequence[str]
    names: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        if not callable(self.sampler):
            kind = type(self.sampler).__name__
            raise InvalidInput(f"the sampler is a {kind}: give a callable (requests) -> tokens")
        if not self.roles or not {*self.roles} <= {*ROLES}:
            raise InvalidInput(f"roles are {self.roles!r:.60}: give some of {', '.join(ROLES)}")
        self.roles = [role for role in ROLES if role in self.roles]

    def named(self, number: int) -> list[int]:
        """Names of new requests."""
        return [next(self.names) for _ in range(number)]

    def drawn(self, seeds: Sequence[int | None], positions: int) -> Integers:
        """Tokens (requests, positions, roles), in batches, each in the order of a text."""
        parts = [np.empty((0, positions, len(self.roles)), np.int64)]
        logits = {role: logits_of(LAWS[role]) for role in self.roles}
        for start in range(0, len(seeds), BATCH):
            some = seeds[start : start + BATCH]
            names = self.named(len(some))
            tokens = [
                self.one_role(names, some, at, role, logits[role])
                for at in range(positions)
                for role in self.roles
            ]
            parts.append(np.stack(tokens, axis=1).reshape(len(some), positions, -1))
        return np.concatenate(parts)

    def one_role(
        self, names: list[int], seeds: Sequence[int | None], at: int, role: str, laws: Any
    ) -> Integers:
        """Tokens of requests at one position, in batches, with a law for all, or one for each."""
        rows = laws if isinstance(laws, list) else [laws] * len(names)
        asked = [
            StreamRequest(name, seed, at, role, row)
            for name, seed, row in zip(names, seeds, rows, strict=True)
        ]
        size = max(1, min(BATCH, (1 << 21) // rows[0].size)) if rows else 1
        parts = [answered(self.sampler, asked[n : n + size]) for n in range(0, len(asked), size)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
