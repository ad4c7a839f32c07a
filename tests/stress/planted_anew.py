"""Sixty functions that are wrong and sixty that are right, written without a look at the audits.

Their kinds are in no other test of audits. Those have residuals that are cut, scaled or of another
law, ratios that are scaled or rounded, extra tokens of another law, uniforms that are shared, kept
or coarse, faults in every n-th call, rows of a batch that are mixed up, seeds that are set anew,
and caches that keep refused tokens. Each one here is a short function under a name that says what
is wrong with it, or what is unusual and right; `measured` finds by how much it is off, from calls
on laws of this file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from support.text_sessions import by_alias

from mdsd_opt.decoding import parse_topology
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.trees import drawn as drawn_tree
from mdsd_opt.trees import set_targets, valued

Law = Any
Function = Callable[..., Any]

#: What is audited, by kind and name; each maker makes one without a memory of earlier calls.
WRONG: dict[tuple[str, str], Callable[[], Function]] = {}
RIGHT: dict[tuple[str, str], Callable[[], Function]] = {}

#: Wrong chains of which only a wide vocabulary shows more than .02.
WIDE = {"sums in half precision", "probabilities in 8 bits", "ids modulo 256", "ids below 1,024"}


def planted(found: dict[tuple[str, str], Any], kind: str, name: str) -> Any:
    """Enter a maker of a function."""

    def enter(make: Callable[[], Function]) -> Callable[[], Function]:
        assert (kind, name) not in found
        found[kind, name] = make
        return make

    return enter


wrong, right = partial(planted, WRONG), partial(planted, RIGHT)


# --- parts


def ratio(p: Law, q: Law, x: int) -> float:
    return float(min(1.0, p[x] / q[x])) if q[x] > 0 else 1.0


def whole(weights: Law, otherwise: Law) -> Law:
    total = weights.sum()
    return weights / total if total > 0 else otherwise


def left(p: Law, q: Law) -> Law:
    return whole(np.maximum(p - q, 0.0), p)


def pick(law: Law, u: float) -> int:
    reached = np.cumsum(law)
    token = int(np.searchsorted(reached, u * reached[-1], side="right"))
    return min(token, int(np.flatnonzero(law)[-1]))


def of_python() -> float:  # looked up when it is called, where an audit may stand in its place
    return random.random()


def of_numpy() -> float:
    return float(np.random.random())  # noqa: NPY002  # as engines do


def of_torch() -> float:
    import torch

    return float(torch.rand((), dtype=torch.float64))


def bits() -> float:
    return random.getrandbits(53) / 2**53


def steps(
    accept: Any = lambda p, q, d, n: ratio(p[n], q[n], d[n]),
    after: Any = lambda p, q, d, n: left(p[n], q[n]),
    last: Any = lambda p, q, d: p[-1],
    u: Callable[[], float] = of_python,
) -> Callable[[], Function]:
    """Maker of a chain of these parts: drafts d, tested one after the other."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n in range(len(d)):
            if u() >= accept(p, q, d, n):
                return [*d[:n], pick(after(p, q, d, n), u())]
        return [*d, pick(last(p, q, d), u())]

    return lambda: verify


# --- wrong chains

CHAINS: dict[str, Callable[[], Function]] = {
    "tests a draft by the row after it": steps(lambda p, q, d, n: ratio(p[n + 1], q[n], d[n])),
    "the residual by the draft's first row": steps(after=lambda p, q, d, n: left(p[n], q[0])),
    "the residual of the first place": steps(after=lambda p, q, d, n: left(p[0], q[0])),
    "rows in reverse": steps(
        lambda p, q, d, n: ratio(p[::-1][n], q[::-1][n], d[n]), last=lambda p, q, d: p[0]
    ),
    "Barker's acceptance": steps(
        lambda p, q, d, n: p[n, d[n]] / (p[n, d[n]] + q[n, d[n]]), u=of_numpy
    ),
    "a second chance for each draft": steps(
        lambda p, q, d, n: 1 - (1 - ratio(p[n], q[n], d[n])) ** 2
    ),
    "the mean of two ratios": steps(
        lambda p, q, d, n: np.mean([ratio(p[m], q[m], d[m]) for m in range(n + 1)])
    ),
    "q of another temperature": steps(
        lambda p, q, d, n: ratio(p[n], whole(q[n] ** 0.6, q[n]), d[n]),
        lambda p, q, d, n: left(p[n], whole(q[n] ** 0.6, q[n])),
    ),
    "q subtracted by what was accepted": steps(
        after=lambda p, q, d, n: left(p[n], q[n] * np.minimum(p[n], q[n]).sum())
    ),
    "the token refused once more": steps(
        after=lambda p, q, d, n: whole(
            0.9 * left(p[n], q[n]) + 0.1 * np.eye(p.shape[1])[d[n]], p[n]
        )
    ),
    "the extra token by two rows": steps(last=lambda p, q, d: (p[-1] + p[-2]) / 2, u=bits),
    "no token twice in a row": steps(
        after=lambda p, q, d, n: whole(
            left(p[n], q[n]) * (np.arange(p.shape[1]) != (d[n - 1] if n else -1)), p[n]
        ),
        last=lambda p, q, d: whole(p[-1] * (np.arange(p.shape[1]) != d[-1]), p[-1]),
    ),
    "three times token 0 at the end": steps(
        last=lambda p, q, d: whole(p[-1] * np.where(np.arange(p.shape[1]) == 0, 3.0, 1.0), p[-1])
    ),
    ".2 beside q": steps(lambda p, q, d, n: ratio(p[n], q[n] + 0.2, d[n]), u=of_torch),
    "sums in half precision": lambda: verify_by(
        lambda law, u: int(np.searchsorted(half_sums(law), u * half_sums(law)[-1], side="right"))
    ),
    "probabilities in 8 bits": lambda: verify_by(
        lambda law, u: pick(whole(np.round(law * 255.0), law), u)
    ),
    "ids modulo 256": lambda: verify_by(lambda law, u: pick(law, u) % 256),
    "ids below 1,024": lambda: verify_by(lambda law, u: min(pick(law, u), 1_023)),
}
for name, make in CHAINS.items():
    wrong("chain", name)(make)


