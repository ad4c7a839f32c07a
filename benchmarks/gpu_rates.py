"""Speed of the CUDA kernels against the measured copy bandwidth and against sorting.

Device events around each launch; the cache is overwritten before each; medians. Rates of some
rows are compared with those of a sort in float64, which needs NumPy alone. Without a device it says
so in one line and measures nothing.

    python benchmarks/gpu_rates.py [--rounds 30] [--json FILE]
    python benchmarks/gpu_rates.py --read FILE --markdown table.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sorted_rates

import mdsd_opt as mo
from mdsd_opt.base.installed import versions
from mdsd_opt.batch import verify_batch
from mdsd_opt.gpu import why_unavailable

RATES = "acceptance_rates"
VERIFY = "verify_batch"
SCHEMES = ("with_replacement", "without_replacement")
_FLUSH_BYTES = 256 << 20  # several times the second-level cache
_CHECKED_ROWS = 2  # by a loop over the tokens in Python


class Clock:
    """Clock for launches on CuPy's current stream, with a cold cache."""

    def __init__(self, rounds: int) -> None:
        import cupy

        self.cupy = cupy
        self.rounds = rounds
        self.flush = cupy.empty(_FLUSH_BYTES, np.uint8)

    def milliseconds(self, launch: Callable[[], Any]) -> float:
        """Median over the rounds, after one that is not counted."""
        times = []
        for number in range(self.rounds + 1):
            self.flush.fill(number & 1)
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            launch()
            stop.record()
            stop.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(start, stop))
        return float(np.median(times[1:]))

    def copy_bandwidth(self) -> float:
        """Bytes per second of a large copy, read and written both counted."""
        source = self.cupy.ones(1 << 30, np.uint8)
        target = self.cupy.empty_like(source)
        seconds = self.milliseconds(lambda: self.cupy.copyto(target, source)) / 1e3
        return 2 * source.nbytes / seconds


def make_logits(cupy: Any, size: int, num_rows: int, dtype: str, seed: int) -> list[Any]:
    """A draft like a language model's tail, and a target that is near it; as torch for bfloat16."""
    rng = cupy.random.default_rng(seed)
    draft = rng.standard_normal((num_rows, size), dtype=np.float32) * np.float32(2.5)
    target = draft + rng.standard_normal((num_rows, size), dtype=np.float32) * np.float32(0.7)
    if dtype == "float32":
        return [target, draft]
    import torch

    return [torch.from_dlpack(x).to(getattr(torch, dtype)) for x in (target, draft)]


def kernel_launch(target: Any, draft: Any, num_drafts: int, drafts: str) -> Callable[[], Any]:
    """Launch of the kernel alone, without the check of the rows that a call ends with."""
    from mdsd_opt.base.arrays import Opened
    from mdsd_opt.gpu import interop, rates
    from mdsd_opt.gpu.pair import Pair
    from mdsd_opt.gpu.runtime import runtime_of_device

    runtime = runtime_of_device(interop.current_device())
    scale = float(np.log2(np.e))
    given = [Opened.of(target), Opened.of(draft)]
    with interop.on_stream_of(given[0]) as stream:
        sides = [interop.opened(runtime, side, stream, given[0]) for side in given]
    if sides[0] is None or sides[1] is None:
        raise TypeError("logits that the kernels do not read")
    pair = Pair(sides[0], sides[1], scale, scale)
    function = rates.BY_NAME[drafts]
    return lambda: function(runtime, pair, (num_drafts,)).rates


def softmaxes(xp: Any, target: Any, draft: Any) -> list[Any]:
    """Probabilities in single precision, `xp` being CuPy (or NumPy)."""
    weights = [xp.exp(x - x.max(-1, keepdims=True)) for x in (target, draft)]
    return [x / x.sum(-1, keepdims=True) for x in weights]


def by_argsort(xp: Any, target: Any, draft: Any, num_drafts: int) -> Any:
    """Rates by sorting the ratios and gathering both sides."""
    p, q = softmaxes(xp, target, draft)
    order = xp.argsort(p / q, axis=-1)
    p, q = (xp.take_along_axis(x, order, -1) for x in (p, q))
    return prefix_rates(xp, p, q, num_drafts)


