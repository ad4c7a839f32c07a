"""Tables too wide for a terminal, in parts that fit: nothing in them is cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Column, Table


def natural_width(table: Table) -> int:
    """Of a table in which no line is broken that could be whole."""
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def parts_that_fit(table: Table, width: int, keys: int) -> list[Table]:
    """The table as several, each with its first columns and as many of the others as fit.

    Title and caption are left to the caller. Lines that say nothing in a part are left out of it. A
    key that is written once for several lines is written again where its line is left out.

    Parameters
    ----------
    table : Table
        Of texts.
    width : int
        What parts have to fit.
    keys : int
        Number of columns that every part has.
    """
    if len(table.columns) <= keys or not table.row_count or natural_width(table) <= width:
        return [table]
    groups: list[list[Column]] = []
    for column in table.columns[keys:]:
        if groups and natural_width(_part(table, keys, [*groups[-1], column])) <= width:
            groups[-1].append(column)
        else:
            groups.append([column])
    parts = [_part(table, keys, group) for group in groups]
    return [part for part in parts if part.row_count]


def _part(table: Table, keys: int, columns: list[Column]) -> Table:
    from rich.table import Table

    part = Table()
    for column in (*table.columns[:keys], *columns):
        part.add_column(column.header, justify=column.justify)
    key_cells = [[str(cell) for cell in column.cells] for column in table.columns[:keys]]
    cells = [[str(cell) for cell in column.cells] for column in columns]
    names = _filled_down(key_cells[0]) if keys else []
    written = None
    for line, row in enumerate(table.rows):
        values = [column[line] for column in cells]
        if any(values):
            shown = [column[line] for column in key_cells]
            if keys:
                shown[0] = "" if names[line] == written else names[line]
                written = names[line]
            part.add_row(*shown, *values)
        if row.end_section and part.row_count:
            part.rows[-1].end_section = True
            written = None
    return part


def _filled_down(cells: list[str]) -> list[str]:
    filled: list[str] = []
    for cell in cells:
        filled.append(cell or (filled[-1] if filled else ""))
    return filled
