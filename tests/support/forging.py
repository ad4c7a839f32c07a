"""Forged evidence: whatever a solution can bring along, replaced by something else.

What that is comes from the annotations of `Solution`: every field of every dataclass that it, or
one of its fields, can hold. A value is forged by what it is (an array, a number, another of these
dataclasses), and a kind as a whole by what keeps its fields consistent (`TOGETHER`), so that a
new kind of proof is forged without a word here, and asked for a list of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

import mdsd_opt as mo
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.errors import MdsdError
from mdsd_opt.problem import BoxCover, OrderMixture, PlanBasis, Solution, Status, TransportPlan
from mdsd_opt.problem.water_filling import water_fill

Rng = np.random.Generator
Path = tuple[str, ...]

#: How far a claim may be from the truth before `certify` calls it violated (its default), and how
#: far rounding may lead a bound in float64.
CLAIM, ROUNDING = 1e-9, 1e-12


def kinds(of: type = Solution) -> dict[type, tuple[str, ...]]:
    """Every dataclass that one of this kind can hold, itself first, with its fields."""
    found: dict[type, tuple[str, ...]] = {}
    waiting = [of]
    while waiting:
        kind = waiting.pop()
        if kind in found:
            continue
        hints = get_type_hints(kind)
        found[kind] = tuple(field.name for field in fields(kind))
        for name in found[kind]:
            waiting += [t for t in (hints[name], *get_args(hints[name])) if is_dataclass(t)]
    return found


# --- honest solutions, with all evidence there is -------------------------------------------------


def honest(problem: mo.TransportProblem) -> list[Solution]:
    """Solutions that bring all kinds of evidence along."""
    found = [
        mo.solve(problem, "full_lp", formulation="supports"),
        mo.solve(problem, "max_flow"),
        mo.solve(problem, "submodular"),
    ]
    drafts = problem.drafts
    if isinstance(drafts, PrefixDraftScheme):
        best = mo.solve(problem, "subset_selection")
        x = water_fill(problem.target, drafts, best.subset, drafts.containment(best.subset)).values
        found.append(replace(best, selection=np.maximum(x, 0.0)))
    return found


# --- values ---------------------------------------------------------------------------------------

_EDGES = (np.nan, np.inf, -np.inf, -1.0, -1e-9, 2.0, 1e308, -1e308, 5e-324, 1 + 1e-6, -5.0)
_INTEGER_EDGES = (-1, 2**31 - 1, 2**62, 2**63 - 1, -(2**63))
_DTYPES = (
    np.float16, np.float32, np.longdouble, np.complex128, np.bool_, np.int8, np.int16, np.int32,
    np.int64, np.uint8, np.uint64, object, "U8", "S8", "M8[s]", ">f8", ">i4",
)  # fmt: skip


class LyingArray(np.ndarray):
    """Says that it sums to one and has nothing wrong with it."""

    def sum(self, *given: Any, **options: Any) -> Any:
        return 1.0

    def all(self, *given: Any, **options: Any) -> Any:
        return True

    def min(self, *given: Any, **options: Any) -> Any:
        return 0.0


def _some(rng: Rng, a: np.ndarray, value: Any, entries: int | None = None) -> np.ndarray:
    """A copy with this value at some places, in a dtype that holds it."""
    result = a.astype(np.result_type(a.dtype, np.min_scalar_type(value)))
    count = int(rng.integers(1, 3)) if entries is None else entries
    flat = result.reshape(-1)
    if flat.size:
        flat[rng.integers(flat.size, size=count)] = value
    return result


def _moved(rng: Rng, a: np.ndarray) -> np.ndarray:
    """Some entries by up to what a tolerance lets pass, or by more."""
    by = float(rng.choice([-1, 1]) * rng.choice([1e-1, 1e-3, 1e-6, 1e-8, 9e-10, 1e-12]))
    where = rng.random(a.shape) < rng.choice([0.3, 1.0])
    return a + by * where


def _shaped(rng: Rng, a: np.ndarray) -> Any:
    shapes: list[Callable[[], Any]] = [
        lambda: a[None], lambda: a[..., None], lambda: a.T, lambda: a.ravel(), lambda: a[:0],
        lambda: a[:-1], lambda: np.concatenate([a, a]), lambda: np.concatenate([a, a[-1:]]),
        lambda: np.array(a.reshape(-1)[:1].tolist() or [0.0])[0], lambda: a.reshape(-1, 1)[:, :0],
        lambda: np.broadcast_to(a.reshape(-1)[:1], a.shape) if a.size else a,
    ]  # fmt: skip
    return shapes[rng.integers(len(shapes))]()


def _arranged(rng: Rng, a: np.ndarray) -> np.ndarray:
    """The same entries in another order, or one of them in the place of another."""
    if not a.size or a.ndim == 0:
        return a
    match rng.integers(5):
        case 0:
            return a[::-1]
        case 1:
            return rng.permutation(a)
        case 2:
            return rng.permuted(a, axis=a.ndim - 1)
        case 3:
            result = a.copy()
            result[rng.integers(len(a))] = a[rng.integers(len(a))]
            return result
        case _:
            return rng.permutation(a.reshape(-1)).reshape(a.shape)


def _drawn(rng: Rng, a: np.ndarray) -> np.ndarray:
    """Other entries of the same shape and dtype."""
    if a.dtype == np.bool_:
        return rng.random(a.shape) < rng.choice([0.0, 0.3, 0.7, 1.0])
    if a.dtype.kind in "iu":
        return rng.integers(-1, max(int(a.max(initial=0)), 1) + 2, a.shape).astype(a.dtype)
    weights = rng.random(a.shape) ** rng.choice([1, 8])
    return weights / max(weights.sum(), 1e-9) if rng.random() < 0.5 else weights


def _wrapped(rng: Rng, a: np.ndarray) -> np.ndarray:
    """Integers that rise only as long as differences overflow."""
    dtype = np.int64 if rng.random() < 0.5 else np.int8
    info = np.iinfo(dtype)
    end = min(int(a.reshape(-1)[-1]) if a.size else 0, int(info.max))
    middle = [info.max, info.min, -1] if rng.random() < 0.5 else [100, -100]
    return np.array([0, *middle, end], dtype=dtype)


def _as_another(rng: Rng, a: np.ndarray) -> Any:
    match rng.integers(8):
        case 0:
            return a.tolist()
        case 1:
            return tuple(a.tolist())
        case 2:
            return np.ma.masked_array(a, mask=rng.random(a.shape) < 0.5)
        case 3:
            return a.view(LyingArray)
        case 4:
            return np.array([(1.0, 2)], dtype=[("a", float), ("b", int)])
        case 5:
            return np.array([Fraction(1, 3)] * max(len(np.atleast_1d(a)), 1), dtype=object)
        case 6:
            return a.astype(np.float64) + 1j
        case _:
            return np.frombuffer(
                rng.integers(0, 256, a.size, dtype=np.uint8).tobytes(), dtype=np.bool_
            ).reshape(a.shape)


#: Forgeries of an array.
ARRAYS: dict[str, Callable[[Rng, np.ndarray], Any]] = {
    "edges": lambda rng, a: _some(rng, a, _EDGES[rng.integers(len(_EDGES))]),
    "all edges": lambda rng, a: np.full(a.shape, _EDGES[rng.integers(len(_EDGES))]),
    "integer edges": lambda rng, a: _some(
        rng, a.astype(np.int64), _INTEGER_EDGES[rng.integers(len(_INTEGER_EDGES))]
    ),
    "moved": lambda rng, a: _moved(rng, a.astype(np.float64)),
    "scaled": lambda rng, a: a * rng.choice([0.0, 0.5, 0.999999, 1.000001, 2.0, -1.0, 1e300]),
    "dtype": lambda rng, a: a.astype(_DTYPES[rng.integers(len(_DTYPES))]),
    "low precision": lambda rng, a: a.astype(rng.choice([np.float16, np.float32])),
    "shape": _shaped,
    "order": _arranged,
    "drawn": _drawn,
    "wrapped": _wrapped,
    "another array": _as_another,
}


def _forged_number(rng: Rng, x: Any) -> tuple[str, Any]:
    value = float(x)
    choices: list[Any] = [
        *_EDGES, *_INTEGER_EDGES, 10**400, 0.0, 1.0, True, np.bool_(True), complex(value),
        str(value),
        value + float(rng.choice([-1, 1]) * rng.choice([1e-1, 1e-3, 1e-6, 1e-8, 5e-10])),
        Fraction(value), Decimal(value), np.float16(value), np.longdouble(value), np.array(value),
        np.array([value]), [value], int(value) + 1, np.int8(1), np.uint64(2**63), b"1",
        np.float16(np.nextafter(np.float16(value), np.float16(2))),
    ]  # fmt: skip
    return "number", choices[rng.integers(len(choices))]


def _junk(rng: Rng, value: Any) -> tuple[str, Any]:
    """Of another type altogether."""
    looks = {path[0]: at(value, path[:1]) for path in paths(value)} if is_dataclass(value) else {}
    choices: list[Any] = [
        "junk", 7, 0.5, object(), [], {}, (1, 2), type(value), lambda: value, np.zeros(3),
        SimpleNamespace(**looks), Status.OPTIMAL, PlanBasis(*[np.ones(1, bool)] * 3),
        BoxCover(np.zeros((1, 1)), np.ones((1, 1))), Ellipsis, None, b"junk", [[1, 2], [3]],
    ]  # fmt: skip
    return "another type", choices[rng.integers(len(choices))]


def forged_value(rng: Rng, value: Any) -> tuple[str, Any]:
    """How a value was forged, and into what."""
    try:
        return _junk(rng, value) if rng.random() < 0.1 else _forged(rng, value)
    except Exception:  # a forger met what had been forged before
        return _junk(rng, value)


def _forged(rng: Rng, value: Any) -> tuple[str, Any]:
    if isinstance(value, np.ndarray):
        how = str(rng.choice(list(ARRAYS)))
        return how, ARRAYS[how](rng, value)
    if isinstance(value, Enum):
        return "another", rng.choice(list(type(value)))
    if isinstance(value, (int, float)):
        return _forged_number(rng, value)
    if is_dataclass(value) and type(value) in TOGETHER:
        choices = TOGETHER[type(value)]
        how = str(rng.choice(list(choices)))
        return how, choices[how](rng, value)
    return _junk(rng, value)


# --- kinds as a whole -----------------------------------------------------------------------------


def _sets(plan: TransportPlan) -> list[tuple[int, int]]:
    """Where each set starts and ends among the arcs."""
    ends = np.clip(plan.offsets, 0, plan.tokens.size).tolist()
    return list(pairwise(ends))


def _with_sets(plan: TransportPlan, listed: list[int]) -> TransportPlan:
    """The plan with these of its sets, in this order, all its parts with them."""
    spans = [_sets(plan)[s] for s in listed]
    arcs = np.array([i for a, b in spans for i in range(a, b)], dtype=np.int64)
    basis = plan.basis
    if basis is not None:
        basis = replace(
            basis, arcs=basis.arcs[arcs], support_slacks=basis.support_slacks[np.array(listed, int)]
        )
    numerators = None if plan.numerators is None else plan.numerators[arcs]
    return replace(
        plan, tokens=plan.tokens[arcs], mass=plan.mass[arcs], basis=basis, numerators=numerators,
        offsets=np.cumsum([0, *(b - a for a, b in spans)]),
    )  # fmt: skip


def _set_listed_twice(rng: Rng, plan: TransportPlan) -> TransportPlan:
    """Beside all others, or in the place of one."""
    listed = list(range(len(_sets(plan))))
    if not listed:
        return plan
    twice = int(rng.integers(len(listed)))
    if rng.random() < 0.5:
        listed[rng.integers(len(listed))] = twice
    else:
        listed.insert(int(rng.integers(len(listed) + 1)), twice)
    doubled = _with_sets(plan, listed)
    if doubled.basis is not None and rng.random() < 0.5:  # all of the mass of every set
        flags = rng.random(len(listed)) < 0.2
        full = replace(
            doubled.basis, arcs=rng.random(doubled.tokens.size) < 0.8, support_slacks=flags
        )
        return replace(doubled, basis=full)
    return doubled


def _sets_arranged(rng: Rng, plan: TransportPlan) -> TransportPlan:
    listed = rng.permutation(len(_sets(plan))).tolist()
    return _with_sets(plan, listed[: len(listed) - int(rng.integers(2))])


def _tokens_arranged(rng: Rng, plan: TransportPlan) -> TransportPlan:
    """Within a set, or one twice in it."""
    tokens = plan.tokens.copy()
    for a, b in _sets(plan):
        tokens[a:b] = rng.permutation(tokens[a:b]) if rng.random() < 0.7 else tokens[a:b][:1]
    return replace(plan, tokens=tokens)


def _sets_merged(rng: Rng, plan: TransportPlan) -> TransportPlan:
    if plan.offsets.size < 3:
        return plan
    gone = int(rng.integers(1, plan.offsets.size - 1))
    basis = plan.basis
    if basis is not None:
        basis = replace(basis, support_slacks=np.delete(basis.support_slacks, gone - 1))
    return replace(plan, offsets=np.delete(plan.offsets, gone), basis=basis)


def _more_flow(rng: Rng, plan: TransportPlan) -> TransportPlan:
    """Masses and numerators times a number, or a smaller denominator."""
    factor = int(rng.integers(2, 5))
    numerators = plan.numerators
    if numerators is None:
        numerators = np.rint(plan.mass * 2**40).astype(np.int64)
    if rng.random() < 0.5:
        return replace(plan, numerators=numerators, denominator=max(plan.denominator // factor, 1))
    return replace(plan, mass=plan.mass * factor, numerators=numerators * factor)


def _within_tolerance(rng: Rng, plan: TransportPlan) -> TransportPlan:
    """A little more on every arc than fits, each time less than a tolerance sees."""
    more = plan.mass + rng.random(plan.mass.size) * CLAIM / max(plan.mass.size, 1)
    return replace(plan, mass=more, basis=None, numerators=None)


def _flags_drawn(rng: Rng, basis: PlanBasis) -> PlanBasis:
    share = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0], 3)
    parts = (basis.arcs, basis.token_slacks, basis.support_slacks)
    return PlanBasis(*(rng.random(x.shape) < p for x, p in zip(parts, share, strict=True)))


def _split_cube(rng: Rng, rows: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A cover of the unit cube by tiles that are halved at random."""
    tiles = [(np.zeros(rows), np.ones(rows))]
    while len(tiles) < count:
        low, high = tiles.pop(int(rng.integers(len(tiles))))
        r = int(rng.integers(rows))
        below, above = high.copy(), low.copy()
        below[r] = above[r] = low[r] + (high[r] - low[r]) * rng.choice([0.5, rng.random()])
        tiles += [(low, below), (above, high)]
    return np.array([low for low, _ in tiles]), np.array([high for _, high in tiles])


