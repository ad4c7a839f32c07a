"""Functions that verify a chain of drafts: sixty that are wrong in one way each, and right ones.

A wrong one is made of three parts, of which one or two differ from what is right: how probably a
draft is accepted, the law after a refusal, and the law after drafts that were all accepted. Some
keep something from one call to the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from support.chain_verifiers import by_rows
from support.text_sessions import (
    after_block,
    block_chances,
    block_ratios,
    by_halves,
    last_passed,
    pick,
    softmax,
)

Law = np.ndarray


def right_accept(p: Law, q: Law, x: int) -> float:
    return min(1.0, p[x] / q[x]) if q[x] > 0 else 1.0


def right_residual(p: Law, q: Law) -> Law:
    left = np.maximum(p - q, 0.0)
    return left / left.sum() if left.sum() > 0 else p


def right_bonus(p: Law, q: Law) -> Law:
    return p


@dataclass(frozen=True)
class Parts:
    """The three parts of a chain, and where its uniforms come from."""

    accept: Callable[[Law, Law, int], float] = right_accept
    residual: Callable[[Law, Law], Law] = right_residual
    bonus: Callable[[Law, Law], Law] = right_bonus
    uniforms: Callable[[], Callable[[], float]] = lambda: lambda: float(random.random())

    def made(self) -> Callable[[Law, Law, Any], list[int]]:
        """A function with no memory of earlier ones."""
        uniform = self.uniforms()

        def verify(p: Law, q: Law, drafts: Any) -> list[int]:
            tokens: list[int] = []
            for place, x in enumerate(np.asarray(drafts).tolist()):
                if uniform() >= self.accept(p[place], q[place], x):
                    return [*tokens, pick(self.residual(p[place], q[place]), uniform())]
                tokens.append(x)
            last = q[-1] if len(q) else p[-1]
            return [*tokens, pick(self.bonus(p[-1], last), uniform())]

        return verify

    def distance(self, p: Law, q: Law) -> float:
        """An upper bound of the distance of the text of two drafts, of rows of p and q."""
        taken, refused = [], []
        for place in range(2):
            accept = np.array([self.accept(p[place], q[place], x) for x in range(p.shape[1])])
            kept = q[place] * np.clip(accept, 0.0, 1.0)
            taken.append(kept)
            refused.append(
                (1.0 - kept.sum()) * normalised(self.residual(p[place], q[place]), p[place])
            )
        second = taken[1] + refused[1]
        pairs = 0.0
        for token in range(p.shape[1]):  # a row at a time: a wide vocabulary has many pairs
            row = taken[0][token] * second + (refused[0][token] - p[0, token]) * p[1]
            pairs += 0.5 * float(np.abs(row).sum())
        bonus = 0.5 * float(np.abs(normalised(self.bonus(p[2], q[1]), p[2]) - p[2]).sum())
        return pairs + float(taken[0].sum() * taken[1].sum()) * bonus


def normalised(law: Law, otherwise: Law) -> Law:
    return law / law.sum() if law.sum() > 0 else otherwise


Change = Callable[[Law], Law]


def cut(size: int) -> Change:
    """The likeliest tokens alone."""
    return lambda law: law if law.size <= size else np.where(law >= np.sort(law)[-size], law, 0.0)


def above(least: float) -> Change:
    """Without small entries."""
    return lambda law: np.where(law >= least, law, 0.0)


def powered(power: float) -> Change:
    return lambda law: law**power


def of_residual(change: Change) -> Parts:
    return Parts(residual=lambda p, q: normalised(change(right_residual(p, q)), p))


def of_bonus(change: Change) -> Parts:
    return Parts(bonus=lambda p, q: normalised(change(p), p))


def residual_above(least: float) -> Parts:
    """Small entries are left out before the rest is scaled."""
    change = above(least)
    return Parts(
        residual=lambda p, q: normalised(change(np.maximum(p - q, 0.0)), right_residual(p, q))
    )


def scaled(factor: float) -> Callable[[Law, Law, int], float]:
    return lambda p, q, x: min(1.0, factor * right_accept(p, q, x))


def levels(count: int) -> Callable[[], Callable[[], float]]:
    return lambda: lambda: float(np.floor(random.random() * count) / count)


def argmax_law(p: Law, q: Law) -> Law:
    law: Law = (np.arange(p.size) == np.argmax(p)).astype(float)
    return law


def bfloat(law: Law) -> Law:
    bits = law.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def likely(least: float) -> Callable[[Law, Law, int], float]:
    return lambda p, q, x: 1.0 if p[x] > least else right_accept(p, q, x)


def always_token(token: int) -> Callable[[Law, Law, int], float]:
    return lambda p, q, x: 1.0 if x == token else right_accept(p, q, x)


#: Wrong in their laws: an oracle knows their distance.
BY_LAW: dict[str, Parts] = {
    **{f"residual cut at {n}": of_residual(cut(n)) for n in (5, 10, 40, 50, 64, 100, 200, 1000)},
    **{
        f"residual above {least}": residual_above(float(least))
        for least in ("1e-1", "1e-2", "1e-3", "1e-4")
    },
    **{
        f"residual to the power {power}": of_residual(powered(float(power)))
        for power in ("1.02", "1.2", ".98")
    },
    "residual squared": of_residual(powered(2.0)),
    "residual is p": Parts(residual=lambda p, q: p),
    "residual is q": Parts(residual=lambda p, q: q),
    "residual with absolute value": Parts(residual=lambda p, q: normalised(np.abs(p - q), p)),
    "residual of the likeliest": Parts(residual=argmax_law),
    "residual shifted by one": of_residual(lambda law: np.roll(law, 1)),
    "residual plus 1e-3": of_residual(lambda law: law + 1e-3),
    "residual plus 1e-6": of_residual(lambda law: law + 1e-6),
    "residual uniform": Parts(residual=lambda p, q: np.full(p.size, 1.0 / p.size)),
    "residual in bfloat16": Parts(residual=lambda p, q: right_residual(bfloat(p), bfloat(q))),
    "residual of p over q": Parts(residual=lambda p, q: normalised(p / np.maximum(q, 1e-9), p)),
    **{f"bonus at power {x}": of_bonus(powered(float(x))) for x in ("1.05", ".9")},
    "bonus of the likeliest": Parts(bonus=argmax_law),
    "bonus from q": Parts(bonus=lambda p, q: q),
    **{f"bonus cut at {n}": of_bonus(cut(n)) for n in (50, 200)},
    **{f"bonus above {x}": of_bonus(above(float(x))) for x in ("1e-3", "1e-4")},
    "bonus shifted by one": Parts(bonus=lambda p, q: np.roll(p, 1)),
    "bonus is the residual": Parts(bonus=right_residual),
    "ratio 1 % too high": Parts(accept=scaled(1.01)),
    "ratio 1 % too low": Parts(accept=scaled(0.99)),
    "ratio 10 % too high": Parts(accept=scaled(1.1)),
    "ratio of square roots": Parts(accept=lambda p, q, x: min(1.0, (p[x] / q[x]) ** 0.5)),
    "ratio squared": Parts(accept=lambda p, q, x: right_accept(p, q, x) ** 2),
    "ratio in bfloat16": Parts(accept=lambda p, q, x: right_accept(bfloat(p), bfloat(q), x)),
    "p instead of the ratio": Parts(accept=lambda p, q, x: p[x]),
    "accepts if p is the larger": Parts(accept=lambda p, q, x: float(p[x] >= q[x])),
    "accepts everything": Parts(accept=lambda p, q, x: 1.0),
    "accepts nothing": Parts(accept=lambda p, q, x: 0.0),
    **{f"accepts p above {x}": Parts(accept=likely(float(x))) for x in (".9", ".3")},
    "accepts the likeliest": Parts(
        accept=lambda p, q, x: 1.0 if x == np.argmax(p) else right_accept(p, q, x)
    ),
    **{f"accepts token {n}": Parts(accept=always_token(n)) for n in (0, 2)},
    "ratio of another token": Parts(
        accept=lambda p, q, x: min(1.0, p[(x + 1) % p.size] / max(q[x], 1e-300))
    ),
    **{f"uniform of {n} levels": Parts(uniforms=levels(n)) for n in (256, 16)},
}


def wrong_with_state() -> dict[str, Callable[[], Callable[..., list[int]]]]:
    """Makers of functions that keep something, or use one number for several decisions."""

    def one_uniform() -> Callable[..., list[int]]:
        def verify(p: Law, q: Law, drafts: Any) -> list[int]:
            u = float(random.random())
            return replace(Parts(), uniforms=lambda: lambda: u).made()(p, q, drafts)

        return verify

    def kept_uniform() -> Callable[..., list[int]]:
        kept = [0.5]

        def uniform() -> float:
            before, kept[0] = kept[0], float(random.random())
            return before if random.random() < 0.5 else kept[0]

        return replace(Parts(), uniforms=lambda: uniform).made()

    def same_for_tests() -> Callable[..., list[int]]:
        def verify(p: Law, q: Law, drafts: Any) -> list[int]:
            u, last = float(random.random()), float(random.random())
            tokens: list[int] = []
            for place, x in enumerate(np.asarray(drafts).tolist()):
                if u >= right_accept(p[place], q[place], x):
                    return [*tokens, pick(right_residual(p[place], q[place]), last)]
                tokens.append(x)
            return [*tokens, pick(p[-1], last)]

        return verify

    def in_calls(is_wrong: Callable[[int], bool], parts: Parts) -> Callable[[], Any]:
        def make() -> Callable[..., list[int]]:
            right, wrong, calls = Parts().made(), parts.made(), count(1)
            return lambda *given: (wrong if is_wrong(next(calls)) else right)(*given)

        return make

    argmax, target = Parts(residual=argmax_law, bonus=argmax_law), Parts(residual=lambda p, q: p)

    def last_call_law() -> Callable[..., list[int]]:
        kept: list[Law] = []

        def verify(p: Law, q: Law, drafts: Any) -> list[int]:
            before = kept[-1] if kept and kept[-1].shape == p.shape else p
            kept[:] = [p.copy()]
            mixed = p.copy()
            mixed[-1] = before[-1]
            return Parts().made()(mixed, q, drafts)

        return verify

    def repeats_answer() -> Callable[..., list[int]]:
        kept: list[int] = [0]

        def verify(p: Law, q: Law, drafts: Any) -> list[int]:
            tokens = Parts().made()(p, q, drafts)
            if random.random() < 0.1 and kept[0] < p.shape[1] and p[len(tokens) - 1][kept[0]] > 0:
                tokens[-1] = kept[0]
            kept[0] = tokens[-1]
            return tokens

        return verify

    return {
        "one uniform for all decisions": one_uniform,
        "one uniform for all tests": same_for_tests,
        "a uniform kept from the call before": kept_uniform,
        "the argmax in every 50th call": in_calls(lambda n: n % 50 == 0, argmax),
        "the argmax in every 7th call": in_calls(lambda n: n % 7 == 0, argmax),
        "the argmax in every 1,000th call": in_calls(lambda n: n % 1_000 == 0, argmax),
        "wrong after 20,000 calls": in_calls(lambda n: n > 20_000, target),
        "wrong after 1,000 calls": in_calls(lambda n: n > 1_000, target),
        "the law of the call before": last_call_law,
        "the answer of the call before": repeats_answer,
    }


def wrong_ones() -> dict[str, Callable[[], Callable[..., list[int]]]]:
    """Makers of all wrong chains: those of a wrong law, and those with memory."""
    return {kind: parts.made for kind, parts in BY_LAW.items()} | wrong_with_state()


def right_ones() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Sixty functions that are right, with the options of `audit_chain` that they want."""
    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
    for library in ("numpy", "numpy float32", "torch", "torch float64"):
        for rule in (_standard, _exact_match, _block, _residual_first, _all_at_once):
            for draw in (_by_choice, _by_race, _by_sum):
                name = f"{rule.__name__[1:]}, {draw.__name__[1:]}, {library}"
                options = {"library": library.split()[0]}
                found[name] = _converted(rule, draw, library), options
    return found


