"""How results print themselves."""

from __future__ import annotations

from textwrap import fill

#: Columns of a terminal, less the one that some need for the cursor.
_COLUMNS = 79


def folded(representation: str) -> str:
    """A `repr` in lines that a terminal of 80 columns holds, arguments below arguments."""
    indent = " " * (representation.index("(") + 1)
    return fill(
        representation, _COLUMNS, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
