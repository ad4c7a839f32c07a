"""Transport problems that solvers are set beside each other on: families, sets and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.base.sampling import softmax
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import IndependentDrafts, has_many_models
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem, load_problem

Build = Callable[[], TransportProblem]

#: What a family of random problems is, by name; each has any size.
FAMILIES = {
    "random": "target logits 2.5 N(0, 1), the draft's the target's plus N(0, 1)",
    "peaked": "four times these logits: few tokens hold nearly all mass",
    "ties": "random logits rounded to integers",
    "real": "bundled positions of a real model, their likeliest V tokens",
}

#: What a set holds, by name.
SETS = {
    "small": "problems that every method solves: 4 to 10 tokens, K = 2 and 3, three schemes",
    "hard": "ties, zeros, p = q, one token that holds nearly all, masses of 1e-15: 12 to 60 tokens",
    "real": "bundled positions of a real model, 49,152 tokens, K = 2 and 4, two schemes",
}

#: Ends of names of files that hold a problem.
SUFFIXES = (".json", ".npz", ".safetensors")


@dataclass(frozen=True, slots=True)
class Place:
    """A problem by what makes it, for another process: a family and a seed, a set, or a file."""

    problem: str  # family, set, or scheme of a file
    scheme: str
    vocab_size: int
    num_drafts: int
    seed: int
    instance: str = ""  # which of a set, or the file's name
    path: str = ""  # folder of a file

    def build(self) -> TransportProblem:
        """Problem, as an object of its own: no answer has been kept for it."""
        if self.path:
            return load_problem(Path(self.path) / self.instance)
        if self.instance:
            return problem_set(self.problem)[int(self.instance.partition(" ")[0])][1]()
        return build(self.scheme, self.vocab_size, self.num_drafts, self.seed, self.problem)

    def small(self) -> TransportProblem:
        """Small problem, on which what is loaded and compiled at a first call does not count."""
        drafts = min(self.num_drafts, 2)
        many = self.scheme if has_many_models(self.scheme) else "with_replacement"
        scheme = self.scheme if self.problem in FAMILIES else many
        return build(scheme, max(4, drafts), drafts, self.seed + 1)


def build(
    scheme: str, vocab_size: int, num_drafts: int, seed: int, family: str = "random"
) -> TransportProblem:
    """Problem of a family."""
    rng = np.random.default_rng(seed)
    if family == "real":
        target, *drafts = _real_row(vocab_size, seed)
    else:
        target = 2.5 * rng.standard_normal(vocab_size)
        count = num_drafts if has_many_models(scheme) else 1
        drafts = [target + rng.standard_normal(vocab_size) for _ in range(count)]
    if family == "peaked":
        target, drafts = 4.0 * target, [4.0 * draft for draft in drafts]
    elif family == "ties":
        target, drafts = np.round(target), [np.round(draft) for draft in drafts]
    if not has_many_models(scheme):
        return TransportProblem.from_logits(target, drafts[0], num_drafts, drafts=scheme)
    while len(drafts) < num_drafts:
        drafts.append(drafts[0] + rng.standard_normal(vocab_size))
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
    problems = enumerate(problem_set(name))
    return [_place_of(one(), name, f"{n} {kind}") for n, (kind, one) in problems]


def places_in(folder: Path) -> list[Place]:
    """Problems in the files of a folder, by draft scheme."""
    files = [x for x in sorted(folder.iterdir()) if x.suffix in SUFFIXES]
    if not files:
        raise InvalidInput(f"{folder} holds no problem: {', '.join(SUFFIXES)}")
    loaded = ((x, load_problem(x)) for x in files)
    return [_place_of(one, one.drafts.scheme, x.name, str(folder)) for x, one in loaded]


def _place_of(problem: TransportProblem, name: str, instance: str, path: str = "") -> Place:
    scheme = problem.drafts.scheme
    return Place(name, scheme, problem.vocab_size, problem.num_drafts, 0, instance, path)


_SCHEMES = ("with_replacement", "without_replacement")


def problem_set(name: str) -> list[tuple[str, Build]]:
    """Problems of a set with their kinds, in their order; each is built when it is asked for."""
    builds = {"small": _small, "hard": _hard, "real": _real}[name]()
    return sorted(builds, key=lambda x: x[0])


def _of_logits(target: Any, draft: Any, num_drafts: int, scheme: str) -> Build:
    return partial(TransportProblem.from_logits, target, draft, num_drafts, drafts=scheme)


def _small() -> Iterator[tuple[str, Build]]:
    for size, num_drafts in ((4, 2), (6, 2), (10, 2), (4, 3), (6, 3)):
        rng = np.random.default_rng(size)
        target, draft = rng.normal(size=(2, size))
        for scheme in _SCHEMES:
            yield scheme, _of_logits(target, draft, num_drafts, scheme)
        models = [softmax(draft + x) for x in rng.normal(size=(num_drafts, size))]
        yield "independent", partial(TransportProblem, softmax(target), IndependentDrafts(models))


def _hard() -> Iterator[tuple[str, Build]]:
    for size in (12, 60):
        rng = np.random.default_rng(size)
        target, draft = 2.5 * rng.normal(size=(2, size))
        one_hot, zeros = draft.copy(), target.copy()
        one_hot[size // 2] = 60.0
        zeros[::2] = -np.inf
        kinds = {
            "ties": (np.round(target), np.round(draft)),
            "zeros": (zeros, draft),
            "equal": (draft, draft),
            "one token": (target, one_hot),
            "tiny masses": (np.where(rng.random(size) < 0.5, target, -34.5), draft),
            "far": (8.0 * target, draft),
        }
        for kind, (one, other) in kinds.items():
            for scheme in _SCHEMES:
                yield f"{kind}, {scheme}", _of_logits(one, other, 2, scheme)


def _real() -> Iterator[tuple[str, Build]]:
    def build(place: int, num_drafts: int, scheme: str) -> TransportProblem:
        sample = load_logits(sample_logits_path())
        target, draft = (
            side.reshape(-1, side.shape[-1])[place] for side in (sample.target, sample.draft)
        )
        return _of_logits(target, draft, num_drafts, scheme)()

    for place in (0, 13, 27):
        for num_drafts in (2, 4):
            for scheme in _SCHEMES:
                yield f"position {place}, {scheme}", partial(build, place, num_drafts, scheme)