def half_sums(law: Law) -> Law:
    return np.cumsum(law.astype(np.float16), dtype=np.float16).astype(float)


def verify_by(draw: Callable[[Law, float], int]) -> Function:
    """The right chain, with tokens drawn in another way."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if random.random() >= ratio(p[n], q[n], x):
                return [*d[:n], min(draw(left(p[n], q[n]), random.random()), p.shape[1] - 1)]
        return [*d, min(draw(p[-1], random.random()), p.shape[1] - 1)]

    return verify


@wrong("chain", "all drafts or none")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        if random.random() < math.prod(ratio(p[n], q[n], x) for n, x in enumerate(d)):
            return [*d, pick(p[-1], random.random())]
        return [pick(left(p[0], q[0]), random.random())]

    return verify


@wrong("chain", "what is left of a uniform is not scaled")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        u, d = random.random(), [int(x) for x in drafts]
        for n, x in enumerate(d):
            r = ratio(p[n], q[n], x)
            if u >= r:
                return [*d[:n], pick(left(p[n], q[n]), u - r)]
        return [*d, pick(p[-1], random.random())]

    return verify


@wrong("chain", "seeded by its drafts")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> Any:
        own = random.Random(str(np.asarray(drafts).tolist()))
        return steps(u=own.random)()(p, q, drafts)

    return verify


@wrong("chain", "rolls back one too many")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if random.random() >= ratio(p[n], q[n], x):
                kept = max(n - 1, 0)
                return [*d[:kept], pick(left(p[kept], q[kept]), random.random())]
        return [*d, pick(p[-1], random.random())]

    return verify


@wrong("chain", "a residual whose missing mass is the last token's")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if random.random() >= ratio(p[n], q[n], x):
                sums = np.cumsum(np.maximum(p[n] - q[n], 0.0))
                found = int(np.searchsorted(sums, random.random(), side="right"))
                return [*d[:n], min(found, p.shape[1] - 1)]
        return [*d, pick(p[-1], random.random())]

    return verify


@wrong("chain", "acceptance that is steered to four in five")
def _() -> Function:
    seen = [0.8, 0.0]

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            gain = math.exp(2 * (0.8 - seen[0]))
            hit = random.random() < min(1.0, gain * ratio(p[n], q[n], x))
            seen[0] += 0.02 * (hit - seen[0])
            if not hit:
                return [*d[:n], pick(left(p[n], q[n]), random.random())]
        return [*d, pick(p[-1], random.random())]

    return verify


@wrong("chain", "warm and cold in turn")
def _() -> Function:
    calls = [0]

    def verify(p: Law, q: Law, drafts: Any) -> Any:
        calls[0] += 1
        power = 2.5 if calls[0] % 2 else 0.4
        return steps()()(np.stack([whole(row**power, row) for row in p]), q, drafts)

    return verify


@wrong("chain", "the larger of two numbers for each test")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if max(of_torch(), of_torch()) >= ratio(p[n], q[n], x):
                return [*d[:n], pick(left(p[n], q[n]), of_torch())]
        return [*d, pick(p[-1], of_torch())]

    return verify


# --- wrong verifiers of several drafts of one token


@wrong("single", "of all drafts that pass, the likeliest")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        passed = [int(x) for x in drafts if rng.random() < ratio(p, q, x)]
        return max(passed, key=lambda x: p[x]) if passed else pick(left(p, q), rng.random())

    return verify


@wrong("single", "a draft by its weight p/q among the drafts")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        weights = np.array([p[x] / max(q[x], 1e-12) for x in drafts])
        return int(drafts[pick(whole(weights, np.ones(len(drafts))), rng.random())])

    return verify


def sequential(order: Callable[[Law, Law, list[int], Any], list[int]]) -> Function:
    """Recursive rejection of drafts in some order."""

    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        rest = p
        for x in order(p, q, [int(x) for x in drafts], rng):
            if rng.random() < ratio(rest, q, x):
                return x
            rest = left(rest, q)
        return pick(rest, rng.random())

    return verify


wrong("single", "drafts from the likeliest on")(
    lambda: sequential(lambda p, q, d, rng: sorted(d, key=lambda x: -p[x]))
)
wrong("single", "drafts by id")(lambda: sequential(lambda p, q, d, rng: sorted(d)))


@wrong("single", "two drafts that agree are right")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        if len(set(map(int, drafts))) < len(drafts) and p[int(drafts[0])] > 0:
            return int(drafts[0])
        return int(sequential(lambda p, q, d, rng: d)(p, q, drafts, rng))

    return verify


@wrong("single", "the target is drawn twice to hit a draft")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        first = pick(p, rng.random())
        return first if first in drafts else pick(p, rng.random())

    return verify


@wrong("single", "the last draft is as good as the first")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        if rng.random() < ratio(p, q, int(drafts[-1])):
            return int(drafts[-1])
        if rng.random() < ratio(p, q, int(drafts[0])):
            return int(drafts[0])
        return pick(left(p, q), rng.random())

    return verify


@wrong("single", "less p q instead of less q")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        rest = p
        for x in drafts:
            if rng.random() < ratio(rest, q, int(x)):
                return int(x)
            rest = whole(rest * (1 - q), p)
        return pick(rest, rng.random())

    return verify


# --- wrong texts


def softmax(logits: Any) -> Law:
    logits = np.asarray(logits, dtype=float)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def session(
    length: int = 5,
    gamma: int = 2,
    drafted: Any = lambda draft, text: softmax(draft(text)[-1]),
    stated: Any = lambda draft, text, law: law,
    row: Any = lambda target, text, start: softmax(target(text))[start:],
    accept: Any = lambda p, q, x, text: ratio(p, q, x),
    u: Callable[[], float] = of_python,
) -> Callable[[], Function]:
    """Maker of a session: what drafts are drawn from, what is said of it, and the target's rows."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < length:
            ids, laws = list(text), []
            for _ in range(gamma):
                law = drafted(draft, ids)
                laws.append(stated(draft, ids, law))
                ids.append(pick(law, u()))
            rows, start = row(target, ids, len(text)), len(text)
            for n, x in enumerate(ids[start:]):
                if u() >= accept(rows[n], laws[n], x, text):
                    text.append(pick(left(rows[n], laws[n]), u()))
                    break
                text.append(x)
            else:
                text.append(pick(rows[gamma], u()))
        return text

    return lambda: generate


