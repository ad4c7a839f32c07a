"""Audits of functions that verify a chain of drafts: one line instead of an adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.on_laws import OnTrees
from mdsd_opt.auditing.portfolio import PortfolioReport, given_laws, standard_laws, wide_laws
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.report import HIDDEN_AT_MOST, is_tolerable
from mdsd_opt.auditing.settings import MAX_CALLS, Options, generator_of
from mdsd_opt.auditing.subject import AlwaysFails, Failure, TreeVerify, judged, outcome_of
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.topology import Topology

Rows = NDArray[np.float64]
Tokens = tuple[int, ...]

#: Maps p (n + 1, V), q (n, V) and n drafts to the accepted ones and one more token.
Chain = Callable[[Rows, Rows, Tokens], Any]

TAKES = ("probabilities", "logits", "log_probabilities")
LIBRARIES = ("numpy", "torch")

_MOST_DRAFTS = 16

#: Calls that show how to read the answers, and the vocabulary size of their laws.
_READ_CALLS, _READ_TOKENS = 64, 8


def audit_chain(
    verify: Callable[..., Any],
    rng: np.random.Generator | int = 0,
    *,
    takes: str = "probabilities",
    batch: bool | int = False,
    library: str = "numpy",
    num_drafts: int = 2,
    laws: tuple[Any, Any] | None = None,
    vocab_sizes: Sequence[int] | None = None,
    promise: Sampling | None = None,
    num_trials: int = 20_000,
    method: str = "auto",
    seconds: float = 120.0,
    max_calls: int = MAX_CALLS,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    driven_checks: int = 50,
    progress: bool | None = None,
) -> PortfolioReport:
    r"""Decide whether a function that verifies a chain of drafts is lossless, on laws of all kinds.

    The law of the whole text counts, see `mdsd_opt.audit_tree`: accepted drafts and one more token,
    completed by the target. Small laws are driven through chosen random numbers and so exact; wide
    ones (V = 32, and 2,048 with a long tail) are sampled, so that a function that is right has "no
    deviation", and the report says which bias could have stayed hidden. It says on which laws it
    was tried, how often drafts were accepted and refused at each level, and whether answers depend
    on earlier calls.

    Parameters
    ----------
    verify : callable
        ``verify(p, q, drafts)`` with p of shape (n + 1, V), q (n, V), drafts (n,). It may draw from
        PyTorch, `random` or `numpy.random`, which the audit answers, or take an argument ``rng``.
        Its answer may be the tokens (accepted drafts and one more; ids below zero are padding), how
        many were accepted and the last token, the accepted drafts and the last token, or padded
        tokens and their number: what fits most of 64 calls is taken.
    rng : numpy.random.Generator or int
    takes : str
        "probabilities", "logits" or "log_probabilities"; impossible tokens have -inf.
    batch : bool or int
        Whether a leading axis of one is expected: p of shape (1, n + 1, V), drafts (1, n). A number
        B of two or more: calls have B rows, each with laws of its own, p of shape (B, n + 1, V) and
        so on. Rows have different numbers of drafts, padded with -1, and their laws are NaN behind
        the last one; each row is judged by its own law.
    library : str
        "numpy" (float64) or "torch" (float32).
    num_drafts : int
        n.
    laws : tuple of two array_like, shape (..., V), optional
        Logits of target and draft to audit on, instead of laws of all kinds: consecutive rows are
        the places of a text, V is 262,144 at most.
    vocab_sizes : sequence of int, optional
        Instead of the wide laws, one with a long tail of each size.
    promise : Sampling, optional
        Temperature and filters that the function itself applies to both sides. Drafts are drawn
        from the draft's law under the promise, and tokens are to follow the target's.
    num_trials : int
        Calls for each of the laws that are sampled; 12,000 at most of a wide law or of a batch.
    method : str
        "auto", "driven" (the same: what cannot be driven is sampled) or "sampling".
    seconds : float
        A limit for all laws together. The verdict names it where it was reached; budgets are calls.
    max_calls : int
        Most calls for driving one law.
    false_alarm : float
        Probability, at most, that sampling calls a lossless function lossy, on any of the laws.
    power : float
        Power with which the `detectable_bias` of a sample is found.
    driven_checks : int
        Random calls for each tuple of drafts that a driven law must foretell.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    InvalidInput
        The function fails on every call, or its answers cannot be read.
    UnservedDraw
        It draws random numbers that the audit cannot answer.
    """
    for value, name, known in ((takes, "takes", TAKES), (library, "library", LIBRARIES)):
        if value not in known:
            raise UnknownName.among(name, value, known)
    if not callable(verify):
        raise InvalidInput(
            f"verify is a {type(verify).__name__}: give a callable (p, q, drafts) -> tokens"
        )
    if not 1 <= num_drafts <= _MOST_DRAFTS:
        raise InvalidInput(f"num_drafts is {num_drafts!r}: give a number from 1 to {_MOST_DRAFTS}")
    options = Options(
        method=method,
        num_trials=num_trials,
        max_calls=max_calls,
        seconds=seconds,
        false_alarm=false_alarm,
        power=power,
        edge_probes=64,
        driven_checks=driven_checks,
        progress=progress,
    )
    rng = generator_of(rng)
    if not isinstance(batch, (bool, int, np.integer)):
        raise InvalidInput(f"batch is {batch!r}: give True, False or a number of rows")
    if not isinstance(batch, bool) and batch != 1:
        if (laws, vocab_sizes, promise) != (None, None, None):
            raise InvalidInput(
                "laws, vocab_sizes and promise go with one chain at a time: rows of a batch have "
                "laws of their own"
            )
        from mdsd_opt.auditing.rows import audit_rows

        caller = Caller(verify, takes, library, rng)
        return audit_rows(caller, batch, num_drafts, options, rng)
    caller = Caller(verify, takes, library, rng, bool(batch))
    given = None if laws is None else given_laws(*laws, num_drafts + 1)
    read_at = _READ_TOKENS if given is None else given[0].vocab_size
    rule = chain_rule("verify", caller, num_drafts, rng, read_at)
    small = standard_laws(1) if given is None else []
    wide = wide_laws(num_drafts + 1, vocab_sizes) if given is None else given
    on_trees = OnTrees(rule, chain_of(num_drafts), WithReplacement, options, promise)
    return on_trees.report(small, wide, rng)


def assert_lossless(
    verify: Callable[..., Any], *, tolerate_edge: float = 1e-12, **options: Any
) -> PortfolioReport:
    """Audit a function that verifies a chain of drafts, in a test of one's own.

    Parameters
    ----------
    verify : callable
        As in `audit_chain`.
    tolerate_edge : float
        Probability of impossible values up to which an edge passes.
    **options
        Options of `audit_chain`.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    AssertionError
        A deviation was found, or a bias of .05 could have stayed hidden; it holds the verdict.
    """
    report = audit_chain(verify, **options)
    edge = is_tolerable(report, tolerate_edge)
    if not (report.lossless or (edge and report.detectable_bias < HIDDEN_AT_MOST)):
        raise AssertionError(report.verdict)
    return report


def chain_of(num_drafts: int) -> Topology:
    """Tree that is a chain of so many drafts."""
    return Topology(dict.fromkeys([(0,) * n for n in range(num_drafts)], 1), f"chain{num_drafts}")


class Caller:
    """Call the function with arrays of its library, and return its answer unchanged."""

    def __init__(
        self,
        verify: Callable[..., Any],
        takes: str,
        library: str,
        rng: np.random.Generator,
        batch: bool = False,
    ) -> None:
        if library == "torch":
            _need_torch()
        self._verify, self._logarithms = verify, takes != "probabilities"
        self._lead = None if batch else ...
        self._convert = _tensors if library == "torch" else _arrays
        self.rng, self._takes_rng = rng, "rng" in _parameters(verify)

    def __call__(self, p: Rows, q: Rows, drafts: Tokens) -> Any:
        """Answer to one chain."""
        ids = np.array(drafts, dtype=np.int64)
        return self.on_arrays(p[self._lead], q[self._lead], ids[self._lead])

    def on_arrays(self, p: Rows, q: Rows, drafts: NDArray[np.int64]) -> Any:
        """Answer to arrays of laws and drafts, of any shape."""
        laws = [p, q]
        if self._logarithms:
            with np.errstate(divide="ignore"):
                laws = [np.log(law) for law in laws]
        arguments: list[NDArray[Any]] = [*laws, drafts]
        named = {"rng": self.rng} if self._takes_rng else {}
        return self._verify(*self._convert(arguments), **named)


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some built-in functions have none
        return []


def _arrays(rows: Sequence[NDArray[Any]]) -> list[Any]:
    return [row.copy() for row in rows]  # they may be written to


def _tensors(rows: Sequence[NDArray[Any]]) -> list[Any]:
    import torch

    return [
        torch.from_numpy(row.copy() if row.dtype == np.int64 else row.astype(np.float32))
        for row in rows
    ]


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtra("library='torch' needs PyTorch: pip install torch") from None


def of_chains(name: str, chain: Chain) -> Callable[[Node], Tokens]:
    """Rule for trees of one branch, made of a function for chains."""

    def rule(root: Node) -> Tokens:
        nodes, q = [root], []
        while nodes[-1].drafts is not None:
            node, drawn = nodes[-1], nodes[-1].drafts.random_draws
            if drawn is None or not drawn.is_replaced or drawn.num_drafts != 1:
                raise InvalidInput(
                    f"{name} verifies one draft after another: audit it on trees such as chain2 "
                    "and on problems of one draft"
                )
            q.append(drawn.q)
            nodes.append(node.children[int(node.draws[0])])
        # The same as np.stack, which takes as long as a verifier of few tokens.
        p = np.array([node.target for node in nodes])
        answer: Tokens = chain(p, np.array(q), nodes[-1].tokens)
        return answer

    return rule


def chain_rule(
    name: str,
    caller: Caller,
    num_drafts: int,
    rng: np.random.Generator,
    vocab_size: int = _READ_TOKENS,
    calls: int = _READ_CALLS,
) -> TreeVerify:
    """Rule for trees that are chains, of a function whose answers some calls show how to read."""
    rule = of_chains(name, read_answers(caller, num_drafts, rng, vocab_size, calls))

    def drawing_from(root: Node, rng: np.random.Generator) -> Tokens:
        caller.rng = rng
        return rule(root)

    return drawing_from


def read_answers(
    call: Chain, num_drafts: int, rng: np.random.Generator, vocab_size: int, calls: int
) -> Chain:
    """Wrap the function so that its answers are read as tokens, in the way that fits most calls.

    Raises
    ------
    AlwaysFails
        Every call raises.
    InvalidInput
        No way to read them fits any answer.
    """
    answers: list[tuple[Any, Tokens]] = []
    failure: Failure | None = None
    with served(rng) as serving:
        for _ in range(calls):
            laws = rng.dirichlet(np.ones(vocab_size), 2 * num_drafts + 1)
            drafts = tuple(int(rng.choice(vocab_size, p=q)) for q in laws[:num_drafts])
            outcome = outcome_of(partial(_answer, call, laws, drafts, answers))
            if isinstance(outcome, Failure):
                failure = outcome
            serving.check()
    if not answers:
        assert failure is not None
        raise AlwaysFails(failure, "It is called with (p [n + 1, V], q [n, V], drafts [n]).")
    fits = [sum(is_read(read, *one, vocab_size) for one in answers) for read in READINGS]
    best = int(np.argmax(fits))
    if not fits[best]:
        raise InvalidInput(
            f"verify gave {answers[0][0]!r} for the drafts {list(answers[0][1])}, which is neither "
            "tokens (accepted drafts and one more), nor (accepted, last token), nor (tokens, how "
            "many): return one of these"
        )
    read = READINGS[best]
    return lambda p, q, drafts: tuple(read(call(p, q, drafts), drafts))


def _answer(call: Chain, laws: Rows, drafts: Tokens, answers: list[tuple[Any, Tokens]]) -> None:
    """Call the function with q in the first rows and p in the others, and keep its answer."""
    answers.append((call(laws[len(drafts) :], laws[: len(drafts)], drafts), drafts))


def is_read(
    read: Callable[[Any, Tokens], Sequence[int]],
    answer: Any,
    drafts: Tokens,
    vocab_size: int = _READ_TOKENS,
) -> bool:
    """Whether this way of reading gives accepted drafts and one more token."""
    try:
        tokens = list(read(answer, drafts))
    except (TypeError, ValueError, IndexError, InvalidInput):
        return False
    if not 1 <= len(tokens) <= len(drafts) + 1 or tuple(tokens[:-1]) != drafts[: len(tokens) - 1]:
        return False
    return not any(judged(token, vocab_size)[0] for token in tokens)


def _items(answer: Any) -> Iterator[Any]:
    """Items of a list, an array, or one with a leading axis of one, without padding."""
    row = answer
    if hasattr(row, "shape") or hasattr(row, "__array__"):
        row = to_numpy(row, "the answer").reshape(-1).tolist()
    row = list(row)
    while len(row) == 1 and not np.isscalar(row[0]):
        row = to_numpy(row[0], "the answer").reshape(-1).tolist()
    for item in row:
        value = item.item() if hasattr(item, "item") else item
        if isinstance(value, (int, np.integer)) and value < 0:
            continue
        yield value


def _number(value: Any) -> int:
    return int(to_numpy(value, "the answer").reshape(-1).item())


def _tokens(answer: Any, drafts: Tokens) -> list[int]:
    return list(_items(answer))


def _count_and_last(answer: Any, drafts: Tokens) -> list[int]:
    count, last = answer[0] if getattr(answer, "shape", None) == (1, 2) else answer
    return [*drafts[: _number(count)], _number(last)]


def _accepted_and_last(answer: Any, drafts: Tokens) -> list[int]:
    accepted, last = answer
    return [*_items(accepted), _number(last)]


def _tokens_and_count(answer: Any, drafts: Tokens) -> list[int]:
    tokens, count = answer
    return list(_items(tokens))[: _number(count) + 1]


def _tokens_first(answer: Any, drafts: Tokens) -> list[int]:
    return list(_items(answer[0]))


def _tokens_last(answer: Any, drafts: Tokens) -> list[int]:
    return list(_items(answer[-1]))


#: Ways to read an answer; of several that fit equally well, the first is taken.
READINGS: tuple[Callable[[Any, Tokens], Sequence[int]], ...] = (
    _count_and_last,
    _tokens,
    _accepted_and_last,
    _tokens_and_count,
    _tokens_first,
    _tokens_last,
)
