"""One rule on laws of every kind: single tokens, or whole texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mdsd_opt.auditing.portfolio import Laws, PortfolioReport, Tried, standard_laws
from mdsd_opt.auditing.settings import Settings, generator_of
from mdsd_opt.auditing.subject import AlwaysFails, TreeVerify
from mdsd_opt.auditing.trees.audit import Options, TreeAudit
from mdsd_opt.auditing.verifier_audit import audit
from mdsd_opt.base.checked import checked_amount
from mdsd_opt.decoding.topology import Topology, parse_topology
from mdsd_opt.drafts.by_name import SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.problem import TransportProblem


def audit_portfolio(
    verify: Any,
    rng: np.random.Generator | int = 0,
    *,
    tree: str | Topology | None = None,
    scheme: str | SchemeMaker = "with_replacement",
    num_drafts: int = 2,
    num_trials: int = 8_000,
    method: str = "auto",
    seconds: float = 60.0,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    driven_checks: int = 50,
    progress: bool | None = None,
) -> PortfolioReport:
    r"""Settle whether a verifier is lossless on laws of all kinds, where no law is given.

    They are flat, random, peaked and nearly equal ones, some with zeros on either side, a certain
    target, and vocabularies of 32 and 300 tokens; the report says what each of them showed, and how
    often drafts were accepted and refused.

    Parameters
    ----------
    verify : callable, Verifier or str
        As in `mdsd_opt.audit`; with a `tree`, as in `mdsd_opt.audit_tree`.
    rng : numpy.random.Generator or int
    tree : str or Topology, optional
        "2x3", "chain2", ...: what is judged is the law of whole texts. Levels that are too many for
        a wide vocabulary are cut.
    scheme : str or callable
        How drafts are drawn.
    num_drafts : int
        K, where there is no tree.
    num_trials : int
        Calls for each of the laws that are sampled.
    method : str
        "auto", or one of those of `mdsd_opt.audit` (`mdsd_opt.audit_tree`).
    seconds : float
        For all laws together.
    false_alarm : float
        Probability, at most, that sampling calls a lossless rule lossy, for each of the laws.
    power : float
        With which the `detectable_bias` of a sample is found.
    driven_checks : int
        Random calls that each driven law must foretell.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    InvalidInput
        The verifier fails on every call.
    UnservedDraw
        It draws random numbers that the audit cannot answer.
    """
    checked_amount("seconds", seconds)
    rng, make = generator_of(rng), scheme_maker(scheme)
    if tree is not None:
        topology = parse_topology(tree) if isinstance(tree, str) else tree
        if not isinstance(topology, Topology):
            raise InvalidInput(f"the tree {tree!r} is grown by what is accepted: give a fixed one")
        options = Options(method, seconds, None, 100, 64, driven_checks, progress)
        laws = standard_laws(max(topology.num_drafts.values()))
        settings = Settings(false_alarm, power, 0.99, num_trials)
        return audit_trees_on(verify, topology, make, laws, settings, options, rng)

    def judge(one: Laws, share: float) -> tuple[str, Any]:
        problem = TransportProblem(one.target(()), make(one.draft(()), num_drafts))
        report = audit(
            verify,
            problem,
            rng,
            num_trials,
            seconds=share,
            method=method,
            false_alarm=false_alarm,
            power=power,
            edge_probes=128,
            driven_checks=driven_checks,
            progress=progress,
        )
        return _counted(num_drafts), report

    return _put_together(standard_laws(num_drafts), judge, seconds)


def audit_trees_on(
    verify: TreeVerify,
    tree: Topology,
    make: SchemeMaker,
    laws: Sequence[Laws],
    settings: Settings,
    options: Options,
    rng: np.random.Generator,
) -> PortfolioReport:
    """Put a rule for trees to several laws, in the time that the options give to all of them."""
    method = options.method

    def judge(one: Laws, share: float) -> tuple[str, Any]:
        nonlocal method
        fitting = one.fitting(tree)
        audit = TreeAudit.of(verify, one.target, one.draft, fitting, make, settings)
        report = audit.run(options._replace(seconds=share, method=method), rng)
        if method == "auto" and report.method == "sampling":
            method = "sampling"  # what cannot be driven on the first laws costs time on all
        return _counted(fitting.num_nodes), report

    return _put_together(laws, judge, options.seconds)


def _counted(num_drafts: int) -> str:
    return f"{num_drafts} draft{'s' * (num_drafts > 1)}"


def _put_together(
    laws: Sequence[Laws], judge: Callable[[Laws, float], tuple[str, Any]], seconds: float
) -> PortfolioReport:
    """The reports of all laws; what one of them leaves of its time is for the others."""
    began = time.perf_counter()
    tried = []
    for n, one in enumerate(laws):
        share = (began + seconds - time.perf_counter()) / (len(laws) - n)
        try:
            drafts, report = judge(one, max(share, 0.5))
        except AlwaysFails as error:
            deliberate = error.deliberate and one.has_zeros
            tried.append(Tried(one.name, one.vocab_size, "", None, str(error), deliberate))
        except ProblemTooLarge as error:  # of these laws, such drafts cannot be listed
            tried.append(Tried(one.name, one.vocab_size, "", None, str(error), True))
        else:
            tried.append(Tried.of(one, drafts, report))
    if not any(one.report is not None for one in tried):
        raise InvalidInput(tried[0].refusal)
    return PortfolioReport.of(tried, time.perf_counter() - began)