wrong("text", "drafts of a text one token shorter")(
    session(
        drafted=lambda draft, text: softmax(draft(text[:-1])[-1]),
        stated=lambda draft, text, law: softmax(draft(text)[-1]),
    )
)
wrong("text", "drafts colder than they say")(
    session(stated=lambda draft, text, law: whole(law**0.5, law), u=of_numpy)
)
wrong("text", "the target reads the first token no more")(
    session(
        row=lambda target, text, start: softmax(
            [target([0, *text[1:]])[n] if n > 1 else target(text)[n] for n in range(len(text) + 1)]
        )[start:]
    )
)
wrong("text", "bolder after two tokens")(
    session(accept=lambda p, q, x, text: min(1.0, ratio(p, q, x) * (1 + (len(text) > 1))))
)
wrong("text", "warmer with every token")(
    session(
        row=lambda target, text, start: np.stack(
            [whole(x ** (1 / (1 + 0.3 * n)), x) for n, x in enumerate(softmax(target(text)))]
        )[start:],
        u=bits,
    )
)


@wrong("text", "a step that refuses is begun again, once")
def _() -> Function:
    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 5:
            for trial in range(2):
                q = softmax(draft(text)[-1])
                x = pick(q, random.random())
                p = softmax(target(text)[-1])
                if random.random() < ratio(p, q, x):
                    text.append(x)
                    break
                if trial:
                    text.append(pick(left(p, q), random.random()))
        return text

    return generate


@wrong("text", "a draft behind the accepted ones is kept untested")
def _() -> Function:
    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 5:
            q, p = softmax(draft(text)[-1]), softmax(target(text)[-1])
            x = pick(q, random.random())
            if random.random() < ratio(p, q, x):
                text.append(x)
                text.append(pick(softmax(draft(text)[-1]), random.random()))
            else:
                text.append(pick(left(p, q), random.random()))
        return text

    return generate


