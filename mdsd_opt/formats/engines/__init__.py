"""Formats of engines and of tools that measure them, one file each, with `FORMATS`."""