def _other_cover(rng: Rng, cover: BoxCover) -> BoxCover:
    return BoxCover(*_split_cube(rng, cover.low.shape[1], int(rng.integers(1, 9))))


def _tiles_outside(rng: Rng, cover: BoxCover) -> BoxCover:
    """They cover the cube and more, up to where its polynomial falls."""
    by = float(rng.choice([1e-9, 0.5, 5.0, 1e308]))
    sides = rng.random(2) < 0.7
    return BoxCover(cover.low - by * sides[0], cover.high + by * sides[1])


def _tiles_chosen(rng: Rng, cover: BoxCover) -> BoxCover:
    """One left out, doubled, or shrunk; or their coordinates exchanged."""
    low, high = cover.low.copy(), cover.high.copy()
    n = int(rng.integers(len(low)))
    match rng.integers(4):
        case 0:
            return BoxCover(np.delete(low, n, axis=0), np.delete(high, n, axis=0))
        case 1:
            return BoxCover(np.vstack([low, low[n]]), np.vstack([high, high[n]]))
        case 2:
            shrunk = float(rng.choice([1e-12, 1e-6, 0.1]))
            high[n] -= shrunk * (high[n] - low[n])
            return BoxCover(low, high)
        case _:
            turned = rng.permutation(low.shape[1])
            return BoxCover(low[:, turned], high[:, turned])


