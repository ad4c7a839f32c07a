"""Sixty functions that are wrong and sixty that are right, written without a look at the audits.

Their kinds are in no other test of audits. Those have residuals that are cut, scaled or of another
law, ratios that are scaled or rounded, extra tokens of another law, uniforms that are shared, kept
or coarse, faults in every n-th call, rows of a batch that are mixed up, seeds that are set anew,
and caches that keep refused tokens. The name of each says what is wrong with it, or what is unusual
and right. When they were written, wrong ones were off by more than .02 of total variation on laws
of their own, and right ones by less.
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
from support.planted_chains import normalised as whole
from support.planted_chains import right_accept as ratio
from support.planted_chains import right_residual as left
from support.text_sessions import by_alias, by_halves, pick, softmax

Law = Any
Function = Callable[..., Any]
Maker = Callable[[], Function]

#: What is audited, by kind and name; each maker makes one without a memory of earlier calls.
WRONG: dict[tuple[str, str], Maker] = {}
RIGHT: dict[tuple[str, str], Maker] = {}


def entered(found: dict[tuple[str, str], Maker], kind: str, makers: dict[str, Maker]) -> None:
    assert not found.keys() & {(kind, name) for name in makers}
    found |= {(kind, name): make for name, make in makers.items()}


# --- parts


def unscaled(law: Law, u: float) -> int:
    """The token in whose share a uniform falls, or the last where the shares end below it."""
    return min(int(np.searchsorted(np.cumsum(law), u, side="right")), law.size - 1)


def of_python() -> float:  # looked up when it is called, where an audit may stand in its place
    return random.random()


def of_numpy() -> float:
    return float(np.random.random())  # noqa: NPY002  # as engines do


def of_torch() -> float:
    import torch

    return float(torch.rand((), dtype=torch.float64))


def bits() -> float:
    return random.getrandbits(53) / 2**53


def hits(p: Law, q: Law, d: list[int], u: Callable[[], float] = of_python) -> list[bool]:
    return [u() < ratio(p[n], q[n], x) for n, x in enumerate(d)]


def prefix(passed: list[bool]) -> int:
    return passed.index(False) if False in passed else len(passed)


def ended(p: Law, q: Law, d: list[int], kept: int, u: Callable[[], float] = of_python) -> list[int]:
    """So many drafts, and a token after them."""
    return [*d[:kept], pick(left(p[kept], q[kept]) if kept < len(d) else p[kept], u())]


def steps(
    accept: Any = lambda p, q, d, n: ratio(p[n], q[n], d[n]),
    after: Any = lambda p, q, d, n: left(p[n], q[n]),
    last: Any = lambda p, q, d: p[-1],
    u: Callable[[], float] = of_python,
    draw: Callable[[Law, float], int] = pick,
) -> Maker:
    """Maker of a chain of these parts: drafts d, tested one after the other."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        for n in range(len(d)):
            if u() >= accept(p, q, d, n):
                return [*d[:n], draw(after(p, q, d, n), u())]
        return [*d, draw(last(p, q, d), u())]

    return lambda: verify


