"""Checks of verifiers, chains, tree rules and engines in your own tests, a few lines each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt import verifiers
from mdsd_opt.auditing import engines
from mdsd_opt.auditing.chain_calls import Caller, chain_of, chain_rule
from mdsd_opt.auditing.chains import audit_chain
from mdsd_opt.auditing.engines.engine import Engine
from mdsd_opt.auditing.laws import SmallLaws, edge_laws, standard_laws
from mdsd_opt.auditing.on_laws import CALLS, OnTrees, audit_portfolio, fixed_tree
from mdsd_opt.auditing.portfolio import PortfolioReport
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.replay import Replay
from mdsd_opt.auditing.subject import REFUSALS, DraftChain, Failure, outcome_of
from mdsd_opt.auditing.tree_rule import ChainRule
from mdsd_opt.base.checked import check_function, checked_names, of_kind
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    IndependentDrafts,
    SchemeMaker,
    WithReplacement,
    scheme_maker,
)
from mdsd_opt.errors import InvalidInput, MdsdError, MissingExtra
from mdsd_opt.evidence import (
    ANSWERS,
    AuditOptions,
    Bar,
    OptionKeywords,
    both_sides,
    budgeted,
    options_of,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import solve
from mdsd_opt.trees import TreeRule, get_rule, rule_names

#: Schemes whose drafts a verifier is tried on, as far as it takes them.
_SCHEMES = ("with_replacement", "without_replacement", "greedy")

#: Calls of a check that is no audit, and the largest error of a rate.
_CALLS, _ERROR = 64, 2e-6


def assert_lossless(verify: Any, *, tolerate_edge: float = 1e-12, **options: Any) -> Any:
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
    return _lossless(_subject(verify), tolerate_edge=tolerate_edge, **options)


def check_verifier(verifier: Any, **options: Any) -> PortfolioReport:
    """Raise `AssertionError` unless a verifier of one token passes all its checks.

    It is lossless on drafts of each scheme that it takes, and on laws at the edge (V = 1, certain
    ones, p = q, unlike ones); its acceptance rate is that of its decisions, and not above the
    optimum; the same seed gives the same token; inputs are not written to; drafts that are no
    tokens are refused.

    Parameters
    ----------
    verifier : Verifier or str
    **options
        Options of `mdsd_opt.auditing.audit_portfolio`, and `tolerate_edge`, the probability of
        impossible values up to which an edge passes; with ``scheme`` that one alone is tried.

    Returns
    -------
    PortfolioReport
        That of the last scheme.
    """
    __tracebackhide__ = True
    found = verifiers.get(verifier) if isinstance(verifier, str) else verifier
    if not isinstance(found, verifiers.Verifier):
        return _passed(partial(audit_portfolio, found), **options)
    return _all_passed(found, options)


def check_tree_rule(rule: Any, tree: Any = None, **options: Any) -> PortfolioReport:
    """Raise `AssertionError` unless a rule for trees of drafts passes all its checks.

    Its texts have the target's law, at the edge as well, see `check_verifier`; the same seed gives
    the same tokens; inputs are not written to.

    Parameters
    ----------
    rule : TreeRule, callable or str
        As in `mdsd_opt.audit_tree`; a callable is audited alone.
    tree : str or Topology, optional
        That on which the rule is tried (`tried_on`) if it is left out.
    **options
        Options of `mdsd_opt.auditing.audit_portfolio`, and `tolerate_edge`.

    Returns
    -------
    PortfolioReport
    """
    __tracebackhide__ = True
    found = get_rule(rule) if isinstance(rule, str) else rule
    if not isinstance(found, TreeRule):
        tree = "2x2" if tree is None else tree
        return _passed(partial(audit_portfolio, found, tree=tree), **options)
    return _all_passed(found, options if tree is None else {"tree": tree, **options})


def parametrize_with_checks(
    subjects: Iterable[Any], *, leave_out: Collection[str] = (), **options: Any
) -> Any:
    """Decorator of pytest that runs a test once for each check of each subject.

    Parameters
    ----------
    subjects : iterable
        What `assert_lossless` takes. Checks are those of `check_verifier` and `check_tree_rule`;
        functions for chains have the same as far as they apply, and one of laws in lower precision.
    leave_out : collection of str
        Names of checks, as a test shows them, that are not run: "inputs_kept", for a function that
        may write to what it is given.
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
    if isinstance(subjects, str):
        raise InvalidInput(f"subjects is {subjects!r:.60}: give a list, even of one")
    leave_out = checked_names(leave_out, "leave_out")
    for subject in map(_subject, of_kind(subjects, Iterable, "subjects", "a list")):
        name = getattr(subject, "name", getattr(subject, "__name__", type(subject).__name__))
        for check in _checks(subject, options):
            if repr(check) not in leave_out:
                cases.append(pytest.param(subject, check, id=f"{name}-{check!r}"))
    return pytest.mark.parametrize(("subject", "check"), cases)


