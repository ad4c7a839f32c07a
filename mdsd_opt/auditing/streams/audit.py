"""Audit of the streams of random numbers of a sampler: two draws are independent, or should be."""

from __future__ import annotations

import math
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, count, product
from typing import Any, NamedTuple, Unpack

import numpy as np

from mdsd_opt.auditing.looks import settled
from mdsd_opt.auditing.streams.draws import (
    BATCH,
    EXCLUSIVE,
    LAWS,
    ROLES,
    TARGET,
    Asker,
    CallFailed,
    Sampler,
    in_child,
    logits_of,
)
from mdsd_opt.auditing.streams.report import OVER_SEEDS, SharedDraws, StreamReport
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.base.array_types import Floats, Integers, Vector
from mdsd_opt.base.foreign import describe, foreign
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.seeds import generator_of
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.evidence import (
    LOSSY,
    NO_DEVIATION,
    NOT_JUDGED,
    AuditOptions,
    Check,
    Example,
    OptionKeywords,
    Options,
    above_zero,
    budgeted,
    detectable_bias,
    options_of,
    pointed,
    statistics,
)

#: Law of the drafts in texts that are made of the draws, and the law that these shall have.
_DRAFT = TARGET[::-1]
_TEXTS = np.outer(TARGET, TARGET).ravel()

#: Positions of a request, of one without a seed, and of a text made of the draws.
_POSITIONS, _UNSEEDED_POSITIONS, _LENGTH = 3, 2, 2

#: Numbers of bits beyond which a seed may not be read.
_SEED_BITS = (8, 16, 24, 32)

#: Requests of a round, seeds that are asked for again, and batches in another process.
_ROUND, _REPEATED, _BATCHES = 2 * BATCH, 32, 22

#: Probability of each token but one of the wide law: a quarter of a step of uniforms of 24 bits.
_UNLIKELY = 2.0**-26

#: Draws by what they are, beside those of texts.
_SEEDED, _UNSEEDED, _CHILDREN, _WIDE = "with seeds", "without seeds", "two processes", "wide law"

#: Whose two draws are.
_REQUESTS_OF_ONE = "a request", "the next one"
_ROWS_OF_CALLS = "a row of a call", "the same row of the next call"
_PROCESSES = "one process", "another"

#: Whether requests with a seed, and without one, are asked for.
_REQUESTS = {"both": (True, True), "seeded": (True, False), "unseeded": (False, True)}

_COUPLED = (
    "draft and plain sample of one position share their numbers: right where the plain sample "
    "decides, as in lists from one race"
)

_NOT_SEEN = (
    "draws of roles, positions, seeds and trees that were not asked for",
    "three draws or more that depend on each other where no two do",
    "whether an engine hands the sampler the seed, position and law that are meant",
    "ranks of one engine, which have to draw alike: processes here are two engines",
)


