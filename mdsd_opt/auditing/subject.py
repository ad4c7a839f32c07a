"""Wrapper of a verifier under audit: its answers are checked, its failures kept as outcomes."""

from __future__ import annotations

import inspect
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.pace import outcomes
from mdsd_opt.auditing.randomness import Serving, served
from mdsd_opt.base.arrays import Matrix, Text, Tokens, to_numpy
from mdsd_opt.base.checked import check_function
from mdsd_opt.base.foreign import describe, foreign, ran
from mdsd_opt.base.installed import loaded
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import ForeignFault, InvalidInput
from mdsd_opt.evidence import NO_ANSWERS, Violation
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import Verifier, get, names

if TYPE_CHECKING:
    from mdsd_opt.trees import Node

#: Outcome of a call that gave no token.
NO_TOKEN = -1

#: Rows in one call of a batched verifier.
BATCH_ROWS = 1 << 16

#: Most violations that a report describes; the others are counted.
MAX_LISTED = 8

#: Number of calls between two progress updates.
_CALLS_A_LINE = 256

#: Number of first calls that all raise where the callable is no verifier at all.
HOPELESS_CALLS = 10

#: Maps (root, rng) to the accepted drafts and one more token.
TreeVerify = Callable[[Any, np.random.Generator], Any]
Simulation = Callable[[TransportProblem, np.random.Generator, int], tuple[Any, Any]]


#: Errors by which a function refuses an input that it knows; others are mistakes.
REFUSALS = ("ValueError", "AssertionError", "NotImplementedError")


@dataclass(slots=True, eq=False)
class DraftChain:
    """Drafts that were drawn one after another; its other names are those of a `Node`."""

    p: Matrix  # laws at their places as the function is shown them, shape (n + 1, V)
    q: Matrix  # shape (n, V)
    drawn: Text  # the n drafts
    tokens: Text = ()  # those before them

    @classmethod
    def of(cls, name: str, root: Node) -> DraftChain:
        """Chain that a tree of one branch is; `name` is that of the function it is for."""
        nodes, q = [root], []
        while nodes[-1].drafts is not None:
            node, law = nodes[-1], nodes[-1].drafts.random_draws
            if law is None or not law.is_replaced or law.num_drafts != 1:
                raise InvalidInput(
                    f"{name} verifies one draft after another: audit it on trees such as chain2 "
                    "and on problems of one draft"
                )
            q.append(law.q)
            nodes.append(node.children[int(node.draws[0])])
        return cls(np.array([node.target for node in nodes]), np.array(q), nodes[-1].tokens)

    @property
    def target(self) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self.p[0]
        return row

    @property
    def children(self) -> dict[int, DraftChain]:
        """The first draft, with the chain after it."""
        if not self.drawn:
            return {}
        first, *rest = self.drawn
        return {first: DraftChain(self.p[1:], self.q[1:], tuple(rest), (*self.tokens, first))}

    def walk(self) -> list[DraftChain]:
        """The chain, and what it is after each draft."""
        chains = [self]
        for chain in chains:
            chains.extend(chain.children.values())
        return chains

    def cut(self, length: int) -> DraftChain:
        return DraftChain(self.p[: length + 1], self.q[:length], self.drawn[:length])


class AlwaysFails(InvalidInput):
    """Every call fails: the callable is not what it was taken for, or it refuses these laws."""

    def __init__(self, failure: Failure, how: str) -> None:
        super().__init__(f"verify fails on every call: it {failure.message}. {how}")
        self.deliberate = failure.name in REFUSALS


class Unread(InvalidInput):
    """Answers of which no form fits all: nothing can be said of their law."""


