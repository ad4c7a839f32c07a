"""Adapters of functions that smaller packages ship, declared as the package's own are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from stand_ins import Overlaid, Replayed, Rows, Tables, mlx_in_numpy

from mdsd_opt.auditing.engines import Adapter
from mdsd_opt.auditing.engines.engine import Drafted
from mdsd_opt.decoding import Topology

Verify = Callable[..., Any]

PROMPT = torch.zeros(1, 1, dtype=torch.long)

TREE = Drafted(Topology({(): 2, (0,): 2}, "2, 2 after the first"))


def dflash(shipped: Adapter) -> Verify:
    function = shipped.load()
    return lambda p, q, drafts: function(drafts, p, q)


LOGGER = SimpleNamespace(**dict.fromkeys(("debug", "info"), lambda *_, **__: None))

#: What its file decides where the package of the kernel is not installed.
WITHOUT_KERNEL = {"_ASM_AVAILABLE": False, "_asm_residual_dist": None, "_ASM_SKIP_REASON": ""}


def flashspec_step(shipped: Adapter) -> Verify:
    """Without its assembly kernel, which is a package of its own."""
    function = shipped.load(logger=LOGGER, **WITHOUT_KERNEL)
    return lambda p, q, drafts: function(drafts, q, p)


def flashspec_sample(shipped: Adapter) -> Verify:
    """The token after the drafts, where all are accepted, is its caller's."""
    function = shipped.load(logger=LOGGER, **WITHOUT_KERNEL)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        n = drafts.shape[1]
        return function(None, q, p[:, :n], drafts, n)[0]

    return verify


def economize(shipped: Adapter) -> Any:
    """The verifier; its selector takes logits that are laws already."""
    rule = shipped.load(
        selector_distribution=lambda selector, law, history, user: law,
        selector_distributions=lambda selector, laws: laws,
        selector_generator=lambda selector, device: None,
    )
    return rule()


def economize_chain(shipped: Adapter) -> Verify:
    verifier = economize(shipped)

    def selector(law: Any, history: Any) -> int:
        return int(torch.multinomial(law, 1))

    return lambda p, q, drafts: verifier.verify(p, drafts.tolist(), q, selector, PROMPT[0], 0)


def economize_tree(shipped: Adapter) -> Verify:
    verifier = economize(shipped)

    def verify(root: Any, rng: Any) -> list[int]:
        rows, parents, tokens, q = flattened(root)
        draft = SimpleNamespace(
            tokens=torch.tensor([tokens]),
            lengths=[len(tokens)],
            parents=torch.tensor([parents]),
            probs=torch.tensor(np.array(q), dtype=torch.float32)[None],
        )
        laws = torch.tensor(np.array([row.target for row in rows]), dtype=torch.float32)
        paths, following = verifier.verify_tree(laws[None], draft, None)
        return [*(tokens[n] for n in paths[0]), following[0]]

    return verify


def flattened(root: Any) -> tuple[list[Any], list[int], list[int], list[Any]]:
    """All nodes; and of all but the root the number of the parent, the token and its draft law.

    The root is -1. Equal drafts are nodes of their own, each with all that comes after.
    """
    rows, parents, tokens, q, waiting = [root], [], [], [], [(-1, root)]
    while waiting:
        number, node = waiting.pop(0)
        for x in [] if node.drafts is None else node.draws.tolist():
            waiting.append((len(tokens), node.children[x]))
            rows.append(node.children[x])
            parents.append(number)
            tokens.append(x)
            q.append(node.drafts.q)
    return rows, parents, tokens, q


def specdec(shipped: Adapter) -> Verify:
    decoder = shipped.load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        this = SimpleNamespace(big_model=Rows(p), device="cpu")
        return decoder.verify(this, PROMPT, drafts.tolist(), list(q[:, None]))

    return verify


def dspark(shipped: Adapter) -> Verify:
    function = shipped.load()
    return lambda p, q, drafts, rng: function(drafts, q, p, rng).tokens


def mini_infer(shipped: Adapter) -> Verify:
    """It drafts by itself, and gets the audit's drafts, which are drawn from the same law."""
    draw = Replayed(torch.multinomial)
    function = shipped.load(torch=Overlaid(torch, multinomial=draw))

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        draw.drafts = list(drafts)
        target, draft = Rows(p), Rows(q)
        return function(
            lambda ids: (target(ids).logits, None), lambda ids: (draft(ids).logits, None),
            PROMPT, len(q), 1.0,
        )[0]  # fmt: skip

    return verify