def _tiles_turned_over(rng: Rng, cover: BoxCover) -> BoxCover:
    return BoxCover(cover.high, cover.low)


def _other_orders(rng: Rng, proof: OrderMixture) -> OrderMixture:
    """As many as there are tokens or fewer, with weights of any size."""
    size = proof.orders.shape[1]
    count = int(rng.integers(1, size + 2))
    orders = np.array([rng.permutation(size) for _ in range(count)])
    return OrderMixture(orders, rng.random(count) * rng.choice([1e-300, 1.0, 1e300]))


def _weights_overflow(rng: Rng, proof: OrderMixture) -> OrderMixture:
    orders = np.concatenate([proof.orders, proof.orders[:1]])
    size, dtype = rng.choice([1e308, 6e4, 3e38]), rng.choice([np.float64, np.float16, np.float32])
    return OrderMixture(orders, np.full(len(orders), size).astype(dtype))


def _orders_twice(rng: Rng, proof: OrderMixture) -> OrderMixture:
    orders = proof.orders.copy()
    orders[rng.integers(len(orders))] = orders[rng.integers(len(orders)), 0]
    weights = np.concatenate([proof.weights, proof.weights])
    if rng.random() < 0.5:
        return OrderMixture(orders, proof.weights)
    return OrderMixture(np.concatenate([proof.orders, rng.permutation(proof.orders)]), weights)