def check_arguments(function: Any, expected: str, also: str = "", name: str = "verify") -> None:
    """`InvalidInput` if the function cannot be called with these arguments, in the same order.

    The one named `also` is given by its name, if it takes such a one. What tells no
    signature is not looked at.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        more = {also: None} if also in signature.parameters else {}
        signature.bind(*expected.split(", "), **more)
    except TypeError as error:
        raise InvalidInput(
            f"{name} is called with ({expected}), and takes {signature}: {error}"
        ) from error


@dataclass(slots=True)
class ViolationLog:
    """First few violations, and the number of all; generators that began anew in every call."""

    listed: list[Violation] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    restarting: tuple[str, ...] = ()

    @classmethod
    def joined(cls, logs: Iterable[ViolationLog]) -> ViolationLog:
        """All of several logs."""
        every = cls()
        for log in logs:
            every.listed += log.listed
            every.kinds += log.kinds
            every.restarts(log.restarting)
        return every

    @property
    def count(self) -> int:
        return self.kinds.total()

    @property
    def num_failed(self) -> int:
        """Number of calls that gave no tokens."""
        return sum(self.kinds[kind] for kind in NO_ANSWERS)

    def restarts(self, names: Iterable[str]) -> None:
        self.restarting = tuple(dict.fromkeys((*self.restarting, *names)))

    def add(self, kind: str, drafts: Any, message: str, mass: float | None = None) -> None:
        """Count one violation; list it if it is one of the first, or the first of its kind."""
        if len(self.listed) < MAX_LISTED or not self.kinds[kind]:
            self.listed.append(Violation(kind, tuple(int(i) for i in drafts), message, mass))
        self.kinds[kind] += 1

    def add_impossible(self, token: int, drafts: Tokens) -> None:
        """Count a token of probability zero that came out."""
        did = f"gave token {token}, whose target probability is zero"
        self.add("impossible token", drafts, f"drafts {drafts.tolist()} {did}")


def draft_argument(drafts: DraftScheme) -> Any:
    """Second argument for a callable: q, a list of q_k, or the scheme itself."""
    laws = [model.values for model in drafts.models]
    if not laws:
        return drafts
    return laws if drafts.has_many_models else laws[0]


class Subject:
    """One verifier on one problem, whatever form it came in."""

    def __init__(self, verify: Any, problem: TransportProblem, batched: bool) -> None:
        self.problem = problem
        self.verifier = as_verifier(verify)
        self.batched = batched and self.verifier is None
        self._draft = draft_argument(problem.drafts)
        self._callable: Callable[..., Any] = verify
        if self.verifier is not None:
            self.verifier.check(problem)
        elif not callable(verify):
            raise InvalidInput(
                f"verify is a {type(verify).__name__}: give a callable (target, draft, drafts, rng)"
                " -> token, a verifier of mdsd_opt, or the name of one"
            )
        else:
            check_arguments(verify, "target, draft, drafts, rng")

    def call(self, drafts: Tokens, rng: np.random.Generator) -> Any:
        """Raw answer to one draft tuple (a batch of one if the callable is batched)."""
        if self.verifier is not None:
            return self.verifier.verify(self.problem, drafts, rng).token
        if self.batched:
            answer = self._callable(self.problem.target, self._draft, drafts[None].copy(), rng)
            return to_numpy(ran(answer), "the answer").reshape(-1)[0]
        return ran(self._callable(self.problem.target, self._draft, drafts.copy(), rng))

    def token(self, drafts: Tokens, rng: np.random.Generator) -> int | Failure:
        """Token that is given for one draft tuple; a `Failure` if the answer is none."""
        return judged(self.call(drafts, rng), self.problem.vocab_size)

    def outcomes(
        self,
        drafts: Tokens,
        rng: np.random.Generator,
        log: ViolationLog,
        tokens: list[Tokens],
        deadline: float = math.inf,
        advance: Callable[[int], None] = lambda calls: None,
    ) -> None:
        """Add the output tokens for draft tuples (N, K); `NO_TOKEN` where the call failed.

        After the deadline (of `time.perf_counter`) the other tuples are left out. What was given
        before an exception is added, too.
        """
        with served(rng) as serving:
            if not self.batched:
                self._one_by_one(drafts, log, tokens, deadline, serving, advance)
                return
            for start in range(0, len(drafts), BATCH_ROWS):
                if start and time.perf_counter() > deadline:
                    break
                rows = drafts[start : start + BATCH_ROWS]
                tokens.append(self._batch(rows, serving.rng, log))
                advance(len(rows))

    def _one_by_one(
        self,
        drafts: Tokens,
        log: ViolationLog,
        tokens: list[Tokens],
        deadline: float,
        serving: Serving,
        advance: Callable[[int], None],
    ) -> None:
        target, given = self.problem.target, list[int]()

        def call(row: Tokens, rng: np.random.Generator) -> Hashable:
            return outcome_of(partial(self.token, row, rng))

        try:
            for n, (row, token) in enumerate(outcomes(drafts, call, serving, deadline)):
                if n % _CALLS_A_LINE == _CALLS_A_LINE - 1:
                    advance(_CALLS_A_LINE)
                given.append(NO_TOKEN)
                if isinstance(token, Failure):
                    if token.kind == "exception" and log.count == n == HOPELESS_CALLS - 1:
                        raise AlwaysFails(token, "It is called with (target, draft, drafts, rng).")
                    log.add(token.kind, row, f"drafts {row.tolist()} {token.message}")
                    continue
                assert isinstance(token, int)
                given[n] = token
                if target[token] <= 0:
                    log.add_impossible(token, row)
        finally:
            tokens.append(np.array(given, dtype=np.int64))
            log.restarting = serving.restarting

    def _batch(self, rows: Tokens, rng: np.random.Generator, log: ViolationLog) -> Tokens:
        call = "batched, it is called with (target, draft, drafts, rng) and returns (N,) tokens"
        failed = f"verify failed on a batch of drafts of shape {rows.shape} ({call}) with"
        with foreign("verify", failed):
            answer = ran(self._callable(self.problem.target, self._draft, rows.copy(), rng))
        return checked_tokens(answer, rows, self.problem, log)


def checked_tokens(
    answer: Any, drafts: Tokens, problem: TransportProblem, log: ViolationLog
) -> Tokens:
    """Output tokens (N,) of many calls; `NO_TOKEN` where the answer is no token."""
    outputs = to_numpy(answer, "the answer")
    if outputs.shape != (len(drafts),):
        raise InvalidInput(
            f"verify returned shape {outputs.shape} for drafts of shape {drafts.shape}: give one "
            f"token for each row, shape ({len(drafts)},)"
        )
    tokens = np.full(len(drafts), NO_TOKEN, dtype=np.int64)
    if outputs.dtype.kind in "iu":
        inside = (outputs >= 0) & (outputs < problem.vocab_size)
        tokens[inside] = outputs[inside]
    for n in np.flatnonzero(tokens == NO_TOKEN).tolist():
        failure = judged(outputs[n], problem.vocab_size)
        assert isinstance(failure, Failure)
        log.add(failure.kind, drafts[n], f"drafts {drafts[n].tolist()} {failure.message}")
    valid = np.flatnonzero(tokens != NO_TOKEN)
    for n in valid[problem.target[tokens[valid]] <= 0].tolist():
        log.add_impossible(int(tokens[n]), drafts[n])
    return tokens


def simulation(verify: Any, problem: TransportProblem) -> Simulation | None:
    """Simulation of drafts and outputs together, for a verifier that has no other form."""
    verifier = as_verifier(verify)
    simulate: Simulation | None = getattr(
        verify if verifier is None else verifier, "simulate", None
    )
    if simulate is not None and verifier is not None:
        verifier.check(problem)
    return simulate


def simulated(
    simulate: Simulation,
    problem: TransportProblem,
    rng: np.random.Generator,
    size: int,
    log: ViolationLog,
) -> tuple[Tokens, Tokens]:
    """Drafts (size, K) and output tokens (size,), checked."""
    with foreign("simulate", "simulate failed with"), served(rng) as serving:
        drafts, answer = simulate(problem, serving.rng, size)
        tuples = to_numpy(drafts, "the drafts")
    tuples = checked_tuples(tuples, (size, problem.num_drafts), "simulate")
    return tuples, checked_tokens(answer, tuples, problem, log)


def checked_tuples(tuples: NDArray[Any], shape: tuple[int, int], source: str) -> Tokens:
    """Draft tuples of a shape (N, K) that a function under audit returned."""
    if tuples.shape != shape or tuples.dtype.kind not in "iu":
        raise InvalidInput(
            f"{source} returned drafts of shape {tuples.shape} and dtype {tuples.dtype}: give "
            f"token ids of shape {shape} in draw order, padded with -1"
        )
    return tuples.astype(np.int64)


def judged(answer: Any, vocab_size: int) -> int | Failure:
    """Token that an answer is, or its failure."""
    token = getattr(answer, "token", answer)
    if getattr(token, "ndim", 0) and getattr(token, "size", 0) == 1:
        token = to_numpy(token, "the token returned").reshape(-1)[0]
    try:
        if isinstance(token, (bool, np.bool_)):
            raise TypeError
        value = index(token.item() if isinstance(token, np.ndarray) else token)
    except (TypeError, ValueError):
        shown = repr(answer)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return Failure.of("not a token", f"gave {shown}, which is no integer token id")
    if not 0 <= value < vocab_size:
        message = f"gave token {value}, outside 0..{vocab_size - 1}"
        return Failure.of("out of vocabulary", message)
    return value


def tokens_of(answer: Any, vocab_size: int, least: str, most: int | None = None) -> Text | Failure:
    """The first tokens that an answer holds, or its failure; `least` says why there is one."""
    try:
        items = list(answer)
    except TypeError:
        return Failure("not tokens", "", f"gave {answer!r}, which is no sequence of token ids")
    if not items:
        return Failure("not tokens", "", f"gave no token: {least}")
    tokens = []
    for item in items[:most]:
        if type(item) is int and 0 <= item < vocab_size:  # what most are
            tokens.append(item)
            continue
        token = judged(item, vocab_size)
        if isinstance(token, Failure):
            return token
        tokens.append(token)
    return tuple(tokens)


def as_verifier(verify: Any) -> Verifier | None:
    """Verifier, given as itself or by name; None for any other object."""
    return get(verify) if isinstance(verify, (str, Verifier)) else None


def load_verifier(spec: str) -> Any:
    """Verifier that a string names: one of this package, or ``module:function``.

    Raises
    ------
    InvalidInput
        No such verifier, module or function.
    """
    if ":" not in spec:
        if spec in names():
            return get(spec)
        known = ", ".join(names())
        raise InvalidInput(
            f"no verifier is called {spec!r}. Give module:function, or one of: {known}."
        )
    verifier = loaded(spec)
    if not isinstance(verifier, Verifier):
        check_function(**{spec: verifier})
    return verifier


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, or an invalid answer; its kind is that of a `Violation`.

    Failures are told apart by their names. The message may hold numbers that were drawn.
    """

    kind: str
    name: str
    message: str = field(compare=False)

    @classmethod
    def of(cls, kind: str, message: str) -> Failure:
        """Failure that is told by all of its message."""
        return cls(kind, message, message)


