"""The transport problem as a flow: our maximum flow beside every library that is installed.

All solve the network of `solvers.max_flow`, each in a process of its own: OR-tools and HiGHS bring
two versions of one shared library. Milliseconds go from the problem to the value, listing the draft
sets and handing the network over included; the own flow also gives plan and cut, and its gap is
that of the certificate. The gap of the others is their distance from it.

The others round: OR-tools takes masses in units of 2^-52, SciPy of 2^-29 (int32), igraph and POT
(a dense cost matrix) floating-point numbers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.bench.problem_sets import build
from mdsd_opt.bench.record import Record, Settings, in_own_process
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import Solution, TransportProblem, certify
from mdsd_opt.solvers import IntegerMasses, integer_masses, solve

#: Cases as (scheme, V, K).
CASES = [
    *(("with_replacement", v, k) for v, k in ((300, 2), (1000, 2), (2000, 2))),
    *(("with_replacement", v, k) for v, k in ((40, 3), (100, 3), (200, 3))),
    ("without_replacement", 200, 3), ("independent", 100, 3), ("with_replacement", 40, 4),
]  # fmt: skip
QUICK_CASES = [("with_replacement", 12, 2)]

_OWN = "max_flow"

#: Library that ratios are measured against: it is always installed.
_AGAINST = "SciPy"


class Network(NamedTuple):
    """Arcs source -> token -> draft set -> sink, with capacities in units of 1 / total."""

    num_nodes: int
    tails: NDArray[np.int32]
    heads: NDArray[np.int32]
    capacities: NDArray[np.int64]
    total: int

    @classmethod
    def of(cls, law: SupportLaw, masses: IntegerMasses) -> Network:
        """Network of a law; the source is node 0, the sink the last."""
        num_nodes = 2 + law.vocab_size + law.num_supports
        tokens = np.arange(1, 1 + law.vocab_size)
        sets = np.arange(1 + law.vocab_size, num_nodes - 1)
        sizes = np.diff(law.offsets)
        tails = np.concatenate([np.zeros(tokens.size, np.int64), law.tokens + 1, sets])
        heads = np.concatenate([tokens, np.repeat(sets, sizes), np.full(sets.size, num_nodes - 1)])
        capacities = [masses.target, np.repeat(masses.supports, sizes), masses.supports]
        return cls(
            num_nodes, tails.astype(np.int32), heads.astype(np.int32), np.concatenate(capacities),
            masses.total,
        )  # fmt: skip

    def in_bits(self, bits: int) -> tuple[NDArray[np.int64], int]:
        """Capacities and total, rounded down to so many bits."""
        shift = max(self.total.bit_length() - 1 - bits, 0)
        return self.capacities >> shift, self.total >> shift


def _by_or_tools(law: SupportLaw, masses: IntegerMasses) -> float:
    from ortools.graph.python.max_flow import SimpleMaxFlow

    network = Network.of(law, masses)
    capacities, total = network.in_bits(52)
    solver = SimpleMaxFlow()
    solver.add_arcs_with_capacity(network.tails, network.heads, capacities)
    status = solver.solve(0, network.num_nodes - 1)
    assert status == solver.OPTIMAL, status
    return float(solver.optimal_flow() / total)


def _by_igraph(law: SupportLaw, masses: IntegerMasses) -> float:
    import igraph

    network = Network.of(law, masses)
    edges = np.stack([network.tails, network.heads], axis=1)
    graph = igraph.Graph(network.num_nodes, edges, directed=True)
    capacities = (network.capacities / network.total).tolist()
    return float(graph.maxflow_value(0, network.num_nodes - 1, capacities))


def _by_scipy(law: SupportLaw, masses: IntegerMasses) -> float:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    network = Network.of(law, masses)
    capacities, total = network.in_bits(29)
    arcs = (capacities.astype(np.int32), (network.tails, network.heads))
    matrix = csr_array(arcs, shape=(network.num_nodes, network.num_nodes))
    return float(maximum_flow(matrix, 0, network.num_nodes - 1).flow_value / total)


def _by_pot(law: SupportLaw, masses: IntegerMasses) -> float:
    import ot

    cost = np.ones((law.vocab_size, law.num_supports))
    cost[law.tokens, np.repeat(np.arange(law.num_supports), np.diff(law.offsets))] = 0.0
    p, mass = (x / masses.total for x in (masses.target, masses.supports))
    return 1.0 - float(ot.emd2(p, mass, cost, numItermax=10**9))


class Rival(NamedTuple):
    """A library, its import name, and the number of entries up to which it is tried."""

    module: str
    value: Callable[[SupportLaw, IntegerMasses], float]
    most: int
    is_dense: bool = False

    def takes(self, law: SupportLaw) -> bool:
        """Whether a problem has no more arcs, or entries of a cost matrix, than the limit."""
        size = law.vocab_size * law.num_supports if self.is_dense else law.num_arcs
        return size <= self.most


#: Libraries; beyond their last entry a case takes minutes, or more memory than a small machine has.
RIVALS = {
    "OR-tools": Rival("ortools", _by_or_tools, 20_000_000),
    "igraph": Rival("igraph", _by_igraph, 5_000_000),
    "SciPy": Rival("scipy", _by_scipy, 20_000_000),
    "POT": Rival("ot", _by_pot, 5_000_000, is_dense=True),
}


def records(settings: Settings) -> Iterator[Record]:
    """Records of every case by all installed libraries; a run of over 20 s is measured once."""
    repeats = settings.rounds or 3
    routes = [_OWN, *(name for name, rival in RIVALS.items() if find_spec(rival.module))]
    for case in QUICK_CASES if settings.quick else CASES:
        scheme, vocab_size, num_drafts = case
        results = {
            route: in_own_process("mdsd_opt.bench.flows", [route, *case, settings.seed, repeats])
            for route in routes
        }
        for route, result in results.items():
            gap = result["gap"]
            if result["milliseconds"] and route != _OWN:
                gap = abs(result["rate"] - results[_OWN]["rate"])
            yield Record.timed(
                result["milliseconds"], against=_AGAINST, benchmark="flows", route=route,
                problem=scheme, vocab_size=vocab_size, num_drafts=num_drafts, seed=settings.seed,
                gap=gap, gap_kind="certificate" if route == _OWN else "error", note=result["note"],
            )  # fmt: skip


def measure(
    route: str, scheme: str, vocab_size: int, num_drafts: int, seed: int, repeats: int
) -> dict[str, Any]:
    """Time one route on one problem, in this process."""
    problem = build(scheme, vocab_size, num_drafts, seed)
    law = problem.drafts.support_law()
    note = f"{law.num_arcs:,} arcs"
    if route != _OWN and not RIVALS[route].takes(law):
        return {"milliseconds": [], "rate": None, "gap": None, "note": f"left out: {note}"}
    _solved(route, problem if route == _OWN else build("with_replacement", 5, 2, 0))  # compiles
    milliseconds: list[float] = []
    while len(milliseconds) < repeats and sum(milliseconds) < 20_000:
        start = time.perf_counter()
        rate, solution = _solved(route, problem)
        milliseconds.append(1e3 * (time.perf_counter() - start))
    gap = None if solution is None else certify(problem, solution).gap
    return {"milliseconds": milliseconds, "rate": rate, "gap": gap, "note": note}


def _solved(route: str, problem: TransportProblem) -> tuple[float, Solution | None]:
    """Rate by a route, and what the own one proves it with."""
    if route == _OWN:
        solution = solve(problem, _OWN)
        return solution.acceptance_rate, solution
    law = problem.drafts.support_law()
    return RIVALS[route].value(law, integer_masses(problem, law)), None


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
