"""Audit of the streams of random numbers of a sampler: two draws are independent, or should be."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, NamedTuple, Unpack

import numpy as np

from mdsd_opt.auditing.looks import settled
from mdsd_opt.auditing.streams.draws import (
    BATCH,
    EXCLUSIVE,
    ROLES,
    Asker,
    CallFailed,
    Sampler,
    in_child,
    logits_of,
)
from mdsd_opt.auditing.streams.report import OVER_SEEDS, SharedDraws, StreamReport
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.base.foreign import describe, foreign
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

#: Law of every draw whose dependence is looked at, and of its draft in what is made of the draws.
_TARGET = np.array([0.4, 0.3, 0.2, 0.1])
_DRAFT = _TARGET[::-1]
_LAWS = dict.fromkeys(ROLES, _TARGET) | {"accept": np.array([0.5, 0.5])}

#: Positions of a request, of one without a seed, and of a text made of the draws.
_POSITIONS, _UNSEEDED_POSITIONS, _LENGTH = 3, 2, 2

#: Probability of each token but one of the wide law: half a step of uniforms of 24 bits.
_UNLIKELY = 2.0**-25

#: Seeds that are tried alone, in a batch and in another process; batches of another process.
_REPEATED, _BATCHES = 32, 22

#: Whether requests with a seed, and without one, are asked for.
_REQUESTS = {"both": (True, True), "seeded": (True, False), "unseeded": (False, True)}

#: Seconds for a process, at most.
_PROCESS_SECONDS = 120.0

_NOT_SEEN = (
    "draws of roles, positions and trees that were not asked for",
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
    draws gives the target's law over seeds; tokens of a wide law that are less likely than a step
    of a uniform of 24 bits come as often as they should; and a seed gives the same tokens again,
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
        Its budgets are 120 seconds, and 24,000 requests with seeds, as many without, as many texts
        made of draws, and a quarter as many draws of the wide law, which come last. `method` and
        the limits of driven laws are not read: the sampler keeps its own random numbers.
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
    pickled: a function that a new process can import.
    """
    asked = options_of(options, keywords)
    settings = budgeted(asked, rng, num_trials=24_000, seconds=120.0)
    if requests not in _REQUESTS:
        raise UnknownName.among("requests", requests, _REQUESTS)
    if vocab_size and not 4 <= vocab_size <= 1 << 21:
        raise InvalidInput(f"vocab_size is {vocab_size!r}: give 4 to {1 << 21:,}, or 0 for none")
    asker = Asker.of(sampler, roles, {role: logits_of(law) for role, law in _LAWS.items()})
    audit = _StreamAudit(asker, generator_of(rng), *_REQUESTS[requests], vocab_size, settings)
    return audit.report()


class _Draws(NamedTuple):
    """Two draws: positions and roles, what is said of their requests, and their tokens (n,)."""

    places: tuple[tuple[int, str], tuple[int, str]]
    whose: tuple[str, ...]
    tokens: tuple[Integers, Integers]

    @property
    def coupled(self) -> bool:
        """Whether they are a draft and a plain sample of one position."""
        (s, first), (t, second) = self.places
        return s == t and {first, second} == {"draft", "target"}

    @property
    def how(self) -> str:
        """What is missing of the key of the two, if they depend on each other, in words."""
        (s, first), (t, second) = self.places
        moved, other = s != t, first != second
        if self.whose[0] == "one process":
            return "a new process without a seed begins as the last one did"
        if self.whose[0] in ("a request", "a row of a call") and self.whose[0] != self.whose[1]:
            return "two requests without a seed take the same numbers from one state"
        if self.whose[0] != self.whose[1]:
            if moved or other:
                return "seed, position and role are mixed so that they collide (they are added)"
            return "the seed is not in the key, or consecutive seeds collide"
        if moved and other:
            return "position and role are mixed so that they collide (a salt that is added)"
        return "the position is not in the key" if moved else "the role is not in the key (no salt)"

    @property
    def table(self) -> Integers:
        """Counts of the pairs of tokens."""
        sizes = [_LAWS[role].size for _, role in self.places]
        index = self.tokens[0] * sizes[1] + self.tokens[1]
        return np.bincount(index, minlength=sizes[0] * sizes[1]).reshape(sizes)

    @property
    def law(self) -> Vector:
        """Law of the pairs, of independent draws."""
        return np.outer(*(_LAWS[role] for _, role in self.places)).ravel()


class _Tested(NamedTuple):
    """A check of several pairs of draws, or of several laws, and what it can see."""

    check: Check
    num_trials: int
    num_cells: int
    num_tests: int
    shared: tuple[SharedDraws, ...] = ()