def keeping(count: Callable[[Law, Law, list[int]], int], u: Any = of_python) -> Maker:
    """Maker of a chain that says how many drafts are kept, and goes on from there."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        d = [int(x) for x in drafts]
        return ended(p, q, d, count(p, q, d), u)

    return lambda: verify


# --- wrong chains


def tempered(law: Law) -> Law:
    return whole(law**0.6, law)


def half_sums(law: Law, u: float) -> int:
    sums = np.cumsum(law.astype(np.float16), dtype=np.float16).astype(float)
    return min(int(np.searchsorted(sums, u * sums[-1], side="right")), law.size - 1)


def all_or_none(p: Law, q: Law, d: list[int]) -> int:
    return len(d) * (random.random() < math.prod(ratio(p[n], q[n], x) for n, x in enumerate(d)))


def one_fewer(p: Law, q: Law, d: list[int]) -> int:
    kept = prefix(hits(p, q, d))
    return kept if kept == len(d) else max(kept - 1, 0)


def one_uniform(scaled: bool) -> Maker:
    """One number serves as long as a test takes a part of it; what is left may be scaled."""

    def verify(p: Law, q: Law, drafts: Any) -> list[int]:
        u, d = random.random(), [int(x) for x in drafts]
        for n, x in enumerate(d):
            r = ratio(p[n], q[n], x)
            if u >= r:
                u = min((u - r) / (1 - r), 1 - 2**-53) if scaled else u - r
                return [*d[:n], pick(left(p[n], q[n]), u)]
            u = random.random() if scaled else u
        return [*d, pick(p[-1], u if scaled else random.random())]

    return lambda: verify


def seeded() -> Function:
    return lambda p, q, drafts: steps(u=random.Random(str(np.asarray(drafts).tolist())).random)()(
        p, q, drafts
    )


def steered() -> Function:
    seen = [0.8, 0.0]

    def count(p: Law, q: Law, d: list[int]) -> int:
        for n, x in enumerate(d):
            gain = math.exp(2 * (0.8 - seen[0]))
            hit = random.random() < min(1.0, gain * ratio(p[n], q[n], x))
            seen[0] += 0.02 * (hit - seen[0])
            if not hit:
                return n
        return len(d)

    return keeping(count)()


def in_turn() -> Function:
    calls = [0]

    def verify(p: Law, q: Law, drafts: Any) -> Any:
        calls[0] += 1
        power = 2.5 if calls[0] % 2 else 0.4
        return steps()()(np.stack([whole(row**power, row) for row in p]), q, drafts)

    return verify


def of_places(p: Law) -> Law:
    return np.arange(p.shape[1])


CHAINS: dict[str, Maker] = {
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
        lambda p, q, d, n: ratio(p[n], tempered(q[n]), d[n]),
        lambda p, q, d, n: left(p[n], tempered(q[n])),
    ),
    "q subtracted by what was accepted": steps(
        after=lambda p, q, d, n: left(p[n], q[n] * np.minimum(p[n], q[n]).sum())
    ),
    "the token refused once more": steps(
        after=lambda p, q, d, n: 0.9 * left(p[n], q[n]) + 0.1 * np.eye(p.shape[1])[d[n]]
    ),
    "the extra token by two rows": steps(last=lambda p, q, d: (p[-1] + p[-2]) / 2, u=bits),
    "no token twice in a row": steps(
        after=lambda p, q, d, n: whole(
            left(p[n], q[n]) * (of_places(p) != (d[n - 1] if n else -1)), p[n]
        ),
        last=lambda p, q, d: whole(p[-1] * (of_places(p) != d[-1]), p[-1]),
    ),
    "three times token 0 at the end": steps(
        last=lambda p, q, d: whole(p[-1] * np.where(of_places(p) == 0, 3.0, 1.0), p[-1])
    ),
    ".2 beside q": steps(lambda p, q, d, n: ratio(p[n], q[n] + 0.2, d[n]), u=of_torch),
    "sums in half precision": steps(draw=half_sums),
    "probabilities in 8 bits": steps(
        draw=lambda law, u: pick(whole(np.round(law * 255.0), law), u)
    ),
    "ids modulo 256": steps(draw=lambda law, u: pick(law, u) % 256),
    "ids below 1,024": steps(draw=lambda law, u: min(pick(law, u), 1_023)),
    "all drafts or none": keeping(all_or_none),
    "what is left of a uniform is not scaled": one_uniform(scaled=False),
    "seeded by its drafts": seeded,
    "rolls back one too many": keeping(one_fewer),
    "a residual whose missing mass is the last token's": steps(
        after=lambda p, q, d, n: np.maximum(p[n] - q[n], 0.0), draw=unscaled
    ),
    "acceptance that is steered to four in five": steered,
    "warm and cold in turn": in_turn,
    "the larger of two numbers for each test": keeping(
        lambda p, q, d: prefix(hits(p, q, d, lambda: max(of_torch(), of_torch()))), of_torch
    ),
}
entered(WRONG, "chain", CHAINS)

# --- wrong verifiers of several drafts of one token


def sequential(order: Callable[[Law, Law, list[int], Any], list[int]], less: Any = left) -> Maker:
    """Maker of recursive rejection of drafts in some order."""

    def verify(p: Law, q: Law, drafts: Any, rng: Any) -> int:
        rest = p
        for x in order(p, q, [int(x) for x in drafts], rng):
            if rng.random() < ratio(rest, q, x):
                return x
            rest = less(rest, q)
        return pick(rest, rng.random())

    return lambda: verify


as_drawn = sequential(lambda p, q, d, rng: d)


def likeliest_that_passes(p: Law, q: Law, drafts: Any, rng: Any) -> int:
    passed = [int(x) for x in drafts if rng.random() < ratio(p, q, x)]
    return max(passed, key=lambda x: p[x]) if passed else pick(left(p, q), rng.random())


def by_weight(p: Law, q: Law, drafts: Any, rng: Any) -> int:
    weights = np.array([p[x] / max(q[x], 1e-12) for x in drafts])
    return int(drafts[pick(whole(weights, np.ones(len(drafts))), rng.random())])


def agreed(p: Law, q: Law, drafts: Any, rng: Any) -> int:
    if len(set(map(int, drafts))) < len(drafts) and p[int(drafts[0])] > 0:
        return int(drafts[0])
    return int(as_drawn()(p, q, drafts, rng))


def drawn_twice(p: Law, q: Law, drafts: Any, rng: Any) -> int:
    first = pick(p, rng.random())
    return first if first in drafts else pick(p, rng.random())


def last_or_first(p: Law, q: Law, drafts: Any, rng: Any) -> int:
    for x in (int(drafts[-1]), int(drafts[0])):
        if rng.random() < ratio(p, q, x):
            return x
    return pick(left(p, q), rng.random())


SINGLES: dict[str, Maker] = {
    "of all drafts that pass, the likeliest": lambda: likeliest_that_passes,
    "a draft by its weight p/q among the drafts": lambda: by_weight,
    "drafts from the likeliest on": sequential(lambda p, q, d, rng: sorted(d, key=lambda x: -p[x])),
    "drafts by id": sequential(lambda p, q, d, rng: sorted(d)),
    "two drafts that agree are right": lambda: agreed,
    "the target is drawn twice to hit a draft": lambda: drawn_twice,
    "the last draft is as good as the first": lambda: last_or_first,
    "less p q instead of less q": sequential(
        lambda p, q, d, rng: d, lambda rest, q: whole(rest * (1 - q), rest)
    ),
}
entered(WRONG, "single", SINGLES)

# --- wrong texts


def session(
    length: int = 5,
    gamma: int = 2,
    drafted: Any = lambda draft, text: softmax(draft(text)[-1]),
    stated: Any = lambda draft, text, law: law,
    row: Any = lambda target, text, start: softmax(target(text))[start:],
    accept: Any = lambda p, q, x, text: ratio(p, q, x),
    u: Callable[[], float] = of_python,
) -> Maker:
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


def one_by_one(step: Callable[..., list[int]]) -> Maker:
    """Maker of a session of one draft a step: what it adds to a text by p and q."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 5:
            q, p = softmax(draft(text)[-1]), softmax(target(text)[-1])
            text += step(p, q, text, draft)
        return text

    return lambda: generate


