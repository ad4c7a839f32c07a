"""Checks of verifiers, chains, tree rules and engines in tests of one's own, a few lines each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mdsd_opt import verifiers
from mdsd_opt.auditing.chains import audit_chain
from mdsd_opt.auditing.engines import registry as engines
from mdsd_opt.auditing.engines.engine import Engine
from mdsd_opt.auditing.on_laws import audit_portfolio
from mdsd_opt.auditing.portfolio import PortfolioReport
from mdsd_opt.errors import InvalidInput, MdsdError, MissingExtra
from mdsd_opt.evidence import ANSWERS, Bar
from mdsd_opt.trees import TreeRule, get_rule, rule_names

#: Schemes whose drafts a verifier is tried on, as far as it declares them.
_SCHEMES = ("with_replacement", "without_replacement", "greedy")


def assert_lossless(
    verify: Any,
    *,
    tolerate_edge: float = 1e-12,
    **options: Any,
) -> Any:
    """Audit a function that verifies a chain of drafts, or what `check_verifier` and others take.

    Parameters
    ----------
    verify : callable, Verifier, TreeRule, str or Engine
        A callable is that of `audit_chain`. Verifiers are audited by `audit_portfolio`, rules for
        trees by it on a tree, and an engine by its function; all of them also by their names.
    tolerate_edge : float
        Probability of impossible values up to which an edge passes.
    **options
        Options of these, such as ``detect=0.1``, the bias that may have stayed hidden.

    Returns
    -------
    PortfolioReport, or EngineAudit for an engine

    Raises
    ------
    AssertionError
        The audit is not passed, see `Report.answer`; it holds the answer, the verdict and an
        example.
    """
    __tracebackhide__ = True
    return _passed(_audit_of(verify), tolerate_edge, options)


def check_verifier(
    verifier: Any, *, tolerate_edge: float = 1e-12, **options: Any
) -> PortfolioReport:
    """Raise `AssertionError` unless a verifier of one token is lossless, on drafts of its schemes.

    Parameters
    ----------
    verifier : Verifier, callable or str
        As in `mdsd_opt.audit`. One that declares `schemes` is tried with each of these by name.
    tolerate_edge : float
        Probability of impossible values up to which an edge passes.
    **options
        Options of `mdsd_opt.auditing.audit_portfolio`; with ``scheme`` that one alone is tried.

    Returns
    -------
    PortfolioReport
        That of the last scheme.
    """
    __tracebackhide__ = True
    found = _named_verifier(verifier)
    schemes = [options.pop("scheme")] if "scheme" in options else _schemes_of(found)
    for scheme in schemes:
        audit = partial(audit_portfolio, found, scheme=scheme)
        report: PortfolioReport = _passed(audit, tolerate_edge, options, f"drafts {scheme}: ")
    return report


def check_tree_rule(
    rule: Any, tree: Any = "2x2", *, tolerate_edge: float = 1e-12, **options: Any
) -> PortfolioReport:
    """Raise `AssertionError` unless a rule for trees of drafts gives texts of the target's law.

    Parameters
    ----------
    rule : TreeRule, callable or str
        As in `mdsd_opt.audit_tree`.
    tree : str or Topology
    tolerate_edge : float
        Probability of impossible values up to which an edge passes.
    **options
        Options of `mdsd_opt.auditing.audit_portfolio`.

    Returns
    -------
    PortfolioReport
    """
    __tracebackhide__ = True
    found = get_rule(rule) if isinstance(rule, str) else rule
    verify = found.verify if isinstance(found, TreeRule) else found
    found = _passed(partial(audit_portfolio, verify, tree=tree), tolerate_edge, options)
    assert isinstance(found, PortfolioReport)
    return found


def parametrize_with_checks(subjects: Iterable[Any], **options: Any) -> Any:
    """Decorator of pytest that runs a test once for each check of each subject.

    Parameters
    ----------
    subjects : iterable
        What `assert_lossless` takes.
    **options
        Options of all checks.

    Returns
    -------
    MarkDecorator
        The test has the parameters ``subject`` and ``check``, and calls ``check(subject)``.

    Raises
    ------
    MissingExtra
        pytest is not installed.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> @mo.parametrize_with_checks(["rrs", "traversal"], num_trials=2_000)
    ... def test_lossless(subject, check):
    ...     check(subject)
    """
    try:
        import pytest
    except ImportError as error:
        raise MissingExtra("parametrize_with_checks needs pytest: pip install pytest") from error
    cases = []
    for subject in subjects:
        name = _name_of(subject)
        if _is_verifier(subject):
            for scheme in _schemes_of(_named_verifier(subject)):
                check = partial(check_verifier, scheme=scheme, **options)
                cases.append(pytest.param(subject, check, id=f"{name}-{scheme}"))
        else:
            check = partial(assert_lossless, **options)
            cases.append(pytest.param(subject, check, id=f"{name}-whole_texts"))
    return pytest.mark.parametrize(("subject", "check"), cases)


def _passed(
    audit: Callable[..., Any], tolerate_edge: float, options: dict[str, Any], where: str = ""
) -> Any:
    """Report of an audit that is passed; else the error has a few lines, and no frames of ours."""
    __tracebackhide__ = True
    Bar(tolerate_edge=tolerate_edge)  # wrong ones are refused before the audit
    try:
        report = audit(**options)
    except MdsdError as error:
        raise error.with_traceback(None) from None
    bar = Bar(getattr(report, "detect", Bar().detect), tolerate_edge)
    if ANSWERS[bar.answer(report)]:
        example = report.example
        lines = [where + bar.told(report), *([f"example: {example.said}"] if example else [])]
        raise AssertionError("\n".join(lines))
    return report


def _is_verifier(subject: Any) -> bool:
    is_name = isinstance(subject, str) and subject in verifiers.names()
    return is_name or isinstance(subject, verifiers.Verifier)


def _named_verifier(verifier: Any) -> Any:
    return verifiers.get(verifier) if isinstance(verifier, str) else verifier


def _schemes_of(verifier: Any) -> list[str]:
    """Names of the schemes that a verifier declares, of those that are tried."""
    declared = [kind.scheme for kind in getattr(verifier, "schemes", ())]
    own = [scheme for scheme in _SCHEMES if scheme in declared]
    return own or declared[:1] or [_SCHEMES[0]]


def _name_of(subject: Any) -> str:
    if isinstance(subject, str):
        return subject
    called = getattr(subject, "name", None) or getattr(subject, "__name__", None)
    return str(called or type(subject).__name__)


def _audit_of(subject: Any) -> Callable[..., Any]:
    """Audit of a subject, by what it is."""
    if _is_verifier(subject):
        found = _named_verifier(subject)
        return partial(audit_portfolio, found, scheme=_schemes_of(found)[0])
    if isinstance(subject, str) and subject in engines.names() and subject not in rule_names():
        subject = engines.get(subject)
    if isinstance(subject, Engine):
        return partial(engines.audit_engine, subject)
    if isinstance(subject, str):
        subject = get_rule(subject)
    if isinstance(subject, TreeRule):
        return partial(audit_portfolio, subject.verify, tree="2x2")
    if not callable(subject):
        raise InvalidInput(
            f"verify is a {type(subject).__name__}: give a callable (p, q, drafts) -> tokens, a "
            "verifier, a rule for trees, or a name of one"
        )
    return partial(audit_chain, subject)
