"""Engines by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import NamedTuple

from mdsd_opt.engines import lmdeploy_engine, sglang_engine, transformers_engine
from mdsd_opt.engines.engine import Chain, Engine
from mdsd_opt.engines.loading import installed_version
from mdsd_opt.errors import UnknownName


class _Entry(NamedTuple):
    adapter: ModuleType
    chain: Callable[[], Chain]
    block: bool = False


_ENTRIES = {
    "transformers": _Entry(transformers_engine, transformers_engine.chain),
    "lmdeploy": _Entry(lmdeploy_engine, lmdeploy_engine.chain),
    "sglang": _Entry(sglang_engine, partial(sglang_engine.chain, block=False)),
    "sglang_block": _Entry(sglang_engine, partial(sglang_engine.chain, block=True), True),
}


def names() -> tuple[str, ...]:
    """Engines with an adapter, installed or not."""
    return tuple(_ENTRIES)


def get(name: str, *, any_version: bool = False) -> Engine:
    """The function that an installed engine ships, ready for `mdsd_opt.audit`.

    Parameters
    ----------
    name : str
    any_version : bool
        Take a version that the adapter was not tested with; a warning says so.

    Raises
    ------
    UnknownName
        No adapter is called so.
    MissingExtra
        The engine is not installed.
    InvalidInput
        Another version is installed than the adapter was tested with.
    """
    if name not in _ENTRIES:
        raise UnknownName.among("engine", name, _ENTRIES)
    adapter, chain, block = _ENTRIES[name]
    version = installed_version(adapter.PACKAGE, adapter.TESTED, any_version)
    return Engine(name, adapter.PACKAGE, version, adapter.FUNCTION, adapter.REBOUND, block, chain())
