from . import engines as engines
from .audit_report import (
    AuditReport as AuditReport, Check as Check, Coverage as Coverage, Interval as Interval,
    Level as Level, Standing as Standing, TokenDeviation as TokenDeviation,
    Violation as Violation,
)
from .chains import audit_chain as audit_chain
from .conformance import (
    assert_lossless as assert_lossless, check_tree_rule as check_tree_rule,
    check_verifier as check_verifier, parametrize_with_checks as parametrize_with_checks,
)
from .engines.engine import load_definitions as load_definitions
from .draft_audit import audit_drafts as audit_drafts
from .engines import EngineAudit as EngineAudit
from .on_laws import audit_portfolio as audit_portfolio
from .portfolio import PortfolioReport as PortfolioReport
from .randomness import served as served
from .subject import load_verifier as load_verifier
from .texts import audit_text as audit_text
from .texts.text_report import TextAuditReport as TextAuditReport
from .trace_audit import audit_trace as audit_trace
from .trace_files import Trace as Trace, load_trace as load_trace
from .trees import audit_tree as audit_tree
from .tree_rule import TreeAuditReport as TreeAuditReport
from .verifier_audit import AuditOptions as AuditOptions, audit as audit
