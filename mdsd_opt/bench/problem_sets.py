"""Transport problems that solvers are set beside each other on: families, sets and files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.base.sampling import softmax
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import IndependentDrafts, has_many_models
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem, load_problem

#: What a family of problems is, by name; each has any size.
FAMILIES = {
    "random": "target logits 2.5 N(0, 1), the draft's the target's plus N(0, 1)",
    "peaked": "four times these logits: few tokens hold nearly all mass",
    "ties": "random logits rounded to integers",
    "real": "bundled positions of a real model, their likeliest V tokens",
    "zeros": "the target has no mass on every other token",
    "equal": "the target is the draft",
    "one_token": "one token holds nearly all of the draft",
    "tiny": "half the target's masses are about 1e-15",
    "far": "eight times the target's logits, and the draft's as they are",
}

#: Families that are taken if none are named.
USUAL = ("random", "peaked", "ties", "real")

#: What a set holds, by name.
SETS = {
    "small": "problems that every method solves: 4 to 10 tokens, K = 2 and 3, three schemes",
    "hard": "ties, zeros, p = q, one token that holds nearly all, masses of 1e-15: 12 to 60 tokens",
    "real": "bundled positions of a real model, 49,152 tokens, K = 2 and 4, two schemes",
}

#: Ends of names of files that hold a problem.
SUFFIXES = (".json", ".npz", ".safetensors")

#: Tokens that are enough for all that a method loads and compiles.
_LOADED = 80

#: Distance of its seed from those that are measured: what keeps answers has not met these.
_APART = 1_000_003


@dataclass(frozen=True, slots=True)
class Place:
    """A problem by what makes it, for another process: a family and a seed, or a file."""

    problem: str  # family, or scheme of a file
    scheme: str
    vocab_size: int
    num_drafts: int
    seed: int
    instance: str = ""  # name of a file
    path: str = ""  # folder of a file

    def build(self) -> TransportProblem:
        """Problem, as an object of its own: no answer has been kept for it."""
        if self.path:
            return load_problem(Path(self.path) / self.instance)
        return build(self.scheme, self.vocab_size, self.num_drafts, self.seed, self.problem)

    def small(self) -> TransportProblem:
        """Small problem, on which what is loaded and compiled at a first call does not count."""
        many = self.scheme if has_many_models(self.scheme) else "with_replacement"
        scheme = many if self.path else self.scheme
        size, drafts = min(self.vocab_size, _LOADED), min(self.num_drafts, 2)
        return build(scheme, size, drafts, self.seed + _APART)


def build(
    scheme: str, vocab_size: int, num_drafts: int, seed: int, family: str = "random"
) -> TransportProblem:
    """Problem of a family."""
    rng = np.random.default_rng(seed)
    many = has_many_models(scheme)
    if family == "real":
        target, draft = _real_row(vocab_size, seed)
        drafts = [draft, *(draft + rng.standard_normal(vocab_size) for _ in range(1, num_drafts))]
    else:
        target = 2.5 * rng.standard_normal(vocab_size)
        count = num_drafts if many else 1
        drafts = [target + rng.standard_normal(vocab_size) for _ in range(count)]
    if family == "peaked":
        target, drafts = 4.0 * target, [4.0 * draft for draft in drafts]
    elif family == "ties":
        target, drafts = np.round(target), [np.round(draft) for draft in drafts]
    elif family == "zeros":
        target[::2] = -np.inf if vocab_size > 1 else 0.0
    elif family == "equal":
        drafts = [target] * len(drafts)
    elif family == "one_token":
        for draft in drafts:
            draft[vocab_size // 2] = 60.0
    elif family == "tiny":
        target = np.where(rng.random(vocab_size) < 0.5, target, -34.5)
    elif family == "far":
        target = 8.0 * target
    if not many:
        return TransportProblem.from_logits(target, drafts[0], num_drafts, drafts=scheme)
    return TransportProblem(softmax(target), IndependentDrafts([softmax(x) for x in drafts]))


def _real_row(vocab_size: int, seed: int) -> tuple[Floats, Floats]:
    """Logits of one position, of the tokens that one of the models finds likeliest."""
    sample = load_logits(sample_logits_path())
    sides = [x.reshape(-1, x.shape[-1]) for x in (sample.target, sample.draft)]
    count, size = sides[0].shape
    if vocab_size > size:
        raise InvalidInput(
            f"the bundled logits have {size:,} tokens, not {vocab_size:,}: leave the family real "
            "out"
        )
    place = np.random.default_rng(0).permutation(count)[seed % count]
    target, draft = (side[place].astype(np.float64) for side in sides)
    likeliest = np.argsort(-np.maximum(softmax(target), softmax(draft)), kind="stable")[:vocab_size]
    return target[likeliest], draft[likeliest]


def places_of_set(name: str) -> list[Place]:
    """Problems of a set."""
    schemes = ["with_replacement", "without_replacement"]
    if name == "small":
        sizes = ((4, 2), (6, 2), (10, 2), (4, 3), (6, 3))
        chosen = product(["random"], [*schemes, "independent"], sizes)
    elif name == "hard":
        kinds = [family for family in FAMILIES if family not in ("random", "peaked", "real")]
        chosen = product(kinds, schemes, ((12, 2), (60, 2)))
    else:
        chosen = product(["real"], schemes, 3 * ((49_152, 2), (49_152, 4)))
    return [
        Place(family, scheme, size, num_drafts, seed)
        for seed, (family, scheme, (size, num_drafts)) in enumerate(chosen)
    ]


def places_in(folder: Path) -> list[Place]:
    """Problems in the files of a folder, by draft scheme."""
    if not folder.is_dir():
        raise InvalidInput(f"problems is {folder}: give {', '.join(SETS)}, or a folder")
    files = [x for x in sorted(folder.iterdir()) if x.suffix in SUFFIXES]
    if not files:
        raise InvalidInput(f"{folder} holds no problem: {', '.join(SUFFIXES)}")
    loaded = ((x.name, load_problem(x)) for x in files)
    return [
        Place(x.drafts.scheme, x.drafts.scheme, x.vocab_size, x.num_drafts, 0, name, str(folder))
        for name, x in loaded
    ]
