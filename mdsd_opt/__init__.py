"""mdsd_opt: the transport problem of multi-draft speculative decoding, solved and certified.

p is always the target, q the draft. The rooms, each above all that it imports:
front: cli, plots, bench | questions: planning, corpora, decoding, auditing
machines: serving, trees, batch, gpu
answers: cddlib_checks, verifiers, solvers | mathematics: problem, drafts, prefix_search
tools: servers, evidence, formats, base. Logits walk up from the tools to a problem, its solution and a certificate,
then to tokens, and in batches or trees to rates, audits and pages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mdsd_opt import _short_names
from mdsd_opt._version import __version__

if TYPE_CHECKING:
    from mdsd_opt import batch as batch
    from mdsd_opt import cddlib_checks as cddlib_checks
    from mdsd_opt import corpora as corpora
    from mdsd_opt import decoding as decoding
    from mdsd_opt import drafts as drafts
    from mdsd_opt import gpu as gpu
    from mdsd_opt import plots as plots
    from mdsd_opt import serving as serving
    from mdsd_opt import solvers as solvers
    from mdsd_opt import verifiers as verifiers
    from mdsd_opt.auditing import AuditOptions as AuditOptions
    from mdsd_opt.auditing import AuditReport as AuditReport
    from mdsd_opt.auditing import audit as audit
    from mdsd_opt.auditing import audit_drafts as audit_drafts
    from mdsd_opt.auditing import audit_trace as audit_trace
    from mdsd_opt.auditing import engines as engines
    from mdsd_opt.auditing import load_trace as load_trace
    from mdsd_opt.auditing import trees as trees
    from mdsd_opt.auditing.chains import assert_lossless as assert_lossless
    from mdsd_opt.auditing.chains import audit_chain as audit_chain
    from mdsd_opt.auditing.on_laws import audit_portfolio as audit_portfolio
    from mdsd_opt.auditing.portfolio import PortfolioReport as PortfolioReport
    from mdsd_opt.auditing.texts import TextAuditReport as TextAuditReport
    from mdsd_opt.auditing.texts import audit_text as audit_text
    from mdsd_opt.auditing.trees import TreeAuditReport as TreeAuditReport
    from mdsd_opt.auditing.trees import audit_tree as audit_tree
    from mdsd_opt.base.installed import show_versions as show_versions
    from mdsd_opt.base.sampling import Sampling as Sampling
    from mdsd_opt.base.sampling import softmax as softmax
    from mdsd_opt.batch import acceptance_rates as acceptance_rates
    from mdsd_opt.batch import relaxed_rates as relaxed_rates
    from mdsd_opt.batch.top_logprobs import AcceptanceInterval as AcceptanceInterval
    from mdsd_opt.batch.top_logprobs import acceptance_interval as acceptance_interval
    from mdsd_opt.corpora.engine_output import AcceptedRate as AcceptedRate
    from mdsd_opt.corpora.engine_output import accepted_rates as accepted_rates
    from mdsd_opt.corpora.stability import TextStability as TextStability
    from mdsd_opt.corpora.stability import text_stability as text_stability
    from mdsd_opt.drafts import DraftSetLaw as DraftSetLaw
    from mdsd_opt.drafts import FixedPlusDrafts as FixedPlusDrafts
    from mdsd_opt.drafts import GreedyDrafts as GreedyDrafts
    from mdsd_opt.drafts import IndependentDrafts as IndependentDrafts
    from mdsd_opt.drafts import MixtureDrafts as MixtureDrafts
    from mdsd_opt.drafts import TopKDrafts as TopKDrafts
    from mdsd_opt.drafts import WithoutReplacement as WithoutReplacement
    from mdsd_opt.drafts import WithReplacement as WithReplacement
    from mdsd_opt.errors import MdsdError as MdsdError
    from mdsd_opt.errors import ProblemTooLarge as ProblemTooLarge
    from mdsd_opt.planning.advice import Advice as Advice
    from mdsd_opt.planning.advice import advise as advise
    from mdsd_opt.planning.count_advice import CountAdvice as CountAdvice
    from mdsd_opt.planning.count_advice import advise_from_counts as advise_from_counts
    from mdsd_opt.planning.draft_choice import best_draft_temperature as best_draft_temperature
    from mdsd_opt.planning.draft_choice import compare_draft_schemes as compare_draft_schemes
    from mdsd_opt.planning.draft_filter import best_draft_filter as best_draft_filter
    from mdsd_opt.planning.row_allocation import RowAllocation as RowAllocation
    from mdsd_opt.planning.row_allocation import allocate_rows as allocate_rows
    from mdsd_opt.problem import TransportProblem as TransportProblem
    from mdsd_opt.problem.certificate import Certificate as Certificate
    from mdsd_opt.problem.certificate import assert_optimal as assert_optimal
    from mdsd_opt.problem.certificate import certify as certify
    from mdsd_opt.problem.files import load_problem as load_problem
    from mdsd_opt.problem.files import save_problem as save_problem
    from mdsd_opt.problem.inclusion_bound import inclusion_bound as inclusion_bound
    from mdsd_opt.problem.solution import Solution as Solution
    from mdsd_opt.problem.solution import Status as Status
    from mdsd_opt.problem.solution import TransportPlan as TransportPlan
    from mdsd_opt.servers import ServerReport as ServerReport
    from mdsd_opt.servers import audit_server as audit_server
    from mdsd_opt.servers import audit_tokens as audit_tokens
    from mdsd_opt.solvers import methods as methods
    from mdsd_opt.solvers import solve as solve
    from mdsd_opt.solvers.frontier import Relaxation as Relaxation
    from mdsd_opt.solvers.frontier import relax as relax
    from mdsd_opt.verifiers.worst_case import WorstCase as WorstCase
    from mdsd_opt.verifiers.worst_case import worst_case as worst_case

    tree_audit = trees  # its public name

_short_names.install()

# Public names by the module they live in; each is imported when it is first asked for, so that
# `import mdsd_opt` stays quick.
_NAMES = {
    "auditing": "AuditOptions AuditReport audit audit_drafts audit_trace load_trace",
    "auditing.chains": "assert_lossless audit_chain",
    "auditing.on_laws": "audit_portfolio",
    "auditing.portfolio": "PortfolioReport",
    "servers": "ServerReport audit_server audit_tokens",
    "auditing.texts": "TextAuditReport audit_text",
    "auditing.trees": "TreeAuditReport audit_tree",
    "base.installed": "show_versions",
    "base.sampling": "Sampling softmax",
    "batch": "acceptance_rates relaxed_rates",
    "batch.top_logprobs": "AcceptanceInterval acceptance_interval",
    "corpora.engine_output": "AcceptedRate accepted_rates",
    "corpora.stability": "TextStability text_stability",
    "drafts": (
        "DraftSetLaw FixedPlusDrafts GreedyDrafts IndependentDrafts MixtureDrafts TopKDrafts "
        "WithReplacement WithoutReplacement"
    ),
    "errors": "MdsdError ProblemTooLarge",
    "planning.advice": "Advice advise",
    "planning.count_advice": "CountAdvice advise_from_counts",
    "planning.draft_choice": "best_draft_temperature compare_draft_schemes",
    "planning.draft_filter": "best_draft_filter",
    "planning.row_allocation": "RowAllocation allocate_rows",
    "problem": "TransportProblem",
    "problem.certificate": "Certificate assert_optimal certify",
    "problem.files": "load_problem save_problem",
    "problem.inclusion_bound": "inclusion_bound",
    "problem.solution": "Solution Status TransportPlan",
    "solvers": "methods solve",
    "solvers.frontier": "Relaxation relax",
    "verifiers.worst_case": "WorstCase worst_case",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]


_MODULES = (
    *("batch", "cddlib_checks", "corpora", "decoding", "drafts", "engines", "gpu", "serving"),
    *("plots", "solvers", "tree_audit", "verifiers"),
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"mdsd_opt.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'mdsd_opt' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mdsd_opt.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