@foreign("the sampler under audit")
def audit_streams(
    sampler: Sampler,
    rng: np.random.Generator | int = 0,
    *,
    roles: Sequence[str] = ROLES,
    requests: str = "both",
    vocab_size: int = 129_280,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[OptionKeywords],
) -> StreamReport:
    """Decide whether the draws of a sampler share random numbers that they must not share.

    A verifier is lossless if its coins are new; engines make them of a seed, a position and a salt,
    of a state, or of a state that a request without a seed takes over. The sampler is asked for
    tokens of known laws, for thousands of requests, and the joint law of any two draws is held
    against that of independent ones: the draws of a request at its positions and for its roles,
    draws of two requests with consecutive seeds, of two without seeds, of two calls and of two
    processes. Besides: each draw follows its law over seeds; rejection sampling that is made of the
    draws gives the target's law over seeds; tokens of a wide law, each a quarter of a step of a
    uniform of 24 bits, come as often as they should; and a seed gives the same tokens again,
    alone, in a batch, beside a request of the same seed, and in another process.

    Parameters
    ----------
    sampler : callable
        ``(requests) -> tokens``: one batch of `StreamRequest`, and a token for each. Their draws
        are asked for in the order of a text: positions, and at each draft, accept, residual,
        target. A state may be kept by `StreamRequest.request`.
    rng : numpy.random.Generator or int
    roles : sequence of str
        Roles that the sampler knows. What is made of the draws needs the first three.
    requests : str
        "seeded", "unseeded" or "both": whether those that are asked for have a seed.
    vocab_size : int
        Tokens of the wide law; 0 for none.
    options : AuditOptions
        Its budget is 24,000 requests with seeds, as many without, as many texts made of draws, and
        half as many draws of the wide law, in rounds of 512. `method` and the limits of driven laws
        are not read: the sampler keeps its own random numbers.
    **keywords
        The same by their names, such as ``num_trials=5_000``.

    Returns
    -------
    StreamReport
        Report, "not judged" if calls raise or return no tokens. `not_seen` has what it says nothing
        about.

    Raises
    ------
    InvalidInput
        An option is out of range.

    Notes
    -----
    A draft and a plain target sample of one position may share their numbers (lists from one race,
    common random numbers): that is a note. A residual must not share with its draft, as what was
    refused says something about the numbers. Two processes are compared where the sampler can be
    pickled: a function that a new process can import. Races on multiples of 2^-24, with 0 among
    them or without, are found with a probability of .99, laws inverted at them with .9; races on
    the middles of these steps with 200,000 trials, as little is wrong.
    """
    asked = options_of(options, keywords)
    settings = budgeted(asked, rng, num_trials=24_000)
    if requests not in _REQUESTS:
        raise UnknownName.among("requests", requests, _REQUESTS)
    if vocab_size and not 4 <= vocab_size <= 1 << 21:
        raise InvalidInput(f"vocab_size is {vocab_size!r}: give 4 to {1 << 21:,}, or 0 for none")
    asker = Asker(sampler, roles)
    audit = _StreamAudit(asker, generator_of(rng), *_REQUESTS[requests], vocab_size, settings)
    return audit.report()


class _Draws(NamedTuple):
    """Two draws: positions and roles, whose they are, how often each pair came, and its law."""

    places: tuple[tuple[int, str], tuple[int, str]]
    whose: tuple[str, str]
    table: Integers
    law: Floats

    @property
    def coupled(self) -> bool:
        """Whether they are a draft and a plain sample of one position of one request."""
        (s, first), (t, second) = self.places
        return self.whose[0] == self.whose[1] and s == t and {first, second} == {"draft", "target"}

    @property
    def how(self) -> str:
        """What is missing of the key of the two, if they depend on each other, in words."""
        (s, first), (t, second) = self.places
        moved, other = s != t, first != second
        if self.whose == _PROCESSES:
            return "a new process without a seed begins as the last one did"
        if self.whose in (_REQUESTS_OF_ONE, _ROWS_OF_CALLS):
            return "two requests without a seed take the same numbers from one state"
        if self.whose[0] != self.whose[1]:
            if moved or other:
                return "seed, position and role are mixed so that they collide (they are added)"
            return "the seed is not in the key, or consecutive seeds collide"
        if moved and other:
            return "position and role are mixed so that they collide (a salt that is added)"
        return "the position is not in the key" if moved else "the role is not in the key (no salt)"


class _Tested(NamedTuple):
    """A check of several pairs of draws, or of several laws, and what it can see."""

    check: Check
    num_trials: int
    num_cells: int
    num_tests: int
    shared: tuple[SharedDraws, ...] = ()