Uniform = Callable[[], float]
Draw = Callable[[Law, Callable[[int], Law]], int]


def _converted(rule: Callable[..., Any], draw: Draw, library: str) -> Callable[..., Any]:
    """The rule on arrays of NumPy, with its numbers from the library."""

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        if library.startswith("torch"):
            import torch

            kind = torch.float64 if library.endswith("64") else torch.float32

            def many(n: int) -> Law:
                return torch.rand(n, dtype=kind).double().numpy()

            p, q = (x.to(kind).double().numpy() for x in (p, q))
            return rule(p, q, drafts.tolist(), draw, many)
        if library.endswith("32"):
            p, q = (x.astype(np.float32).astype(np.float64) for x in (p, q))

        def uniforms(n: int) -> Law:
            return np.random.random(n)  # noqa: NPY002  # as engines do

        return rule(p, q, np.asarray(drafts).tolist(), draw, uniforms)

    return verify


def _by_sum(law: Law, uniforms: Callable[[int], Law]) -> int:
    return pick(law, float(uniforms(1)[0]))


def _by_race(law: Law, uniforms: Callable[[int], Law]) -> int:
    clocks = -np.log(np.clip(uniforms(law.size), 1e-300, 1.0))
    return int(np.argmax(law / np.maximum(clocks, 1e-300)))