def begun_again(p: Law, q: Law, *_: Any) -> list[int]:
    for _trial in range(2):
        x = pick(q, random.random())
        if random.random() < ratio(p, q, x):
            return [x]
    return [pick(left(p, q), random.random())]


def untested(p: Law, q: Law, text: list[int], draft: Any) -> list[int]:
    x = pick(q, random.random())
    if random.random() < ratio(p, q, x):
        return [x, pick(softmax(draft([*text, x])[-1]), random.random())]
    return [pick(left(p, q), random.random())]


def likelier_of_two(p: Law, q: Law, *_: Any) -> list[int]:
    return [max((pick(p, random.random()) for _ in range(2)), key=lambda x: p[x])]


def hides_a_token(target: Any, draft: Any) -> list[int]:
    import torch

    text: list[int] = []
    while len(text) < 4:
        q = softmax(draft(torch.tensor([[0, *text]])).logits[0, -1].tolist())
        x = pick(q, of_torch())
        ids, mask = torch.tensor([[0, *text, x]]), torch.ones(1, len(text) + 2)
        mask[0, len(text)] = 0.0 if text else 1.0
        p, extra = softmax(target(ids, attention_mask=mask).logits[0, -2:].tolist())
        if of_torch() >= ratio(p, q, x):
            text.append(pick(left(p, q), of_torch()))
        else:
            text += [x, pick(extra, of_torch())]
    return text