Together = Mapping[str, Callable[[Rng, Any], Any]]

#: Forgeries of a whole kind, whose fields stay consistent.
TOGETHER: dict[type, Together] = {
    TransportPlan: {
        "a set listed twice": _set_listed_twice,
        "sets in another order": _sets_arranged,
        "tokens in another order": _tokens_arranged,
        "sets merged": _sets_merged,
        "more flow": _more_flow,
        "within the tolerance": _within_tolerance,
    },
    PlanBasis: {"flags drawn": _flags_drawn},
    BoxCover: {
        "another cover": _other_cover,
        "tiles outside": _tiles_outside,
        "tiles chosen": _tiles_chosen,
        "tiles turned over": _tiles_turned_over,
    },
    OrderMixture: {
        "other orders": _other_orders,
        "weights that overflow": _weights_overflow,
        "orders twice": _orders_twice,
    },
}


# --- solutions ------------------------------------------------------------------------------------


def paths(value: Any) -> Iterator[Path]:
    """Every field of a dataclass, and of those in its fields."""
    for field in fields(value):
        yield (field.name,)
        inner = getattr(value, field.name)
        if is_dataclass(inner) and not isinstance(inner, type):
            yield from ((field.name, *rest) for rest in paths(inner))


def at(value: Any, path: Path) -> Any:
    return at(getattr(value, path[0]), path[1:]) if path else value


