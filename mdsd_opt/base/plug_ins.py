"""What a user names as ``"module:attribute"``."""

from __future__ import annotations

import importlib
from typing import Any

from mdsd_opt.errors import InvalidInput


def loaded(spec: str) -> Any:
    """What ``"module:attribute"`` names.

    Raises
    ------
    InvalidInput
        No such module or attribute.
    """
    module, _, attribute = spec.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs foreign code
        text = str(error).partition("\n")[0][:200]
        raise InvalidInput(
            f"cannot load {spec!r}: {type(error).__name__}" + (f": {text}" if text else "")
        ) from error
    return found