@wrong("text", "of two steps the likelier")
def _() -> Function:
    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 5:
            p = softmax(target(text)[-1])
            draft(text)
            text.append(max((pick(p, random.random()) for _ in range(2)), key=lambda x: p[x]))
        return text

    return generate


@wrong("torch text", "a mask that hides the token before the drafts")
def _() -> Function:
    def generate(target: Any, draft: Any) -> list[int]:
        import torch

        text: list[int] = []
        while len(text) < 4:
            ids = torch.tensor([[0, *text]])
            q = softmax(draft(ids).logits[0, -1].tolist())
            x = pick(q, of_torch())
            ids, mask = torch.tensor([[0, *text, x]]), torch.ones(1, len(text) + 2)
            mask[0, len(text)] = 0.0 if text else 1.0
            rows = softmax(target(ids, attention_mask=mask).logits[0, -2:].tolist())
            p = rows[0]
            if of_torch() >= ratio(p, q, x):
                text.append(pick(left(p, q), of_torch()))
                continue
            text += [x, pick(rows[1], of_torch())]
        return text

    return generate


# --- wrong rules for trees


def walk(
    order: Any = lambda node: [int(x) for x in node.draws],
    law: Any = lambda node, parent: node.target,
    less: Any = lambda rest, q, count: left(rest, q),
) -> Callable[[], Function]:
    """Maker of recursive rejection from the root down."""

    def rule(root: Any, rng: Any) -> list[int]:
        node, parent, tokens = root, root, []
        while node.drafts is not None:
            rest, q = law(node, parent), node.drafts.q
            for count, x in enumerate(order(node)):
                if rng.random() < ratio(rest, q, x):
                    break
                rest = less(rest, q, count)
            else:
                return [*tokens, pick(rest, rng.random())]
            tokens.append(x)
            parent, node = node, node.children[x]
        return [*tokens, pick(law(node, parent), rng.random())]

    return lambda: rule


wrong("tree", "siblings by id")(walk(order=lambda node: sorted(int(x) for x in node.draws)))
wrong("tree", "the likeliest sibling first")(
    walk(order=lambda node: sorted((int(x) for x in node.draws), key=lambda x: -node.target[x]))
)
wrong("tree", "q subtracted for the first sibling alone")(
    walk(less=lambda rest, q, count: rest if count else left(rest, q))
)
wrong("tree", "inner nodes by the root's law")(
    walk(
        law=lambda node, parent: (
            node.target if not node.tokens or not node.drafts else parent.target
        )
    )
)


@wrong("tree", "the longest of the paths that pass")
def _() -> Function:
    def rule(root: Any, rng: Any) -> list[int]:
        def down(node: Any) -> list[int]:
            if node.drafts is None:
                return [pick(node.target, rng.random())]
            found = []
            for x in map(int, node.draws):
                if rng.random() < ratio(node.target, node.drafts.q, x):
                    found.append([x, *down(node.children[x])])
            return (
                max(found, key=len)
                if found
                else [pick(left(node.target, node.drafts.q), rng.random())]
            )

        return down(root)

    return rule


# --- wrong batches


def each(p: Law, q: Law, drafts: Law, n: int) -> tuple[Law, Law, list[int]]:
    """Laws and drafts of one row."""
    size = int((drafts[n] >= 0).sum())
    return p[n, : size + 1], q[n, :size], drafts[n, :size].tolist()


def padded(rows: list[list[int]], drafts: Law) -> Law:
    width = drafts.shape[1] + 1
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows])


def hits(p: Law, q: Law, d: list[int], u: Callable[[], float] = of_python) -> list[bool]:
    return [u() < ratio(p[n], q[n], x) for n, x in enumerate(d)]


def ended(p: Law, q: Law, d: list[int], kept: int) -> list[int]:
    law = left(p[kept], q[kept]) if kept < len(d) else p[kept]
    return [*d[:kept], pick(law, random.random())]


def prefix(passed: list[bool]) -> int:
    return passed.index(False) if False in passed else len(passed)


@wrong("batch", "all rows keep as many as the one with the fewest")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [each(p, q, drafts, n) for n in range(len(p))]
        fewest = min(prefix(hits(*row)) for row in rows)
        return padded([ended(*row, min(fewest, len(row[2]))) for row in rows], drafts)

    return verify


@wrong("batch", "a row is refused with the rows before it")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows, found, worst = [each(p, q, drafts, n) for n in range(len(p))], [], 99
        for row in rows:
            worst = min(worst, prefix(hits(*row)))
            found.append(ended(*row, min(worst, len(row[2]))))
        return padded(found, drafts)

    return verify


@wrong("batch", "each row by a generator of its number")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [each(p, q, drafts, n) for n in range(len(p))]
        return padded(
            [steps(u=random.Random(n).random)()(*row) for n, row in enumerate(rows)], drafts
        )

    return verify


