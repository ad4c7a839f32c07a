"""One text of an engine, with the likeliest tokens of each place, in one form for all engines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd_opt.errors import UnreadableFile

#: Name of a token: its id, or its bytes or text where an engine gives no ids.
Token = int | str | bytes

Lists = list[dict[Any, float] | None]

#: Prefix of a name that gives a token's id, where servers are asked for ids.
_ID_MARK = "token_id:"

#: Sum of probabilities beyond 1 from which on it is an error: those of bfloat16 are off by a 512th.
_TOO_MUCH = 1e-2


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A text, or one of several that were asked for at once.

    Attributes
    ----------
    tokens : list, optional
        Name of the token at each place, where the engine tells it.
    lists : list of (dict or None)
        The likeliest tokens of each place and their natural logarithms. A token that is listed for
        no other reason than that it was drawn is left out: it says nothing of those between.
    extra : list of bool
        Whether the drawn token came on top of the list in the file.
    by_id : bool
        Whether tokens are named by the model's ids.
    is_prompt : bool
        Whether the text was given and scored, not generated.
    is_processed : bool
        Whether the probabilities are those after the sampler.
    prompt : list of int, optional
        Ids of the tokens before the text.
    drafted, accepted, steps : float, optional
        Counts of speculation, where the answer has them.
    """

    tokens: list[Any] | None
    lists: Lists
    extra: list[bool]
    by_id: bool
    is_prompt: bool = False
    is_processed: bool = False
    prompt: list[int] | None = None
    drafted: float | None = None
    accepted: float | None = None
    steps: float | None = None


def name_of(entry: Mapping[str, Any]) -> Token:
    """Name of a token in an entry of an API in the style of OpenAI.

    Parts of characters have the same text, so that bytes go first. An 'id' beside it is not taken:
    servers were met that give another token's.
    """
    return named(entry["token"], entry.get("bytes"))


def named(text: str, parts: Sequence[int] | None = None) -> Token:
    """Name of a token: the id in 'token_id:5', the bytes if given, or its text."""
    if text.startswith(_ID_MARK):
        return int(text[len(_ID_MARK) :])
    return bytes(parts) if parts else text


def entries_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments of `answer_of` for a list with an entry of each token, with its `top_logprobs`."""
    return {
        "tokens": [name_of(x) for x in entries],
        "rows": [[(name_of(e), e["logprob"]) for e in x.get("top_logprobs") or ()]
                 for x in entries],
        "own": [x.get("logprob") for x in entries],
    }  # fmt: skip


def answer_of(
    where: str,
    tokens: Sequence[Any] | None,
    rows: Iterable[Iterable[tuple[Any, float]] | None],
    *,
    own: Sequence[float | None] | None = None,
    ranks: Sequence[Mapping[Any, Any]] | None = None,
    folds_drawn: bool = False,
    top: int | None = None,
    fields: tuple[str, str] = ("top_logprobs", "logprob"),
    **known: Any,
) -> Answer:
    """Answer of the names and logarithms that each place lists, checked.

    Parameters
    ----------
    own : sequence of float, optional
        Logarithm of each token itself, which has to be that of the list if it is listed.
    ranks : sequence of mapping, optional
        Rank of each listed token, from 1 on.
    folds_drawn : bool
        Whether the engine adds the drawn token to the list if it is not among the likeliest.
    top : int, optional
        Number of tokens that were asked for, if it is known.
    fields : (str, str)
        Names of the list and of the logarithms in the file, for messages.
    """
    listed = [None if row is None else [(name, float(x)) for name, x in row] for row in rows]
    if tokens is not None and len(tokens) != len(listed):
        raise UnreadableFile(
            f"{where}: {len(tokens)} tokens have {len(listed)} lists in {fields[0]}: the answer is "
            "cut or changed"
        )
    lists: Lists = []
    for place, entries in enumerate(listed):
        row = dict(entries) if entries else None
        if row is not None and entries is not None:
            here = f"{where}, place {place}"
            if len(row) < len(entries):
                raise UnreadableFile(
                    f"{here}: two tokens of one position have the same name. Ask the server for "
                    "ids (return_tokens_as_token_ids) or bytes"
                )
            _check(row, here, fields)
            token = tokens[place] if tokens is not None else None
            if own is not None and own[place] is not None and token in row:
                _same(row[token], float(own[place]), here, fields)  # type: ignore[arg-type]
        lists.append(row)
    extra = [False] * len(lists)
    if folds_drawn or ranks:
        lists, extra = _without_drawn(lists, tokens, ranks, top)
    by_id = all(isinstance(name, int) for row in lists if row for name in row)
    return Answer(None if tokens is None else list(tokens), lists, extra, by_id, **known)


def _check(row: dict[Any, float], here: str, fields: tuple[str, str]) -> None:
    if not all(x < math.inf for x in row.values()):
        raise UnreadableFile(f"{here}: {fields[1]} is no number in {fields[0]}")
    total = math.fsum(math.exp(min(x, 700.0)) for x in row.values())
    if total > 1.0 + _TOO_MUCH:
        raise UnreadableFile(
            f"{here}: the probabilities sum to {total:.4g}, over one, by each {fields[1]} in "
            f"{fields[0]}: these are no logarithms of probabilities. Ask again, perhaps another "
            "version of the server"
        )


def _same(listed: float, own: float, here: str, fields: tuple[str, str]) -> None:
    if abs(listed - own) > _TOO_MUCH * max(1.0, abs(own)):
        raise UnreadableFile(
            f"{here} contradicts itself: {fields[1]} of the drawn token is {own:.6g}, and in "
            f"{fields[0]} it is {listed:.6g}: ask again, or leave the answer out"
        )


def _without_drawn(
    lists: Lists,
    tokens: Sequence[Any] | None,
    ranks: Sequence[Mapping[Any, Any]] | None,
    top: int | None,
) -> tuple[Lists, list[bool]]:
    """Lists of k tokens without the drawn one that is listed on top of them, and where it was.

    k is the size of the smallest list. Where all have one size, and each may hold a drawn token as
    its last, that token is left out: without it the bound on all others holds in any case.
    """
    sizes = [len(row) for row in lists if row]
    if not sizes:
        return lists, [False] * len(lists)
    size = min(sizes) if top is None else top
    if ranks is not None:
        beyond = any(r is not None and r > len(of) for of in ranks for r in of.values())
        size -= top is None and beyond and max(sizes) == size
    elif top is None and max(sizes) == size > 1:
        size -= all(
            _least(row) == (tokens[n] if tokens is not None else _least(row))
            for n, row in enumerate(lists)
            if row
        )
    extra = [row is not None and len(row) > size for row in lists]
    shortened = [*lists]
    for n, row in enumerate(lists):
        if row is not None and extra[n]:
            last = max(row, key=lambda name: ranks[n][name] or 0) if ranks else _least(row)
            shortened[n] = {name: x for name, x in row.items() if name != last}
    return shortened, extra


def _least(row: Mapping[Any, float]) -> Any:
    return min(row, key=lambda name: row[name])