TEXTS: dict[str, Maker] = {
    "drafts of a text one token shorter": session(
        drafted=lambda draft, text: softmax(draft(text[:-1])[-1]),
        stated=lambda draft, text, law: softmax(draft(text)[-1]),
    ),
    "drafts colder than they say": session(
        stated=lambda draft, text, law: whole(law**0.5, law), u=of_numpy
    ),
    "the target reads the first token no more": session(
        row=lambda target, text, start: softmax(
            [target([0, *text[1:]])[n] if n > 1 else target(text)[n] for n in range(len(text) + 1)]
        )[start:]
    ),
    "bolder after two tokens": session(
        accept=lambda p, q, x, text: min(1.0, ratio(p, q, x) * (1 + (len(text) > 1)))
    ),
    "warmer with every token": session(
        row=lambda target, text, start: np.stack(
            [whole(x ** (1 / (1 + 0.3 * n)), x) for n, x in enumerate(softmax(target(text)))]
        )[start:],
        u=bits,
    ),
    "a step that refuses is begun again, once": one_by_one(begun_again),
    "a draft behind the accepted ones is kept untested": one_by_one(untested),
    "of two steps the likelier": one_by_one(likelier_of_two),
}
entered(WRONG, "text", TEXTS)
entered(
    WRONG,
    "torch text",
    {"a mask that hides the token before the drafts": lambda: hides_a_token},
)

# --- wrong rules for trees


def walk(
    order: Any = lambda node: [int(x) for x in node.draws],
    law: Any = lambda node, parent: node.target,
    less: Any = lambda rest, q, count: left(rest, q),
) -> Maker:
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


def longest_path(node: Any, rng: Any) -> list[int]:
    if node.drafts is None:
        return [pick(node.target, rng.random())]
    found = [
        [x, *longest_path(node.children[x], rng)]
        for x in map(int, node.draws)
        if rng.random() < ratio(node.target, node.drafts.q, x)
    ]
    return max(found, key=len, default=[]) or [pick(left(node.target, node.drafts.q), rng.random())]


TREES: dict[str, Maker] = {
    "siblings by id": walk(order=lambda node: sorted(int(x) for x in node.draws)),
    "the likeliest sibling first": walk(
        order=lambda node: sorted((int(x) for x in node.draws), key=lambda x: -node.target[x])
    ),
    "q subtracted for the first sibling alone": walk(
        less=lambda rest, q, count: rest if count else left(rest, q)
    ),
    "inner nodes by the root's law": walk(
        law=lambda node, parent: parent.target if node.tokens and node.drafts else node.target
    ),
    "the longest of the paths that pass": lambda: longest_path,
}
entered(WRONG, "tree", TREES)

# --- wrong batches

Row = tuple[Law, Law, list[int]]


def of_rows(of: Callable[[list[Row]], list[list[int]]]) -> Maker:
    """Maker of a function of rows that are padded with -1, from one of their laws and drafts."""

    def verify(p: Law, q: Law, drafts: Law) -> Law:
        sizes = (np.asarray(drafts) >= 0).sum(axis=1).tolist()
        rows = [
            (p[n, : size + 1], q[n, :size], drafts[n, :size].tolist())
            for n, size in enumerate(sizes)
        ]
        width = drafts.shape[1] + 1
        return np.array([[*row, *[-1] * (width - len(row))] for row in of(rows)])

    return lambda: verify


def by_itself(*row: Any) -> list[int]:
    return steps()()(*row)


def fewest_kept(rows: list[Row]) -> list[list[int]]:
    fewest = min(prefix(hits(*row)) for row in rows)
    return [ended(*row, min(fewest, len(row[2]))) for row in rows]


