"""What the tests on a device compare with, computed beforehand: there may be no numba there.

``PYTHONPATH=.:tests python -m support.gpu_references`` writes the file, and a test of this name
holds it against what the CPU computes. Rates are those of the same rounded logits in float64, kept
in single precision.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.kernel_cases import DTYPES, RATES, decide, flat_rows, near_rows, pair_of
from support.logit_rows import rows_of_every_character

import mdsd_opt as mo
from mdsd_opt.gpu import DeviceRuntime

FILE = Path(__file__).parents[1] / "gpu" / "gpu_references.npz"

#: By the names that the file has for them.
COMBINATIONS = {name.replace("with_replacement", "optimal"): x for name, x in RATES.items()}
SIZES = (1, 2, 7, 701, 40_000, 131_071, 262_144)
SCHEMES = ("with_replacement", "without_replacement")
FILTERS: tuple[dict[str, Any], ...] = (
    {"top_k": 40},
    {"top_k": 2},
    {"top_p": 0.9},
    {"min_p": 0.02},
    {"temperature": 0.0},
)

Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One call of `acceptance_rates`."""

    pair: Pair
    counts: int | Sequence[int]
    options: dict[str, Any] = field(default_factory=dict)

    def on_cpu(self) -> NDArray[np.float64]:
        target, draft = (x.astype(np.float64) for x in self.pair)
        return np.asarray(
            mo.acceptance_rates(target, draft, self.counts, device="cpu", **self.options)
        )


def as_types(pair: Pair, *names: str) -> Pair:
    """Logits of other types; one name stands for both."""
    target, draft = (x.astype(DTYPES[name]) for x, name in zip(pair, names * 2, strict=False))
    return target, draft


def of_every_character(size: int, dtype: str, name: str) -> Case:
    rows = rows_of_every_character(size).values()
    target, draft = (np.stack([np.clip(x[side], -6e4, 6e4) for x in rows]) for side in (0, 1))
    options = {"temperature": 0.8, **COMBINATIONS[name]}
    return Case(as_types((target, draft), dtype), (1, 2, 3, 8, 16), options)


def of_types(*dtypes: str) -> Case:
    return Case(as_types(near_rows(4, 5000), *dtypes), (2, 4))


def of_open_bins(drafts: str) -> Case:
    return Case(flat_rows(131_072), 3, {"drafts": drafts})


def of_large_rows() -> Case:
    return Case(near_rows(8, 131_072), 3)


def of_filters(place: int, drafts: str) -> Case:
    return Case(near_rows(6, 50_000), (1, 3), {"drafts": drafts, **FILTERS[place]})


def of_slices() -> Case:
    target, draft = near_rows(6, 1030)
    return Case((target[:, 3:1000], draft[:, 3:1000]), (2, 3))


def of_library(dtype: str) -> Case:
    return Case(as_types(near_rows(6, 5000), dtype), 3)


def of_decisions(first: str, second: str, num_drafts: int, drafts: str) -> Case:
    pair = as_types(near_rows(6, 20_000), first, second)
    return Case(pair, num_drafts, {"drafts": drafts})


def cases() -> Iterator[tuple[str, Case]]:
    """All of them, by the names that `reference` knows them by."""
    listed: dict[Any, Iterable[tuple[Any, ...]]] = {
        of_every_character: product(SIZES, DTYPES, COMBINATIONS),
        of_types: product(DTYPES, repeat=2),
        of_open_bins: product(SCHEMES),
        of_filters: product(range(len(FILTERS)), SCHEMES),
        of_large_rows: [()],
        of_slices: [()],
        of_library: product(DTYPES),
        of_decisions: product(DTYPES, DTYPES, (1, 3, 8), SCHEMES),
    }
    for case, given in listed.items():
        for arguments in given:
            yield name_of(case, *arguments), case(*arguments)


def name_of(case: Any, *arguments: Any) -> str:
    return " ".join([case.__name__, *map(str, arguments)])


@dataclass(frozen=True, slots=True)
class Decisions:
    """Rows, drafts and random numbers of decisions that are compared one by one."""

    pair: Pair
    drafts: NDArray[np.int64]
    uniforms: NDArray[np.float64]


def decisions() -> Decisions:
    """Different drafts, so that they are of either scheme."""
    target, draft = near_rows(64, 4000)
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=draft.shape) / mo.softmax(draft.astype(np.float64))
    drafts = np.argsort(weights, axis=1)[:, :4]
    return Decisions((target, draft), drafts, np.random.default_rng(1).random((64, 4)))


def tokens_by(runtime: DeviceRuntime, scheme: str) -> NDArray[np.int64]:
    """What the kernels decide on the host."""
    given = decisions()
    drafts = np.ascontiguousarray(given.drafts)
    return np.asarray(decide(runtime, pair_of(*given.pair), drafts, scheme, given.uniforms).tokens)


@functools.cache
def stored() -> dict[str, NDArray[Any]]:
    with np.load(FILE) as file:
        return {name: file[name] for name in file.files}


def reference(case: Any, *arguments: Any) -> NDArray[Any]:
    """What the file has of a case, given the function that makes it."""
    return stored()[name_of(case, *arguments)]


def main() -> None:
    from support.ptx.runtime import Device, PtxRuntime

    found = {name: case.on_cpu().astype(np.float32) for name, case in cases()}
    with tempfile.TemporaryDirectory() as folder:
        runtime = PtxRuntime(Device(Path(folder)))
        for scheme in SCHEMES:
            found[f"tokens {scheme}"] = tokens_by(runtime, scheme).astype(np.int32)
    np.savez_compressed(FILE, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
