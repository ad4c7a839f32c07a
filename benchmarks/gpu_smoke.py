"""First test of a device: launch every kernel, and print the time of a row.

No compiler, sorter or solver is needed beside CuPy and NumPy: the reference is a sort in float64.
Every case is tried whatever became of those before it, and the exit status says whether one failed.

    python benchmarks/gpu_smoke.py [--small] [--only rrs]
"""

from __future__ import annotations

import argparse
import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.gpu import why_unavailable

_NUM_DRAFTS = 3
_CHECKED_ROWS = 4
_TOLERANCE = 2e-6
_ROUNDS = 5

#: Options of `acceptance_rates` that lead to every kernel.
RATES: dict[str, dict[str, Any]] = {
    "with_replacement": {},
    "without_replacement": {"drafts": "without_replacement"},
    "rrs": {"verifier": "rrs"},
    "kseq": {"verifier": "kseq"},
    "greedy": {"drafts": "greedy"},
    "top_k": {"drafts": "top_k"},
    "filters": {"top_k": 5, "top_p": 0.9},
}

#: Schemes of the drafts that decisions are made for.
DECISIONS = {"decisions": "with_replacement", "race_decisions": "without_replacement"}


def make_logits(num_rows: int, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Target and draft, near each other."""
    rng = np.random.default_rng(size)
    draft = 2.5 * rng.standard_normal((num_rows, size), dtype=np.float32)
    return draft + 0.7 * rng.standard_normal(draft.shape, dtype=np.float32), draft


def sorted_rates(target: NDArray[Any], draft: NDArray[Any]) -> NDArray[np.float64]:
    """Optimal rates with replacement, by a sort in float64."""
    p, q = (mo.softmax(x.astype(np.float64)) for x in (target, draft))
    order = np.argsort(p / q, axis=-1)
    p, q = (np.cumsum(np.take_along_axis(x, order, -1), -1) for x in (p, q))
    return 1 + np.minimum((p - q**_NUM_DRAFTS).min(-1), 0)


def microseconds(cupy: Any, launch: Callable[[], Any]) -> float:
    """Median of a few launches, after the one that compiled."""
    times = []
    for _ in range(_ROUNDS):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        times.append(1e3 * cupy.cuda.get_elapsed_time(start, stop))
    return float(np.median(times))


def cases(cupy: Any, target: NDArray[Any], draft: NDArray[Any]) -> dict[str, Callable[[], Any]]:
    """Launches by name; each returns an array on the host with a number for every row."""
    pair = [cupy.asarray(x) for x in (target, draft)]
    num_drafts = min(_NUM_DRAFTS, target.shape[1])
    tokens = cupy.asarray(np.tile(np.arange(num_drafts), (len(target), 1)))

    def rates(options: dict[str, Any]) -> Callable[[], Any]:
        return lambda: mo.acceptance_rates(*pair, num_drafts, **options)

    found: dict[str, Callable[[], Any]] = {name: rates(x) for name, x in RATES.items()}
    for name, scheme in DECISIONS.items():
        found[name] = functools.partial(decided, pair, tokens, scheme)
    return found


def decided(pair: list[Any], tokens: Any, scheme: str) -> Any:
    """Acceptance rates of decisions."""
    return verify_batch(*pair, tokens, scheme=scheme, with_rates=True).acceptance_rate


def run(cupy: Any, num_rows: int, size: int, only: str | None = None) -> bool:
    """Run every case on one batch, or one; return whether all went well."""
    target, draft = make_logits(num_rows, size)
    expected = sorted_rates(target[:_CHECKED_ROWS], draft[:_CHECKED_ROWS])
    fine = True
    for name, launch in cases(cupy, target, draft).items():
        if only not in (None, name):
            continue
        label = f"V={size} rows={num_rows} {name}"
        try:
            values = cupy.asnumpy(launch())
            line = f"{label}: {microseconds(cupy, launch) / num_rows:.2f} us a row"
            if not ((values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)).all():
                raise ValueError(f"rates that are none: {values[:4]}")
            if name == "with_replacement" and size >= _NUM_DRAFTS:
                error = float(np.abs(values[:_CHECKED_ROWS] - expected).max())
                line += f", error {error:.1e}"
                fine &= error <= _TOLERANCE
            print(line, flush=True)
        except Exception:  # whatever it is, the next case is worth a try
            fine = False
            print(f"{label}: FAILED", flush=True)
            traceback.print_exc()
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a case that a sanitizer can run")
    parser.add_argument("--only", choices=[*RATES, *DECISIONS], help="a case, instead of all")
    parser.add_argument("--list", action="store_true", help="launch nothing: name the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print(*RATES, *DECISIONS)
        return
    reason = why_unavailable()
    if reason is not None:
        sys.exit(f"nothing to launch on: {reason}")
    import cupy

    sizes = (700,) if arguments.small else (1, 700, 131_072)
    rows = (2,) if arguments.small else (1, 512)
    fine = [run(cupy, num_rows, size, arguments.only) for size in sizes for num_rows in rows]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
