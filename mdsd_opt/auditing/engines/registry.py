"""Engines by name."""

from __future__ import annotations

from mdsd_opt.auditing.engines import (
    dspark_engine,
    dspark_kernel_engine,
    eagle_engine,
    lmdeploy_engine,
    sglang_engine,
    transformers_engine,
    vllm_engine,
    vllm_v2_engine,
)
from mdsd_opt.auditing.engines.engine import Adapter, Engine
from mdsd_opt.auditing.engines.loading import installed_version
from mdsd_opt.errors import UnknownName

ADAPTERS: dict[str, Adapter] = {
    **transformers_engine.ADAPTERS,
    **lmdeploy_engine.ADAPTERS,
    **eagle_engine.ADAPTERS,
    **vllm_engine.ADAPTERS,
    **vllm_v2_engine.ADAPTERS,
    **sglang_engine.ADAPTERS,
    **dspark_engine.ADAPTERS,
    **dspark_kernel_engine.ADAPTERS,
}


def names() -> tuple[str, ...]:
    """Engines with an adapter, installed or not."""
    return tuple(ADAPTERS)


def takes_long(name: str) -> bool:
    """Whether the standard audits of an engine take more than ten minutes."""
    return ADAPTERS[name].takes_long


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
    if name not in ADAPTERS:
        raise UnknownName.among("engine", name, ADAPTERS)
    adapter = ADAPTERS[name]
    version = installed_version(adapter.package, adapter.tested, any_version)
    return Engine(
        name,
        adapter.package,
        version,
        adapter.function,
        adapter.rebound,
        adapter.loaded(name),
        adapter.drafted,
    )
