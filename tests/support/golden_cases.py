"""Cases of the goldens, by kind: the name of each, and what gives its facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from support.goldens import TESTS, Case, facts, found

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path

Cases = Iterator[tuple[str, Case]]

#: Budgets of audits of functions.
COUNTS = {"num_trials": 200, "max_calls": 1_000, "driven_checks": 20, "edge_probes": 32}


def audited(audit: Callable[..., Any], *given: Any, **options: Any) -> Case:
    return lambda: facts(audit(*given, **{"rng": 0, **COUNTS, **options}))


def rates() -> Cases:
    """Three rows of the bundled logits, K = 1 to 3, by every scheme and verifier."""

    def of_rows(scheme: str, verifier: str) -> Any:
        with np.load(sample_logits_path()) as arrays:
            pair = [arrays[name][[0, 20, 41]] for name in ("target", "draft")]
        by = partial(mo.acceptance_rates, *pair, drafts=scheme, verifier=verifier)
        # What is simulated depends on the machine's order of additions.
        is_simulated = (scheme, verifier) == ("without_replacement", "rrs")
        return {k: found(partial(by, k)) for k in ((1, 2) if is_simulated else (1, 2, 3))}

    for scheme in ("with_replacement", "without_replacement", "greedy", "top_k"):
        for name in mo.verifiers.names():
            yield f"{scheme}, {name}", partial(of_rows, scheme, name)


def optima() -> Cases:
    """The known problems by every method, each with its exact certificate."""
    from support.known_problems import known_problems
    from support.solver_table import FAST, TABLE

    def by_all(problem: mo.TransportProblem) -> Any:
        return {name: by(name, problem) for name in FAST if TABLE[name].takes(problem)}

    def by(name: str, problem: mo.TransportProblem) -> Any:
        solution = TABLE[name].solve(problem)
        proof = mo.certify(problem, solution, exact=True)
        bounds = float(proof.lower), str(proof.upper)
        return [solution.acceptance_rate, *bounds, proof.violations, str(solution.status)]

    for name, known in known_problems().items():
        yield name, partial(by_all, known.problem)


def advice() -> Cases:
    """Advice by the bundled logits, and by every sample file of a format."""
    costs = {"target_ms": 20, "draft_ms": 1}

    def by_logits(max_drafts: int) -> Any:
        return mo.advise(sample_logits_path(), max_drafts=max_drafts, **costs).to_dict()

    def by_file(path: Path, depth: int) -> Any:
        told = mo.advise_from_counts(path, depth=depth, **costs).to_dict()
        told["counts"].pop("source")
        told["sentence"], *told["notes"] = (  # without the folder
            said.replace(f"{path.parent}/", "") for said in (told["sentence"], *told["notes"])
        )
        told["rows"] = {row["name"]: row["speedup"] for row in told["rows"]}
        return {name: told[name] for name in ("best", "sentence", "counts", "notes", "rows")}

    for drafts in (1, 4, 16):
        yield f"logits, {drafts}", partial(by_logits, drafts)
    samples = TESTS / "formats" / "samples"
    for name, entry in json.loads((samples / "truth.json").read_text("utf-8")).items():
        yield name, partial(by_file, samples / name, entry.get("read", {}).get("depth") or 6)


def claims() -> Cases:
    """Every claim that has a name, at V = 2 and 3 and K = 2, as double description settles it."""
    from mdsd_opt.cddlib_checks import check, conjectures

    def settle(name: str, size: int) -> Any:
        told = check(name, vocab_size=size, num_drafts=2, timeout=3_600)
        names = ("verdict", "holds", "reason", "sizes", "instances", "counterexample")
        return {"facets": len(told.facets or ()), **{x: getattr(told, x) for x in names}}

    for size in (2, 3):
        for name in conjectures():
            yield f"{name}, V = {size}", partial(settle, name, size)


def chains() -> Cases:
    """Functions of chains and of rows of them, right and wrong."""
    from support import chain_verifiers, planted_chains

    audit = partial(audited, mo.audit_chain)
    for name, verify in planted_chains.wrong_batches().items():
        yield f"wrong rows: {name}", audit(verify, batch=3)
    for kind, gallery in (("right", chain_verifiers.CORRECT), ("wrong", chain_verifiers.LOSSY)):
        for name, verify in gallery.items():
            yield f"{kind} form: {name}", audit(verify)
    for name, make in planted_chains.wrong_ones().items():
        yield f"wrong chain: {name}", partial(lambda make: audit(make())(), make)
    for name, (verify, options) in planted_chains.right_ones().items():
        yield f"right chain: {name}", audit(verify, **options)


def decisions() -> Cases:
    """Functions and verifiers of one problem, right and wrong; first those that are driven."""
    import wrong_verifiers
    from support import planted_chains, reused_states
    from support.verifier_table import PAIRS, P, example

    p, q = [0.4, 0.3, 0.15, 0.1, 0.05], [0.1, 0.2, 0.3, 0.25, 0.15]  # two tokens are left
    small = mo.TransportProblem(p, mo.WithReplacement(q, 1))
    problem = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

    def of_one(verify: Any, p: Any, q: Any, drafts: Any, rng: Any) -> int:
        return int(verify(np.array([p, p]), np.array([q]), drafts)[0])

    def of_states(case: reused_states.Case, is_wrong: bool) -> Any:
        return audited(mo.audit, reused_states.verifier(case(is_wrong)), problem)()

    for name, parts in planted_chains.BY_LAW.items():
        first = partial(of_one, parts.made())
        yield f"first token: {name}", audited(mo.audit, first, small, max_calls=20_000)
    for name, case in reused_states.CASES.items():
        if name not in ("rng kept", "numpy.random kept"):  # no two audits of them are the same
            yield f"wrong states: {name}", partial(of_states, case, True)
        yield f"harmless states: {name}", partial(of_states, case, False)
    for name, scheme in PAIRS:
        drafts = example(scheme, mo.verifiers.get(name))
        yield f"verifier: {name}, {scheme}", audited(mo.audit, name, mo.TransportProblem(P, drafts))
    for one in wrong_verifiers.gallery():
        options = {"sample": one.sample, "batched": one.batched}
        yield f"wrong verifier: {one.name}", audited(mo.audit, one.verify, one.problem, **options)


def texts() -> Cases:
    """Sessions, and rules for trees."""
    from support import planted_chains, text_sessions

    for kind, gallery in (("right", text_sessions.CORRECT), ("wrong", text_sessions.WRONG)):
        for name, verify in gallery.items():
            yield f"{kind} text: {name}", audited(mo.audit_text, verify)
    for name in planted_chains.IN_TEXTS:
        session = planted_chains.as_text(planted_chains.BY_LAW[name].made())
        yield f"wrong chain in a text: {name}", audited(mo.audit_text, session)
    for name in mo.trees.rule_names():
        yield f"rule: {name}", audited(mo.audit_portfolio, name)


def recorded() -> Cases:
    """Steps that were recorded, tokens of toy engines, and servers on loopback."""
    import wrong_verifiers
    from support import toy_engines as toys
    from support.fake_server import FakeServer, served
    from support.server_runs import Toy

    def of_steps(verify: Any, **options: Any) -> Any:
        rng = np.random.default_rng(0)
        logits = 2 * rng.normal(size=(300, 40))
        pair = logits, logits + rng.normal(size=logits.shape)
        p, q = map(mo.softmax, pair)
        drafts = np.stack([mo.WithReplacement(row, 2).sample(rng) for row in q])
        tokens = [verify(*row, rng) for row in zip(p, q, drafts, strict=True)]
        return facts(mo.audit_trace(*pair, drafts, np.array(tokens), logits=True, **options))

    def of_tokens(name: str, engine: Any) -> Any:
        return facts(Toy.of(name).audit(engine, 400, 0))

    def of_server(api: str, engine: Any, *faults: str) -> Any:
        with served(FakeServer(engine, seed=1, apis=(api,), faults=faults)) as (url,):
            options = {"max_tokens": 400, "timeout": 60.0, "concurrency": 1, "drafted": 100}
            return facts(mo.audit_server(url, **options))

    gallery = {one.name: one.verify for one in wrong_verifiers.gallery()}
    for name in ("skips_duplicates", "zeroes_the_token", "tests_independently"):
        yield f"steps: {name}", partial(of_steps, gallery[name])
    forged = {"draft_temperature": 1.3}, {"temperature": 0.7}, {"scheme": "without_replacement"}
    for options in ({}, *forged, {"top_k": 20}):
        yield f"steps: {options}", partial(of_steps, wrong_verifiers.faultless, **options)
    for of in ("RIGHT", "WRONG", "SMALL", "HELD_OUT"):
        for name, engine in getattr(toys, of).items():
            yield f"tokens, {of}: {name}", partial(of_tokens, name, engine)
    for api in ("llamacpp", "completions", "chat"):
        for name in ("chain of 4", "residual is p", "extra token: the likeliest"):
            engine = (toys.RIGHT | toys.WRONG)[name]
            yield f"server, {api}: {name}", partial(of_server, api, engine)
        for fault in ("no logprobs", "swapped ids", "no ids", "busy"):
            yield f"server, {api}: {fault}", partial(of_server, api, toys.Chain(), fault)


KINDS = {x.__name__: x for x in (rates, optima, advice, decisions, recorded, texts, chains, claims)}
