"""All claims that can be checked: what they say, where they are from, and how they are settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mdsd_opt.cddlib_checks import (
    engines,
    false_conditions,
    hull_rule,
    prefixes,
    thresholds,
)
from mdsd_opt.cddlib_checks.condition import acceptance_polytope
from mdsd_opt.cddlib_checks.draft_laws import battery, drafts_for, exact_models, mean_model
from mdsd_opt.cddlib_checks.result import Evidence
from mdsd_opt.drafts import WithReplacement

#: Draws of the draft models after which a falsifier gives up.
_DRAWS = 300

#: V! orders with 2^V sets each: V = 5 takes 6,000 linear programmes, V = 6 already 82,000.
_PROGRAMMES_UP_TO = 5


@dataclass(frozen=True, slots=True)
class Job:
    """One engine with its arguments, to be run in a child process."""

    title: str
    engine: Callable[..., Evidence]
    arguments: dict[str, Any]


Plan = Callable[[int, int, Any], list[Job]]


@dataclass(frozen=True, slots=True)
class Conjecture:
    """A claim of the theory, or a false one that the checks must be able to refute.

    Attributes
    ----------
    name, statement, source : str
    status : str
        "theorem", "conjecture" or "false".
    method : str
        The engines that settle it.
    smallest : tuple of int
        The least V and K for which the claim says anything.
    """

    name: str
    statement: str
    source: str
    status: str
    method: str
    plan: Plan = field(repr=False)
    smallest: tuple[int, int] = (1, 1)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "statement": self.statement,
            "source": self.source,
            "status": self.status,
            "method": self.method,
        }


def _acceptance_one(v: int, k: int, draft: Any) -> list[Job]:
    size = {"vocab_size": v, "num_drafts": k}
    return [
        Job("polytope of given drafts", acceptance_polytope,
            {"drafts": drafts_for("with_replacement", v, k, draft)}),
        Job("cone of all drafts", engines.acceptance_cone, size),
    ]  # fmt: skip


def _optimal_value(v: int, k: int, draft: Any) -> list[Job]:
    return [Job("cone of all drafts", engines.value_cone, {"vocab_size": v, "num_drafts": k})]


def _projection(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("with_replacement", v, k, draft)
    return [Job("elimination of the plan", engines.projection, {"drafts": drafts})]


def _schemes(v: int, k: int, draft: Any) -> list[Any]:
    names = ("with_replacement", "without_replacement")
    if draft is not None:
        return [drafts_for(name, v, k, draft) for name in names]
    return [drafts for name in names for drafts in battery(name, v, k)]


def _q_convexity(v: int, k: int, draft: Any) -> list[Job]:
    return [Job("slopes", prefixes.q_convexity, {"schemes": _schemes(v, k, draft)})]


def _prefix_optimality(v: int, k: int, draft: Any) -> list[Job]:
    schemes = _schemes(v, k, draft)
    jobs = [Job("q-convexity, which implies it", prefixes.q_convexity, {"schemes": schemes})]
    if v <= _PROGRAMMES_UP_TO:
        names = ("with_replacement", "without_replacement")
        chosen = [drafts_for(name, v, k, draft) for name in names]
        jobs.append(Job("linear programmes", prefixes.prefix_programmes, {"schemes": chosen}))
    return jobs


def _prefix_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    if draft is not None:
        drafts = drafts_for("independent", v, k, draft)
        return [Job("linear programmes", prefixes.prefix_programmes, {"schemes": [drafts]})]
    size = {"vocab_size": v, "num_drafts": k, "draws": _DRAWS}
    return [Job("linear programmes", prefixes.prefix_falsifier, size)]


def _convexity_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    if draft is not None:
        drafts = drafts_for("independent", v, k, draft)
        return [Job("slopes", prefixes.q_convexity, {"schemes": [drafts]})]
    size = {"vocab_size": v, "num_drafts": k, "draws": _DRAWS}
    return [Job("slopes", prefixes.convexity_falsifier, size)]


def _dominates(v: int, k: int, draft: Any) -> list[Job]:
    pair = {
        "better": drafts_for("without_replacement", v, k, draft),
        "worse": drafts_for("with_replacement", v, k, draft),
    }
    return [Job("inclusion of polytopes", engines.dominates, pair)]


def _acceptance_one_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("independent", v, k, draft)
    return [Job("polytope of given drafts", acceptance_polytope, {"drafts": drafts})]


def _vertex_counts_non_identical(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("independent", v, k, draft)
    return [Job("vertices", engines.vertex_counts, {"drafts": drafts})]


def _threshold_sets(v: int, k: int, draft: Any) -> list[Job]:
    arguments = {"drafts": drafts_for("independent", v, k, draft), "targets": 60}
    return [Job("all optimal subsets", thresholds.threshold_sets, arguments)]


def _mean_dominated(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("independent", v, k, draft)
    pair = {"better": drafts, "worse": WithReplacement(mean_model(drafts), k)}
    return [Job("inclusion of polytopes", engines.dominates, pair)]


def _single_model_dominated(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("independent", v, k, draft)
    return [
        Job(f"model {j + 1}", engines.dominates,
            {"better": drafts, "worse": WithReplacement(q, k)})
        for j, q in enumerate(exact_models(drafts))
    ]  # fmt: skip


def _vertex_counts(v: int, k: int, draft: Any) -> list[Job]:
    names = ("with_replacement", "without_replacement")
    chosen = [drafts_for(name, v, k, draft) for name in names]
    if draft is None and v > 1:  # one token that is never drafted
        total = v * (v - 1) // 2
        q = [f"{i}/{total}" for i in range(v)]
        chosen += [drafts_for(name, v, k, q) for name in names]
    return [Job("vertices", engines.vertex_counts, {"drafts": drafts}) for drafts in chosen]


def _large_subsets(v: int, k: int, draft: Any) -> list[Job]:
    drafts = drafts_for("without_replacement", v, k, draft)
    jobs = [Job("polytope of given drafts", engines.large_subsets_polytope, {"drafts": drafts})]
    if k < v:
        size = {"vocab_size": v, "num_drafts": k}
        jobs.append(Job("cone of all drafts", engines.large_subsets_cone, size))
    return jobs


def _hull_rule(v: int, k: int, draft: Any) -> list[Job]:
    targets = 6 if v**k <= 700 else 3
    return [
        Job(f"enumeration {name.replace('_', ' ')}", hull_rule.hull_rule,
            {"drafts": drafts_for(name, v, k, draft), "targets": targets})
        for name in ("with_replacement", "without_replacement")
    ]  # fmt: skip


def _false_condition(name: str, scheme: str) -> Plan:
    def plan(v: int, k: int, draft: Any) -> list[Job]:
        drafts = drafts_for(scheme, v, k, draft)
        arguments = {"drafts": drafts, "name": name}
        return [Job("polytope of given drafts", false_conditions.false_condition, arguments)]

    return plan


_CONE = "double description of the cone over (p, W)"
_POLYTOPE = "double description of the claimed polytope, vertex by vertex"

_TRUE = [
    Conjecture(
        "acceptance_one",
        "acceptance one is possible iff P(S) >= Q(S) for every set S of tokens; for K i.i.d. "
        "drafts, iff P(S) >= q(S)^K",
        "[Khisti25], Theorem 2 for K = 2, Remark 2 for every K",
        "theorem",
        f"{_CONE}; {_POLYTOPE}",
        _acceptance_one,
    ),
    Conjecture(
        "optimal_value",
        "alpha* = 1 + min_H [P(H) - Q(H)], for every law of the drafts",
        "[Hu25]",
        "theorem",
        "double description of the hypograph cone over (p, W, a)",
        _optimal_value,
    ),
    Conjecture(
        "projection",
        "eliminating the plan from the transport constraints leaves exactly P(S) >= Q(S)",
        "[Khisti25], Remark 2",
        "theorem",
        "Fourier elimination, redundant rows removed after each variable",
        _projection,
    ),
    Conjecture(
        "q_convexity",
        "[Q(H+x) - Q(H)]/q(x) <= [Q(H+x+y) - Q(H+x)]/q(y), with and without replacement",
        "[Hu25]",
        "theorem",
        "comparison of all slopes in fractions",
        _q_convexity,
    ),
    Conjecture(
        "prefix_optimality",
        "some optimal H is a prefix of the tokens sorted by p/q, with and without replacement",
        "[Hu25]",
        "theorem",
        "q-convexity; up to V = 5 an exact linear programme for each order and each other set",
        _prefix_optimality,
    ),
    Conjecture(
        "without_replacement_dominates",
        "alpha* without replacement is at least alpha* with replacement, for the same q and K",
        "[Hu25]",
        "theorem",
        "inclusion of the acceptance-one polytopes, by inequalities and by vertices",
        _dominates,
    ),
    Conjecture(
        "vertex_counts",
        "the targets with acceptance one have n! vertices for K >= 2 drafts with replacement from "
        "n tokens of positive probability, n!/(k-1)! with k = min(K, n) without replacement",
        "priority orders",
        "theorem",
        "double description, vertex by vertex",
        _vertex_counts,
    ),
    Conjecture(
        "facets_without_replacement",
        "without replacement, the facets are P(A) >= Q(A) for |A| >= K and p >= 0, no others",
        "sets of fewer than K tokens hold no draft tuple",
        "theorem",
        f"{_CONE}; redundancy removal for given q",
        _large_subsets,
        (3, 2),
    ),
    Conjecture(
        "hull_rule",
        "the closed-form verifier has output law p and acceptance rate alpha*",
        "this package",
        "theorem",
        "enumeration of all draft tuples in fractions, against an integer maximum flow",
        _hull_rule,
    ),
    Conjecture(
        "acceptance_one_non_identical",
        "for different drafts, acceptance one is possible iff P(S) >= prod_k q_k(S) for every S",
        "[Khisti25], Remark 2, with the formula of [Hu25]",
        "theorem",
        _POLYTOPE,
        _acceptance_one_non_identical,
    ),
    Conjecture(
        "vertex_counts_non_identical",
        "for K >= 2 different drafts of positive q_k, the targets with acceptance one have V! "
        "vertices, as many as for identical drafts",
        "priority orders",
        "theorem",
        "double description, vertex by vertex",
        _vertex_counts_non_identical,
    ),
    Conjecture(
        "threshold_sets_non_identical",
        "for different drafts, every optimal H holds, up to ties, the tokens with p < sum_k c_k "
        "q_k, where c_k = prod_{l != k} q_l(H): a prefix of an order that depends on H itself",
        "this package",
        "theorem",
        "all subsets of all targets compared in fractions",
        _threshold_sets,
    ),
    Conjecture(
        "mean_dominated_non_identical",
        "K different drafts accept at least as often as K drafts from the mean of their q",
        "geometric below arithmetic mean",
        "theorem",
        "inclusion of the acceptance-one polytopes, by inequalities and by vertices",
        _mean_dominated,
    ),
]

_FALSE = [
    ("exponent_minus_tenth", "acceptance one iff P(S) >= q(S)^(K - 1/10)", "with_replacement"),
    ("exponent_plus_tenth", "acceptance one iff P(S) >= q(S)^(K + 1/10)", "with_replacement"),
    ("exponent_plus_1e_4", "acceptance one iff P(S) >= q(S)^(K + 1/10000)", "with_replacement"),
    ("thresholds_raised", "acceptance one iff P(S) >= (1 + 1e-9) q(S)^K", "with_replacement"),
    ("thresholds_lowered", "acceptance one iff P(S) >= (1 - 1e-9) q(S)^K", "with_replacement"),
    ("one_subset_dropped", "the set of the first V/2 tokens may be left out of the condition",
     "with_replacement"),
    ("one_size_dropped", "the sets of V/2 tokens may be left out of the condition",
     "with_replacement"),
    ("prefixes_only", "acceptance one iff P(S) >= q(S)^K for the prefixes S of one fixed order",
     "with_replacement"),
    ("mean_draft_power", "for different drafts, acceptance one iff P(S) >= (mean q)(S)^K",
     "independent"),
    ("with_replacement_formula_without_replacement",
     "without replacement, acceptance one iff P(S) >= q(S)^K", "without_replacement"),
]  # fmt: skip

_FALSE_PREFIXES = [
    Conjecture(
        "q_convexity_non_identical",
        "for different drafts, Q is convex in the mean of their q",
        "what prefixes would need",
        "false",
        "comparison of all slopes, for random drafts unless some are given",
        _convexity_non_identical,
        (3, 2),
    ),
    Conjecture(
        "prefix_optimality_non_identical",
        "for different drafts, some optimal H is a prefix of the tokens sorted by p / mean q",
        "what subset selection by sorting would need",
        "false",
        "an exact linear programme for each order and each other set",
        _prefix_non_identical,
        (3, 2),
    ),
    Conjecture(
        "single_model_dominated_non_identical",
        "K different drafts accept at least as often as K drafts from any one of the models",
        "what mixing models would need to be safe",
        "false",
        "inclusion of the acceptance-one polytopes, model by model",
        _single_model_dominated,
        (2, 2),
    ),
]

CONJECTURES: dict[str, Conjecture] = {
    conjecture.name: conjecture
    for conjecture in (
        *_TRUE,
        *(
            Conjecture(
                name, statement, "a near miss of acceptance_one", "false", _POLYTOPE,
                _false_condition(name, scheme), (2, 2),
            )
            for name, statement, scheme in _FALSE
        ),
        *_FALSE_PREFIXES,
    )
}  # fmt: skip