class _Check(NamedTuple):
    """A check with its options, called with the subject."""

    run: Callable[..., Any]
    options: dict[str, Any]

    def __call__(self, subject: Any) -> Any:
        __tracebackhide__ = True
        if self.run is _lossless:
            return _lossless(subject, **self.options)
        try:
            fault = next(self.run(_Calls.of(subject, self.options)), None)
        except MdsdError as error:
            raise error.with_traceback(None) from None
        if fault is not None:
            raise AssertionError("{}\nexample: {}".format(*fault))
        return None

    def __repr__(self) -> str:
        scheme = self.options.get("scheme", "") if self.run is _lossless else ""
        return self.run.__name__.strip("_") + (f"_{scheme}" if scheme else "")


def _checks(subject: Any, options: dict[str, Any]) -> list[_Check]:
    """Checks of a subject, by what it is; those of losslessness come last."""
    audits, runs = [options], list[Callable[..., Any]]()
    if isinstance(subject, verifiers.Verifier):
        runs = [_acceptance]
        if not hasattr(subject, "simulate"):
            runs += [_same_seed, _inputs_kept, _drafts_out_of_range, _edge_laws]
        schemes = [options["scheme"]] if "scheme" in options else _schemes_of(subject)
        audits = [{**options, "scheme": scheme} for scheme in schemes]
    elif isinstance(subject, TreeRule):
        runs = [_same_seed, _inputs_kept, _edge_laws]
    elif not isinstance(subject, Engine) and options.get("batch", False) in (False, True):
        runs = [_same_seed, _inputs_kept, _precision, _drafts_out_of_range, _edge_laws]
    return [_Check(*x) for x in (*product(runs, audits[:1]), *product([_lossless], audits))]


def _all_passed(subject: Any, options: dict[str, Any]) -> Any:
    """Report of the last check, which is of losslessness."""
    __tracebackhide__ = True
    return [check(subject) for check in _checks(subject, options)][-1]


def _lossless(subject: Any, **options: Any) -> Any:
    """Report of the audit that fits a subject, if that is passed."""
    __tracebackhide__ = True
    if isinstance(subject, Engine):
        return _passed(partial(engines.audit_engine, subject), **options)
    options = {"progress": False, **options}
    if isinstance(subject, verifiers.Verifier):
        scheme = options.pop("scheme", _schemes_of(subject)[0])
        make = _maker_of(scheme) if scheme == IndependentDrafts.scheme else scheme
        return _passed(partial(audit_portfolio, subject, scheme=make), **options)
    if isinstance(subject, TreeRule):
        options = {"tree": subject.tried_on, **options}
        return _passed(partial(audit_portfolio, subject.verify), **options)
    return _passed(partial(audit_chain, subject), **options)


def _passed(audit: Callable[..., Any], tolerate_edge: float = 1e-12, **options: Any) -> Any:
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
        lines = [bar.told(report), *([f"example: {example.said}"] if example else [])]
        raise AssertionError("\n".join(lines))
    return report


