"""SGLang's plug-in of the name "mdsd_opt": greedy drafts in trees, switched on by a variable.

``MDSD_OPT_SGLANG=greedy`` has EAGLE and standalone draft models draft the K - 1 likeliest tokens of
a node and one drawn beside them, and verifies them by `mdsd_opt.serving.verify_tree`. Without the
variable nothing is imported and nothing changed.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from functools import wraps
from importlib import metadata
from types import ModuleType
from typing import Any

logger = logging.getLogger(__name__)

VARIABLE = "MDSD_OPT_SGLANG"
GREEDY = "greedy"

#: Versions of SGLang whose functions the hooks fit.
VERSIONS = ("0.5.23",)

_FOLDER = "sglang.srt.speculative"
_WORKER, _UTILS = f"{_FOLDER}.eagle_worker_v2", f"{_FOLDER}.eagle_utils"
_RUNNER = f"{_FOLDER}.eagle_draft_cuda_graph_runner.EAGLEDraftCudaGraphRunner"

#: Methods of `GreedyHooks`, with the functions that they wrap.
_AROUND = {
    f"{_WORKER}.renorm_draft_probs": "renorm_draft_probs",
    f"{_WORKER}.fast_topk": "fast_topk",
    f"{_WORKER}.EagleDraftWorker._draft_extend_for_prefill": "draft_extend_for_prefill",
    f"{_WORKER}.EagleDraftWorker._draft_extend_for_decode": "draft_extend_for_decode",
    f"{_WORKER}.EagleDraftWorker.draft_forward": "draft_forward",
    f"{_WORKER}.EagleDraftWorker.draft": "draft",
    f"{_UTILS}.eagle_sample": "eagle_sample",
    f"{_UTILS}.tree_speculative_sampling_target_only": "tree_operation",
}
_BEFORE = {f"{_RUNNER}.execute": "execute"}


def register() -> None:
    """Register the hooks, or say why not and leave SGLang as it is."""
    choice = os.environ.get(VARIABLE, "")
    if not choice:
        return
    if choice != GREEDY:
        _stays_out(f"{VARIABLE} is {choice!r}; set it to {GREEDY!r}, or unset it")
        return
    version = metadata.version("sglang")
    if version.partition("+")[0] not in VERSIONS:
        _stays_out(f"SGLang is {version}; the plug-in fits {', '.join(VERSIONS)}")
        return
    missing = [name for name in (*_AROUND, *_BEFORE) if not _is_callable(name)]
    if missing:
        _stays_out(f"SGLang has nothing to call at {', '.join(missing)} on this platform")
        return
    _register_hooks()


def _stays_out(why: str) -> None:
    logger.warning("mdsd_opt: %s. Drafts stay as SGLang makes them.", why)


def _is_callable(name: str) -> bool:
    try:
        return callable(pkgutil.resolve_name(name))
    except (ImportError, AttributeError):
        return False


def _register_hooks() -> None:
    # Where SGLang is, these are: imported here, so that a plug-in that stays out costs nothing.
    from mdsd_opt.serving.sglang_hooks import GreedyHooks

    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    worker = importlib.import_module(_WORKER)
    sample = importlib.import_module(f"{_FOLDER}.spec_utils").fast_sample
    for name in ("renorm_draft_probs", "fast_topk"):
        _make_own(worker, name)
    hooks = GreedyHooks(lambda laws: sample(laws, num_samples=1)[1][:, 0])
    for targets, kind in (
        (_AROUND, registry.HookType.AROUND),
        (_BEFORE, registry.HookType.BEFORE),
    ):
        for target, hook in targets.items():
            registry.HookRegistry.register(target, getattr(hooks, hook), kind)
    logger.info("mdsd_opt: greedy drafts in trees")


def _make_own(module: ModuleType, name: str) -> None:
    """Give a module its own copy of a function that others have imported, too.

    The registry puts a hook wherever the function stands, and ``fast_topk`` also chooses the nodes
    that are expanded, and the experts of a model.
    """
    function = getattr(module, name)

    @wraps(function)
    def own(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    setattr(module, name, own)