@wrong("batch", "rows by length, and left in that order")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [steps()()(*each(p, q, drafts, n)) for n in range(len(p))]
        return padded(sorted(rows, key=len), drafts)

    return verify


@wrong("batch", "the extra token of the first row for all that accept all")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [each(p, q, drafts, n) for n in range(len(p))]
        found, extra = [steps()()(*row) for row in rows], pick(p[0, 0], random.random())
        for row, tokens in zip(rows, found, strict=True):
            if len(tokens) == len(row[2]) + 1:
                tokens[-1] = extra
        return padded(found, drafts)

    return verify


@wrong("batch", "residuals scaled by the largest of all rows")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        found = []
        rows = [each(p, q, drafts, n) for n in range(len(p))]
        most = max(np.maximum(a[0] - b[0], 0).sum() for a, b, d in rows)
        for a, b, d in rows:
            kept = prefix(hits(a, b, d))
            if kept == len(d):
                found.append(ended(a, b, d, kept))
                continue
            sums = np.cumsum(np.maximum(a[kept] - b[kept], 0.0)) / most
            token = int(np.searchsorted(sums, random.random(), side="right"))
            found.append([*d[:kept], min(token, a.shape[1] - 1)])
        return padded(found, drafts)

    return verify


# --- records: what an engine that is wrong has written


@dataclass(frozen=True)
class Records:
    """Steps of one draft: laws, drafts and tokens; `off` is the mean bias, from the laws."""

    p: Law
    q: Law
    drafts: Law
    tokens: Law
    off: float


def recorded(emitted: Callable[[Law, Law], Law], count: int = 6_000, seed: int = 0) -> Records:
    """Steps whose tokens follow another law than p, made of p and q."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(8), (2, count))
    laws = np.stack([emitted(*pair) for pair in zip(p, q, strict=True)])
    # the drafts are those of a maximal coupling of q with what comes out
    drafts = np.array([pick(row, rng.random()) for row in q])
    tokens = np.array(
        [
            x if rng.random() < ratio(law, row, x) else pick(left(law, row), rng.random())
            for law, row, x in zip(laws, q, drafts, strict=True)
        ]
    )
    off = float(0.5 * np.abs(laws - p).sum(axis=1).mean())
    return Records(p, q, drafts[:, None], tokens, off)


RECORDS: dict[str, Callable[[Law, Law], Law]] = {
    "a seventh of the draft's law": lambda p, q: (6 * p + q) / 7,
    "the top five of eight": lambda p, q: whole(np.where(p >= np.sort(p)[-5], p, 0.0), p),
    "colder by a fifth": lambda p, q: whole(p**1.25, p),
    "token 0 half as often": lambda p, q: whole(p * np.where(np.arange(8) == 0, 0.5, 1.0), p),
    "flattened by a tenth": lambda p, q: 0.9 * p + 0.1 / 8,
    "the ratio p/q to the tenth part": lambda p, q: whole(p * (p / q) ** 0.1, p),
}
for number, (name, law) in enumerate(RECORDS.items()):
    wrong("trace" if number % 2 else "tokens", name)(partial(partial, recorded, law))


# --- right chains


def by_halves(law: Law, u: float) -> int:
    """Which half of the tokens, then which half of that."""
    low, high, rest = 0, law.size, u * law.sum()
    while high - low > 1:
        middle = (low + high) // 2
        mass = law[low:middle].sum()
        if rest < mass or law[middle:high].sum() <= 0:
            high = middle
        else:
            low, rest = middle, rest - mass
    return low


def by_rank(law: Law, u: float) -> int:
    order = np.argsort(-law, kind="stable")
    return int(order[pick(law[order], u)])


def from_the_end(law: Law, u: float) -> int:
    return law.size - 1 - pick(law[::-1], u)


def drawing(draw: Callable[[Law, float], int], u: Callable[[], float]) -> Callable[[], Function]:
    """Maker of the right chain, with tokens drawn in its own way from numbers of its own."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if u() >= ratio(p[n], q[n], x):
                return [*d[:n], draw(left(p[n], q[n]), u())]
        return [*d, draw(p[-1], u())]

    return lambda: verify


for way in (by_halves, by_rank, from_the_end, by_alias):
    for source in (of_python, of_numpy, of_torch):
        told = f"{way.__name__}, numbers {source.__name__}".replace("_", " ")
        right("chain", told)(drawing(way, source))


@right("chain", "a first draft alone")
def _() -> Function:
    return lambda p, q, drafts: steps()()(p[:2], q[:1], drafts[:1])


@right("chain", "ends with token 0 where that was accepted")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        found = steps()()(p, q, drafts)
        return found[: found.index(0) + 1] if 0 in found else found

    return verify


@right("chain", "a coin says how many drafts are looked at")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        n = 1 if random.random() < 0.3 else len(drafts)
        return steps(u=bits)()(p[: n + 1], q[:n], drafts[:n])

    return verify