def by_packed_sort(xp: Any, target: Any, draft: Any, num_drafts: int) -> Any:
    """Rates by sorting 64-bit numbers, the ratio in the upper half, without a gather."""
    p, q = softmaxes(xp, target, draft)
    packed = (p / q).view(np.uint32).astype(np.uint64) << np.uint64(32)
    packed |= q.view(np.uint32)
    packed.sort(axis=-1)
    ratio = (packed >> np.uint64(32)).astype(np.uint32).view(np.float32)
    q = packed.astype(np.uint32).view(np.float32)
    return prefix_rates(xp, ratio * q, q, num_drafts)


def prefix_rates(xp: Any, p: Any, q: Any, num_drafts: int) -> Any:
    value = xp.cumsum(p, -1, dtype=np.float64) - xp.cumsum(q, -1, dtype=np.float64) ** num_drafts
    return 1 + xp.minimum(value.min(-1), 0)


def sort_routes(target: Any, draft: Any, num_drafts: int) -> dict[str, Callable[[], Any]]:
    """Routes by softmax on both sides, a sort of the ratios, two gathers, two cumulative sums."""
    import cupy

    routes: dict[str, Callable[[], Any]] = {}
    try:
        import torch
    except ImportError:
        pass
    else:

        def by_torch() -> Any:
            p, q = (
                torch.softmax(torch.as_tensor(x, device="cuda").float(), -1)
                for x in (target, draft)
            )
            order = torch.sort(p / q, dim=-1).indices
            a = torch.cumsum(torch.gather(q, -1, order), -1, dtype=torch.float64)
            value = (
                torch.cumsum(torch.gather(p, -1, order), -1, dtype=torch.float64) - a**num_drafts
            )
            return 1 + value.amin(-1).clamp(max=0)

        routes["torch.sort"] = by_torch

    if str(target.dtype) == "float32":  # CuPy takes no bfloat16
        sides = [cupy.from_dlpack(x) for x in (target, draft)]
        routes["cupy.argsort"] = lambda: by_argsort(cupy, *sides, num_drafts)
        routes["cupy.sort of packed keys"] = lambda: by_packed_sort(cupy, *sides, num_drafts)
    return routes


def to_float64(logits: Any) -> Any:
    """Rows for the check, on the host."""
    rows = logits[:_CHECKED_ROWS]
    if hasattr(rows, "double"):
        return rows.double().cpu().numpy()
    return rows.get().astype(np.float64)


def exact_rates(target: Any, draft: Any, num_drafts: int, scheme: str) -> Any:
    """Rates of rows by sorting."""
    rule = sorted_rates.RATES[scheme]
    sides = ([sorted_rates.probabilities(row) for row in logits] for logits in (target, draft))
    return np.array([rule(p, q, num_drafts) for p, q in zip(*sides, strict=True)])


def measured(
    route: str,
    pair: list[Any],
    dtype: str,
    num_drafts: int,
    milliseconds: float,
    bandwidth: float,
    error: float | None = None,
) -> dict[str, Any]:
    """Row of the table."""
    num_rows, size = pair[0].shape
    moved = sum(x.nbytes for x in pair)
    return {
        "vocab_size": size,
        "num_rows": num_rows,
        "dtype": dtype,
        "num_drafts": num_drafts,
        "route": route,
        "median_ms": milliseconds,
        "bytes": moved,
        "share_of_copy_bandwidth": moved / (milliseconds / 1e3) / bandwidth,
        "max_error": error,
    }


