"""All claims that can be checked: their statements, sources and proof methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from mdsd_opt.base.frames import Result
from mdsd_opt.cddlib_checks import blind_rules, prefixes, provers, random_trials, rule_bounds
from mdsd_opt.cddlib_checks.condition import acceptance_polytope
from mdsd_opt.cddlib_checks.draft_laws import (
    battery,
    conditional_poisson,
    drafts_for,
    exact_models,
    mean_model,
    mixed_numbers,
)
from mdsd_opt.cddlib_checks.false_conditions import NEAR_MISSES, near_miss
from mdsd_opt.cddlib_checks.random_trials import RandomSearch
from mdsd_opt.cddlib_checks.result import Evidence
from mdsd_opt.cddlib_checks.two_values import two_values
from mdsd_opt.drafts import DraftScheme, WithReplacement

#: Number of draws of the draft models after which a falsifier gives up.
_DRAWS = 300

#: Largest V for linear programmes in all V! orders with 2^V sets each: V = 5 takes 6,000 of them,
#: V = 6 already 82,000.
_PROGRAMMES_UP_TO = 5

_CONE = "double description of the cone over (p, W)"
POLYTOPE = "double description of the claimed polytope, vertex by vertex"
_VERTICES = "double description, vertex by vertex"
_INCLUSION = "inclusion of the acceptance-one polytopes, by inequalities and by vertices"

_SLOPES = "comparison of all slopes in fractions; up to V = 5 exact linear programmes for prefixes"

_CORE = "docs/theory/min-cut.md#vertices-and-facets"

_BOTH = ("with_replacement", "without_replacement")


@dataclass(frozen=True, slots=True)
class Job:
    """One prover with its arguments, to be run in a child process.

    Where it `decides`, its proof covers all that the jobs after it could show: they are a second
    look, which takes no longer than the proof did.
    """

    title: str
    prover: Callable[..., Evidence]
    arguments: dict[str, Any]
    decides: bool = False


#: Maps V, K and the given draft, if any, to the jobs that settle the claim.
Jobs = Callable[[int, int, Any], list[Job]]


@dataclass(frozen=True, slots=True)
class Conjecture(Result):
    """A claim of the theory, or a false one that the checks must be able to refute.

    Attributes
    ----------
    name, statement, source : str
    status : str
        "theorem", "conjecture" or "false".
    method : str
        The provers that settle it.
    smallest : tuple of int
        The least V and K for which the claim says anything.
    proof : str
        Page of the documentation with the proof, if it stands there.
    """

    name: str
    statement: str
    source: str
    status: str
    method: str
    jobs: Jobs = field(repr=False)
    smallest: tuple[int, int] = (1, 1)
    search: RandomSearch | None = field(default=None, repr=False)
    proof: str = ""

    columns: ClassVar = ("name", "statement", "source", "status", "method", "proof")


#: All claims, in the order of their declarations.
CONJECTURES: dict[str, Conjecture] = {}


def claim(
    source: str,
    method: str,
    *,
    status: str = "theorem",
    smallest: tuple[int, int] = (1, 1),
    search: RandomSearch | None = None,
    proof: str = "",
) -> Callable[[Jobs], Jobs]:
    """Declare a claim: the function lists its jobs, has its name, and states it as docstring."""

    def declared(jobs: Jobs) -> Jobs:
        name, statement = jobs.__name__, " ".join((jobs.__doc__ or "").split())
        CONJECTURES[name] = Conjecture(
            name, statement, source, status, method, jobs, smallest, search, proof
        )
        return jobs

    return declared


def _of_size(v: int, k: int) -> dict[str, Any]:
    return {"vocab_size": v, "num_drafts": k}


def _of_drafts(title: str, prover: Any, drafts: DraftScheme, **more: Any) -> Job:
    return Job(title, prover, {"drafts": drafts, **more})


@claim(
    "[Khisti25], Theorem 2 for K = 2, Remark 2 for every K",
    f"{_CONE}; {POLYTOPE}",
    search=random_trials.ACCEPTANCE_ONE,
    proof="docs/theory/min-cut.md#when-every-step-is-accepted",
)
def acceptance_one(v: int, k: int, draft: Any) -> list[Job]:
    """acceptance one is possible iff P(S) >= Q(S) for every set S of tokens; for K i.i.d.
    drafts, iff P(S) >= q(S)^K
    """
    drafts = drafts_for("with_replacement", v, k, draft)
    return [
        Job("cone of all drafts", provers.acceptance_cone, _of_size(v, k), decides=True),
        _of_drafts("polytope of given drafts", acceptance_polytope, drafts),
    ]


@claim(
    "[Hu25]",
    "double description of the hypograph cone over (p, W, a)",
    search=random_trials.OPTIMAL_VALUE,
    proof="docs/theory/min-cut.md#the-formula",
)
def optimal_value(v: int, k: int, draft: Any) -> list[Job]:
    """alpha* = 1 + min_H [P(H) - Q(H)], for every law of the drafts"""
    return [Job("cone of all drafts", provers.value_cone, _of_size(v, k))]


@claim(
    "[Khisti25], Remark 2",
    "elimination of the plan variables, redundant rows removed; and a plan for every vertex",
    proof="docs/theory/min-cut.md#when-every-step-is-accepted",
)
def projection(v: int, k: int, draft: Any) -> list[Job]:
    """eliminating the plan from the transport constraints leaves exactly P(S) >= Q(S)"""
    drafts = drafts_for("with_replacement", v, k, draft)
    return [
        _of_drafts("plans of the vertices", provers.lifted_vertices, drafts),
        _of_drafts("elimination of the plan", provers.projection, drafts),
    ]


def _chosen(v: int, k: int, draft: Any) -> list[DraftScheme]:
    """Drafts with and without replacement, of the q given or the default one."""
    return [drafts_for(name, v, k, draft) for name in _BOTH]


def _convexity(v: int, k: int, draft: Any, title: str) -> Job:
    schemes = _chosen(v, k, draft)
    if draft is None:
        schemes = [drafts for name in _BOTH for drafts in battery(name, v, k)]
    return Job(title, prefixes.q_convexity, {"schemes": schemes})


@claim(
    "[Hu25]",
    "comparison of all slopes in fractions",
    search=random_trials.CONVEXITY,
    proof="docs/theory/prefix.md",
)
def q_convexity(v: int, k: int, draft: Any) -> list[Job]:
    """[Q(H+x) - Q(H)]/q(x) <= [Q(H+x+y) - Q(H+x)]/q(y), with and without replacement"""
    return [_convexity(v, k, draft, "slopes")]


@claim(
    "[Hu25]",
    "q-convexity; up to V = 5 an exact linear programme for each order and each other set",
    search=random_trials.PREFIX,
    proof="docs/theory/prefix.md",
)
def prefix_optimality(v: int, k: int, draft: Any) -> list[Job]:
    """some optimal H is a prefix of the tokens sorted by p/q, with and without replacement"""
    jobs = [_convexity(v, k, draft, "q-convexity, which implies it")]
    if v <= _PROGRAMMES_UP_TO:
        arguments = {"schemes": _chosen(v, k, draft)}
        jobs.append(Job("linear programmes", prefixes.prefix_programmes, arguments))
    return jobs


@claim(
    "[Hu25] for each number of drafts",
    _SLOPES,
    proof="docs/theory/prefix.md#mixtures-and-fixed-sets",
)
def q_convexity_mixtures(v: int, k: int, draft: Any) -> list[Job]:
    """a mixture over numbers of drafts from one q, with and without replacement, is q-convex, so
    that prefixes stay optimal
    """
    q = exact_models(drafts_for("with_replacement", v, k, draft))[0]
    return _convex_with_prefixes(mixed_numbers(q, k), q)


@claim(
    "this package, by elementary symmetric polynomials",
    _SLOPES,
    proof="docs/theory/prefix.md#mixtures-and-fixed-sets",
)
def q_convexity_conditional_poisson(v: int, k: int, draft: Any) -> list[Job]:
    """for K distinct drafts whose set S has a probability in proportion to the product of odds
    over S, Q is convex in the odds, so that prefixes by p/odds are optimal
    """
    odds = exact_models(drafts_for("with_replacement", v, k, draft))[0]
    return _convex_with_prefixes(conditional_poisson(odds, k), odds)


def _convex_with_prefixes(drafts: DraftScheme, weights: Sequence[Fraction]) -> list[Job]:
    arguments = {"schemes": [drafts], "weights": weights}
    jobs = [Job("slopes", prefixes.q_convexity, arguments)]
    if drafts.vocab_size <= _PROGRAMMES_UP_TO:
        jobs.append(Job("linear programmes", prefixes.prefix_programmes, arguments))
    return jobs


@claim(
    "this package",
    "all pairs of sets, at every c that can matter",
    proof="docs/theory/beyond-lossless.md#which-laws-allow-it",
)
def excess_supermodular(v: int, k: int, draft: Any) -> list[Job]:
    """max(Q - c, 0) is supermodular for every c, with and without replacement"""
    return [
        _of_drafts(
            f"pairs of sets {drafts.scheme.replace('_', ' ')}",
            provers.excess_supermodular,
            drafts,
        )
        for drafts in _chosen(v, k, draft)
    ]


@claim(
    "this package, by duality and rearrangement",
    "bounds of all pairs of chains; a linear programme at each vertex below the formula",
    smallest=(2, 2),
    proof="docs/theory/trees.md#bounds",
)
def value_of_two_classes(v: int, k: int, draft: Any) -> list[Job]:
    """where m1 of K drafts with replacement are worth v1 and the others v2 <= 2/3 v1, the best
    mean value is f C_n + (d - f) C_{n-1}, with d = v1 - v2, n = ceil(v1/d), f = v1 - (n-1)d and
    C_n the least sum over chains of n nested prefixes
    """
    drafts = drafts_for("with_replacement", v, k, draft)
    return [
        _of_drafts(f"{many} of the larger value, {length} prefixes", two_values, drafts, many=many,
                   length=length)
        for length in (2, 3)
        for many in range(1, k)
    ]  # fmt: skip


@claim(
    "[Hu25]",
    _INCLUSION,
    search=random_trials.DOMINANCE,
    proof="docs/theory/prefix.md#without-replacement",
)
def without_replacement_dominates(v: int, k: int, draft: Any) -> list[Job]:
    """alpha* without replacement is at least alpha* with replacement, for the same q and K"""
    worse, better = _chosen(v, k, draft)
    return [_inclusion("inclusion of polytopes", better, worse)]


def _inclusion(title: str, better: DraftScheme, worse: DraftScheme) -> Job:
    return Job(title, provers.dominates, {"better": better, "worse": worse})


@claim("priority orders", _VERTICES, proof=_CORE)
def vertex_counts(v: int, k: int, draft: Any) -> list[Job]:
    """the targets with acceptance one have n! vertices for K >= 2 drafts with replacement from
    n tokens of positive probability, n!/(k-1)! with k = min(K, n) without replacement
    """
    chosen = _chosen(v, k, draft)
    if draft is None and v > 1:  # one token that is never drafted
        total = v * (v - 1) // 2
        chosen += _chosen(v, k, [f"{i}/{total}" for i in range(v)])
    return [_of_drafts("vertices", provers.vertex_counts, drafts) for drafts in chosen]


@claim(
    "sets of fewer than K tokens hold no draft tuple",
    f"{_CONE}; redundancy removal for given q",
    smallest=(3, 2),
    proof=_CORE,
)
def facets_without_replacement(v: int, k: int, draft: Any) -> list[Job]:
    """without replacement, the facets are P(A) >= Q(A) for |A| >= K and p >= 0, no others"""
    drafts = drafts_for("without_replacement", v, k, draft)
    cone = Job("cone of all drafts", provers.large_subsets_cone, _of_size(v, k), decides=True)
    polytope = _of_drafts("polytope of given drafts", provers.large_subsets_polytope, drafts)
    return [cone, polytope] if k < v else [polytope]


@claim(
    "this package",
    "enumeration of all draft tuples in fractions, against an integer maximum flow",
    proof="docs/theory/hull-rule.md#the-hull-rule",
)
def hull_rule(v: int, k: int, draft: Any) -> list[Job]:
    """the closed-form verifier has output law p and acceptance rate alpha*"""
    targets = 6 if v**k <= 700 else 3
    return [
        _of_drafts(
            f"enumeration {drafts.scheme.replace('_', ' ')}",
            provers.hull_rule_evidence,
            drafts,
            targets=targets,
        )
        for drafts in _chosen(v, k, draft)
    ]


@claim(
    "this package",
    "enumeration of all draft tuples and blocks in fractions",
    proof="docs/theory/hull-rule.md#without-replacement",
)
def block_rules(v: int, k: int, draft: Any) -> list[Job]:
    """of drafts that all lie before b, some from a on, the first one from a on has the law of q
    from a to b with replacement; without it, what the pivotal rule makes of that one has it
    """
    return [
        _of_drafts(f"enumeration {drafts.scheme.replace('_', ' ')}", provers.block_rules, drafts)
        for drafts in _chosen(v, k, draft)
    ]


@claim(
    "[Khisti25], Remark 2, with the formula of [Hu25]",
    POLYTOPE,
    proof="docs/theory/min-cut.md#when-every-step-is-accepted",
)
def acceptance_one_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """for different drafts, acceptance one is possible iff P(S) >= prod_k q_k(S) for every S"""
    drafts = drafts_for("independent", v, k, draft)
    return [_of_drafts("polytope of given drafts", acceptance_polytope, drafts)]


@claim("priority orders", _VERTICES, proof=_CORE)
def vertex_counts_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """for K >= 2 different drafts of positive q_k, the targets with acceptance one have V!
    vertices, as many as for identical drafts
    """
    drafts = drafts_for("independent", v, k, draft)
    return [_of_drafts("vertices", provers.vertex_counts, drafts)]


@claim(
    "this package",
    "all subsets of all targets compared in fractions",
    proof="docs/different-drafts.md#the-optimum",
)
def threshold_sets_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """for different drafts, every optimal H holds, up to ties, the tokens with p < sum_k c_k
    q_k, where c_k = prod_{l != k} q_l(H): a prefix of an order that depends on H itself
    """
    drafts = drafts_for("independent", v, k, draft)
    return [_of_drafts("all optimal subsets", provers.threshold_sets, drafts, targets=60)]


@claim(
    "geometric below arithmetic mean",
    _INCLUSION,
    proof="docs/different-drafts.md#on-real-logits",
)
def mean_dominated_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """K different drafts accept at least as often as K drafts from the mean of their q"""
    drafts = drafts_for("independent", v, k, draft)
    mean = WithReplacement(mean_model(drafts), k)
    return [_inclusion("inclusion of polytopes", drafts, mean)]


def _bound(v: int, k: int, draft: Any, name: str) -> list[Job]:
    schemes = battery("with_replacement", v, k)
    if draft is not None:
        schemes = [drafts_for("with_replacement", v, k, draft)]
    arguments = {"schemes": schemes, "name": name, "targets": 4}
    return [Job("exact rates", rule_bounds.bounds_hold, arguments)]


_RATES = "exact rates of both, on targets of all kinds"


@claim(
    "this package; list sampling is [GLS]",
    _RATES,
    proof="docs/theory/race-lists.md#bounds",
)
def race_between_bounds(v: int, k: int, draft: Any) -> list[Job]:
    """GLS_K <= M_K <= A_K <= alpha* without replacement, and M_K >= (1 - d)(1 - (d/(1 + d))^K),
    d the total variation: list sampling, the bound of the race, the race
    """
    return _bound(v, k, draft, "race_between_bounds")


@claim("this package", _RATES, proof="docs/theory/race-lists.md#against-the-optimum")
def race_loses_at_most(v: int, k: int, draft: Any) -> list[Job]:
    """M_K is at least (1 - (K/(K+1))^K) alpha* with replacement, and below it by at most G_K,
    which falls from 3 - 2 sqrt 2 to .148496
    """
    return _bound(v, k, draft, "race_loses_at_most")


@claim("this package", _RATES, proof="docs/theory/worst-cases.md#recursive-rejection")
def rrs_loses_at_most(v: int, k: int, draft: Any) -> list[Job]:
    """with replacement rrs >= (1 - c) alpha* and rrs >= alpha* - c, c = (K-1)/(2K-1)
    (K/(2K-1))^(K/(K-1)) < 1/4, and rrs >= 1 - max_H q(H)^(K-1) (q(H) - p(H))
    """
    return _bound(v, k, draft, "rrs_loses_at_most")


@claim("this package", _RATES, proof="docs/theory/worst-cases.md#k-seq")
def kseq_loses_at_most(v: int, k: int, draft: Any) -> list[Job]:
    """K-SEQ accepts at least what rrs does, at least (1 - d) alpha* and alpha* - d with d_K <
    .173638, and as much as the least of its rates on two merged tokens
    """
    return _bound(v, k, draft, "kseq_loses_at_most")


@claim("this package", _RATES, proof="docs/theory/worst-cases.md#k-seq")
def kseq_gains_at_most(v: int, k: int, draft: Any) -> list[Job]:
    """K-SEQ accepts at most max_u u [((K-1)/K)^(K-1) S_K^K / S_(K-1)^(K-1) / K - u^(K-1)] more
    than rrs, S_K = 1 + u + .. + u^(K-1)
    """
    return _bound(v, k, draft, "kseq_gains_at_most")


@claim("this package", _RATES, proof="docs/theory/worst-cases.md#the-plan-of-spectr-gbv")
def spectr_gbv_loses_at_most(v: int, k: int, draft: Any) -> list[Job]:
    """sum_x p_x (1 - (1 - min(q_x/p_x, 1))^K) is at most alpha*, at least (1 - (1 - 1/K)^K) alpha*
    and below it by at most sigma_K < .148497
    """
    return _bound(v, k, draft, "spectr_gbv_loses_at_most")


@claim("this package", _RATES, proof="docs/theory/worst-cases.md#without-replacement")
def rrs_of_distinct_drafts_loses_a_quarter(v: int, k: int, draft: Any) -> list[Job]:
    """without replacement rrs >= 3/4 alpha* and rrs >= alpha* - 1/4 where all tokens with p > q
    have one ratio p/q
    """
    return _bound(v, k, draft, "rrs_of_distinct_drafts_loses_a_quarter")


@claim(
    "this package; bases are [Fujishige80], one draft is [Yin24]",
    "relaxed laws in fractions, their level sets and all other sets",
    proof="docs/theory/beyond-lossless.md#one-law-is-closest-in-every-divergence",
)
def closest_law_for_a_rate(v: int, k: int, draft: Any) -> list[Job]:
    """p_a allows the rate a, is tight on the level sets of p_a / p, so that no law that allows a
    is closer in any f-divergence, and has TV(p_a, p) = a - alpha*; with replacement
    """
    return _bound(v, k, draft, "closest_law_for_a_rate")


@claim("a minimum of concave functions", _RATES, proof="docs/theory/worst-cases.md#rows-of-a-batch")
def gains_of_drafts_fall(v: int, k: int, draft: Any) -> list[Job]:
    """alpha* with replacement is concave in K"""
    return _bound(v, k, draft, "gains_of_drafts_fall")


@claim(
    "what allocation by gain would need",
    "exact rates of one instance",
    status="false",
    smallest=(3, 2),
)
def gains_of_distinct_drafts_fall(v: int, k: int, draft: Any) -> list[Job]:
    """alpha* without replacement is concave in K"""
    return [Job("exact rates", rule_bounds.gains_rise, _of_size(v, k))]


@claim(
    "this package",
    "dimensions of all rules and of those named, for all q on a grid at once",
    smallest=(3, 1),
    proof="docs/theory/what-a-verifier-sees.md#k-drafts",
)
def rules_without_q_have_one_form(v: int, k: int, draft: Any) -> list[Job]:
    """on V >= 2K + 1 tokens a rule that sees q at its drafts alone, lossless for every q, differs
    from the target only by what it draws from the chance q(U) that the next draw repeats
    """
    return [Job("dimensions", blind_rules.form, _of_size(v, k), decides=True)]


@claim("this package", _RATES, proof="docs/theory/what-a-verifier-sees.md#k-drafts")
def rule_without_q_gains(v: int, k: int, draft: Any) -> list[Job]:
    """the rule of Theorem 18, which sees q at its drafts alone, is lossless, accepts at least what
    matching does and at most what matching distinct drafts does
    """
    return _bound(v, k, draft, "rule_without_q_gains")


def _near_miss_jobs(name: str, scheme: str) -> Jobs:
    title = "polytope of given drafts"
    return lambda v, k, draft: [
        _of_drafts(title, near_miss, drafts_for(scheme, v, k, draft), name=name)
    ]


for _name, _claimed in NEAR_MISSES.items():
    CONJECTURES[_name] = Conjecture(
        _name,
        _claimed.statement,
        "a near miss of acceptance_one",
        "false",
        POLYTOPE,
        _near_miss_jobs(_name, _claimed.scheme),
        smallest=(2, 2),
    )


@claim(
    "what prefixes would need",
    "comparison of all slopes, for random drafts unless some are given",
    status="false",
    smallest=(3, 2),
    search=random_trials.CONVEXITY_NON_IDENTICAL,
)
def q_convexity_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """for different drafts, Q is convex in the mean of their q"""
    if draft is not None:
        schemes = {"schemes": [drafts_for("independent", v, k, draft)]}
        return [Job("slopes", prefixes.q_convexity, schemes)]
    return [Job("slopes", prefixes.convexity_falsifier, {**_of_size(v, k), "draws": _DRAWS})]


@claim(
    "what subset selection by sorting would need",
    "an exact linear programme for each order and each other set",
    status="false",
    smallest=(3, 2),
    search=random_trials.PREFIX_NON_IDENTICAL,
)
def prefix_optimality_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """for different drafts, some optimal H is a prefix of the tokens sorted by p / mean q"""
    if draft is not None:
        schemes = {"schemes": [drafts_for("independent", v, k, draft)]}
        return [Job("linear programmes", prefixes.prefix_programmes, schemes)]
    size = {**_of_size(v, k), "draws": _DRAWS}
    return [Job("linear programmes", prefixes.prefix_falsifier, size)]


@claim(
    "what mixing models would need to be safe",
    "inclusion of the acceptance-one polytopes, model by model",
    status="false",
    smallest=(2, 2),
)
def single_model_dominated_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    """K different drafts accept at least as often as K drafts from any one of the models"""
    drafts = drafts_for("independent", v, k, draft)
    models = enumerate(exact_models(drafts), start=1)
    return [_inclusion(f"model {j}", drafts, WithReplacement(q, k)) for j, q in models]