def _by_choice(law: Law, uniforms: Callable[[int], Law]) -> int:
    return by_halves(law, float(uniforms(1)[0]))


def _standard(p: Law, q: Law, drafts: list[int], draw: Draw, many: Any) -> list[int]:
    tokens: list[int] = []
    for place, x in enumerate(drafts):
        if many(1)[0] >= right_accept(p[place], q[place], x):
            return [*tokens, draw(right_residual(p[place], q[place]), many)]
        tokens.append(x)
    return [*tokens, draw(p[-1], many)]


def _all_at_once(p: Law, q: Law, drafts: list[int], draw: Draw, many: Any) -> list[int]:
    uniforms = many(len(drafts))
    passed = [uniforms[n] < right_accept(p[n], q[n], x) for n, x in enumerate(drafts)]
    kept = passed.index(False) if False in passed else len(drafts)
    law = right_residual(p[kept], q[kept]) if kept < len(drafts) else p[kept]
    return [*drafts[:kept], draw(law, many)]


def _residual_first(p: Law, q: Law, drafts: list[int], draw: Draw, many: Any) -> list[int]:
    """All tokens that may be wanted are drawn before any test."""
    extra = [draw(right_residual(p[n], q[n]), many) for n in range(len(drafts))]
    extra.append(draw(p[-1], many))
    tokens: list[int] = []
    for place, x in enumerate(drafts):
        if many(1)[0] >= right_accept(p[place], q[place], x):
            return [*tokens, extra[place]]
        tokens.append(x)
    return [*tokens, extra[-1]]