def put(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at the end of the path."""
    if not path:
        return new
    return replace(value, **{path[0]: put(getattr(value, path[0]), path[1:], new)})


_RATES = ("acceptance_rate", "lower_bound", "upper_bound")
_EVIDENCE = ("plan", "proof", "selection", "subset")

#: What no bound rests on.
_TOLD = ("message", "stats", "method", "solve_seconds")


def _one_evidence(rng: Rng, solution: Solution, foreign: Solution) -> Solution:
    """With little evidence, seldom some of another problem, so that all of it is relied on."""
    proving = [name for name in _EVIDENCE[:3] if getattr(solution, name) is not None]
    kept = {name for name in proving if rng.random() < 0.25}
    if proving:
        kept.add(str(rng.choice(proving)))
    if rng.random() < 0.6:
        kept.add("subset")
    given: dict[str, Any] = dict.fromkeys(_EVIDENCE)
    for name in sorted(kept):
        given[name] = getattr(foreign if rng.random() < 0.1 else solution, name)
    return replace(solution, **given)


def _false_claims(rng: Rng, solution: Solution) -> Solution:
    """Rates as they are, or moved together or apart, or as good as can be."""
    status = Status(rng.choice([s.value for s in Status])) if rng.random() < 0.2 else Status.OPTIMAL
    by = float(rng.choice([1e-8, 1e-6, 1e-3, 0.1]))
    rate, low, high = (getattr(solution, name) for name in _RATES)
    match rng.integers(7):
        case 0:
            claims = (1.0, 1.0, 1.0)
        case 1:
            claims = (rate + by, low + by, high + by)
        case 2:
            claims = (rate - by, low - by, high - by)
        case 3:
            claims = (rate + by, low, 1.0)
        case 4:
            claims = (rate + by, low + by, 1.0)
        case 5:
            claims = (rate - by, low - by, 1.0)
        case _:
            claims = (rate, low, high)
    return replace(solution, status=status, **dict(zip(_RATES, claims, strict=True)))


def _chosen(rng: Rng, solution: Solution) -> Path:
    """A field: of every dataclass in it as often, and seldom one that nothing rests on."""
    of_kind: dict[Path, list[Path]] = {}
    for path in paths(solution):
        of_kind.setdefault(path[:-1], []).append(path)
    listed = list(of_kind.values())[rng.integers(len(of_kind))]
    relied = [path for path in listed if path[-1] not in _TOLD and at(solution, path) is not None]
    evidence = [path for path in relied if path[-1] in _EVIDENCE]
    for among, share in ((evidence, 0.5), (relied, 0.9)):
        if among and rng.random() < share:
            return among[rng.integers(len(among))]
    return listed[rng.integers(len(listed))]


class Done(NamedTuple):
    """What was forged, and how."""

    kind: str
    field: str
    how: str


def forge(rng: Rng, solution: Solution, foreign: Solution) -> tuple[list[Done], Solution]:
    """A solution with false claims, or less evidence, and one to three values forged."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        forged: Any = _false_claims(rng, _one_evidence(rng, solution, foreign))
        done = []
        for _ in range(int(rng.integers(1, 4))):
            path = _chosen(rng, forged)
            how, new = forged_value(rng, at(forged, path))
            done.append(Done(type(at(forged, path[:-1])).__name__, path[-1], how))
            forged = put(forged, path, new)
    return done, forged


def shown(solution: Solution) -> str:
    names = ("status", *_RATES, *_EVIDENCE)
    return ", ".join(f"{name}={getattr(solution, name)!r}" for name in names)


# --- what must hold -------------------------------------------------------------------------------


def complaints(
    problem: mo.TransportProblem,
    optimum: Fraction,
    solution: Any,
    exact: bool,
    tolerance: float = CLAIM,
) -> list[str]:
    """What is wrong with the certificate of a solution, honest or not; empty if nothing is.

    Its bounds contain alpha*. If it is valid, so do the bounds that the solution claims, the rate
    lies between them, and is alpha* if it is claimed optimal, and reached unless the solver stopped
    at a limit: up to the tolerance. It raises nothing but errors of the package.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            certificate = mo.certify(problem, solution, exact=exact, tolerance=tolerance)
    except MdsdError:
        return []
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    found = []
    slack = Fraction(0 if exact else ROUNDING)
    for bound in (certificate.lower, certificate.upper):
        if not isinstance(bound, Fraction if exact else float) or not abs(bound) <= 2:
            return [f"the bound {bound!r}"]
    if certificate.lower > optimum + slack:
        found.append(f"proves {float(certificate.lower)!r}, above {float(optimum)!r}")
    if certificate.upper < optimum - slack:
        found.append(f"lets no more than {float(certificate.upper)!r}, below {float(optimum)!r}")
    if certificate.valid:
        found += [f"valid, although {lie}" for lie in _lies(solution, optimum, Fraction(tolerance))]
    return found


def _lies(solution: Solution, optimum: Fraction, tolerance: Fraction) -> Iterator[str]:
    try:
        rate, low, high = (Fraction(float(getattr(solution, name))) for name in _RATES)
    except (TypeError, ValueError, OverflowError) as error:
        yield f"a rate is no number: {error}"
        return
    slack = tolerance + Fraction(ROUNDING)
    if low > optimum + slack:
        yield f"lower_bound {float(low)!r} is above {float(optimum)!r}"
    if high < optimum - slack:
        yield f"upper_bound {float(high)!r} is below {float(optimum)!r}"
    if not low - slack <= rate <= high + slack:
        yield f"acceptance_rate {float(rate)!r} is not between the bounds"
    if solution.status is not Status.LIMIT and rate > optimum + slack + tolerance:
        yield f"acceptance_rate {float(rate)!r} is above {float(optimum)!r}"
    if solution.status is Status.OPTIMAL and rate < optimum - slack - tolerance:
        yield f"acceptance_rate {float(rate)!r} is claimed optimal, below {float(optimum)!r}"
    if not isinstance(solution.status, Status):
        yield f"status is {solution.status!r}"