@dataclass(slots=True, eq=False)
class _StreamAudit:
    """Audit of one sampler, with the draws so far."""

    asker: Asker
    rng: np.random.Generator
    seeded: bool
    unseeded: bool
    vocab_size: int
    options: Options
    next_seed: int = 0
    with_seed: list[Integers] = field(default_factory=list)
    without: list[Integers] = field(default_factory=list)
    texts: list[Integers] = field(default_factory=list)
    unlikely: list[Integers] = field(default_factory=list)
    children: list[Integers] | None = None
    log: ViolationLog = field(default_factory=ViolationLog)
    notes: list[str] = field(default_factory=list)

    def report(self) -> StreamReport:
        """Report on all draws, of which there are more where they point to something."""
        began, deadline = time.perf_counter(), self.options.deadline()
        self.next_seed = 2 * int(self.rng.integers(2**29))

        def look(options: Options) -> list[StreamReport]:
            self.options = options
            is_first = not (self.with_seed or self.without)
            try:
                self._draw(deadline)
                if is_first:
                    self._repeat()
                    self._compare_processes(deadline)
                self._draw_unlikely(deadline)
            except CallFailed as failure:
                self.log.add(failure.args[0], (), failure.args[1])
            return [self._found(began)]

        return settled(look, self.options, deadline)[0]

    def _seeds(self, number: int, seeded: bool) -> list[int | None]:
        """Consecutive seeds that were not used before, the first of them even; or none."""
        if not seeded:
            return [None] * number
        self.next_seed += number + number % 2
        return [*range(self.next_seed - number - number % 2, self.next_seed)][:number]

    def _draw(self, deadline: float) -> None:
        """Draw what is missing, in rounds of whole batches, until time is up."""
        wanted, rounds = self.options.num_trials, 0
        have = sum(map(len, self.with_seed or self.without))
        while have < wanted and not (rounds and time.perf_counter() > deadline):
            number = 2 * BATCH
            if self.seeded:
                seeds = self._seeds(number, True)
                self.with_seed.append(self.asker.drawn(seeds, _POSITIONS))
            if self.unseeded:
                self.without.append(self.asker.drawn([None] * number, _UNSEEDED_POSITIONS))
            if {*ROLES[:3]} <= {*self.asker.roles}:
                self.texts.append(self._texts(self._seeds(number, self.seeded)))
            have, rounds = have + number, rounds + 1
        if have < wanted:
            self.notes.append(self.options.up(f"{have:,} of {wanted:,} requests were asked for"))

    def _draw_unlikely(self, deadline: float) -> None:
        """Draw what is missing of the wide law, until time is up."""
        wanted = self.options.num_trials // 4
        if not (self.vocab_size and {"target", "draft"} & {*self.asker.roles}):
            return
        while (have := sum(map(len, self.unlikely))) < wanted:
            if self.unlikely and time.perf_counter() > deadline:
                told = f"{have:,} of {wanted:,} draws of the wide law were asked for"
                self.notes.append(self.options.up(told))
                return
            self.unlikely.append(self._unlikely(min(BATCH, wanted - have)))

    def _texts(self, seeds: Sequence[int | None]) -> Integers:
        """Numbers of texts of two tokens, by rejection sampling made of the draws."""
        names = self.asker.named(len(seeds))
        accept = np.minimum(1.0, _TARGET / _DRAFT)
        coins = [logits_of([1.0 - a, a]) for a in accept]
        residual = np.maximum(_TARGET - _DRAFT, 0.0)
        left, q = logits_of(residual / residual.sum()), logits_of(_DRAFT)
        number = np.zeros(len(seeds), np.int64)
        for at in range(_LENGTH):
            tokens = self.asker.one_role(names, seeds, at, "draft", q)
            rows = [coins[token] for token in tokens]
            refused = np.flatnonzero(
                self.asker.one_role(names, seeds, at, "accept", rows) == 0
            ).tolist()
            some = [names[n] for n in refused], [seeds[n] for n in refused]
            tokens[refused] = self.asker.one_role(*some, at, "residual", left)
            number = number * _TARGET.size + tokens
        return number

    def _unlikely(self, number: int) -> Integers:
        """Tokens of a wide law, all but the one in the middle unlikely."""
        law = np.full(self.vocab_size, _UNLIKELY)
        law[self.vocab_size // 2] = 1.0 - _UNLIKELY * (self.vocab_size - 1)
        role = "target" if "target" in self.asker.roles else "draft"
        names, seeds = self.asker.named(number), self._seeds(number, self.seeded)
        return self.asker.one_role(names, seeds, 0, role, logits_of(law))

    def _repeat(self) -> None:
        """Ask for seeds again: alone, twice, and in a batch with others and with their likes."""
        if not self.seeded:
            return
        seeds = self._seeds(_REPEATED, True)
        alone, again = (
            np.concatenate([self.asker.drawn([seed], _UNSEEDED_POSITIONS) for seed in seeds])
            for _ in range(2)
        )
        others: list[int | None] = [None] * (_REPEATED if self.unseeded else 0)
        order = self.rng.permutation(2 * _REPEATED + len(others))
        mixed = [*seeds, *seeds, *others]
        together = np.empty((len(mixed), *alone.shape[1:]), np.int64)
        together[order] = self.asker.drawn([mixed[n] for n in order], _UNSEEDED_POSITIONS)
        self._differ("again, alone", seeds, alone, again)
        if not self.log.count:
            where = f"in a batch of {len(mixed)} with another request of this seed"
            self._differ(where, seeds * 2, np.tile(alone, (2, 1, 1)), together[: 2 * _REPEATED])

    def _differ(self, where: str, seeds: Sequence[Any], alone: Integers, other: Integers) -> None:
        """Log the seeds whose tokens come out otherwise."""
        for row, at, role in np.argwhere(alone != other).tolist():
            tokens = f"{alone[row, at, role]} alone, {other[row, at, role]} {where}"
            which = f"seed {seeds[row]}, position {at}, {self.asker.roles[role]}"
            self.log.add("not repeated", (), f"a seed does not give its tokens again: {which}: "
                         f"{tokens}")  # fmt: skip

    def _compare_processes(self, deadline: float) -> None:
        """Ask two new processes for the same seeds, and for requests without one."""
        from mdsd_opt.cddlib_checks import OutOfBudget, run_in_child
        from mdsd_opt.errors import MdsdError

        sampler = self.asker.sampler
        seeds = self._seeds(_REPEATED, True) if self.seeded else []
        batches = [[None] * BATCH] * _BATCHES if self.unseeded else []
        shape = (len(batches), _UNSEEDED_POSITIONS, len(self.asker.roles), BATCH)
        try:
            pickle.dumps(sampler)
            if getattr(sampler, "__module__", "") == "__main__":
                raise pickle.PicklingError("a script's own functions cannot be imported from it")
            calls = self.asker.calls(seeds, _UNSEEDED_POSITIONS) if seeds else []
            size = len(calls)
            for some in batches:
                calls += self.asker.calls(some, _UNSEEDED_POSITIONS)
            left = max(deadline - time.perf_counter(), _PROCESS_SECONDS / 4)
            job, limit = {"sampler": sampler, "calls": calls}, min(left, _PROCESS_SECONDS)
            found = [run_in_child(in_child, job, timeout=limit, memory=None) for _ in range(2)]
        except (pickle.PicklingError, AttributeError, TypeError, MdsdError, OutOfBudget) as error:
            self.notes.append(f"two processes were not compared: {describe(error)}")
            return
        if seeds:
            here = self.asker.drawn(seeds, _UNSEEDED_POSITIONS)
            for one in found:
                there = np.array(one[:size]).T.reshape(here.shape)
                self._differ("in another process", seeds, here, there)
        if batches:
            tokens = [np.array(one[size:]).reshape(shape).swapaxes(2, 3) for one in found]
            self.children = [x.reshape(-1, 1, len(self.asker.roles)) for x in tokens]

    def _tested(self) -> Iterator[_Tested]:
        """All checks of the draws so far."""
        for name, parts in (("with seeds", self.with_seed), ("without seeds", self.without)):
            if not parts:
                continue
            tokens, is_seeded = np.concatenate(parts), parts is self.with_seed
            yield self._laws(name, tokens)
            whose = ("seed s", "seed s + 1") if is_seeded else ("a request", "the next one")
            yield self._pairs(f"one request, {name}", (tokens, tokens), whose[:1] * 2)
            yield self._pairs(f"two requests, {name}", (tokens[0::2], tokens[1::2]), whose)
            if not is_seeded:
                rows = tokens[: len(tokens) // (2 * BATCH) * 2 * BATCH]
                rows = rows.reshape(-1, 2, BATCH, *tokens.shape[1:])
                calls = [rows[:, n].reshape(-1, *tokens.shape[1:]) for n in range(2)]
                whose = "a row of a call", "the same row of the next call"
                yield self._pairs(f"two calls, {name}", calls, whose)
        if self.children is not None:
            whose = "one process", "another"
            yield self._pairs("two processes, without seeds", self.children, whose)
        if self.texts:
            law = np.outer(_TARGET, _TARGET).ravel()
            outcomes = np.concatenate(self.texts)
            p_value = self._chi_square(np.bincount(outcomes, minlength=law.size), law)
            looks_for = "tokens over seeds that do not follow the target"
            yield _Tested(Check(OVER_SEEDS, looks_for, p_value), outcomes.size, law.size, 1)

    def _chi_square(self, counts: Integers, law: Vector) -> float:
        return statistics.chi_square(statistics.split_scores(counts, law, self.rng)[0])

    def _laws(self, name: str, tokens: Integers) -> _Tested:
        """Check that each draw follows its law."""
        laws = [_LAWS[role] for role in self.asker.roles]
        tests = [
            self._chi_square(np.bincount(tokens[:, at, n], minlength=law.size), law)
            for at in range(tokens.shape[1])
            for n, law in enumerate(laws)
        ]
        check = Check(f"laws, {name}", "draws that do not follow their law", _least(tests))
        return _Tested(check, len(tokens), max(law.size for law in laws), len(tests))

    def _draws(self, tokens: Sequence[Integers], whose: Sequence[str]) -> Iterator[_Draws]:
        """Pairs of draws of one request that one text may have, or of two requests."""
        roles, (first, second) = self.asker.roles, tokens
        places = [(at, n) for at in range(first.shape[1]) for n in range(len(roles))]
        is_one = first is second
        for (s, m), (t, n) in combinations(places, 2) if is_one else product(places, places):
            if not (is_one and s == t and frozenset({roles[m], roles[n]}) in EXCLUSIVE):
                named = ((s, roles[m]), (t, roles[n]))
                yield _Draws(named, tuple(whose), (first[:, s, m], second[:, t, n]))

    def _pairs(self, name: str, tokens: Sequence[Integers], whose: Sequence[str]) -> _Tested:
        """Check of pairs of draws, and those that depend on each other."""
        pairs = [x for x in self._draws(tokens, whose) if not (whose[0] == whose[1] and x.coupled)]
        tests = [self._chi_square(one.table.ravel(), one.law) for one in pairs]
        level = self.options.false_alarm / max(len(tests), 1)
        odd = [one for one, p in zip(pairs, tests, strict=True) if p < level]
        shared = [x for x in map(_dependent, odd) if x is not None]
        check = Check(name, f"draws that depend on each other: {name}", _least(tests))
        cells = max((one.law.size for one in pairs), default=1)
        return _Tested(check, len(tokens[1]), cells, max(len(tests), 1), tuple(shared))

    def _found(self, began: float) -> StreamReport:
        """Report on the draws so far."""
        options = self.options
        failed = [v for v in self.log.listed if v.kind in ("exception", "not a token")]
        tested = [] if failed else list(self._tested())
        checks = [one.check for one in tested]
        tail: dict[str, Any] = {}
        if self.unlikely and not failed:
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
        if self.texts:
            law = np.outer(_TARGET, _TARGET).ravel()
            outcomes = np.concatenate(self.texts)
            distance, interval = statistics.distance(outcomes, law, options.confidence)
        example = None
        if kind == LOSSY:
            told = [pair.said for pair in shared] + [v.message for v in self.log.listed]
            told += [min(checks, key=lambda check: check.p_value).looks_for] if checks else []
            example = Example(told[0], seed=options.seed)
        coupled = [] if failed else self._coupled()
        return StreamReport(
            verdict_class=kind,
            method="sampling",
            points_to="" if kind != NO_DEVIATION else pointed(checks, None),
            num_trials=sum(map(len, (*self.with_seed, *self.without, *self.texts))),
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
            notes=(*dict.fromkeys(self.notes), *coupled),
            example=example,
            not_seen=_NOT_SEEN,
            seconds=time.perf_counter() - began,
            **tail,
        )

    def _tail(self) -> tuple[Check, dict[str, Any]]:
        """Check of the unlikely tokens: their share, every second of them, and the first half."""
        middle, tokens = self.vocab_size // 2, np.concatenate(self.unlikely)
        rest = np.delete(np.arange(self.vocab_size), middle)
        came = tokens[tokens != middle]
        share = _UNLIKELY * rest.size
        tests = [statistics.two_sided(came.size, tokens.size, share)]
        for group in (rest % 2 == 0, rest < middle):
            chosen = np.isin(came, rest[group])
            tests.append(statistics.two_sided(chosen.sum(), came.size, group.mean()))
        looks_for = "unlikely tokens of a wide law that come too often or too rarely"
        check = Check("wide law", looks_for, _least([float(p) for p in tests]))
        interval = statistics.rate_interval(came.size, tokens.size, self.options.confidence)
        return check, {"tail_expected": share, "tail_observed": interval}

    def _coupled(self) -> list[str]:
        """Note on drafts that share their numbers with plain samples, which may be meant."""
        drawn = [np.concatenate(parts) for parts in (self.with_seed, self.without) if parts]
        pairs = (one for x in drawn for one in self._draws((x, x), ("", "")) if one.coupled)
        found = any(_dependent(one) is not None for one in pairs)
        told = "draft and plain sample of one position share their numbers"
        right = "right where the plain sample decides, as in lists from one race"
        return [f"{told}: {right}"] if found else []


def _least(p_values: Sequence[float]) -> float:
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0


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

    table = pair.table[:, pair.table.any(axis=0)]
    table = table[table.any(axis=1)]
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