def with_those_before(rows: list[Row]) -> list[list[int]]:
    found, worst = [], 99
    for row in rows:
        worst = min(worst, prefix(hits(*row)))
        found.append(ended(*row, min(worst, len(row[2]))))
    return found


def one_extra_token(rows: list[Row]) -> list[list[int]]:
    found, extra = [by_itself(*row) for row in rows], pick(rows[0][0][0], random.random())
    return [
        [*tokens[:-1], extra] if len(tokens) == len(row[2]) + 1 else tokens
        for row, tokens in zip(rows, found, strict=True)
    ]


def one_scale(rows: list[Row]) -> list[list[int]]:
    found, most = [], max(np.maximum(p[0] - q[0], 0).sum() for p, q, _ in rows)
    for p, q, d in rows:
        kept = prefix(hits(p, q, d))
        if kept == len(d):
            found.append(ended(p, q, d, kept))
        else:
            shares = np.maximum(p[kept] - q[kept], 0.0) / most
            found.append([*d[:kept], unscaled(shares, random.random())])
    return found


BATCHES: dict[str, Maker] = {
    "all rows keep as many as the one with the fewest": of_rows(fewest_kept),
    "a row is refused with the rows before it": of_rows(with_those_before),
    "each row by a generator of its number": of_rows(
        lambda rows: [steps(u=random.Random(n).random)()(*row) for n, row in enumerate(rows)]
    ),
    "rows by length, and left in that order": of_rows(
        lambda rows: sorted((by_itself(*row) for row in rows), key=len)
    ),
    "the extra token of the first row for all that accept all": of_rows(one_extra_token),
    "residuals scaled by the largest of all rows": of_rows(one_scale),
}
entered(WRONG, "batch", BATCHES)

# --- records: what an engine that is wrong has written


@dataclass(frozen=True)
class Records:
    """Steps of one draft: laws, drafts and tokens."""

    p: Law
    q: Law
    drafts: Law
    tokens: Law


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
    return Records(p, q, drafts[:, None], tokens)


RECORDS: dict[str, Callable[[Law, Law], Law]] = {
    "a seventh of the draft's law": lambda p, q: (6 * p + q) / 7,
    "the top five of eight": lambda p, q: whole(np.where(p >= np.sort(p)[-5], p, 0.0), p),
    "colder by a fifth": lambda p, q: whole(p**1.25, p),
    "token 0 half as often": lambda p, q: whole(p * np.where(np.arange(8) == 0, 0.5, 1.0), p),
    "flattened by a tenth": lambda p, q: 0.9 * p + 0.1 / 8,
    "the ratio p/q to the tenth part": lambda p, q: whole(p * (p / q) ** 0.1, p),
}
for number, (name, law) in enumerate(RECORDS.items()):
    entered(WRONG, "trace" if number % 2 else "tokens", {name: partial(partial, recorded, law)})

# --- right chains


def by_rank(law: Law, u: float) -> int:
    order = np.argsort(-law, kind="stable")
    return int(order[pick(law[order], u)])


def from_the_end(law: Law, u: float) -> int:
    return law.size - 1 - pick(law[::-1], u)


for way in (by_halves, by_rank, from_the_end, by_alias):
    for source in (of_python, of_numpy, of_torch):
        told = f"{way.__name__}, numbers {source.__name__}".replace("_", " ")
        entered(RIGHT, "chain", {told: steps(u=source, draw=way)})


def ends_with_0(p: Law, q: Law, drafts: Any) -> list[int]:
    found = by_itself(p, q, drafts)
    return found[: found.index(0) + 1] if 0 in found else found


def some_drafts(p: Law, q: Law, drafts: Any) -> list[int]:
    n = 1 if random.random() < 0.3 else len(drafts)
    return steps(u=bits)()(p[: n + 1], q[:n], drafts[:n])


def both_coins(p: Law, q: Law, d: list[int]) -> int:
    """Two coins, each with the root of the ratio."""

    def passes(root: float) -> bool:
        return random.random() < root and random.random() < root

    return prefix([passes(math.sqrt(ratio(p[n], q[n], x))) for n, x in enumerate(d)])


