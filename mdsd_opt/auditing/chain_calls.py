"""Calls of functions that verify a chain of drafts, and ways to read what they answer.

Drafts along a chain, with the laws at their places as arrays.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.subject import (
    AlwaysFails,
    DraftChain,
    Failure,
    Unread,
    check_arguments,
    outcome_of,
    tokens_of,
)
from mdsd_opt.base.arrays import Matrix, Text, to_numpy
from mdsd_opt.base.foreign import ran
from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.trees import Node, Topology

#: Splits an answer into those of so many rows.
Split = Callable[[Any, int], Sequence[Any]]


class CallReader(NamedTuple):
    """A form of answers in words, and what reads one as tokens, given the drafts."""

    form: str
    read: Callable[[Any, Text], Sequence[int]]


#: Calls that show how to read the answers, and the vocabulary size of their laws.
READ_CALLS, READ_TOKENS = 64, 8

#: Libraries of which arrays may be.
LIBRARIES = ("numpy", "torch")


def chain_of(num_drafts: int) -> Topology:
    """Tree that is a chain of so many drafts."""
    return Topology(dict.fromkeys([(0,) * n for n in range(num_drafts)], 1), f"chain{num_drafts}")


class Caller:
    """Call the function with arrays of its library, and return its answer unchanged.

    Without a `library` these are NumPy's, and tensors where `tries_tensors` finds that they are
    what it takes. `float_type` is that of the laws; `given` and `handed` are the arrays of the last
    call, before and after they were converted; `notes` say how it is called, and read.
    """

    given: tuple[Any, ...] = ()
    handed: tuple[Any, ...] = ()

    def __init__(
        self,
        verify: Callable[..., Any],
        takes: str,
        library: str | None,
        rng: np.random.Generator,
        batch: bool = False,
    ) -> None:
        self._verify, self._logarithms = verify, takes != "probabilities"
        self._is_batch, self._is_open = batch, library is None
        self.rng, self._takes_rng = rng, "rng" in parameters_of(verify)
        check_arguments(verify, "p, q, drafts", "rng")
        self.notes: list[str] = []
        self._call_with("numpy" if library is None else library)

    def _call_with(self, library: str) -> None:
        self.library, self.float_type = library, "float32" if library == "torch" else "float64"
        self._torch = torch_needed() if library == "torch" else None

    def tries_tensors(self, call: Callable[[], Any], failure: Failure) -> Failure | None:
        """Failure of the first call, with tensors as well; None if these are what it takes."""
        if not self._is_open or "torch" not in sys.modules:
            return failure
        self._is_open = False
        self._call_with("torch")
        again = outcome_of(call)
        if not isinstance(again, Failure):
            self.notes.append(f"called with PyTorch tensors, as arrays raised {failure.name}")
            return None
        self._call_with("numpy")
        told = f"{failure.message}, and with PyTorch tensors {again.message}"
        return Failure("exception", failure.name, told)

    def __call__(self, chain: DraftChain) -> Any:
        p, q, ids = chain.p, chain.q, np.array(chain.drawn, dtype=np.int64)
        if self._is_batch:
            p, q, ids = p[np.newaxis], q[np.newaxis], ids[np.newaxis]
        return self.on_arrays(p, q, ids)

    def on_arrays(self, p: Matrix, q: Matrix, drafts: NDArray[np.int64]) -> Any:
        """Answer to arrays of laws and drafts, of any shape."""
        if self._logarithms:
            with np.errstate(divide="ignore"):
                p, q = np.log(p), np.log(q)
        self.given = p, q, drafts
        self.handed = self.converted(p, q, drafts)
        if self._takes_rng:
            return ran(self._verify(*self.handed, rng=self.rng))
        return ran(self._verify(*self.handed))

    def converted(self, p: Matrix, q: Matrix, drafts: NDArray[np.int64]) -> tuple[Any, ...]:
        """Copies, which may be written to, in the library and the type of floats."""
        torch = self._torch
        if torch is None:
            return p.astype(self.float_type), q.astype(self.float_type), drafts.copy()
        kind = getattr(torch, self.float_type)
        laws = [torch.from_numpy(law.copy()).to(kind) for law in (p, q)]
        return (*laws, torch.from_numpy(drafts.copy()))


def parameters_of(function: Callable[..., Any]) -> Sequence[str]:
    """Names of what a function takes; none where it does not tell."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some built-in functions have none
        return []


