"""Where the architectures of the transformers library keep what they have read."""

from __future__ import annotations

import inspect
from typing import Any

#: What a cache is called, in arguments and outputs.
_NAMES = ("past_key_values", "cache_params", "state")


def cache_of(output: Any) -> Any:
    """The cache in a model's output; None if there is none."""
    found = (getattr(output, name, None) for name in _NAMES)
    return next((cache for cache in found if cache is not None), None)


def named_cache(model: Any, cache: Any) -> dict[str, Any]:
    """The argument by which a model takes its cache."""
    parameters = inspect.signature(model.forward).parameters
    return {next((name for name in _NAMES if name in parameters), _NAMES[0]): cache}


def shortest_window(config: Any) -> int | None:
    """Tokens that the layer with the shortest view attends to; None if all see the whole text.

    A shorter text is read alike with and without windows.
    """
    config = config.get_text_config()
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    known = [int(size) for size in sizes if size]  # 0: windows are switched off
    return min(known, default=None)