def where_asked(p: Law, q: Law, d: list[int]) -> int:
    return prefix([p[n, x] >= q[n, x] or of_numpy() * q[n, x] < p[n, x] for n, x in enumerate(d)])


def in_fractions(p: Law, q: Law, d: list[int]) -> int:
    return prefix(
        [Fraction(random.random()) * Fraction(q[n, x]) < Fraction(p[n, x]) for n, x in enumerate(d)]
    )


def either_way(p: Law, q: Law, drafts: Any) -> list[int]:
    if random.random() < 0.5:
        return by_itself(p, q, drafts)
    found = [pick(row, random.random()) for row in p]
    return found[: prefix([int(x) == y for x, y in zip(drafts, found, strict=False)]) + 1]


def thrown_away(p: Law, q: Law, drafts: Any) -> list[int]:
    d = [int(x) for x in drafts]
    kept = prefix(hits(p, q, d, of_numpy))
    for _ in range(6 * (kept < len(d))):
        y = pick(p[kept], of_numpy())
        if of_numpy() * p[kept, y] < p[kept, y] - q[kept, y]:
            return [*d[:kept], y]
    return ended(p, q, d, kept, of_numpy)


def of_tensors(p: Law, q: Law, drafts: Any) -> list[int]:
    import torch

    p, q = torch.as_tensor(p), torch.as_tensor(q)
    d = [int(x) for x in drafts]
    passed = torch.rand(len(d), dtype=p.dtype) < torch.stack(
        [torch.clamp(p[n, x] / q[n, x], max=1.0) for n, x in enumerate(d)]
    )
    kept = prefix(passed.tolist())
    law = p[kept] if kept == len(d) else torch.clamp(p[kept] - q[kept], min=0.0)
    return [*d[:kept], int(torch.multinomial(law if law.sum() > 0 else p[kept], 1))]


def of_choices(p: Law, q: Law, drafts: Any) -> list[int]:
    d = [int(x) for x in drafts]
    kept = prefix([random.uniform(0.0, float(q[n, x])) < p[n, x] for n, x in enumerate(d)])
    law = left(p[kept], q[kept]) if kept < len(d) else p[-1]
    return [*d[:kept], random.choices(range(p.shape[1]), law)[0]]


def in_a_random_order(p: Law, q: Law, drafts: Any) -> list[int]:
    order = np.random.permutation(p.shape[1])  # noqa: NPY002
    laws = [*(left(p[n], q[n]) for n in range(len(drafts))), p[-1]]
    extra = [int(order[pick(law[order], of_numpy())]) for law in laws]
    kept = prefix(hits(p, q, [int(x) for x in drafts], of_numpy))
    return [*(int(x) for x in drafts[:kept]), extra[kept]]


RIGHT_CHAINS: dict[str, Maker] = {
    "a first draft alone": lambda: lambda p, q, drafts: by_itself(p[:2], q[:1], drafts[:1]),
    "ends with token 0 where that was accepted": lambda: ends_with_0,
    "a coin says how many drafts are looked at": lambda: some_drafts,
    "what is left of a uniform, scaled": one_uniform(scaled=True),
    "two coins for each test": keeping(both_coins),
    "no number where p is at least q": keeping(where_asked, of_numpy),
    "Fractions": keeping(in_fractions),
    "either by ratios or by the target's own draw": lambda: either_way,
    "a residual by draws from p that are thrown away": lambda: thrown_away,
    "tensors: rand, multinomial": lambda: of_tensors,
    "random.choices, and random.uniform": lambda: of_choices,
    "drafts left to right after all extra tokens, in a random order of ids": (
        lambda: in_a_random_order
    ),
}
entered(RIGHT, "chain", RIGHT_CHAINS)

# --- right verifiers, texts, trees, batches, records

