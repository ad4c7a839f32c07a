"""Functions that packages ship, each called as its own package calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from stand_ins import Overlaid, Replayed, Rows, Tables, mlx_in_numpy

import mdsd_opt as mo
from mdsd_opt.auditing import load_definitions
from mdsd_opt.auditing.chains import of_chains
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Topology

Verify = Callable[..., Any]

#: Time at most; no audit comes near it on a machine that does nothing else.
SECONDS = 3600.0

#: Calls for each law that is sampled, random calls that a driven law must foretell, time.
LIMITS = {"num_trials": 12_000, "driven_checks": 5, "seconds": SECONDS}

PROMPT = torch.zeros(1, 1, dtype=torch.long)


@dataclass(frozen=True)
class Shipped:
    """A function of a package.

    Attributes
    ----------
    package, path : str
        Distribution, and the file within it.
    name : str
        Of the function in the file, dotted in a class.
    adapter : callable
        From what loads the definition (other packages' names are given to it) to the verifier.
    audited : callable
        From the verifier to the report.
    """

    package: str
    path: str
    name: str
    adapter: Callable[[Callable[..., Any]], Any]
    audited: Callable[[Any], Any]

    def load(self, **given: Any) -> Any:
        """The definition, unmodified."""
        name = self.name.partition(".")[0]
        return getattr(load_definitions(self.path, name, package=self.package, **given), name)

    def report(self) -> Any:
        """What the audit finds."""
        return self.audited(self.adapter(self.load))


def chains(**options: Any) -> Callable[[Verify], Any]:
    """An audit on laws of all kinds."""
    return lambda verify: mo.audit_chain(verify, 0, **LIMITS, **options)


def of_trees(verify: Verify) -> Any:
    """Texts of three tokens after two drafts, drawn with replacement, and two after the first."""
    target, draft = TableModel(3, 6), TableModel(3, 7)
    return mo.audit_tree(
        verify, target, draft, Topology({(): 2, (0,): 2}, "2, 2 after the first"), 0,
        method="driven", driven_checks=5, seconds=SECONDS,
    )  # fmt: skip


def of_texts(step: Callable[[Any, Any], list[int]], size: int = 3, length: int = 3) -> Any:
    """An audit of a step that drafts by itself: its texts, as numbers, are tokens of one law.

    What a step leaves open is drawn from the target.
    """
    target, draft = TableModel(size, 6), TableModel(size, 7)
    law = np.ones(1)
    for n in range(length):
        law = (law[:, None] * [target(text) for text in np.ndindex(*(size,) * n)]).ravel()

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        text = step(target, draft)
        while len(text) < length:
            text.append(int(np.random.choice(size, p=target(tuple(text)))))  # noqa: NPY002
        return int(np.ravel_multi_index(text, (size,) * length))

    problem = mo.TransportProblem(law, mo.TopKDrafts(law, 1))
    return mo.audit(verify, problem, 0, 1_000, method="driven", driven_checks=100, seconds=SECONDS)


def on_tables(size: int, num_drafts: int) -> Callable[[Verify], Any]:
    """An audit of chains on random laws alone, exactly."""
    target, draft = TableModel(size, 6), TableModel(size, 7)

    def audited(verify: Verify) -> Any:
        def chain(p: Any, q: Any, drafts: Any) -> Any:
            return verify(torch.tensor(p).float(), torch.tensor(q).float(), torch.tensor(drafts))

        rule = of_chains("verify", chain)
        return mo.audit_tree(
            lambda root, rng: rule(root), target, draft, f"chain{num_drafts}", 0,
            method="driven", driven_checks=5, seconds=SECONDS,
        )  # fmt: skip

    return audited


TORCH = chains(library="torch")
BATCH = chains(library="torch", batch=True)
LOGARITHMS = chains(library="torch", batch=True, takes="log_probabilities")


def dflash(load: Any) -> Verify:
    function = load()
    return lambda p, q, drafts: function(drafts, p, q)


LOGGER = SimpleNamespace(**dict.fromkeys(("debug", "info"), lambda *_, **__: None))

#: What its file decides where the package of the kernel is not installed.
WITHOUT_KERNEL = {"_ASM_AVAILABLE": False, "_asm_residual_dist": None, "_ASM_SKIP_REASON": ""}


def flashspec_step(load: Any) -> Verify:
    """Without its assembly kernel, which is a package of its own."""
    function = load(logger=LOGGER, **WITHOUT_KERNEL)
    return lambda p, q, drafts: function(drafts, q, p)


def flashspec_sample(load: Any) -> Verify:
    """The token after the drafts, where all are accepted, is its caller's."""
    function = load(logger=LOGGER, **WITHOUT_KERNEL)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        n = drafts.shape[1]
        return function(None, q, p[:, :n], drafts, n)[0]

    return verify


def economize(load: Any) -> Any:
    """The verifier; its selector takes logits that are laws already."""
    rule = load(
        Verifier=object,
        VERIFIERS=SimpleNamespace(register=lambda name: lambda rule: rule),
        selector_distribution=lambda selector, law, history, user: law,
        selector_distributions=lambda selector, laws: laws,
        selector_generator=lambda selector, device: None,
        device_tensor=None,
        ConfigError=ValueError,
    )
    return rule()


def economize_chain(load: Any) -> Verify:
    verifier = economize(load)

    def selector(law: Any, history: Any) -> int:
        return int(torch.multinomial(law, 1))

    return lambda p, q, drafts: verifier.verify(p, drafts.tolist(), q, selector, PROMPT[0], 0)


def economize_tree(load: Any) -> Verify:
    verifier = economize(load)

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


def specdec(load: Any) -> Verify:
    decoder = load(AutoModelForCausalLM=None, AutoTokenizer=None)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        this = SimpleNamespace(big_model=Rows(p), device="cpu")
        return decoder.verify(this, PROMPT, drafts.tolist(), list(q[:, None]))

    return verify


def dspark(load: Any) -> Verify:
    function = load()
    return lambda p, q, drafts, rng: function(drafts, q, p, rng).tokens


def mini_infer(load: Any) -> Verify:
    """It drafts by itself, and gets the audit's drafts, which are drawn from the same law."""
    draw = Replayed(torch.multinomial)
    function = load(torch=Overlaid(torch, multinomial=draw), Qwen2ForCausalLM=None)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        draw.drafts = list(drafts)
        target, draft = Rows(p), Rows(q)
        return function(
            lambda ids: (target(ids).logits, None), lambda ids: (draft(ids).logits, None),
            PROMPT, len(q), 1.0,
        )[0]  # fmt: skip

    return verify


def nunspark(load: Any) -> Verify:
    """MLX in NumPy, so that its draws can be answered."""
    function = load(mx=mlx_in_numpy(), TreeShape=None)

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


def hsd(load: Any) -> Callable[..., list[int]]:
    """A step of two models, of which one drafts n tokens."""
    sampling = load_definitions(
        "seqspecdecod/sampling.py", "get_logits", "apply_temperature", "sample_from_probs",
        package="sequential-speculative-decoding",
    )  # fmt: skip
    draw = Replayed(sampling.sample_from_probs)
    function = load(**{**vars(sampling), "sample_from_probs": draw})

    def step(target: Any, draft: Any, n: int, drafts: Any = ()) -> list[int]:
        draw.drafts = list(drafts)
        ids, _, _ = function(draft, target, PROMPT, n, 1.0, 1.0)
        return list(ids[0, 1:].tolist())

    return step


def hsd_chain(load: Any) -> Verify:
    """It gets the audit's drafts, which are drawn from the same law."""
    step = hsd(load)
    return lambda p, q, drafts: step(Rows(p), Rows(q), len(q), drafts)


def hsd_texts(load: Any) -> Verify:
    """After a refusal it goes on to the length of the drafts, so that whole texts are looked at."""
    step = hsd(load)
    return lambda target, draft: step(Tables(target), Tables(draft), 2)


def mtplx(load: Any) -> Verify:
    """The token after an accepted draft is its caller's."""
    function = load(kv_attention_failure_line=str)

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
        x = int(drafts[0])
        decision = function(p[0], q[0], x, rng)
        if decision.accepted:
            return [x, int(rng.choice(p.shape[1], p=p[1]))]
        return [decision.token_id]

    return verify


def rotalabs_tokens(load: Any) -> Verify:
    """By default, with what draws its tokens in its package."""
    sampling = load_definitions(
        "rotalabs_accel/speculative/sampling.py", "sample_from_logits", package="rotalabs-accel"
    )
    function = load(
        PreTrainedModel=None, DynamicCache=tuple, sample_from_logits=sampling.sample_from_logits
    )

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        drawn = q[range(len(q)), drafts]
        return function(Rows(p), PROMPT, drafts, drawn, None)[0]

    return verify


def rotalabs_sample(load: Any) -> Verify:
    """One draft after the other until one is refused, as its docstring says."""
    function = load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        tokens = []
        for n, x in enumerate(drafts):
            accepted, token = function(p[n, x], q[n, x], x, p[n].log())
            tokens.append(int(token))
            if not accepted:
                return tokens
        return [*tokens, int(torch.multinomial(p[-1], 1))]

    return verify


def rotalabs_eagle(load: Any) -> Verify:
    function = load(PreTrainedModel=None)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        drawn = q[range(len(q)), drafts]
        return function(
            Rows(p), PROMPT, drafts[None], drawn[None], None, temperature=1.0, use_sampling=True
        )[0]

    return verify


def srep(load: Any) -> Verify:
    driver = load()

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        this = SimpleNamespace(gamma=len(drafts), device="cpu")
        return driver.speculative_sampling(this, drafts.tolist(), p.log()[None], 1.0)[1]

    return verify


class NoProcessors(list[Any]):
    """A list of logits processors that is empty: plain sampling."""

    def __call__(self, ids: Any, logits: Any) -> Any:
        return logits


def mblt(load: Any) -> Verify:
    """A chain as a tree of one path; the last token is drawn as `update_inference_inputs` does."""
    function = load(LogitsProcessorList=NoProcessors, TopKLogitsWarper=int, logger=LOGGER)
    after_all = load_definitions(
        "transformers_mblt/utils/eagle3/tree_decoding.py", "_sample_next_token_from_processor",
        package="transformers-mblt", LogitsProcessorList=NoProcessors,
    )._sample_next_token_from_processor  # fmt: skip

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


def tightwad(load: Any) -> Verify:
    function = load()

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


_HSD = partial(Shipped, "sequential-speculative-decoding")
_ROTALABS = partial(Shipped, "rotalabs-accel")
_ECONOMIZE = partial(Shipped, "economize", "economize/decoding/verifiers.py")
_FLASHSPEC = partial(Shipped, "flashspec", "flashspec/sampling/rejection.py")

SHIPPED = (
    Shipped("dflash", "dflash/model.py", "_rejection_sample", dflash, BATCH),
    _FLASHSPEC("rejection_step", flashspec_step, LOGARITHMS),
    _FLASHSPEC("rejection_sample", flashspec_sample, LOGARITHMS),
    _ECONOMIZE("RejectionVerifier.verify", economize_chain, TORCH),
    _ECONOMIZE("RejectionVerifier.verify_tree", economize_tree, of_trees),
    Shipped("specdec", "specdec/decoder.py", "SpecDecoder.verify", specdec, TORCH),
    Shipped(
        "dspark-mlx", "dspark_mlx/verify.py", "speculative_sample_accept", dspark, chains()
    ),
    Shipped(
        "mini-infer", "mini_infer/speculative/verifier.py", "speculative_step",
        mini_infer, TORCH,
    ),
    Shipped(
        "nunspark", "nunspark/tree_spec.py", "sample_accepted_path", nunspark, of_trees
    ),
    _HSD("seqspecdecod/standard_sd.py", "standard_speculative_step", hsd_chain, TORCH),
    _HSD("seqspecdecod/naive_hsd.py", "naive_hsd_step", hsd_texts, of_texts),
    _HSD("seqspecdecod/capped_hsd.py", "capped_hsd_step", hsd_chain, TORCH),
    Shipped(
        "mtplx", "mtplx/sampling.py", "verify_one_token", mtplx, chains(num_drafts=1)
    ),
    _ROTALABS("rotalabs_accel/speculative/core.py", "verify_tokens", rotalabs_tokens, TORCH),
    _ROTALABS("rotalabs_accel/speculative/sampling.py", "rejection_sample", rotalabs_sample, TORCH),
    _ROTALABS("rotalabs_accel/speculative/eagle.py", "eagle_verify", rotalabs_eagle, TORCH),
    Shipped(
        "srep-moe", "srep_moe/sd_engine.py", "EAGLE3SDDriver.speculative_sampling", srep,
        TORCH,
    ),
    Shipped(
        "transformers-mblt", "transformers_mblt/utils/eagle3/tree_decoding.py",
        "evaluate_posterior", mblt, on_tables(16, 1),
    ),
    Shipped(
        "tightwad", "tightwad/speculation.py", "verify_stochastic", tightwad, chains()
    ),
)  # fmt: skip
