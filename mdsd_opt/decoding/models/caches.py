"""What a model calls the cache of what it has read, which versions and families do differently."""

from __future__ import annotations

import functools
import inspect
from typing import Any

#: In arguments and outputs, the present name first: older versions of the transformers library have
#: one for attention and one for recurrent layers.
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


def cache_of(output: Any) -> Any:
    """The cache in a model's output, or among named arguments; None if there is none."""
    get = output.get if isinstance(output, dict) else functools.partial(getattr, output)
    return next((found for name in CACHE_NAMES if (found := get(name, None)) is not None), None)


def cache_name(model: Any) -> str:
    """What a model calls the argument; to be asked once, not at every pass."""
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