def nunspark(shipped: Adapter) -> Verify:
    """MLX in NumPy, so that its draws can be answered."""
    function = shipped.load(mx=mlx_in_numpy())

    def verify(root: Any, rng: Any) -> list[int]:
        rows, parents, tokens, _ = flattened(root)
        shape = SimpleNamespace(children={n: [] for n in range(len(rows))})
        for n, parent in enumerate(parents):
            shape.children[parent + 1].append(n + 1)
        accepted, bonus, _ = function(
            shape,
            {n + 1: x for n, x in enumerate(tokens)},
            {n: np.log(row.drafts.q) for n, row in enumerate(rows) if row.drafts is not None},
            {n: np.log(row.target) for n, row in enumerate(rows)},
            temp=1.0,
        )
        return [*accepted, bonus]

    return verify


def hsd(shipped: Adapter) -> Callable[..., list[int]]:
    """A step of two models, of which one drafts n tokens."""
    sampling = shipped.definitions(path="seqspecdecod/sampling.py")
    draw = Replayed(sampling.sample_from_probs)
    function = shipped.load(
        get_logits=sampling.get_logits,
        apply_temperature=sampling.apply_temperature,
        sample_from_probs=draw,
    )

    def step(target: Any, draft: Any, n: int, drafts: Any = ()) -> list[int]:
        draw.drafts = list(drafts)
        ids, _, _ = function(draft, target, PROMPT, n, 1.0, 1.0)
        return list(ids[0, 1:].tolist())

    return step


def hsd_chain(shipped: Adapter) -> Verify:
    """It gets the audit's drafts, which are drawn from the same law."""
    step = hsd(shipped)
    return lambda p, q, drafts: step(Rows(p), Rows(q), len(q), drafts)


def hsd_texts(shipped: Adapter) -> Verify:
    """After a refusal it goes on to the length of the drafts, so that whole texts are looked at."""
    step = hsd(shipped)
    return lambda target, draft: step(Tables(target), Tables(draft), 2)


def mtplx(shipped: Adapter) -> Verify:
    """The token after an accepted draft is its caller's."""
    function = shipped.load()

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
        x = int(drafts[0])
        decision = function(p[0], q[0], x, rng)
        if decision.accepted:
            return [x, int(rng.choice(p.shape[1], p=p[1]))]
        return [decision.token_id]

    return verify


def rotalabs_tokens(shipped: Adapter) -> Verify:
    """By default, with what draws its tokens in its package."""
    sampling = shipped.definitions(
        "sample_from_logits", path="rotalabs_accel/speculative/sampling.py"
    )
    function = shipped.load(DynamicCache=tuple, sample_from_logits=sampling.sample_from_logits)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        drawn = q[range(len(q)), drafts]
        return function(Rows(p), PROMPT, drafts, drawn, None)[0]

    return verify


def rotalabs_sample(shipped: Adapter) -> Verify:
    """One draft after the other until one is refused, as its docstring says."""
    function = shipped.load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        tokens = []
        for n, x in enumerate(drafts):
            accepted, token = function(p[n, x], q[n, x], x, p[n].log())
            tokens.append(int(token))
            if not accepted:
                return tokens
        return [*tokens, int(torch.multinomial(p[-1], 1))]

    return verify


def rotalabs_eagle(shipped: Adapter) -> Verify:
    function = shipped.load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        drawn = q[range(len(q)), drafts]
        return function(
            Rows(p), PROMPT, drafts[None], drawn[None], None, temperature=1.0, use_sampling=True
        )[0]

    return verify


def srep(shipped: Adapter) -> Verify:
    driver = shipped.load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        this = SimpleNamespace(gamma=len(drafts), device="cpu")
        return driver.speculative_sampling(this, drafts.tolist(), p.log()[None], 1.0)[1]

    return verify


class NoProcessors(list[Any]):
    """A list of logits processors that is empty: plain sampling."""

    def __call__(self, ids: Any, logits: Any) -> Any:
        return logits


def mblt(shipped: Adapter) -> Verify:
    """A chain as a tree of one path; the last token is drawn as `update_inference_inputs` does."""
    function = shipped.load(LogitsProcessorList=NoProcessors, TopKLogitsWarper=int, logger=LOGGER)
    after_all = shipped.definitions(
        "_sample_next_token_from_processor", LogitsProcessorList=NoProcessors
    )._sample_next_token_from_processor

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        path = torch.cat([PROMPT[0], drafts])[None]
        places = torch.arange(path.shape[1])[None]
        _, count, law, ids = function(p.log(), path, NoProcessors(), places)
        if ids is None:
            last = after_all(law, NoProcessors())
        else:
            last = ids[torch.multinomial(law, 1)]
        return [*drafts[: int(count)].tolist(), int(last)]

    return verify


