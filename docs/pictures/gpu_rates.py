"""Time of a row on a CUDA device against the size of the vocabulary: docs/images/gpu-rates.png."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
NUM_ROWS = 1024
CURVES = {
    "two softmaxes in PyTorch": ("two softmaxes in PyTorch", "C7", "s"),
    "decisions, without replacement, K = 4": (
        "decisions, no replacement, K = 4",
        "C1",
        "v",
    ),
    "rates, without replacement, K = 3": (
        "rates, no replacement, K = 3",
        "C3",
        "^",
    ),
    "decisions, with replacement, K = 4": ("decisions, K = 4", "C2", "D"),
    "rates, with replacement, K = 3": ("rates, K = 3", "C0", "o"),
}


def main() -> None:
    record = DOCS / "benchmarks" / "measured" / "gpu_rates.json"
    document = json.loads(record.read_text())
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    types = (("float32", 4), ("bfloat16", 2))
    for axes, (dtype, size) in zip(figure.subplots(1, 2), types, strict=True):
        for operation, (label, color, marker) in CURVES.items():
            rows = [
                row
                for row in document["rows"]
                if (row["operation"], row["num_rows"], row["dtype"])
                == (operation, NUM_ROWS, dtype)
            ]
            x = [row["vocab_size"] for row in rows]
            y = [row["median_us"] / NUM_ROWS for row in rows]
            axes.plot(x, y, color=color, marker=marker, ms=4, label=label)
        limit = [2e6 * size * v / document["bandwidth"] for v in x]
        axes.plot(x, limit, "k--", label="both sides are read once")
        axes.set(title=dtype, xlabel="vocabulary V", ylim=0, xlim=0)
        axes.grid(alpha=0.3)
    figure.suptitle("1,024 rows on an H100, a cold cache")
    figure.axes[0].set_ylabel("microseconds a row")
    figure.axes[0].legend(fontsize=8)
    figure.savefig(IMAGES / "gpu-rates.png", dpi=110)


if __name__ == "__main__":
    main()