RIGHT_SINGLES: dict[str, Maker] = {
    "drafts in a random order": sequential(
        lambda p, q, d, rng: [d[i] for i in rng.permutation(len(d))]
    ),
    "drafts from the last on": sequential(lambda p, q, d, rng: d[::-1]),
    "the first two drafts alone": sequential(lambda p, q, d, rng: d[:2]),
    "one of the drafts, drawn": sequential(lambda p, q, d, rng: [d[int(rng.integers(len(d)))]]),
    "no draft": sequential(lambda p, q, d, rng: []),
    "the target's own draw": lambda: lambda p, q, drafts, rng: int(rng.choice(p.size, p=p)),
    "the target's own draw, by a race": (
        lambda: lambda p, q, drafts, rng: int(np.argmax(p / rng.exponential(size=p.size)))
    ),
    "Python's numbers, seeded by the generator": (
        lambda: (
            lambda p, q, drafts, rng: as_drawn()(
                p, q, drafts, random.Random(int(rng.integers(2**62)))
            )
        )
    ),
    "first an equal share of each, then the rest": sequential(
        lambda p, q, d, rng: d if rng.random() < 0.5 else d[:1]
    ),
    "drafts from either end": sequential(lambda p, q, d, rng: d if rng.random() < 0.5 else d[::-1]),
}
entered(RIGHT, "single", RIGHT_SINGLES)

RIGHT_TEXTS: dict[str, Maker] = {
    "a number of drafts that a coin says": (
        lambda: lambda target, draft: session(gamma=random.choice((1, 2, 3)))()(target, draft)
    ),
    "drafts at a temperature of their own": session(
        drafted=lambda draft, text: whole(softmax(draft(text)[-1]) ** 0.5, np.ones(1))
    ),
    "drafts by the target itself": (
        lambda: (
            lambda target, draft: session()()(target, lambda text: (draft(text), target(text))[1])
        )
    ),
    "drafts of no model": session(
        drafted=lambda draft, text: np.full(draft(text).shape[1], 1 / draft(text).shape[1])
    ),
    "numbers of PyTorch": session(gamma=1, u=of_torch),
    "53 bits of Python's": session(gamma=3, u=bits),
    "numbers of NumPy": session(gamma=1, length=4, u=of_numpy),
    "one token": session(length=1),
}
entered(RIGHT, "text", RIGHT_TEXTS)


def own_walk(root: Any, rng: Any) -> list[int]:
    node, tokens = root, []
    while True:
        tokens.append(pick(node.target, rng.random()))
        if tokens[-1] not in node.children:
            return tokens
        node = node.children[tokens[-1]]


def in_a_drawn_order(root: Any, rng: Any) -> list[int]:
    return walk(order=lambda node: [int(x) for x in rng.permutation(node.draws)])()(root, rng)


RIGHT_TREES: dict[str, Maker] = {
    "siblings from the last on": walk(order=lambda node: [int(x) for x in node.draws[::-1]]),
    "the first sibling alone": walk(order=lambda node: [int(node.draws[0])]),
    "no sibling": walk(order=lambda node: []),
    "siblings as drawn": walk(),
    "the target's own walk": lambda: own_walk,
    "siblings in a drawn order": lambda: in_a_drawn_order,
}
entered(RIGHT, "tree", RIGHT_TREES)


def cut_to_the_shortest(rows: list[Row]) -> list[list[int]]:
    found = [steps(u=of_numpy)()(*row) for row in rows]
    return [tokens[: min(map(len, found))] for tokens in found]


RIGHT_BATCHES: dict[str, Maker] = {
    "row by row": of_rows(lambda rows: [by_itself(*row) for row in rows]),
    "no drafts": of_rows(lambda rows: [[pick(p[0], random.random())] for p, _, _ in rows]),
    "the first draft of each row": of_rows(
        lambda rows: [steps(u=bits)()(p[:2], q[:1], d[:1]) for p, q, d in rows]
    ),
    "numbers of PyTorch": of_rows(lambda rows: [steps(u=of_torch)()(*row) for row in rows]),
    "all rows end with the first refusal": of_rows(cut_to_the_shortest),
    "from the last row on": of_rows(lambda rows: [by_itself(*row) for row in rows[::-1]][::-1]),
}
entered(RIGHT, "batch", RIGHT_BATCHES)

for seed in range(3):
    count = 2_000 + 500 * seed
    for kind in ("trace", "tokens"):
        made = partial(recorded, lambda p, q: p, count, 10 + seed)
        entered(RIGHT, kind, {f"{count} steps that follow p": partial(partial, made)})