@right("chain", "what is left of a uniform, scaled")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        u, d = random.random(), [int(x) for x in drafts]
        for n, x in enumerate(d):
            r = ratio(p[n], q[n], x)
            if u >= r:
                return [*d[:n], pick(left(p[n], q[n]), min((u - r) / (1 - r), 1 - 2**-53))]
            u = random.random()
        return [*d, pick(p[-1], u)]

    return verify


@right("chain", "two coins for each test")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            root = math.sqrt(ratio(p[n], q[n], x))
            if random.random() >= root or random.random() >= root:
                return [*d[:n], pick(left(p[n], q[n]), random.random())]
        return [*d, pick(p[-1], random.random())]

    return verify


@right("chain", "no number where p is at least q")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if p[n, x] < q[n, x] and of_numpy() * q[n, x] >= p[n, x]:
                return [*d[:n], pick(left(p[n], q[n]), of_numpy())]
        return [*d, pick(p[-1], of_numpy())]

    return verify


@right("chain", "Fractions")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if Fraction(random.random()) * Fraction(q[n, x]) >= Fraction(p[n, x]):
                return [*d[:n], pick(left(p[n], q[n]), random.random())]
        return [*d, pick(p[-1], random.random())]

    return verify


@right("chain", "either by ratios or by the target's own draw")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        if random.random() < 0.5:
            return steps()()(p, q, drafts)
        d = [int(x) for x in drafts]
        found = [pick(row, random.random()) for row in p]
        kept = prefix([x == y for x, y in zip(d, found, strict=False)])
        return found[: kept + 1]

    return verify


@right("chain", "a residual by draws from p that are thrown away")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if of_numpy() >= ratio(p[n], q[n], x):
                for _ in range(6):
                    y = pick(p[n], of_numpy())
                    if of_numpy() * p[n, y] < p[n, y] - q[n, y]:
                        return [*d[:n], y]
                return [*d[:n], pick(left(p[n], q[n]), of_numpy())]
        return [*d, pick(p[-1], of_numpy())]

    return verify


@right("chain", "tensors: rand, multinomial")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        import torch

        p, q = torch.as_tensor(p), torch.as_tensor(q)
        d = [int(x) for x in drafts]
        passed = torch.rand(len(d), dtype=p.dtype) < torch.stack(
            [torch.clamp(p[n, x] / q[n, x], max=1.0) for n, x in enumerate(d)]
        )
        kept = prefix(passed.tolist())
        law = p[kept] if kept == len(d) else torch.clamp(p[kept] - q[kept], min=0.0)
        law = law if law.sum() > 0 else p[kept]
        return [*d[:kept], int(torch.multinomial(law, 1))]

    return verify


@right("chain", "random.choices, and random.uniform")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n, x in enumerate(d):
            if random.uniform(0.0, float(q[n, x])) >= p[n, x]:
                return [*d[:n], random.choices(range(p.shape[1]), left(p[n], q[n]))[0]]
        return [*d, random.choices(range(p.shape[1]), p[-1])[0]]

    return verify


@right("chain", "drafts left to right after all extra tokens, in a random order of ids")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        order = np.random.permutation(p.shape[1])  # noqa: NPY002
        laws = [*(left(p[n], q[n]) for n in range(len(drafts))), p[-1]]
        extra = [int(order[pick(law[order], of_numpy())]) for law in laws]
        kept = prefix(hits(p, q, [int(x) for x in drafts], of_numpy))
        return [*(int(x) for x in drafts[:kept]), extra[kept]]

    return verify


# --- right verifiers, texts, trees, batches, records

right("single", "drafts in a random order")(
    lambda: sequential(lambda p, q, d, rng: [d[i] for i in rng.permutation(len(d))])
)
right("single", "drafts from the last on")(lambda: sequential(lambda p, q, d, rng: d[::-1]))
right("single", "the first two drafts alone")(lambda: sequential(lambda p, q, d, rng: d[:2]))
right("single", "one of the drafts, drawn")(
    lambda: sequential(lambda p, q, d, rng: [d[int(rng.integers(len(d)))]])
)
right("single", "no draft")(lambda: sequential(lambda p, q, d, rng: []))
right("single", "the target's own draw")(
    lambda: lambda p, q, drafts, rng: int(rng.choice(p.size, p=p))
)
right("single", "the target's own draw, by a race")(
    lambda: lambda p, q, drafts, rng: int(np.argmax(p / rng.exponential(size=p.size)))
)
right("single", "Python's numbers, seeded by the generator")(
    lambda: (
        lambda p, q, drafts, rng: sequential(lambda p, q, d, rng: d)(
            p, q, drafts, random.Random(int(rng.integers(2**62)))
        )
    )
)
right("single", "first an equal share of each, then the rest")(
    lambda: sequential(lambda p, q, d, rng: d if rng.random() < 0.5 else d[:1])
)
right("single", "drafts from either end")(
    lambda: sequential(lambda p, q, d, rng: d if rng.random() < 0.5 else d[::-1])
)