@dataclass(slots=True, eq=False)
class _StreamAudit:
    """Audit of one sampler, with the draws so far, by what they are."""

    asker: Asker
    rng: np.random.Generator
    seeded: bool
    unseeded: bool
    vocab_size: int
    options: Options
    next_seed: int = 0
    rounds: int = 0
    drawn: dict[str, list[Integers]] = field(default_factory=lambda: defaultdict(list))
    log: ViolationLog = field(default_factory=ViolationLog)
    notes: list[str] = field(default_factory=list)

    def report(self) -> StreamReport:
        """Report on all draws, of which there are more where they point to something."""
        began, deadline = time.perf_counter(), self.options.deadline()
        self.next_seed = 2 * int(self.rng.integers(2**29))

        def look(options: Options) -> list[StreamReport]:
            self.options, is_first = options, self.rounds == 0
            try:
                self._draw(deadline)
                if is_first:
                    self._repeat()
                    self._compare_processes(deadline)
            except CallFailed as failure:
                self.log.add(failure.args[0], (), failure.args[1])
            return [self._found(began)]

        return settled(look, self.options, deadline)[0]

    def _seeds(self, number: int) -> list[int | None]:
        """Consecutive seeds that were not used before, the first of them even; or none."""
        if not self.seeded:
            return [None] * number
        self.next_seed += number
        return [*range(self.next_seed - number, self.next_seed)]

    def _draw(self, deadline: float) -> None:
        """Draw what is missing, in rounds of whole batches; no more begin after the deadline."""
        wanted = math.ceil(self.options.num_trials / _ROUND)
        with progress_bar("rounds of draws", wanted, self.options.progress) as advance:
            while self.rounds < wanted:
                if self.rounds and time.perf_counter() > deadline:
                    told = (
                        f"{self.rounds * _ROUND:,} of {wanted * _ROUND:,} requests were asked for"
                    )
                    self.notes.append(self.options.up(told))
                    return
                self._draw_round()
                self.rounds += 1
                advance(self.rounds)

    def _draw_round(self) -> None:
        """Draw one round of each kind, and half of one of the wide law."""
        add, roles = self.drawn, {*self.asker.roles}
        if self.seeded:
            add[_SEEDED].append(self.asker.drawn(self._seeds(_ROUND), _POSITIONS))
        if self.unseeded:
            add[_UNSEEDED].append(self.asker.drawn([None] * _ROUND, _UNSEEDED_POSITIONS))
        if {*ROLES[:3]} <= roles:
            add[OVER_SEEDS].append(self._texts(self._seeds(_ROUND)))
        if self.vocab_size and {"target", "draft"} & roles:
            add[_WIDE].append(self._unlikely(_ROUND // 2))

    def _texts(self, seeds: Sequence[int | None]) -> Integers:
        """Numbers of texts of two tokens, by rejection sampling made of the draws."""
        names = self.asker.named(len(seeds))
        accept = np.minimum(1.0, TARGET / _DRAFT)
        coins = [logits_of([1.0 - a, a]) for a in accept]
        residual = np.maximum(TARGET - _DRAFT, 0.0)
        left, q = logits_of(residual / residual.sum()), logits_of(_DRAFT)
        number = np.zeros(len(seeds), np.int64)
        for at in range(_LENGTH):
            tokens = self.asker.one_role(names, seeds, at, "draft", q)
            rows = [coins[token] for token in tokens]
            accepted = self.asker.one_role(names, seeds, at, "accept", rows)
            refused = np.flatnonzero(accepted == 0).tolist()
            some = [names[n] for n in refused], [seeds[n] for n in refused]
            tokens[refused] = self.asker.one_role(*some, at, "residual", left)
            number = number * TARGET.size + tokens
        return number

    def _unlikely(self, number: int) -> Integers:
        """Tokens of a wide law, all but the one in the middle unlikely."""
        law = np.full(self.vocab_size, _UNLIKELY)
        law[self.vocab_size // 2] = 1.0 - _UNLIKELY * (self.vocab_size - 1)
        role = "target" if "target" in self.asker.roles else "draft"
        names, seeds = self.asker.named(number), self._seeds(number)
        return self.asker.one_role(names, seeds, 0, role, logits_of(law))

    def _repeat(self) -> None:
        """Ask for seeds again: alone, twice, and in a batch with others and with their likes."""
        if not self.seeded:
            return
        seeds = self._seeds(_REPEATED)
        alone, again = (
            np.concatenate([self.asker.drawn([seed], _UNSEEDED_POSITIONS) for seed in seeds])
            for _ in range(2)
        )
        mixed = [*seeds, *seeds, *([None] * (_REPEATED if self.unseeded else 0))]
        order = self.rng.permutation(len(mixed))
        together = np.empty((len(mixed), *alone.shape[1:]), np.int64)
        together[order] = self.asker.drawn([mixed[n] for n in order], _UNSEEDED_POSITIONS)
        self._differ("again, alone", seeds, alone, again)
        if not self.log.count:
            where = f"in a batch of {len(mixed)} with another request of this seed"
            self._differ(where, seeds * 2, np.tile(alone, (2, 1, 1)), together[: 2 * _REPEATED])
        for bits in _SEED_BITS:
            with suppress(CallFailed):  # such a seed may be refused
                other = self.asker.drawn([(seed or 0) + 2**bits for seed in seeds], alone.shape[1])
                if np.array_equal(alone, other):
                    told = f"only the lowest {bits} bits of a seed count"
                    self.notes.append(
                        f"{told}: {seeds[0]} and {seeds[0]} + 2**{bits} give the same"
                    )
                    break

    def _differ(self, where: str, seeds: Sequence[Any], alone: Integers, other: Integers) -> None:
        """Log the seeds whose tokens come out otherwise."""
        for row, at, role in np.argwhere(alone != other).tolist():
            tokens = f"{alone[row, at, role]} alone, {other[row, at, role]} {where}"
            which = f"seed {seeds[row]}, position {at}, {self.asker.roles[role]}"
            told = f"a seed does not give its tokens again: {which}: {tokens}"
            self.log.add("not repeated", (), told)

    def _compare_processes(self, deadline: float) -> None:
        """Ask two new processes for the same seeds, and for requests without one."""
        from mdsd_opt.cddlib_checks import OutOfBudget, run_in_child
        from mdsd_opt.errors import MdsdError

        seeds = self._seeds(_REPEATED) if self.seeded else []
        without: list[int | None] = [None] * (_BATCHES * BATCH if self.unseeded else 0)
        job = {"asker": replace(self.asker, names=count()), "asked": [seeds, without]}
        job["positions"] = _UNSEEDED_POSITIONS
        try:
            pickle.dumps(job)
            if getattr(self.asker.sampler, "__module__", "") == "__main__":
                raise pickle.PicklingError("a script's own functions cannot be imported from it")
            found = [
                run_in_child(in_child, job, timeout=deadline - time.perf_counter(), memory=None)
                for _ in range(2)
            ]
        except (pickle.PicklingError, AttributeError, TypeError, MdsdError, OutOfBudget) as error:
            self.notes.append(f"two processes were not compared: {describe(error)}")
            return
        if seeds:
            here = self.asker.drawn(seeds, _UNSEEDED_POSITIONS)
            for there, _ in found:
                self._differ("in another process", seeds, here, there)
        if self.unseeded:
            self.drawn[_CHILDREN] = [without[:, :1] for _, without in found]

    def _tested(self) -> Iterator[_Tested]:
        """All checks of the draws so far."""
        for name, whose in ((_SEEDED, ("seed s", "seed s + 1")), (_UNSEEDED, _REQUESTS_OF_ONE)):
            if not self.drawn[name]:
                continue
            tokens = np.concatenate(self.drawn[name])
            laws = [
                (np.bincount(tokens[:, at, n], minlength=LAWS[role].size), LAWS[role])
                for at, (n, role) in product(range(tokens.shape[1]), enumerate(self.asker.roles))
            ]
            yield self._fits(f"laws, {name}", "draws that do not follow their law", laws)
            yield self._pairs(f"one request, {name}", tokens, tokens, whose[:1] * 2)
            yield self._pairs(f"two requests, {name}", tokens[0::2], tokens[1::2], whose)
            if name == _UNSEEDED:
                rows = tokens.reshape(-1, 2, BATCH, *tokens.shape[1:])
                call, next_call = (rows[:, n].reshape(-1, *tokens.shape[1:]) for n in range(2))
                yield self._pairs(f"two calls, {name}", call, next_call, _ROWS_OF_CALLS)
        if self.drawn[_CHILDREN]:
            one, other = self.drawn[_CHILDREN]
            yield self._pairs("two processes, without seeds", one, other, _PROCESSES)
        if self.drawn[OVER_SEEDS]:
            counts = np.bincount(np.concatenate(self.drawn[OVER_SEEDS]), minlength=_TEXTS.size)
            looks_for = "tokens over seeds that do not follow the target"
            yield self._fits(OVER_SEEDS, looks_for, [(counts, _TEXTS)])

    def _p_value(self, counts: Integers, law: Floats) -> float:
        scores, _ = statistics.split_scores(counts.ravel(), law.ravel(), self.rng)
        return statistics.chi_square(scores)

    def _fits(self, name: str, what: str, laws: Sequence[tuple[Integers, Vector]]) -> _Tested:
        """Check that counts follow their laws."""
        check = Check(name, what, _least([self._p_value(*one) for one in laws]))
        cells = max(law.size for _, law in laws)
        return _Tested(check, int(laws[0][0].sum()), cells, len(laws))

    def _draws(self, first: Integers, second: Integers, whose: tuple[str, str]) -> Iterator[_Draws]:
        """Pairs of draws of one request that one text may have, or of two requests."""
        roles, is_one = self.asker.roles, first is second
        places = list(product(range(first.shape[1]), range(len(roles))))
        for (s, m), (t, n) in combinations(places, 2) if is_one else product(places, places):
            if not (is_one and s == t and {roles[m], roles[n]} in EXCLUSIVE):
                law = np.outer(LAWS[roles[m]], LAWS[roles[n]])
                pairs = first[:, s, m] * law.shape[1] + second[:, t, n]
                table = np.bincount(pairs, minlength=law.size).reshape(law.shape)
                yield _Draws(((s, roles[m]), (t, roles[n])), whose, table, law)

    def _pairs(
        self, name: str, first: Integers, second: Integers, whose: tuple[str, str]
    ) -> _Tested:
        """Check of pairs of draws, and those that depend on each other."""
        pairs = [*self._draws(first, second, whose)]
        if any(one.coupled and _dependent(one) for one in pairs):
            self.notes.append(_COUPLED)
        pairs = [one for one in pairs if not one.coupled]
        tests = [self._p_value(one.table, one.law) for one in pairs]
        level = self.options.false_alarm / max(len(tests), 1)
        odd = [_dependent(one) for one, p in zip(pairs, tests, strict=True) if p < level]
        check = Check(name, f"draws that depend on each other: {name}", _least(tests))
        cells = max((one.law.size for one in pairs), default=1)
        shared = tuple(one for one in odd if one)
        return _Tested(check, len(second), cells, max(len(tests), 1), shared)

    def _found(self, began: float) -> StreamReport:
        """Report on the draws so far."""
        options = self.options
        failed = any(v.kind in ("exception", "not a token") for v in self.log.listed)
        tested = [] if failed else list(self._tested())
        checks = [one.check for one in tested]
        tail: dict[str, Any] = {}
        if self.drawn[_WIDE] and not failed:
            check, tail = self._tail()
            checks.append(check)
        level = options.level(checks)
        hidden = [
            detectable_bias(one.num_trials, one.num_cells, level / one.num_tests, options.power)
            for one in tested
        ]
        p_value = options.combined(checks)
        is_wrong = p_value < options.false_alarm or bool(self.log.count)
        kind = NOT_JUDGED if failed else LOSSY if is_wrong else NO_DEVIATION
        shared = sorted(_named(tested), key=lambda x: -x.total_variation)
        distance, interval = 0.0, None
        if texts := self.drawn[OVER_SEEDS]:
            outcomes = np.concatenate(texts)
            distance, interval = statistics.distance(outcomes, _TEXTS, options.confidence)
        told = [pair.said for pair in shared] + [v.message for v in self.log.listed]
        told += [check.looks_for for check in sorted(checks, key=lambda check: check.p_value)]
        requests = self.drawn[_SEEDED] + self.drawn[_UNSEEDED] + texts
        return StreamReport(
            verdict_class=kind,
            method="sampling",
            points_to="" if kind != NO_DEVIATION else pointed(checks, None),
            num_trials=sum(map(len, requests)),
            detectable_bias=max(hidden, default=1.0),
            direction="of the joint law of two draws",
            detect=options.detect,
            false_alarm=options.false_alarm,
            power=options.power,
            confidence=options.confidence,
            p_value=p_value if checks else None,
            checks=tuple(checks),
            total_variation=distance,
            total_variation_interval=above_zero(interval, kind),
            violations=tuple(self.log.listed),
            num_violations=self.log.count,
            shared=tuple(shared),
            notes=tuple(dict.fromkeys(self.notes)),
            example=Example(told[0], seed=options.seed) if kind == LOSSY else None,
            not_seen=_NOT_SEEN,
            seconds=time.perf_counter() - began,
            **tail,
        )

    def _tail(self) -> tuple[Check, dict[str, Any]]:
        """Check of the unlikely tokens: how many, of the first half, of every fourth of each."""
        middle, tokens = self.vocab_size // 2, np.concatenate(self.drawn[_WIDE])
        halves = np.arange(middle), np.arange(middle + 1, self.vocab_size)
        came = [tokens[tokens < middle], tokens[tokens > middle]]
        number = len(came[0]) + len(came[1])
        share = _UNLIKELY * (self.vocab_size - 1)
        steps = [
            statistics.two_sided((some % 4 == n).sum(), some.size, (half % 4 == n).mean())
            for half, some in zip(halves, came, strict=True)
            for n in range(4)
        ]
        first = statistics.two_sided(len(came[0]), number, middle / (self.vocab_size - 1))
        often = statistics.two_sided(number, tokens.size, share)
        looks_for = "unlikely tokens of a wide law that come too often or too rarely"
        check = Check(_WIDE, looks_for, _least([often, first, _least(steps)]))
        interval = statistics.rate_interval(number, tokens.size, self.options.confidence)
        return check, {"tail_expected": share, "tail_observed": interval}


def _least(p_values: Sequence[Any]) -> float:
    return float(min(1.0, len(p_values) * min(p_values))) if p_values else 1.0


def _named(tested: Sequence[_Tested]) -> Iterator[SharedDraws]:
    """Pairs that depend on each other, where the trials of their check are independent.

    Requests that share numbers are like one: what is found of each alone, in calls and in
    processes, is then no evidence.
    """
    alike = [one.check.name for one in tested if "two requests" in one.check.name and one.shared]
    for one in tested:
        kind = one.check.name.partition(", ")[2]
        if one.check.name in alike or f"two requests, {kind}" not in alike:
            yield from one.shared


def _dependent(pair: _Draws) -> SharedDraws | None:
    """The pair, if its draws depend on each other, whatever their laws are (Pearson's test)."""
    from scipy import special

    table = pair.table[pair.table.any(axis=1)][:, pair.table.any(axis=0)]
    size = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / size
    statistic = float(((table - expected) ** 2 / expected).sum())
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    if not freedom or special.chdtrc(freedom, statistic) > 1e-9:
        return None
    named = [
        f"{whose}, position {at}, {role}"
        for whose, (at, role) in zip(pair.whose, pair.places, strict=True)
    ]
    distance = float(np.abs(table - expected).sum() / (2 * size))
    return SharedDraws(named[0], named[1], distance, pair.how)
