"""Functions of installed engines by name, and the audits that every engine has to pass.

These are of one token with zeros in the target, and of whole texts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.engines.adapters import ADAPTERS
from mdsd_opt.auditing.engines.engine import Adapter, Engine
from mdsd_opt.auditing.trees import TableModel, TreeAuditReport, audit_tree
from mdsd_opt.auditing.verifier_audit import audit
from mdsd_opt.base.checked import Rng, drawn_seed, of_kind
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.frames import Column
from mdsd_opt.base.keywords import formerly
from mdsd_opt.base.registry import Registry
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import ENGINE, Example, Judged, largest_edge, worst_class
from mdsd_opt.problem import TransportProblem

__all__ = ["Adapter", "Engine", "EngineAudit", "audit_engine", "get", "names", "takes_long"]

#: The target gives two tokens no mass; the test is whether one of them is ever accepted.
_TARGET, _DRAFT = (0.5, 0.5, 0.0, 0.0), (0.1, 0.2, 0.3, 0.4)

#: Tables (seeds of target and draft) whose residuals hold several tokens after an accepted draft.
_TABLES = (6, 7)
_VOCAB_SIZE = 3

#: Calls for one token where its law cannot be driven.
_CALLS = 20_000


def _checked(found: Any, given: str) -> Adapter:
    if isinstance(found, Adapter):
        return found
    raise InvalidInput(f"{given} is a {type(found).__name__}: give an mdsd_opt.engines.Adapter")


_ENGINES: Registry[Adapter] = Registry("engine", "mdsd_opt.engines", lambda: ADAPTERS, _checked)


def names() -> tuple[str, ...]:
    """Engines with an adapter, installed or not."""
    return _ENGINES.names()


def takes_long(name: str) -> bool:
    """Whether the standard audits of an engine take more than ten minutes."""
    return _ENGINES.get(name).takes_long


@foreign("the engine")
def get(name: str, *, any_version: bool = False) -> Engine:
    """Function of an installed engine, ready for `mdsd_opt.audit`.

    Parameters
    ----------
    name : str
        One of `names`, or ``"module:attribute"`` that is an `Adapter`.
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
    return _ENGINES.get(name).engine(name, any_version)


@dataclass(frozen=True, slots=True)
class EngineAudit(Judged):
    """Result of the standard audits of an engine.

    Attributes
    ----------
    engine : Engine
    texts : TreeAuditReport
        Report on texts of three tokens over three, after two levels of drafts.
    zeros : AuditReport
        Report on one token, where drafts may have a target probability of zero.
    seconds : float
    """

    engine: Engine
    texts: TreeAuditReport
    zeros: AuditReport
    seconds: float = field(compare=False)

    kind: ClassVar = ENGINE
    columns: ClassVar = (
        Column("engine", of="engine.name"), "package", Column("function", of="engine.function"),
        "verdict_class", Column("texts_lossless", of="texts.lossless"), "detectable_bias",
        Column("total_variation", of="texts.total_variation"), "method",
        Column("tokens_a_step", of="texts.accept_length"),
        Column("optimal_tokens_a_step", of="texts.optimal_accept_length"),
        Column("impossible_mass", of="zeros.impossible_mass"), "edge_mass", "finding", "example",
        Column("rebound", of="engine.rebound"), "seconds",
    )  # fmt: skip

    @property
    def package(self) -> str:
        return f"{self.engine.package} {self.engine.version}"

    @property
    def detectable_bias(self) -> float:
        """Largest bias that could have stayed hidden."""
        return max(self.texts.detectable_bias, self.zeros.detectable_bias)

    @property
    def verdict_class(self) -> str:
        """Worse of the two verdict classes, see `mdsd_opt.AuditReport`."""
        return worst_class((self.texts.verdict_class, self.zeros.verdict_class))

    @property
    def method(self) -> str:
        """Method by which whole texts were audited."""
        return self.texts.method

    @property
    def situation(self) -> str:
        return "both"

    @property
    def edge_mass(self) -> float | None:
        """Upper bound of the probability of tokens the target rules out; None if none occurred."""
        return largest_edge((self.texts, self.zeros))

    @property
    def finding(self) -> str:
        """Verdict of the audit that found a fault; empty without one."""
        return "" if self.clean else (self.zeros if self.texts.clean else self.texts).verdict

    @property
    def example(self) -> Example | None:
        """One deviation to repeat, of the audit that found any."""
        return self.texts.example or self.zeros.example


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run PyTorch on one thread: for three tokens, others only wait for each other."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@formerly(seed="rng")
def audit_engine(engine: Engine, rng: Rng = 0, seconds: float | None = None) -> EngineAudit:
    """Run both audits on an engine, by driving it where that is possible.

    Parameters
    ----------
    engine : Engine
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one.
    seconds : float, optional
        A limit for whole texts, which the report names where it is reached: calls are the budget.
    """
    began = time.perf_counter()
    tree, scheme = of_kind(engine, Engine, "engine", "one of engines.get(name)").drafted
    seed = drawn_seed(rng)
    target, draft = (TableModel(_VOCAB_SIZE, table) for table in _TABLES)
    problem = TransportProblem(_TARGET, scheme_maker(scheme)(np.array(_DRAFT), tree.drafts_at(())))
    with _one_thread():
        texts = audit_tree(
            engine.verify,
            target,
            draft,
            tree,
            seed,
            scheme=scheme,
            seconds=seconds,
            driven_checks=25,
        )
        zeros = audit(engine, problem, seed, 200, method="driven", driven_checks=25, edge_probes=64)
        if zeros.method == "sampling" and zeros.clean:  # so few calls let too much be hidden
            notes = zeros.notes
            zeros = audit(engine, problem, seed, _CALLS, method="sampling", edge_probes=64)
            zeros = replace(zeros, notes=(*notes, *zeros.notes))
    return EngineAudit(engine, texts, zeros, time.perf_counter() - began)