def measure_rates(
    clock: Clock, bandwidth: float, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    for size in arguments.sizes:
        for dtype in arguments.dtypes:
            pair = make_logits(clock.cupy, size, arguments.rows, dtype, arguments.seed)
            routes = {
                **{
                    f"mdsd_opt, kernel, {drafts.replace('_', ' ')}": kernel_launch(
                        *pair, arguments.num_drafts, drafts
                    )
                    for drafts in SCHEMES
                },
                f"mdsd_opt.{RATES}": lambda pair=pair: mo.acceptance_rates(
                    *pair, arguments.num_drafts
                ),
                **sort_routes(*pair, arguments.num_drafts),
            }
            checked = [to_float64(logits) for logits in pair]
            rates = {x: exact_rates(*checked, arguments.num_drafts, x) for x in SCHEMES}
            for name, launch in routes.items():
                expected = rates["without_replacement" if "without" in name else "with_replacement"]
                found = launch()[:_CHECKED_ROWS]
                found = np.asarray(found.get() if hasattr(found, "get") else found.cpu())
                milliseconds = clock.milliseconds(launch)
                error = float(np.abs(found.reshape(expected.shape) - expected).max())
                rows.append(
                    measured(
                        name, pair, dtype, arguments.num_drafts, milliseconds, bandwidth, error
                    )
                )
    return rows


def measure_verification(
    clock: Clock, bandwidth: float, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    num_drafts = arguments.num_drafts
    for size in arguments.sizes:
        for dtype in arguments.dtypes:
            pair = make_logits(clock.cupy, size, arguments.rows, dtype, arguments.seed)
            # Distinct tokens: what either scheme may have drawn.
            first = clock.cupy.random.default_rng(0).integers(0, size, (arguments.rows, 1))
            drafts = (first + clock.cupy.arange(num_drafts)) % size
            for scheme in SCHEMES:
                milliseconds = clock.milliseconds(
                    lambda pair=pair, drafts=drafts, scheme=scheme: verify_batch(
                        *pair, drafts, scheme=scheme
                    )
                )
                route = f"mdsd_opt.batch.{VERIFY}, {scheme.replace('_', ' ')}"
                rows.append(measured(route, pair, dtype, num_drafts, milliseconds, bandwidth))
    return rows


def cells(row: dict[str, Any]) -> list[str]:
    error = row["max_error"]
    return [
        f"{row['vocab_size']:,}",
        f"{row['num_rows']:,}",
        row["dtype"],
        str(row["num_drafts"]),
        row["route"],
        f"{row['median_ms']:.3f}",
        f"{row['bytes'] / 1e6:.0f}",
        f"{row['bytes'] / row['median_ms'] / 1e6:,.0f}",
        f"{row['share_of_copy_bandwidth']:.2f}",
        "" if error is None else f"{error:.0e}",
    ]


HEADINGS = ("V", "rows", "dtype", "K", "route", "median ms", "MB", "GB/s", "of copy", "max error")


def markdown(document: dict[str, Any]) -> str:
    """Page of the measurements in Markdown."""
    used = ", ".join(
        f"{name} {version}"
        for name, version in document["versions"].items()
        if version != "not installed"
    )
    lines = ["# Acceptance rates of batches on a CUDA device", "", document["circumstances"]]
    lines += [f"{used}.", ""]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in document["rows"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32_768, 131_072, 262_144])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--num-drafts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers with their circumstances here")
    parser.add_argument("--read", type=Path, help="measure nothing: take the numbers from here")
    parser.add_argument("--markdown", type=Path, help="where the table of --read goes")
    arguments = parser.parse_args()
    if (arguments.read is None) != (arguments.markdown is None):
        parser.error("--read and --markdown go together")
    if arguments.read:
        arguments.markdown.write_text(markdown(json.loads(arguments.read.read_text())))
        return
    reason = why_unavailable()
    if reason is not None:
        sys.exit(f"nothing to measure: {reason}")
    clock = Clock(arguments.rounds)
    bandwidth = clock.copy_bandwidth()
    rows = measure_rates(clock, bandwidth, arguments)
    rows += measure_verification(clock, bandwidth, arguments)
    runtime = clock.cupy.cuda.runtime
    name = runtime.getDeviceProperties(0)["name"].decode()
    circumstances = (
        f"{name}, driver {runtime.driverGetVersion()}, CuPy {clock.cupy.__version__}, "
        f"copy bandwidth {bandwidth / 1e12:.2f} TB/s (read and written)."
    )
    document = {"circumstances": circumstances, "versions": versions(), "rows": rows}
    print(markdown(document))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
