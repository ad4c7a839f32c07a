"""Rules that verify trees of drafts: the law of the whole output."""

from __future__ import annotations

from itertools import product

import numpy as np
from support.tables import output_law, target_law

from mdsd_opt import verifiers
from mdsd_opt.decoding import get_rule, k_ary
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.trees import Topology
from stress.tally import Tally
from stress.weights import Weights, draw_beside, draw_weights

TOLERANCE = 1e-12

MULTI_STEP = ("traversal", "traversal_hull", "level_sequential")
TREES = {
    1: (k_ary(2, 2), k_ary(3, 1), k_ary(1, 3)),
    2: (k_ary(2, 2), k_ary(3, 1), k_ary(1, 3), Topology({(): 2, (1,): 2}, "uneven")),
    3: (k_ary(2, 1), k_ary(3, 1), k_ary(1, 2), Topology({(): 2, (1,): 1}, "uneven")),
}
SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")


class Model:
    """An adversarial law after every text up to some depth; what the package is given of it."""

    def __init__(self, laws: dict[tuple[int, ...], Weights], vocab_size: int) -> None:
        self.weights, self.vocab_size = laws, vocab_size
        self.laws = {text: np.array([float(x) for x in w.exact]) for text, w in laws.items()}

    def __call__(self, text):
        return self.laws[tuple(text)]

    def probability(self, text) -> float:
        return float(np.prod([self(text[:n])[token] for n, token in enumerate(text)]))

    def __str__(self) -> str:
        return f"{ {text: law.tolist() for text, law in self.laws.items()}!r}"


def check(rng: np.random.Generator, tally: Tally) -> None:
    """One pair of models, one tree, by every rule that takes it."""
    size = int(rng.choice([1, 2, 2, 2, 3]))
    topology = TREES[size][rng.integers(len(TREES[size]))]
    scheme = SCHEMES[rng.integers(len(SCHEMES))]
    texts = [t for n in range(topology.depth + 1) for t in product(range(size), repeat=n)]
    draft = {text: draw_weights(rng, size) for text in texts}
    target = {text: draw_beside(rng, draft[text]) for text in texts}
    p, q = Model(target, size), Model(draft, size)
    exact = target_law(p, topology.depth + 1)
    for name in _rules(scheme, topology, size):
        with tally.trial(
            name, lambda: f"{topology.name} of {scheme}, target {p}, draft {q}"
        ) as trial:
            law, _ = output_law(get_rule(name), p, q, topology, scheme)
            off = np.abs(law - exact)
            worst = np.unravel_index(off.argmax(), off.shape)
            text = tuple(map(int, worst))
            trial.near(law[worst], exact[worst], TOLERANCE, f"probability of {text}")
            trial.that((law >= 0).all(), "a negative probability")


def _rules(scheme: str, topology: Topology, size: int):
    """Those that are lossless for the drafts of all nodes."""
    if scheme in ("with_replacement", "without_replacement"):
        yield from MULTI_STEP
        if all(topology.drafts_at(place) <= 1 for place in _places(topology)):
            yield "block_verification"
    else:
        yield from MULTI_STEP[1:]
    counts = {topology.drafts_at(place) for place in _places(topology)} - {0}
    uniform = np.full(size, 1.0 / size)
    for name in verifiers.names():
        if name == "gumbel" and size > 2:
            continue
        make = scheme_maker(scheme)
        if all(verifiers.get(name).supports(make(uniform, k)) for k in counts):
            yield name


def _places(topology: Topology):
    waiting = [()]
    while waiting:
        place = waiting.pop()
        yield place
        waiting += [(*place, rank) for rank in range(topology.drafts_at(place))]