class Scored:
    """A place of the target: its own token, as a server samples it, and the draft's logarithm."""

    def __init__(self, law: Any, draft: int | None) -> None:
        self._law = law
        self.logprob = 0.0  # of the token; nothing is decided by it
        with np.errstate(divide="ignore"):
            self.draft_token_logprob = None if draft is None else np.log(law[draft])

    @cached_property
    def token_id(self) -> int:
        """Drawn when it is asked for, which is the same law and less to look through."""
        return int(np.random.choice(self._law.size, p=self._law))  # noqa: NPY002


def tightwad(shipped: Adapter) -> Verify:
    function = shipped.load()

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        tokens = drafts.tolist()
        drafted = [
            SimpleNamespace(token_id=x, logprob=np.log(q[n, x])) for n, x in enumerate(tokens)
        ]
        scored = [Scored(law, x) for law, x in zip(p, [*tokens, None], strict=True)]
        found = function(drafted, scored)
        last = found.bonus_token or found.resample_token
        return [*(draft.token_id for draft in found.accepted_tokens), last.token_id]

    return verify


TORCH = {"library": "torch"}
BATCH = {"library": "torch", "batch": True}
LOGARITHMS = {"library": "torch", "batch": True, "takes": "log_probabilities"}


def declared(requirement: str, path: str, function: str, made: Any, **handed: Any) -> Adapter:
    """An adapter for a version of a package."""
    package, _, version = requirement.partition("==")
    where: Any = {"package": package, "tested": (version,), "path": path, "function": function}
    return Adapter(**where, made=made, **handed)


_HSD = partial(declared, "sequential-speculative-decoding==0.1.1")
_ROTALABS = partial(declared, "rotalabs-accel==1.1.1")
_ECONOMIZE = partial(declared, "economize==0.3.2", "economize/decoding/verifiers.py")
_FLASHSPEC = partial(declared, "flashspec==0.3.1", "flashspec/sampling/rejection.py")

SHIPPED = (
    declared("dflash==0.1.0", "dflash/model.py", "_rejection_sample", dflash, **BATCH),
    _FLASHSPEC("rejection_step", flashspec_step, **LOGARITHMS),
    _FLASHSPEC("rejection_sample", flashspec_sample, **LOGARITHMS),
    _ECONOMIZE("RejectionVerifier.verify", economize_chain, **TORCH),
    _ECONOMIZE("RejectionVerifier.verify_tree", economize_tree, drafted=TREE),
    declared("specdec==0.2.0", "specdec/decoder.py", "SpecDecoder.verify", specdec, **TORCH),
    declared("dspark-mlx==0.1.0", "dspark_mlx/verify.py", "speculative_sample_accept", dspark),
    declared(
        "mini-infer==0.2.5", "mini_infer/speculative/verifier.py", "speculative_step",
        mini_infer, **TORCH,
    ),
    declared(
        "nunspark==0.13.0", "nunspark/tree_spec.py", "sample_accepted_path", nunspark, drafted=TREE
    ),
    _HSD("seqspecdecod/standard_sd.py", "standard_speculative_step", hsd_chain, **TORCH),
    _HSD("seqspecdecod/naive_hsd.py", "naive_hsd_step", hsd_texts),
    _HSD("seqspecdecod/capped_hsd.py", "capped_hsd_step", hsd_chain, **TORCH),
    declared("mtplx==2.12.2", "mtplx/sampling.py", "verify_one_token", mtplx, num_drafts=1),
    _ROTALABS("rotalabs_accel/speculative/core.py", "verify_tokens", rotalabs_tokens, **TORCH),
    _ROTALABS(
        "rotalabs_accel/speculative/sampling.py", "rejection_sample", rotalabs_sample, **TORCH
    ),
    _ROTALABS("rotalabs_accel/speculative/eagle.py", "eagle_verify", rotalabs_eagle, **TORCH),
    declared(
        "srep-moe==0.1.0", "srep_moe/sd_engine.py", "EAGLE3SDDriver.speculative_sampling", srep,
        **TORCH,
    ),
    declared(
        "transformers-mblt==0.6.1", "transformers_mblt/utils/eagle3/tree_decoding.py",
        "evaluate_posterior", mblt, num_drafts=1, **TORCH,
    ),
    declared("tightwad==0.5.4", "tightwad/speculation.py", "verify_stochastic", tightwad),
)  # fmt: skip