def _exact_match(p: Law, q: Law, drafts: list[int], draw: Draw, many: Any) -> list[int]:
    tokens: list[int] = []
    for place, x in enumerate(drafts):
        token = draw(p[place], many)
        tokens.append(token)
        if token != x:
            return tokens
    return [*tokens, draw(p[-1], many)]


def _block(p: Law, q: Law, drafts: list[int], draw: Draw, many: Any) -> list[int]:
    """Block verification (Sun et al., 2025)."""
    r = block_ratios(p, q, drafts)
    kept = last_passed(block_chances(p, q, r), lambda: many(1)[0])
    last = after_block(p, q, r, kept)
    return [*drafts[:kept], draw(last / last.sum(), many)]


def as_batch(verify: Callable[..., list[int]]) -> Callable[[Law, Law, Law], Law]:
    """A function of one chain, for rows that are padded with -1."""

    def rows(p: Law, q: Law, drafts: Law) -> Law:
        given = np.full((len(drafts), drafts.shape[1] + 1), -1)
        for row, tokens in zip(given, by_rows(verify)(p, q, drafts), strict=True):
            row[: len(tokens)] = tokens
        return given

    return rows


def wrong_batches() -> dict[str, Callable[[Law, Law, Law], Law]]:
    """Functions of rows that are wrong in what they take for a row, or in every row."""
    right = as_batch(Parts().made())

    def rolled(p: Law, q: Law, drafts: Law, *, p_by: int = 0, q_by: int = 0) -> Law:
        p, q = np.roll(p, p_by, axis=0), np.roll(q, q_by, axis=0)
        flat = 1.0 / p.shape[2]
        return right(np.nan_to_num(p, nan=flat), np.nan_to_num(q, nan=flat), drafts)

    def first_row(p: Law, q: Law, drafts: Law, *, of: str) -> Law:
        p, q = (
            np.nan_to_num(np.repeat(x[:1], len(x), 0), nan=1.0 / x.shape[2]) if of == name else x
            for name, x in (("p", p), ("q", q))
        )
        return right(p, q, drafts)

    def bonus_at_the_end(p: Law, q: Law, drafts: Law) -> Law:
        """The extra token comes from the last row of the array, padding or not."""
        given = right(p, q, drafts)
        for row, chain in enumerate(drafts):
            n = int((chain >= 0).sum())
            if given[row, n] >= 0:
                law = np.nan_to_num(p[row, -1], nan=1.0 / p.shape[2])
                given[row, n] = pick(law, random.random())
        return given

    found: dict[str, Callable[[Law, Law, Law], Law]] = {
        "q of the next row": lambda p, q, d: rolled(p, q, d, q_by=-1),
        "q of the row before": lambda p, q, d: rolled(p, q, d, q_by=1),
        "p of the next row": lambda p, q, d: rolled(p, q, d, p_by=-1),
        "p and q of the next row": lambda p, q, d: rolled(p, q, d, p_by=-1, q_by=-1),
        "p of the first row": lambda p, q, d: first_row(p, q, d, of="p"),
        "q of the first row": lambda p, q, d: first_row(p, q, d, of="q"),
        "the extra token from the end of the padding": bonus_at_the_end,
    }
    kinds = (
        *("residual is p", "residual with absolute value", "residual shifted by one"),
        *("residual squared", "residual uniform", "bonus from q", "bonus of the likeliest"),
        *("bonus is the residual", "ratio squared", "ratio of square roots", "accepts nothing"),
        *("p instead of the ratio", "accepts everything"),
    )
    return found | {kind: as_batch(BY_LAW[kind].made()) for kind in kinds}


def as_text(
    verify: Callable[..., list[int]], num_drafts: int = 2, length: int = 5
) -> Callable[[Any, Any], list[int]]:
    """A session that drafts and verifies by a function of chains until a text is long enough."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < length:
            ids, q = list(text), []
            for _ in range(num_drafts):
                q.append(softmax(draft(ids)[-1]))
                ids.append(pick(q[-1], random.random()))
            p = softmax(target(ids))[len(text) :]
            text += verify(p, np.array(q), np.array(ids[len(text) :]))
        return text

    return generate


#: Kinds of chains that are put into sessions.
IN_TEXTS = (
    *("residual cut at 50", "residual cut at 200", "residual above 1e-2", "residual squared"),
    *("residual to the power 1.2", "residual is p", "residual with absolute value"),
    *("residual shifted by one", "bonus at power .9", "bonus cut at 50", "bonus from q"),
    *("bonus of the likeliest", "ratio 10 % too high", "ratio 1 % too high", "ratio squared"),
    *("ratio of square roots", "accepts nothing", "accepts the likeliest"),
    *("uniform of 16 levels", "accepts if p is the larger"),
)
