"""Text of results that are printed."""

from __future__ import annotations

from textwrap import fill

#: Number of columns of a terminal, less the one that some need for the cursor.
_COLUMNS = 79


def folded(representation: str) -> str:
    """Text of a `repr` in lines that fit a terminal of 80 columns, arguments below arguments."""
    indent = " " * (representation.index("(") + 1)
    return fill(
        representation, _COLUMNS, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
