"""Names of the cache of what a model has read, which differ by version and family."""

from __future__ import annotations

import functools
import inspect
from typing import Any

#: Names in arguments and outputs, the present one first: older versions of the transformers library
#: have one for attention and one for recurrent layers.
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


def cache_of(output: Any) -> Any:
    """Cache in a model's output, or among named arguments; None if there is none."""
    get = output.get if isinstance(output, dict) else functools.partial(getattr, output)
    return next((cache for name in CACHE_NAMES if (cache := get(name, None)) is not None), None)


def cache_name(model: Any) -> str:
    """Name of a model's argument for the cache; to be asked once, not at every pass."""
    for forward in (type(model).forward, model.forward):  # the own one may be wrapped by anything
        parameters = inspect.signature(forward).parameters
        for name in CACHE_NAMES:
            if name in parameters:
                return name
    return "past_key_values"


def holds_text(cache: Any) -> bool:
    """Whether a cache has anything in it; one of recurrent layers alone counts no tokens."""
    try:
        if cache.get_seq_length() > 0:
            return True
    except (AttributeError, ValueError):
        pass
    states = (getattr(layer, "has_previous_state", None) for layer in getattr(cache, "layers", ()))
    return any(any(state.values()) for state in states if isinstance(state, dict))