def torch_needed() -> Any:
    """PyTorch, which the library that was asked for takes; `MissingExtra` where there is none."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"library='torch' needs PyTorch: pip install torch ({error})") from error
    return torch


def chain_rule(
    name: str,
    caller: Caller,
    num_drafts: int,
    rng: np.random.Generator,
    vocab_size: int = READ_TOKENS,
    calls: int = READ_CALLS,
) -> Callable[[Any, np.random.Generator], Text]:
    """Rule for trees that are chains, of a function whose answers are read, see `reading`."""

    def drawn() -> tuple[Callable[[], Any], list[Text]]:
        laws = rng.dirichlet(np.ones(vocab_size), 2 * num_drafts + 1)
        drafts = tuple(int(rng.choice(vocab_size, p=q)) for q in laws[:num_drafts])
        return partial(caller, DraftChain(laws[num_drafts:], laws[:num_drafts], drafts)), [drafts]

    how = "It is called with (p [n + 1, V], q [n, V], drafts [n])."

    def wrong(rows: list[Text]) -> str:
        return (
            f"the drafts {list(rows[0])}, which is neither tokens (accepted drafts and one more), "
            "nor (accepted, last token), nor (tokens, how many): return one of these"
        )

    splits: list[Split] = [lambda answer, rows: [answer]]
    _, way = reading(drawn, splits, vocab_size, caller, rng, how, wrong, calls)

    def rule(root: Node | DraftChain, rng: np.random.Generator) -> Any:
        caller.rng = rng
        chain = root if isinstance(root, DraftChain) else DraftChain.of(name, root)
        return way.read(caller(chain), chain.drawn)

    return rule


def reading(
    drawn: Callable[[], tuple[Callable[[], Any], list[Text]]],
    splits: Sequence[Split],
    vocab_size: int,
    caller: Caller,
    rng: np.random.Generator,
    how: str,
    wrong: Callable[[list[Text]], str],
    calls: int = READ_CALLS,
) -> tuple[Split, CallReader]:
    """Way to split and read answers that fits all rows of some calls, by their form alone.

    `drawn` gives a call, with the drafts of its rows. The errors say `how` the function is called,
    where all calls raise (`AlwaysFails`), and what is `wrong` with an answer for so many rows, if
    no row can be read. `Unread` where some can, whichever way.
    """
    answers: list[tuple[Any, list[Text]]] = []
    failure: Failure | None = None

    def kept(call: Callable[[], Any], drafts: list[Text]) -> None:
        answers.append((call(), drafts))

    with served(rng) as serving:
        for _ in range(calls):
            call = partial(kept, *drawn())
            outcome = outcome_of(call)
            if isinstance(outcome, Failure) and failure is None:
                failure = outcome if answers else caller.tries_tensors(call, outcome)
            serving.check()
    if not answers:
        assert failure is not None
        raise AlwaysFails(failure, how)

    def missed(split: Split, way: CallReader) -> list[int]:
        return [_misses(split, way, *one, vocab_size) for one in answers]

    found = ((missed(*ways), *ways) for ways in product(splits, READINGS))
    each, split, way = min(found, key=lambda one: (np.count_nonzero(one[0]), sum(one[0])))
    if not any(each):
        caller.notes.append(f"answers are read as {way.form}")
        return split, way
    answer, rows = answers[np.flatnonzero(each)[0]]
    if sum(each) == sum(len(rows) for _, rows in answers):
        raise InvalidInput(f"verify gave {answer!r} for {wrong(rows)}")
    are = f"{each.count(0)} of {len(answers)} answers are {way.form}"
    given = f"gave {answer!r} for the drafts {', '.join(str(list(row)) for row in rows)}"
    raise Unread(f"{given}, which no way to read it fits that fits the others: {are}")


def read_rows(split: Split, way: CallReader, answer: Any, rows: Sequence[Text]) -> list[Text]:
    """Tokens of each row of an answer, given the drafts of the rows."""
    parts = split(answer, len(rows))
    return [tuple(way.read(row, drafts)) for row, drafts in zip(parts, rows, strict=True)]


def _misses(split: Split, way: CallReader, answer: Any, rows: Sequence[Text], size: int) -> int:
    """Rows of which this way of reading does not give accepted drafts and one more token."""
    try:
        texts = read_rows(split, way, answer, rows)
    except (TypeError, ValueError, LookupError, RuntimeError, InvalidInput):  # of tensors, too
        return len(rows)
    return sum(
        not 1 <= len(tokens) <= len(drafts) + 1
        or tokens[:-1] != drafts[: len(tokens) - 1]
        or isinstance(tokens_of(tokens, size, ""), Failure)
        for tokens, drafts in zip(texts, rows, strict=True)
    )


def _items(answer: Any, padded: bool = True) -> list[Any]:
    """Items of a list, an array, or one with a leading axis of one, but for padding below zero."""
    row = answer
    if hasattr(row, "shape") or hasattr(row, "__array__"):
        row = to_numpy(row, "the answer").reshape(-1).tolist()
    elif type(row) is not list:
        row = list(row)
    while len(row) == 1 and not np.isscalar(row[0]):
        row = to_numpy(row[0], "the answer").reshape(-1).tolist()
    if {*map(type, row)} == {int}:  # what most are
        return [x for x in row if x >= 0] if padded and min(row) < 0 else row
    values = (item.item() if hasattr(item, "item") else item for item in row)
    return [x for x in values if not (padded and isinstance(x, int) and x < 0)]


def _number(value: Any) -> int:
    return int(to_numpy(value, "the answer").reshape(-1).item())


def _count_and_last(bonus: int, answer: Any, drafts: Text) -> list[int]:
    count, last = answer[0] if getattr(answer, "shape", None) == (1, 2) else answer
    number = _number(count) - bonus
    if not 0 <= number <= len(drafts):
        raise ValueError
    return [*drafts[:number], _number(last)]


def _accepted_and_last(answer: Any, drafts: Text) -> list[int]:
    accepted, last = answer
    return [*_items(accepted), _number(last)]


def _tokens_and_count(count: int, bonus: int, answer: Any, drafts: Text) -> list[int]:
    """The first of a row, whatever it is padded by; `count` is the place of their number."""
    first, last = answer
    number = _number((first, last)[count]) + 1 - bonus
    row = _items((last, first)[count], padded=False)
    if not 0 < number <= len(row):
        raise ValueError
    return row[:number]


def _tokens_at(place: int, answer: Any, drafts: Text) -> list[int]:
    if not getattr(answer[place], "ndim", 1) or np.isscalar(answer[place]):
        raise TypeError  # a row is not its first token
    return _items(answer[place])


_ACCEPTED = "how many drafts were accepted", "how many tokens, the last one included"

#: Ways to read an answer; of several that fit all calls, the first is taken.
READINGS = (
    *(
        CallReader(f"({told}, last token)", partial(_count_and_last, bonus))
        for bonus, told in enumerate(_ACCEPTED)
    ),
    CallReader("tokens", lambda answer, drafts: _items(answer)),
    CallReader("(accepted drafts, last token)", _accepted_and_last),
    *(
        CallReader(f"(tokens, {told})", partial(_tokens_and_count, 1, bonus))
        for bonus, told in enumerate(_ACCEPTED)
    ),
    *(
        CallReader(f"({told}, tokens)", partial(_tokens_and_count, 0, bonus))
        for bonus, told in enumerate(_ACCEPTED)
    ),
    CallReader("(tokens, ...)", partial(_tokens_at, 0)),
    CallReader("(..., tokens)", partial(_tokens_at, -1)),
)