right("text", "a number of drafts that a coin says")(
    lambda: lambda target, draft: session(gamma=random.choice((1, 2, 3)))()(target, draft)
)
right("text", "drafts at a temperature of their own")(
    session(drafted=lambda draft, text: whole(softmax(draft(text)[-1]) ** 0.5, np.ones(1)))
)
right("text", "drafts by the target itself")(
    lambda: lambda target, draft: session()()(target, lambda text: (draft(text), target(text))[1])
)
right("text", "drafts of no model")(
    session(drafted=lambda draft, text: np.full(draft(text).shape[1], 1 / draft(text).shape[1]))
)
right("text", "numbers of PyTorch")(session(gamma=1, u=of_torch))
right("text", "53 bits of Python's")(session(gamma=3, u=bits))
right("text", "numbers of NumPy")(session(gamma=1, length=4, u=of_numpy))
right("text", "one token")(session(length=1))

right("tree", "siblings from the last on")(
    walk(order=lambda node: [int(x) for x in node.draws[::-1]])
)
right("tree", "the first sibling alone")(walk(order=lambda node: [int(node.draws[0])]))
right("tree", "no sibling")(walk(order=lambda node: []))
right("tree", "siblings as drawn")(walk())


@right("tree", "the target's own walk")
def _() -> Function:
    def rule(root: Any, rng: Any) -> list[int]:
        node, tokens = root, []
        while True:
            tokens.append(pick(node.target, rng.random()))
            if tokens[-1] not in node.children:
                return tokens
            node = node.children[tokens[-1]]

    return rule


@right("tree", "siblings in a drawn order")
def _() -> Function:
    def rule(root: Any, rng: Any) -> list[int]:
        own = walk(order=lambda node: [int(x) for x in rng.permutation(node.draws)])()
        return list(own(root, rng))

    return rule


def of_rows(of: Callable[[Law, Law, list[int]], list[int]]) -> Callable[[], Function]:
    return lambda: (
        lambda p, q, drafts: padded([of(*each(p, q, drafts, n)) for n in range(len(p))], drafts)
    )


right("batch", "row by row")(of_rows(lambda p, q, d: steps()()(p, q, d)))
right("batch", "no drafts")(of_rows(lambda p, q, d: [pick(p[0], random.random())]))
right("batch", "the first draft of each row")(
    of_rows(lambda p, q, d: steps(u=bits)()(p[:2], q[:1], d[:1]))
)
right("batch", "numbers of PyTorch")(of_rows(lambda p, q, d: steps(u=of_torch)()(p, q, d)))


@right("batch", "all rows end with the first refusal")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [steps(u=of_numpy)()(*each(p, q, drafts, n)) for n in range(len(p))]
        fewest = min(map(len, rows))
        return padded([row[:fewest] for row in rows], drafts)

    return verify


@right("batch", "from the last row on")
def _() -> Function:
    def verify(p: Law, q: Law, drafts: Law) -> Law:
        rows = [steps()()(*each(p, q, drafts, n)) for n in reversed(range(len(p)))]
        return padded(rows[::-1], drafts)

    return verify


for seed in range(3):
    for kind in ("trace", "tokens"):
        made = partial(recorded, lambda p, q: p, 2_000 + 500 * seed, 10 + seed)
        right(kind, f"{2_000 + 500 * seed} steps that follow p")(partial(partial, made))


# --- by how much a wrong one is off, found by calls on laws of this file

CALLS = 12_000


def split(cells: list[int], law: Law) -> float:
    """Mean excess of a set of cells: that of one half of the calls, measured on the other."""
    found = np.array(cells)
    halves = np.array_split(found, 2)
    first, second = (np.bincount(x, minlength=law.size) / len(x) for x in halves)
    chosen = first > law
    return float(second[chosen].sum() - law[chosen].sum())


def completed(tokens: list[int], rows: Law, rng: Any) -> list[int]:
    return [*tokens, *(pick(row, rng.random()) for row in rows[len(tokens) :])]


def joint(tokens: list[int], size: int) -> int:
    number = 0
    for token in tokens:
        number = number * size + token
    return number


def product(rows: Law) -> Law:
    law = rows[0]
    for row in rows[1:]:
        law = np.outer(law, row).ravel()
    return law


def off_chain(name: str, function: Function, rng: Any) -> float:
    size, rows = 5, rng.dirichlet(np.full(5, 0.8), 5)
    if name in WIDE:
        size, tail = 2_048, 1 / np.arange(1, 2_049)
        rows = np.stack([rng.permutation(tail / tail.sum()) for _ in range(5)])
    p, q, found = rows[:3], rows[3:], []
    for _ in range(CALLS):
        drafts = np.array([pick(row, rng.random()) for row in q])
        found.append(completed(function(p.copy(), q.copy(), drafts), p, rng))
    if name in WIDE:
        return max(split([text[n] for text in found], p[n]) for n in range(3))
    return split([joint(text, size) for text in found], product(p))


