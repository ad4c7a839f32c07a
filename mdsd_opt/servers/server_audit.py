"""Audits of servers: they request texts, and the laws that these should follow."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from mdsd_opt.base.checked import Rng, checked_integer, drawn_seed
from mdsd_opt.base.files import read_bytes
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import working
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput, ServerError
from mdsd_opt.evidence import power_of_ten
from mdsd_opt.servers.adapter import Counters, Request, ServerAdapter, ServerAnswer, connected
from mdsd_opt.servers.connection import Connection, Crew
from mdsd_opt.servers.laws import distance
from mdsd_opt.servers.log import KnownLaws, Learned, Log
from mdsd_opt.servers.server_report import ServerReport
from mdsd_opt.servers.tally import TokenKeywords, TokenOptions, TokenTally

#: Default prompts, few and short: continuations of many texts would come too seldom to learn from.
PROMPTS = (
    "Once upon a time",
    "The capital of France is",
    "def quicksort(array):\n",
    "Dear Sir or Madam,",
    "In a shocking finding, scientists",
    "The three most important things are",
    "import numpy as np\n",
    "My favourite food is",
)

#: Length of a text whose laws are requested one by one, and of one whose laws come with it.
SHORT, LONG = 6, 24

#: Most bytes of a file of prompts, and most prompts.
_MOST_BYTES, _MOST_PROMPTS = 1 << 20, 10_000

#: Laws in each round that are requested again, and that are compared with the plain server's.
_AGAIN, _AGAINST = 2, 8

#: Number of rounds without any law after which the server is taken to have none.
_ROUNDS_FOR_LAWS = 4

#: Texts of a round for each concurrent request.
_ROUND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(TokenOptions):
    """Options of an audit of a server, checked once; `audit_server` says what each is."""

    seconds: float = 120.0
    max_tokens: int | None = None
    length: int | None = None
    drafted: int | None = None
    concurrency: int = 4
    timeout: float = 60.0
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    top: int = 20
    progress: bool | None = None

    def __post_init__(self) -> None:
        TokenOptions.__post_init__(self)
        for name in ("seconds", "timeout"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InvalidInput(f"{name} is {value!r}: give a positive number of seconds")
        for name, least in (("max_tokens", 1), ("length", 2), ("concurrency", 1)):
            value = getattr(self, name)
            if value is not None:
                checked_integer(value, name, least)
        if self.concurrency > 64:
            raise InvalidInput(f"concurrency is {self.concurrency}: no more than 64 at once")


class ServerKeywords(TokenKeywords, total=False):
    """Keywords of `audit_server`."""

    max_tokens: int | None
    length: int | None
    drafted: int | None
    concurrency: int
    timeout: float
    model: str | None
    key: str | None
    top: int
    progress: bool | None


@foreign("the promise, or the adapter,")
def audit_server(
    url: str,
    against: str | None = None,
    draft: str | None = None,
    api: str = "auto",
    prompts: Sequence[str | Sequence[int]] | str | os.PathLike[str] | None = None,
    seconds: float = 120.0,
    sampling: Sampling | None = None,
    log: str | os.PathLike[str] | None = None,
    *,
    draft_sampling: Sampling | None = None,
    promise: Callable[[Any, Any], Any] | None = None,
    rng: Rng = 0,
    **keywords: Unpack[ServerKeywords],
) -> ServerReport:
    r"""Audit a server that runs: do its tokens follow the law that it states?

    And is that law the one of the same server without speculation? Texts are sampled as anybody
    samples them. The law p of each token is the one in the answer, or else that of a request for
    one token after the same text, which is never speculative. Bets that pay where engines are wrong
    are put on each token before it is seen; their mean wealth is an e-process,

    .. math:: P(\text{ever } E_n(\tau) \ge 1/\alpha) \le \alpha

    for a server whose laws are within :math:`\tau` of those stated (Ville's inequality), so that
    the audit may stop whenever it is settled, and Ctrl-C gives the verdict so far. What accuses is
    put to a control without speculation before anything is called lossy.

    Parameters
    ----------
    url : str
        Address of the server, such as ``http://127.0.0.1:8080``.
    against : str, optional
        The same server without speculation: gives laws and the control. Without it both are
        requests for one token to the server itself.
    draft : str, optional
        A server of the draft model: with its laws faults are found that stay hidden else, and
        acceptance is held against its optimum.
    api : str
        "auto", "openai", "llamacpp", "openai-completions", "openai-chat", or ``module:attribute``.
    prompts : sequence, path, optional
        Texts or token ids, or a file with a text, or a list of ids, in each line; a few short ones
        by default.
    seconds : float
        A control may take as long again, and so may tokens that point to a fault, but do not
        settle it.
    sampling : Sampling, optional
        Sampling that the requests ask for.
    log : path, optional
        JSON lines of all that is learned; if it is there, the audit goes on from it.
    draft_sampling : Sampling, optional
        Sampling of the server's drafts, if it differs from that of its tokens; llama.cpp's keep the
        ten likeliest.
    promise : callable, optional
        What the server makes of laws before its sampler, all that is asked for included: a function
        ``(text, logits) -> law``, as in `mdsd_opt.audit_chain`, in place of `sampling`. `text` are
        the tokens written, `text.prompt` those of the prompt. Of the logits, the likeliest tokens'
        log-probabilities, the others are -inf; their number is just enough for all ids met. What
        may be promised weighs each token by itself: presence and frequency penalties, biases,
        grammars, least lengths, temperature, min-p. A repetition penalty divides logits, whose
        level is not told, and top-p counts all tokens: both are refused.
    model : str, optional
        Name of the model, where a server has several; the first by default.
    length : int, optional
        Tokens of a text.
    max_tokens : int, optional
        Later tokens after which the audit ends.
    drafted : int, optional
        Tokens that were drafted, by the server's own log, where its answers do not count them.
    concurrency : int
        Requests at once.
    timeout : float
        Seconds of a request.
    key : str, optional
        Bearer token of the servers; it is not logged.
    logprobs : str
        Whether servers in the style of OpenAI give them "raw", before temperature and filters, or
        "processed".
    top : int
        Tokens of a law that such servers are asked for.
    tolerance : float
        Total variation that is put down to arithmetic at least; what two answers on the same text
        differ by is measured, and counts where it is more.
    false_alarm, power, confidence : float
        Error rate of an accusation, power of `detectable_bias`, confidence of the intervals.
    rng : numpy.random.Generator or int, optional
        Seed of the audit's own choices, or a generator that draws one. Requests have no seed.
    progress : bool, optional
        A running line on stderr; None: on a terminal.

    Returns
    -------
    ServerReport

    Raises
    ------
    ServerError
        A server that is not there, wants a key, gives no laws, or has an unknown API.
    InvalidInput
        Options that do not fit.
    MissingExtra
        The package httpx is missing, which the extra `server` brings.
    """
    options, asked = ServerOptions(seconds=seconds, **keywords), sampling or Sampling()
    request = Request(
        sampling=asked, model=options.model, logprobs=options.logprobs, top=options.top,
        promise=promise,
    )  # fmt: skip
    texts = _prompts(prompts)
    of_draft = replace(request, sampling=draft_sampling or asked, promise=None)
    seed = drawn_seed(rng)
    learned = Learned(TokenTally(options, seed, least_tolerance=options.tolerance))
    learned.tally.acceptance.count(options.drafted, None)
    places = {"server": url, "against": against, "draft": draft}
    header = {
        **places,
        "sampling": asdict(request.sampling),
        "draft_sampling": asdict(draft_sampling or request.sampling),
        "logprobs": options.logprobs,
        "promise": None if promise is None else getattr(promise, "__qualname__", "a function"),
        "prompts": [text if isinstance(text, str) else list(text) for text in texts],
        "rng": seed,
    }
    connections = {
        place: Connection(address, options.timeout, options.key)
        for place, address in places.items()
        if address is not None
    }
    try:
        servers = {
            place: connected(connection, api, of_draft if place == "draft" else request)
            for place, connection in connections.items()
        }
        for server in servers.values():  # prompts may be numbered, and alike for all
            ids = [server.prompt(text) if isinstance(text, str) else list(text) for text in texts]
            if server is servers["server"]:
                begins = ids
        with Log(log, header, learned) as journal:
            session = _Session(servers, begins, options, journal, learned, connections)
            with working("asking the server what it is", options.progress) as say:
                return session.run(say)
    finally:
        for connection in connections.values():
            connection.close()


def _prompts(source: Any) -> list[str | Sequence[int]]:
    """Prompts, from a file, or as they are."""
    if source is None:
        return list(PROMPTS)
    if isinstance(source, (str, os.PathLike)):
        lines = read_bytes(Path(source), _MOST_BYTES).decode("utf-8", "replace").splitlines()
        source = [_prompt_of(line) for line in lines if line.strip()]
    prompts: list[Any] = list(source)
    if not 0 < len(prompts) <= _MOST_PROMPTS:
        raise InvalidInput(f"there are {len(prompts)} prompts: give some, {_MOST_PROMPTS} at most")
    for prompt in prompts:
        is_text = isinstance(prompt, str)
        if not prompt or not (is_text or all(isinstance(x, int) for x in prompt)):
            raise InvalidInput(f"{prompt!r:.60} is no prompt: give texts, or lists of token ids")
    return prompts


def _prompt_of(line: str) -> str | list[int]:
    """Prompt of a line: a text, or token ids if it is a list of these."""
    if line.lstrip().startswith("["):
        with suppress(ValueError):
            ids = json.loads(line)
            if all(type(x) is int for x in ids):
                return list(ids)
    return line


class _Session:
    """A server, those beside it, and the results so far."""

    def __init__(
        self,
        servers: dict[str, ServerAdapter],
        prompts: list[list[int]],
        limits: ServerOptions,
        log: Log,
        learned: Learned,
        connections: dict[str, Connection],
    ) -> None:
        self.server = servers["server"]
        self.plain = servers.get("against")
        self.draft = servers.get("draft")
        self.prompts, self.limits, self.log, self.learned = prompts, limits, log, learned
        self.connections = connections
        self.tally = learned.tally
        self.crew = Crew(limits.concurrency)
        self.rng = np.random.default_rng([self.tally.seed, log.resumed])
        self.texts = 0
        self.notes: list[str] = []
        self.began = time.perf_counter()
        counted = self.tally.acceptance
        self._counted = counted.drafted or 0, counted.accepted or 0
        self._counters: Counters | None = None
        self._earlier = learned.requests

    @property
    def seconds(self) -> float:
        """Seconds since this run began."""
        return time.perf_counter() - self.began

    @property
    def requests(self) -> int:
        """Number of requests of this run and of those that it continues."""
        return self._earlier + sum(one.requests for one in self.connections.values())

    def run(self, say: Any) -> ServerReport:
        """Ask until all is settled or the time is up."""
        if self.log.resumed:
            self.notes.append(f"goes on from {self.log.resumed:,} records of its log")
        limits, tally, is_early = self.limits, self.tally, False
        try:
            self._counters = self.server.counters()
            while not self._is_enough:
                if self.seconds > limits.seconds * (2.0 if tally.points_to else 1.0):
                    break
                self._round()
                tally.look()
                say(self._line())
            until = max(2.0 * limits.seconds, self.seconds + limits.seconds)
            while tally.needed is not None and tally.control_is_clean and not tally.is_controlled:
                if self.seconds > until:
                    self.notes.append("the time was up before the control was large enough")
                    break
                self._control()
                tally.look()
                say(f"{self._line()}; control: {tally.control.num_tokens:,} of {tally.needed:,}")
        except KeyboardInterrupt:
            self.notes.append("interrupted: the verdict so far")
        except ServerError as error:
            if tally.later.num_tokens == 0:
                raise
            self.notes.append(f"ended early: {error}")
            is_early = True
        finally:
            self.crew.dismiss()
        self._count()
        made = self.requests - self._earlier
        self.log.add("end", seconds=self.seconds, requests=made, early=is_early)

        def curl(prompt: Sequence[int], is_whole: bool) -> str:
            return self.server.curl(prompt, self._length() if is_whole else 1)

        own = {"seconds": self.learned.seconds, "requests": self.requests}
        return tally.report(curl, notes=self.notes, **own)

    @property
    def _is_enough(self) -> bool:
        tally, most = self.tally, self.limits.max_tokens
        is_over = most is not None and tally.later.num_tokens >= most
        return is_over or not tally.has_laws or tally.needed is not None

    def _line(self) -> str:
        tally = self.tally
        counted = tally.acceptance
        drafts = ""
        if counted.drafted is not None:
            drafts = f"; drafted {counted.drafted:,}, accepted {counted.accepted or 0:,}"
        e_value = power_of_ten(tally.later.log10_e(tally.tau))
        return f"{tally.later.num_tokens:,} later tokens, e = {e_value}{drafts}"

    def _length(self) -> int:
        if self.limits.length is not None:
            return self.limits.length
        return LONG if self.server.name.startswith("openai") else SHORT

    def _next_prompts(self) -> list[list[int]]:
        size = _ROUND * self.limits.concurrency
        self.texts += size
        return [self.prompts[n % len(self.prompts)] for n in range(self.texts - size, self.texts)]

    def _round(self) -> None:
        """Request some texts, and the laws that are needed for them."""
        chosen = self._next_prompts()
        lengths = [self._length()] * len(chosen)
        if self.draft is not None and self.server.continues:
            lengths[::_ROUND] = [3] * len(lengths[::_ROUND])  # one draft of one token at most
        pairs = list(zip(chosen, lengths, strict=True))
        answers, controls = self._texts(self.server, pairs)
        self._learn_drafts([*answers, *controls])
        for answer in controls:
            self._add(answer, is_control=True)
        for answer, length in zip(answers, lengths, strict=True):
            self._add(answer, is_control=False)
            if length == 3 and answer.drafted is not None and len(answer.tokens) == 3:
                prefix, accepted = [*answer.prompt, answer.tokens[0]], bool(answer.accepted)
                self.log.add(
                    "known draft", prefix=prefix, drafted=answer.drafted, accepted=accepted
                )
        self._compare(answers)

    def _add(self, answer: ServerAnswer, is_control: bool) -> None:
        laws = None
        if answer.laws is not None:
            laws = [None if law is None else law.to_record() for law in answer.laws]
        self.log.add(
            "text",
            control=is_control,
            prompt=answer.prompt,
            tokens=answer.tokens,
            laws=laws,
            drafted=answer.drafted,
            accepted=answer.accepted,
        )

    @staticmethod
    def _prefixes(answer: ServerAnswer, known: KnownLaws) -> list[tuple[int, ...]]:
        """Texts before those tokens whose law is not known."""
        texts = [(*answer.prompt, *answer.tokens[:n]) for n in range(len(answer.tokens))]
        return [text for text in texts if known.get(text) is None]

    def _texts(
        self, server: ServerAdapter, pairs: Sequence[tuple[list[int], int]]
    ) -> tuple[list[ServerAnswer], list[ServerAnswer]]:
        """Texts of a server; where no laws came with them, tokens that these are asked for with.

        These tokens are a control. One request follows another along a text, which the server
        then reads once: reading is what takes the time of a model on a CPU.
        """
        source, claims = self.plain or self.server, dict[tuple[int, ...], object]()

        def asked(pair: tuple[list[int], int]) -> tuple[ServerAnswer, list[Any]]:
            answer, mine = server.sample(*pair), object()
            if answer.laws is not None:
                return answer, []
            needed = self._prefixes(answer, self.learned.laws)
            return answer, [
                (x, *source.one(x)) for x in needed if claims.setdefault(x, mine) is mine
            ]

        done = self.crew.map(asked, pairs)
        controls = []
        for prefix, token, law in (one for _, ones in done for one in ones):
            if law is not None:
                self.log.add("law", prefix=prefix, law=law.to_record())
                controls.append(ServerAnswer([token], None, list(prefix)))
        answers = [answer for answer, _ in done]
        stated = any(x.laws is not None for x in answers)
        has_laws = stated or bool(controls) or len(self.learned.laws) > 0
        if not has_laws and self.texts > _ROUNDS_FOR_LAWS * len(answers):
            self.log.add("no law")
        return answers, controls

    def _learn_drafts(self, answers: Sequence[ServerAnswer]) -> None:
        if self.draft is None or not self.draft.continues:
            return
        draft, known = self.draft, self.learned.drafts
        if draft.scores_texts:
            texts = [one for one in answers if self._prefixes(one, known)]
            rows = self.crew.map(lambda one: draft.laws_along(one.prompt, one.tokens), texts)
            pairs = [
                ((*one.prompt, *one.tokens[:n]), law)
                for one, laws in zip(texts, rows, strict=True)
                for n, law in enumerate(laws)
            ]
        else:
            needed = dict.fromkeys(x for one in answers for x in self._prefixes(one, known))
            pairs = list(zip(needed, self.crew.map(draft.law, list(needed)), strict=True))
        for prefix, law in pairs:
            if law is not None and known.get(prefix) is None:
                self.log.add("draft law", prefix=prefix, law=law.to_record())

    def _compare(self, answers: Sequence[ServerAnswer]) -> None:
        """Compare two answers on the same law, and the laws of the two servers."""
        if not self.server.continues:
            return
        source = self.plain or self.server
        for number in range(_AGAIN if self.plain is None else _AGAINST):
            answer = answers[int(self.rng.integers(len(answers)))]
            place = int(self.rng.integers(len(answer.tokens)))
            prefix = [*answer.prompt, *answer.tokens[:place]]
            once = source.law(prefix)  # alone, where the others came beside each other
            if once is None:
                continue
            known = self.learned.laws.get(prefix)
            twice = source.law(prefix) if known is None and number < _AGAIN else known
            if twice is not None:
                self.log.add("noise", distance=distance(once, twice))
            if self.plain is not None:
                laws = answer.laws if self.server.request.promise is None else None
                own = self.server.law(prefix) if laws is None else laws[place]
                if own is not None:
                    self.log.add("difference", distance=distance(own, once), prefix=prefix)

    def _control(self) -> None:
        """Request tokens without speculation: texts of the plain server, or single tokens."""
        if self.plain is not None:
            pairs = [(prompt, self._length()) for prompt in self._next_prompts()]
            answers, controls = self._texts(self.plain, pairs)
            answers += controls
        else:
            visited = self.learned.visited if self.server.continues else self.prompts
            places = self.rng.integers(len(visited), size=_ROUND * self.limits.concurrency)
            prefixes = [list(visited[int(place)]) for place in places]
            singles = zip(prefixes, self.crew.map(self.server.one, prefixes), strict=True)
            answers = [ServerAnswer([token], [law], prefix) for prefix, (token, law) in singles]
        self._learn_drafts(answers)
        for answer in answers:
            self._add(answer, is_control=True)

    def _count(self) -> None:
        """Add the counts of the whole server, where answers have none."""
        before, now = self._counters, None
        with suppress(ServerError):
            now = before and self.server.counters()
        if before is None or now is None:
            return
        steps = now.steps - before.steps
        shares = [
            (n - (before.by_position[k] if k < len(before.by_position) else 0)) / steps
            for k, n in enumerate(now.by_position)
            if steps > 0
        ]
        self.log.add(
            "counters",
            drafted=self._counted[0] + now.drafted - before.drafted,
            accepted=self._counted[1] + now.accepted - before.accepted,
            by_position=shares,
        )