@dataclass(frozen=True, slots=True)
class _Calls:
    """A subject as a rule for trees on laws, with what hands arrays to a function for chains."""

    subject: Any
    options: dict[str, Any]
    audit: OnTrees
    caller: Caller | None = None

    @classmethod
    def of(cls, subject: Any, options: dict[str, Any]) -> _Calls:
        known = {n: x for n, x in options.items() if n in OptionKeywords.__annotations__}
        own = {"num_trials": CALLS, "edge_probes": 64, "driven_checks": 65}
        settings = budgeted(options_of(AuditOptions(progress=False), known), 0, **own)
        promises = both_sides(options.get("promise"), options.get("draft_promise"))
        if isinstance(subject, TreeRule):
            topology = fixed_tree(options.get("tree", subject.tried_on))
            verify = subject.verify
            rule = OnTrees(verify, WithReplacement, settings, tree=topology, promises=promises)
            return cls(subject, options, rule)
        if isinstance(subject, verifiers.Verifier):
            make = _maker_of(options.get("scheme", _schemes_of(subject)[0]))
            num_drafts = subject.only_num_drafts or options.get("num_drafts", 2)

            def decided(root: Any, rng: Any) -> Any:
                problem = TransportProblem(root.target, root.drafts)
                return [subject.verify(problem, root.draws, rng).token]

            topology = fixed_tree(f"{num_drafts}x1")
            return cls(subject, options, OnTrees(decided, make, settings, tree=topology))
        rng, num_drafts = np.random.default_rng(0), options.get("num_drafts", 2)
        how = options.get("takes", "probabilities"), options.get("library")
        caller = Caller(subject, *how, rng, bool(options.get("batch", False)))
        of_chains = chain_rule("verify", caller, num_drafts, rng)
        chain: Any = {"tree": chain_of(num_drafts), "kind": ChainRule}
        rule = OnTrees(of_chains, WithReplacement, settings, promises=promises, **chain)
        return cls(subject, options, rule, caller)

    def __iter__(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Drafts with the laws they are drawn from, and a call on them, some dozens of times."""
        rule, rng = self.audit.rule(standard_laws(2)[0]), np.random.default_rng(0)
        with served(rng) as serving:
            for _ in range(_CALLS):
                root = rule.drawn(rng)
                yield root, partial(rule.outcome, root, serving.rng)

    def problems(self, laws: Iterable[SmallLaws]) -> Iterator[TransportProblem]:
        """Problems of a verifier, as far as its drafts can be drawn from these laws."""
        make, num_drafts = self.audit.make, max(self.audit.tree.num_drafts.values())
        for one in laws:
            with suppress(MdsdError):
                drafts = make(one.draft(()), num_drafts)
                yield TransportProblem(one.target(()), drafts)


#: What is wrong, and an example; nothing if nothing is.
_Faults = Iterator[tuple[str, str]]


def _edge_laws(calls: _Calls) -> _Faults:
    """Lossless where V = 1, p = q, a law is certain, and where the two have no token in common."""
    __tracebackhide__ = True
    if isinstance(calls.subject, verifiers.Verifier):
        for problem in calls.problems(edge_laws()):
            law = np.asarray(calls.subject.output_law(problem), dtype=np.float64)
            if not np.abs(law - problem.target).max() <= _ERROR:
                yield f"tokens have the law {law.tolist()}, not the target's", f"{problem!r}"
    else:
        rng, tolerated = np.random.default_rng(0), calls.options.get("tolerate_edge", 1e-12)
        _passed(partial(calls.audit.report, edge_laws(), [], rng), tolerated)


def _acceptance(calls: _Calls) -> _Faults:
    """The acceptance rate is that of the decisions, and not above the optimum."""
    verifier = calls.subject
    for problem in calls.problems([*standard_laws(2), *edge_laws()]):
        stated, best = float(verifier.acceptance_rate(problem)), solve(problem).acceptance_rate
        if not stated <= best + _ERROR:
            yield f"acceptance_rate is {stated}, and the optimum {best}", f"{problem!r}"
        if not hasattr(verifier, "simulate"):
            rate = float(verifier.enumerated_acceptance_rate(problem))
            if not abs(stated - rate) <= _ERROR:
                yield f"acceptance_rate is {stated}, and decisions accept {rate}", f"{problem!r}"


def _same_seed(calls: _Calls) -> _Faults:
    """The same laws, drafts and seed give the same tokens."""
    rule = calls.audit.rule(standard_laws(2)[0])
    root = rule.drawn(np.random.default_rng(0))
    replay = Replay([partial(rule.outcome, root)], lambda: 0, seed=0)
    replay.run(_CALLS)
    if replay.differing:
        yield replay.note, _told(root)


def _inputs_kept(calls: _Calls) -> _Faults:
    """Nothing is written to the arrays that a call is given."""
    for root, outcome in calls:
        before = [x.copy() for x in _arrays(root)]
        outcome()
        if (caller := calls.caller) is not None:
            before = [*caller.converted(*caller.given)]
        after = _arrays(root) if caller is None else caller.handed
        if not all(map(np.array_equal, before, after)):
            yield "a call writes to what it is given", _told(root)


def _precision(calls: _Calls) -> _Faults:
    """Laws in lower precision are taken in every call or refused in every call."""
    caller: Any = calls.caller
    for kind in ("float32", "bfloat16" if caller.library == "torch" else "float16"):
        caller.float_type = kind
        answers = [(outcome(), root) for root, outcome in calls]
        failed = [(x, root) for x, root in answers if isinstance(x, Failure)]
        is_refused = all(x.name in (*REFUSALS, "TypeError") for x, _ in failed)
        if failed and not (is_refused and len(failed) == len(answers)):
            told = f"{kind}: {len(failed)} of {len(answers)} calls fail"
            yield f"{told}: the first {failed[0][0].message}", _told(failed[0][1])


def _drafts_out_of_range(calls: _Calls) -> _Faults:
    """Drafts that are no tokens raise an error."""
    root, _ = next(iter(calls))
    size, caller = root.target.size, calls.caller
    for wrong in (size, -2) if caller is None else (size,):
        if caller is not None:
            call = partial(caller, DraftChain(root.p, root.q, (wrong, *root.drawn[1:])))
        else:
            problem, drafts = TransportProblem(root.target, root.drafts), root.draws.copy()
            drafts[0] = wrong
            call = partial(calls.subject.verify, problem, drafts, np.random.default_rng(0))
        answer = outcome_of(call)
        if not isinstance(answer, Failure):
            told = f"the draft {wrong} of {size} tokens is taken: the answer is {answer!r:.60}"
            yield told, f"{_told(root)}, with {wrong} as the first"


def _told(root: Any) -> str:
    """Laws and drafts of a call, to be pasted."""
    if isinstance(root, DraftChain):
        return f"p = {root.p.tolist()}, q = {root.q.tolist()}, drafts = {list(root.drawn)}"
    return f"p = {root.target.tolist()}, {root.drafts!r}, drafts = {root.draws.tolist()}"


def _arrays(root: Any) -> list[Any]:
    """Arrays that a rule for trees is given."""
    nodes = [] if isinstance(root, DraftChain) else [x for x in root.walk() if x.drafts is not None]
    laws = [model.values for node in nodes for model in node.drafts.models]
    return [*laws, *(node.target for node in nodes), *(node.draws for node in nodes)]


def _maker_of(scheme: Any) -> SchemeMaker:
    """Makes drafts of a scheme; different models have the law of one, each rolled by one more."""
    if scheme == IndependentDrafts.scheme:
        return lambda q, k: IndependentDrafts([np.roll(q, n) for n in range(k)])
    return scheme_maker(scheme)


def _schemes_of(verifier: verifiers.Verifier) -> list[str]:
    """Names of the schemes that a verifier takes, of those that are tried."""
    takes = [name for name, kind in SINGLE_MODEL_SCHEMES.items() if verifier.takes_kind(kind)]
    return [name for name in takes if name in _SCHEMES] or takes[:1] or [IndependentDrafts.scheme]


def _subject(given: Any) -> Any:
    """Verifier, engine, rule for trees or callable that is given, or named."""
    if isinstance(given, str):
        if given in verifiers.names():
            return verifiers.get(given)
        is_engine = given in engines.names() and given not in rule_names()
        return engines.get(given) if is_engine else get_rule(given)
    if not isinstance(given, (verifiers.Verifier, Engine, TreeRule)):
        kinds = "a verifier, a rule for trees, or a name of one"
        check_function(f"a callable (p, q, drafts) -> tokens, {kinds}", verify=given)
    return given
