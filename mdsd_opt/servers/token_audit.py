"""Audits of recorded texts, with the laws that were stated for their tokens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Unpack

import numpy as np

from mdsd_opt.base.checked import Rng, checked_integer, drawn_seed, of_kind
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput
from mdsd_opt.servers.adapter import (
    Request,
    ids_of,
    laws_of,
    listed_tokens,
    read_texts,
)
from mdsd_opt.servers.laws import Law
from mdsd_opt.servers.log import is_log, replayed
from mdsd_opt.servers.server_report import ServerReport
from mdsd_opt.servers.tally import TokenKeywords, TokenOptions, TokenTally, prefix_name

#: A text: its tokens, their laws, and those of the draft.
_Text = tuple[Sequence[int], Sequence[Law | None], Sequence[Law | None] | None]

_FILES = (str, os.PathLike)


def audit_tokens(
    laws: Any,
    tokens: Any = None,
    *,
    draft: Any = None,
    control: Any = None,
    prompts: Sequence[Sequence[int]] | None = None,
    num_first: int = 1,
    drafted: int | None = None,
    accepted: int | None = None,
    sampling: Sampling | None = None,
    promise: Callable[[Any, Any], Any] | None = None,
    rng: Rng = 0,
    **keywords: Unpack[TokenKeywords],
) -> ServerReport:
    r"""Audit recorded texts: do their tokens follow the laws that were stated for them?

    The evidence is an e-process, see `mdsd_opt.audit_server`: a faultless engine's reaches 1/alpha
    with probability alpha at most, however many texts there are and whenever one stops.

    Parameters
    ----------
    laws : array_like, path or sequence
        Law of each token of each text, as an array [n, V] or a sequence of mappings from token ids
        to probabilities (of the likeliest; what they lack to one is left for all others), or of
        `servers.Law`, or of None, for a token that is passed over. Or a file of JSON lines as vLLM,
        SGLang, llama.cpp and OpenAI's servers answer, or a log of `mdsd_opt.audit_server`.
    tokens : sequence, optional
        Token ids of each text; one text may stand for itself. Files have them.
    draft : array_like or sequence, optional
        The draft's laws, in the form of `laws`: they decide faults that stay hidden else.
    control : pair or path, optional
        Laws and tokens of the same server without speculation, or a file. Nothing is called lossy
        without as many of these tokens as it took to accuse the others.
    prompts : sequence of sequence of int, optional
        Tokens before each text.
    num_first : int
        Number of tokens of each text before anything is drafted: these must be clean as well.
    drafted, accepted : int, optional
        Counts of the engine; where nothing was drafted nothing is judged.
    sampling : Sampling, optional
        Sampling behind log-probabilities in files, which are those before the sampler unless
        `logprobs` is "processed".
    promise : callable, optional
        What the engine makes of log-probabilities in files, see `mdsd_opt.audit_server`.
    logprobs : str
        "raw" or "processed".
    tolerance : float
        Total variation that is put down to arithmetic at each token.
    false_alarm, power, confidence : float
        Error rate of an accusation, power of `detectable_bias`, confidence of the intervals.
    rng : numpy.random.Generator or int, optional
        Seed of the numbers that spread tokens over their probabilities.

    Returns
    -------
    ServerReport

    Raises
    ------
    InvalidInput
        Shapes that do not fit, no tokens, counts that are no integers from 0, or more accepted
        tokens than drafted ones.
    UnreadableFile
        A file that is missing, or holds no laws.

    Examples
    --------
    >>> import numpy as np
    >>> import mdsd_opt as mo
    >>> rng = np.random.default_rng(0)
    >>> law = rng.dirichlet(np.ones(9))
    >>> texts = rng.choice(9, size=(500, 8), p=law)
    >>> laws = np.broadcast_to(law, (500, 8, 9))
    >>> mo.audit_tokens(laws, texts, drafted=4_000).verdict_class
    'no deviation'
    """
    began = time.perf_counter()
    options = TokenOptions(**keywords)
    setting = of_kind(
        Sampling() if sampling is None else sampling, Sampling, "sampling", "a Sampling"
    )
    request = Request(sampling=setting, logprobs=options.logprobs, promise=promise)
    num_first = checked_integer(num_first, "num_first", 0)
    counts = {"drafted": drafted, "accepted": accepted}
    given = {name: checked_integer(x, name, 0) for name, x in counts.items() if x is not None}
    if given.get("accepted", 0) > given.get("drafted", 0):
        raise InvalidInput(
            f"accepted is {accepted} and drafted is {drafted}: give the number of drafted tokens, "
            "and how many of them were accepted"
        )
    tally = TokenTally(options, drawn_seed(rng), num_first, options.tolerance)
    tally.acceptance.count(given.get("drafted"), given.get("accepted"))
    if promise is not None and not (isinstance(laws, _FILES) and not is_log(laws)):
        raise InvalidInput("promise goes with files of log-probabilities: give laws as promised")
    if isinstance(laws, _FILES) and is_log(laws):
        replayed(laws, tally)
    elif isinstance(laws, _FILES):
        _add_file(tally, laws, request, is_control=False)
    else:
        if tokens is None:
            raise InvalidInput("tokens are missing: give those of each text, or a file that has")
        sides = {"laws": laws, "tokens": tokens, "draft": draft, "prompts": prompts}
        for side, of in sides.items():
            needless = of is None and side != "laws"
            of_kind(() if needless else of, Iterable, side, "one for each text")
        starts = [] if prompts is None else [*prompts]
        for number, (text, its_laws, its_drafts) in enumerate(_texts(laws, tokens, draft)):
            if prompts is not None and number >= len(starts):
                raise InvalidInput(f"prompts has {len(starts)}: give one for each text")
            read = of_kind(starts[number] if starts else [], Collection, "a prompt", "token ids")
            prompt = [checked_integer(x, "a token of prompts", 0) for x in read]
            name = None if prompts is not None else _name_of(its_laws)
            tally.add_text(prompt, text, its_laws, its_drafts, name=name)
            tally.look()
    if isinstance(control, _FILES):
        _add_file(tally, control, request, is_control=True)
    elif control is not None:
        if not (isinstance(control, Sequence) and len(control) == 2):
            raise InvalidInput("control is a pair of laws and tokens, or a file")
        its, texts = control
        for text, its_laws, _ in _texts(its, texts, None):
            tally.add_text([], text, its_laws, name=_name_of(its_laws), is_control=True)
    if tally.later.num_tokens + tally.first.num_tokens == 0:
        raise InvalidInput("there are no tokens with laws to audit")
    return tally.report(seconds=time.perf_counter() - began)


def _add_file(
    tally: TokenTally, path: str | os.PathLike[str], request: Request, is_control: bool
) -> None:
    request = replace(request, top=listed_tokens(path))
    for text in read_texts(path):
        laws = laws_of(text, request, text.prompt or ())
        if not is_control:
            tally.acceptance.count(
                *(None if x is None else int(x) for x in (text.drafted, text.accepted))
            )
        name = None if text.prompt is not None else _name_of(laws)
        tally.add_text(text.prompt or [], ids_of(text), laws, name=name, is_control=is_control)
        tally.look()


def _name_of(laws: Sequence[Law | None]) -> int:
    """Name of a prompt that is not given, made from its first law."""
    first = laws[0] if laws else None
    return 0 if first is None else prefix_name([*first.ids[:4].tolist(), hash(float(first.p[0]))])


def _texts(laws: Any, tokens: Any, draft: Any) -> Iterator[_Text]:
    """Texts, with their laws as `Law` objects."""
    texts = _as_texts(tokens)
    if texts is None:
        texts, laws, draft = [tokens], [laws], None if draft is None else [draft]
    for number, (text, rows, other) in enumerate(
        zip_longest(texts, laws, [None] * len(texts) if draft is None else draft)
    ):
        if text is None or rows is None or (draft is not None and other is None):
            raise InvalidInput(
                f"there are {len(texts)} texts of tokens, and laws of another number"
            )
        ids = np.asarray(text)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise InvalidInput(f"text {number} is no sequence of token ids")
        yield (
            ids.tolist(),
            _laws(rows, ids.size, number),
            None if other is None else _laws(other, ids.size, number),
        )


def _as_texts(tokens: Any) -> Sequence[Any] | None:
    """List of texts; None for a single text."""
    if isinstance(tokens, np.ndarray):
        return None if tokens.ndim == 1 and tokens.dtype.kind in "iu" else list(tokens)
    listed = list(tokens)
    if listed and all(isinstance(x, (int, np.integer)) for x in listed):
        return None
    return listed


def _laws(rows: Any, count: int, number: int) -> list[Law | None]:
    of_kind(rows, Collection, f"one of laws, of text {number},", "one for each token")
    if isinstance(rows, Mapping) or len(rows) != count:
        raise InvalidInput(f"text {number} has {count} tokens, and {len(rows)} laws")
    return [None if row is None else Law.of(row) for row in rows]
