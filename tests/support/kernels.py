"""Which compiled forms of the kernels this process holds."""

from __future__ import annotations

import sys

from numba.core.dispatcher import Dispatcher


def compiled_forms():
    """(module, kernel, types) of all that is compiled or loaded so far."""
    found = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "mdsd_opt":
            for attribute, value in vars(module).items():
                if isinstance(value, Dispatcher):
                    found |= {(value.py_func.__module__, attribute, str(types))
                              for types in value.signatures}  # fmt: skip
    return found
