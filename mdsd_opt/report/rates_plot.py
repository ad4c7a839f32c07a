"""The picture: acceptance against the number of drafts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.files import atomic_write
from mdsd_opt.report.rates import RateRow
from mdsd_opt.report.tables import SCHEME_TITLES

_FORMATS = (".png", ".svg", ".pdf")
_MARKERS = "osD^vP"


def check_plot_path(path: str | os.PathLike[str]) -> None:
    """Raise unless the suffix is one that can be drawn and the folder exists."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidInput(f"cannot draw {path}: give a name that ends in {', '.join(_FORMATS)}")
    if not Path(path).parent.is_dir():
        raise InvalidInput(f"cannot draw {path}: there is no folder {Path(path).parent}")


def save_rates_plot(rows: Sequence[RateRow], path: str | os.PathLike[str], title: str) -> None:
    """Draw acceptance against K, a line for each scheme and verifier, with error bars.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    check_plot_path(path)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra.of("matplotlib", "plot", "the picture") from error

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    verifiers = list(dict.fromkeys(row.verifier for row in rows))
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    for s, scheme in enumerate(schemes):
        for v, verifier in enumerate(verifiers):
            line = [row for row in rows if row.scheme == scheme and row.verifier == verifier]
            if not line:
                continue
            name = SCHEME_TITLES.get(scheme, scheme)
            shift = 0.05 * (s - (len(schemes) - 1) / 2)  # so that error bars do not hide each other
            axes.errorbar(
                [row.num_drafts + shift for row in line],
                [row.acceptance.mean for row in line],
                yerr=[row.acceptance.half_width for row in line],
                label=name if len(verifiers) == 1 else f"{name}, {verifier}",
                color=f"C{s}",
                linestyle=("-", "--", ":", "-.")[v % 4],
                marker=_MARKERS[s % len(_MARKERS)],
                markersize=4,
                linewidth=1.4,
                capsize=2,
            )
    axes.set_xlabel("number of drafts K")
    axes.set_ylabel("acceptance rate")
    axes.set_xticks(sorted({row.num_drafts for row in rows}))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    with atomic_write(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)