def off_single(name: str, function: Function, rng: Any) -> float:
    p, q = rng.dirichlet(np.full(5, 0.8), 2)
    drawn = ([pick(q, rng.random()) for _ in range(3)] for _ in range(CALLS))
    return split([int(function(p, q, np.array(d), rng)) for d in drawn], p)


class Toy:
    """Random laws after each text of up to five tokens."""

    def __init__(self, seed: int, size: int = 3) -> None:
        self.seed, self.size, self.known = seed, size, dict[tuple[int, ...], Law]()

    def law(self, text: tuple[int, ...]) -> Law:
        if text not in self.known:
            rng = np.random.default_rng([self.seed, *text, len(text)])
            self.known[text] = rng.dirichlet(np.ones(self.size))
        return self.known[text]

    def __call__(self, ids: Any) -> Law:
        text = tuple(int(x) for x in ids)
        return np.log(np.stack([self.law(text[:n]) for n in range(len(text) + 1)]))


class TorchToy(Toy):
    """The same as a module is called, behind a first token of id 0."""

    def __call__(self, ids: Any, attention_mask: Any = None) -> Any:
        import torch

        row = ids[0].tolist()
        shown = [True] * len(row) if attention_mask is None else attention_mask[0].tolist()
        texts = (
            tuple(
                x for x, is_shown in zip(row[1 : n + 1], shown[1 : n + 1], strict=True) if is_shown
            )
            for n in range(len(row))
        )
        logits = torch.tensor(np.log([[self.law(text) for text in texts]]))
        return type("Output", (), {"logits": logits})


def off_text(name: str, function: Function, rng: Any, toy: type[Toy] = Toy) -> float:
    target, draft, found, length = toy(1), toy(2), [], 4
    for _ in range(CALLS // 2):
        text = [int(x) for x in function(target, draft)][:length]
        while len(text) < length:
            text.append(pick(target.law(tuple(text)), rng.random()))
        found.append(joint(text, 3))
    law = np.zeros(3**length)
    for number in range(law.size):
        text = tuple(number // 3 ** (length - 1 - n) % 3 for n in range(length))
        law[number] = math.prod(target.law(text[:n])[x] for n, x in enumerate(text))
    return split(found, law)


TREE = "2x2"


def off_tree(name: str, function: Function, rng: Any) -> float:
    target, draft, found = Toy(3), Toy(4), []
    shape = valued(parse_topology(TREE))

    def laws(texts: Any) -> Law:
        return np.stack([draft.law(tuple(text)) for text in texts])

    for _ in range(CALLS // 2):
        root = drawn_tree(laws, shape, WithReplacement, rng)
        set_targets(root, target.law)
        text = [int(x) for x in function(root, rng)]
        while len(text) < 3:
            text.append(pick(target.law(tuple(text)), rng.random()))
        found.append(joint(text[:3], 3))
    law = [
        math.prod(target.law(text[:n])[x] for n, x in enumerate(text))
        for text in ((a, b, c) for a in range(3) for b in range(3) for c in range(3))
    ]
    return split(found, np.array(law))


def off_batch(name: str, function: Function, rng: Any) -> float:
    p, q = rng.dirichlet(np.full(5, 0.8), (3, 3)), rng.dirichlet(np.full(5, 0.8), (3, 2))
    found: list[list[int]] = [[], [], []]
    for _ in range(CALLS // 2):
        drafts = np.full((3, 2), -1)
        shown_p, shown_q = p.copy(), q.copy()
        for n, size in enumerate(rng.integers(1, 3, 3)):
            drafts[n, :size] = [pick(row, rng.random()) for row in q[n, :size]]
            shown_p[n, size + 1 :] = shown_q[n, size:] = np.nan
        for n, row in enumerate(function(shown_p, shown_q, drafts)):
            tokens = [int(x) for x in row if x >= 0]
            found[n].append(joint(completed(tokens, p[n], rng), 5))
    return max(split(cells, product(p[n])) for n, cells in enumerate(found))


OFF: dict[str, Callable[[str, Function, Any], float]] = {
    "chain": off_chain,
    "single": off_single,
    "text": off_text,
    "torch text": partial(off_text, toy=TorchToy),
    "tree": off_tree,
    "batch": off_batch,
    "trace": lambda name, function, rng: function().off,
    "tokens": lambda name, function, rng: function().off,
}


def measured(kind: str, name: str, seed: int) -> float:
    """Total variation by which a function is off, at least, on laws of a seed."""
    made = {**WRONG, **RIGHT}[kind, name]()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return OFF[kind](name, made, np.random.default_rng(seed))
