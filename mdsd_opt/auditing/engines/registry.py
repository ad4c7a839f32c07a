"""Engines by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import NamedTuple

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
from mdsd_opt.auditing.engines.engine import CHAINS, Chain, Drafted, Engine, Rule, of_chains
from mdsd_opt.auditing.engines.loading import installed_version
from mdsd_opt.errors import UnknownName


class _Entry(NamedTuple):
    adapter: ModuleType
    chain: Callable[[], Chain] | None = None
    rule: Callable[[], Rule] | None = None
    drafted: Drafted = CHAINS
    takes_long: bool = False

    def ready(self, name: str) -> Rule:
        """The function, loaded, as a rule for trees."""
        if self.chain is not None:
            return of_chains(name, self.chain())
        assert self.rule is not None
        return self.rule()


_ENTRIES = {
    "transformers": _Entry(transformers_engine, transformers_engine.chain),
    "lmdeploy": _Entry(lmdeploy_engine, lmdeploy_engine.chain),
    "eagle": _Entry(eagle_engine, rule=eagle_engine.rule, drafted=eagle_engine.DRAFTED),
    "vllm": _Entry(vllm_engine, vllm_engine.chain),
    "vllm_v2": _Entry(vllm_v2_engine, partial(vllm_v2_engine.chain, block=False), takes_long=True),
    "vllm_v2_block": _Entry(
        vllm_v2_engine, partial(vllm_v2_engine.chain, block=True), takes_long=True
    ),
    "sglang": _Entry(sglang_engine, partial(sglang_engine.chain, block=False)),
    "sglang_block": _Entry(sglang_engine, partial(sglang_engine.chain, block=True)),
    "sglang_dspark": _Entry(dspark_engine, dspark_engine.chain),
    "sglang_dspark_kernel": _Entry(
        dspark_kernel_engine, dspark_kernel_engine.chain, takes_long=True
    ),
}


def names() -> tuple[str, ...]:
    """Engines with an adapter, installed or not."""
    return tuple(_ENTRIES)


def takes_long(name: str) -> bool:
    """Whether the standard audits of an engine take more than ten minutes."""
    return _ENTRIES[name].takes_long


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
    entry = _ENTRIES[name]
    package = entry.adapter.PACKAGE
    version = installed_version(package, entry.adapter.TESTED, any_version)
    adapter = entry.adapter
    return Engine(
        name, package, version, adapter.FUNCTION, adapter.REBOUND, entry.ready(name), entry.drafted
    )
