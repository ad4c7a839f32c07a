from . import (
    batch as batch, cddlib_checks as cddlib_checks, corpora as corpora, decoding as decoding,
    drafts as drafts, gpu as gpu, plots as plots, serving as serving, solvers as solvers,
    trees as trees, verifiers as verifiers,
)
from .auditing import (
    AuditOptions as AuditOptions, AuditReport as AuditReport,
    PortfolioReport as PortfolioReport, TextAuditReport as TextAuditReport,
    TreeAuditReport as TreeAuditReport, assert_lossless as assert_lossless, audit as audit,
    audit_chain as audit_chain, audit_drafts as audit_drafts,
    audit_portfolio as audit_portfolio, audit_text as audit_text, audit_trace as audit_trace,
    audit_tree as audit_tree, check_tree_rule as check_tree_rule,
    check_verifier as check_verifier, engines as engines, load_trace as load_trace,
    parametrize_with_checks as parametrize_with_checks,
)
from .base.installed import show_versions as show_versions
from .base.logits import Logits as Logits
from .base.sampling import Sampling as Sampling, softmax as softmax
from .batch import (
    AcceptanceInterval as AcceptanceInterval, acceptance_interval as acceptance_interval,
    acceptance_rates as acceptance_rates, relaxed_rates as relaxed_rates,
)
from .corpora import AcceptedRate as AcceptedRate, accepted_rates as accepted_rates
from .drafts import (
    DraftSetLaw as DraftSetLaw, FixedPlusDrafts as FixedPlusDrafts,
    GreedyDrafts as GreedyDrafts, IndependentDrafts as IndependentDrafts,
    MixtureDrafts as MixtureDrafts, TopKDrafts as TopKDrafts,
    WithReplacement as WithReplacement, WithoutReplacement as WithoutReplacement,
)
from .errors import MdsdError as MdsdError, ProblemTooLarge as ProblemTooLarge
from .planning import (
    Advice as Advice, CountAdvice as CountAdvice, RowAllocation as RowAllocation,
    advise as advise, advise_from_counts as advise_from_counts, allocate_rows as allocate_rows,
    best_draft_filter as best_draft_filter, best_draft_temperature as best_draft_temperature,
    compare_draft_schemes as compare_draft_schemes, compare_drafts as compare_drafts,
)
from .problem import (
    Certificate as Certificate, Solution as Solution, Status as Status,
    TransportPlan as TransportPlan, TransportProblem as TransportProblem,
    assert_optimal as assert_optimal, certify as certify, inclusion_bound as inclusion_bound,
    load_problem as load_problem, save_problem as save_problem,
)
from .servers import (
    ServerReport as ServerReport, audit_server as audit_server, audit_tokens as audit_tokens,
)
from .solvers import (
    Relaxation as Relaxation, linear_programme as linear_programme, methods as methods,
    relax as relax, solve as solve,
)
from .verifiers import (
    WorstCase as WorstCase, WorstTree as WorstTree, worst_case as worst_case,
)

__version__: str
