"""What every picture needs: a name that can be written, and matplotlib."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mdsd_opt.base.files import check_writable
from mdsd_opt.errors import InvalidInput, MissingExtra

_FORMATS = (".png", ".svg", ".pdf")


def check_plot_path(path: str | os.PathLike[str]) -> None:
    """Raise unless the suffix is one that can be drawn and the file can be written.

    Raises
    ------
    MissingExtra
        matplotlib is not installed: better said before the numbers are computed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidInput(f"cannot draw {path}: give a name that ends in {', '.join(_FORMATS)}")
    check_writable(path)
    new_figure()


def new_figure(**options: Any) -> Any:
    """An empty matplotlib figure, whose parts will keep clear of each other.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra.of("matplotlib", "plot", "the picture") from error
    return Figure(layout="constrained", **options)