def outcome_of(answer: Callable[[], Hashable]) -> Hashable:
    """Answer of a call, or its failure."""
    try:
        return answer()
    except ForeignFault:
        raise
    except Unread as unread:
        return Failure.of("not tokens", str(unread))
    except Warning as error:
        raise ForeignFault(
            f"the function under audit warned ({describe(error)}), and warnings are errors here: "
            "audit it without -W error, or mend what it warns of"
        ) from error
    except Exception as error:  # the callable is not ours: anything may come
        return Failure("exception", type(error).__name__, f"raised {describe(error)}")


def answered(
    verify: TreeVerify, root: Node | DraftChain, rng: np.random.Generator, vocab_size: int
) -> Text | Failure:
    """Tokens of one call, or its failure."""
    answer = ran(verify(root, rng))
    output = getattr(answer, "tokens", answer)  # an `Accepted` of this package, too
    tokens = tokens_of(output, vocab_size, "there is always one more")
    if isinstance(tokens, Failure) or (depth := on_path(root, tokens[:-1])) == len(tokens) - 1:
        return tokens
    message = f"gave {tokens}, but {tokens[: depth + 1]} is no path of its drafts"
    return Failure.of("not a path", message)


def on_path(root: Node | DraftChain, tokens: Text) -> int:
    """Number of the first of these tokens that are drafts, one after the other."""
    drawn: Text | None = getattr(root, "drawn", None)
    if drawn is not None:  # of a chain
        if tokens == drawn[: len(tokens)]:
            return len(tokens)
        return next(n for n, token in enumerate(tokens) if (token,) != drawn[n : n + 1])
    node: Any = root
    for n, token in enumerate(tokens):
        node = node.children.get(token)
        if node is None:
            return n
    return len(tokens)


def described(root: Node | DraftChain) -> str:
    """Drafts of a tree, in one short line."""
    paths = [list(node.tokens) for node in root.walk() if not node.children]
    return f"drafts {', '.join(map(str, paths[:4]))}{', ...' if len(paths) > 4 else ''}"
