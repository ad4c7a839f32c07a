"""Evidence of a server's tokens, each added with the facts known before it was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np

from mdsd_opt.base.checked import checked_tolerance
from mdsd_opt.evidence import (
    LOSSY,
    NO_DEVIATION,
    NOT_JUDGED,
    NOT_SETTLED,
    ErrorRates,
    Example,
    Interval,
    above_zero,
    oddest,
    power_of_ten,
)
from mdsd_opt.servers import server_report as reports
from mdsd_opt.servers.laws import Law
from mdsd_opt.servers.server_report import BetsOutcome, ServerReport
from mdsd_opt.servers.wealth import STAKES, Bets, Shown, detectable_distance, log_mean

#: Least total variation that is attributed to arithmetic: float32 has 1e-5; sums in another
#: order, and answers that are rounded, have more.
LEAST_TOLERANCE = 0.002

#: E-value from which first tokens or a control are not clean: they only withhold a verdict.
NOT_CLEAN = math.log(100.0)

#: E-value of all bets, or of a single one, from which later tokens point to a fault: honest servers
#: reach them in less than one audit of a hundred.
POINTING, ONE_POINTING = math.log(10.0), math.log(100.0)

#: Mean distance of two servers' laws above which they differ whatever the noise, and the fewest
#: laws needed for that.
LAWS_DIFFER, FEWEST_LAWS = 0.02, 8

#: Difference of the square roots of two counts by which a token is an example: twice its noise.
_TELLING = 1.0

#: Later tokens that are held against the laws of their neighbours.
_MOST_KEPT = 1_000

#: Number of bets that a report names.
_MOST_BETS = 3

_MODULUS, LOG_10 = (1 << 61) - 1, math.log(10.0)


#: Smaller optima are counted as this, so that one accepted draft does not pay without limit.
_LEAST_OPTIMUM = 0.05


class Acceptance:
    """Counts of the server, and single drafts after texts whose laws are known.

    Attributes
    ----------
    drafted, accepted : int or None
        Counts of the server; None if it has none.
    by_position : tuple of float
    known_drafts, known_accepted : int
    """

    def __init__(self) -> None:
        self.drafted: int | None = None
        self.accepted: int | None = None
        self.by_position: tuple[float, ...] = ()
        self.known_drafts = self.known_accepted = 0
        self._optimal = 0.0
        self._is_known = True
        self._log = np.zeros(STAKES.size)

    def count(self, drafted: int | None, accepted: int | None) -> None:
        """Add the counts of an answer."""
        if drafted is not None:
            self.drafted = (self.drafted or 0) + drafted
            self.accepted = None if accepted is None else (self.accepted or 0) + accepted

    def count_known(
        self, drafted: int, is_accepted: bool, target: Law, draft: Law, tau: float
    ) -> None:
        r"""Add a draft after a text with known laws, where there is room for one token.

        No lossless rule accepts a draft of the law q with a probability above
        :math:`\sum_i \min(p_i, q_i)`; where the draft is the likeliest token of q, not above its
        target probability. The larger one, and the noise of both laws, is what is held against.
        A text without a draft is one that was not accepted. Where several tokens were drafted it is
        not known after which text: nothing is said then, as these come where drafts were refused.
        """
        self._is_known = self._is_known and drafted <= 1
        shared_p, shared_q = target.shared(draft)
        optimum = float(np.minimum(shared_p, shared_q).sum())
        # of what one of both does not list, the smaller mass may be shared
        optimum += min(
            float(target.p.sum() - shared_p.sum()), float(draft.p.sum() - shared_q.sum())
        )
        optimum = min(optimum, 1.0)
        first = target.cell(int(draft.ids[0]))
        greedy = 0.0 if first is None else float(target.p[first])
        if drafted:
            self.known_drafts += 1
            self.known_accepted += is_accepted
            self._optimal += optimum
        most = min(max(optimum, greedy, _LEAST_OPTIMUM) + 2.0 * tau, 1.0)
        self._log += np.log1p(STAKES * (is_accepted - most) / most)

    @property
    def rate(self) -> float | None:
        """Share of all drafts that were accepted; None if there are none."""
        return self.accepted / self.drafted if self.drafted and self.accepted is not None else None

    @property
    def _has_known(self) -> bool:
        return self._is_known and self.known_drafts > 0

    @property
    def known_rate(self) -> float | None:
        """Share of the drafts after known texts that were accepted."""
        return self.known_accepted / self.known_drafts if self._has_known else None

    @property
    def optimum(self) -> float | None:
        """Mean of the optima after known texts."""
        return self._optimal / self.known_drafts if self._has_known else None

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value for more being accepted than any lossless rule can."""
        if not self._is_known:
            return 0.0
        return float(log_mean(self._log))


def prefix_name(tokens: Sequence[int], before: int = 0) -> int:
    """Number that names a text, from that of its beginning."""
    name = before
    for token in tokens:
        name = (name * 1_000_003 + token + 12_345) % _MODULUS
    return name


class TokenKeywords(TypedDict, total=False):
    """Keywords of audits of tokens, see `TokenOptions`."""

    logprobs: str
    tolerance: float
    false_alarm: float
    power: float
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions(ErrorRates):
    """Options of audits of tokens, of a server or recorded, checked once."""

    logprobs: str = "raw"
    tolerance: float = LEAST_TOLERANCE


@dataclass
class TokenTally:
    """Evidence of first tokens, later ones and a control, and other counts.

    Attributes
    ----------
    num_first : int
        Tokens at the beginning of a text that are never drafted.
    noise : float or None
        Largest total variation between two answers on one law.
    needed : int or None
        Later tokens at which these were accused; None where they were not. A control has to have as
        many.
    """

    wanted: ErrorRates
    seed: int = 0
    num_first: int = 1
    least_tolerance: float = LEAST_TOLERANCE
    needed: int | None = None
    acceptance: Acceptance = field(default_factory=Acceptance)
    noise: float | None = None
    differences: list[float] = field(default_factory=list)
    has_laws: bool = True
    has_ended_early: bool = False
    farthest: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checked_tolerance("tolerance", self.least_tolerance, or_zero=True)
        seeds = np.random.SeedSequence(self.seed).generate_state(3).tolist()
        self.first, self.later, self.control = (Bets(seed) for seed in seeds)
        self._accused_at = 0.0
        self._begun: dict[int, tuple[tuple[int, ...], tuple[int, ...], Law]] = {}
        self._places: dict[bool, dict[int, float | None]] = {False: {}, True: {}}
        self._kept: list[tuple[int, tuple[Law, ...]]] = []

    @property
    def tau(self) -> float:
        """Tolerance: the largest noise that was measured, and no less than the least."""
        return max(self.least_tolerance, self.noise or 0.0)

    def add_text(
        self,
        prompt: Sequence[int],
        tokens: Sequence[int],
        laws: Sequence[Law | None],
        drafts: Sequence[Law | None] | None = None,
        *,
        name: int | None = None,
        is_control: bool = False,
    ) -> None:
        """Add a text; a token without a law is passed over.

        Without a `name` of what stands before the text, its prompt names it.
        """
        prefix = prefix_name(prompt) if name is None else name
        follows = {(a, b): c for a, b, c in zip(prompt, prompt[1:], prompt[2:], strict=False)}
        text = list(prompt[-2:])
        previous: Law | None = None
        last, places = self._places[is_control], {}
        for evidence in (self.control,) if is_control else (self.first, self.later):
            evidence.new_text()
        for n in () if is_control else range(self.num_first + 1, len(laws) - 1):
            near = tuple(x for x in laws[n - 1 : n + 2] if x is not None)
            if len(near) == 3 and len(self._kept) < _MOST_KEPT:
                self._kept.append((tokens[n], near))
        for position, (token, law) in enumerate(zip(tokens, laws, strict=True)):
            judged = self.first if position < self.num_first else self.later
            evidence = self.control if is_control else judged
            pair = (text[-2], text[-1]) if len(text) > 1 else None
            if law is not None:
                if evidence is self.later and position <= max(self.num_first, 1):
                    self._begun.setdefault(prefix, (tuple(prompt), tuple(tokens[:position]), law))
                shown = Shown(
                    prefix,
                    position,
                    text[-1] if text else None,
                    None if pair is None else follows.get(pair),
                    previous,
                    None if drafts is None else drafts[position],
                    last.get(position),
                )
                places[position] = evidence.add(token, law, shown)
            if pair is not None:
                follows[pair] = token
            text = [*text[-1:], token]
            prefix = prefix_name((token,), prefix)
            previous = law
        self._places[is_control] = places

    def look(self) -> None:
        """Record whether the later tokens are accused by now."""
        tau = self.tau
        self.first.look(tau)
        self.control.look(tau)
        value = self.later.look(tau)
        if self.needed is None and value >= self.wanted.accused:
            self.needed, self._accused_at = self.later.num_tokens, tau
        elif self.needed is not None and self._accused_at < tau and value < self.wanted.accused:
            self.needed = None  # what seemed a fault is within the noise that was measured since

    @property
    def is_controlled(self) -> bool:
        """Whether the control has as many tokens as accused the later ones."""
        return self.needed is not None and self.control.num_tokens >= self.needed

    @property
    def control_is_clean(self) -> bool:
        """Whether neither first tokens nor the control deviate."""
        return max(self.first.log_e(self.tau), self.control.log_e(self.tau)) < NOT_CLEAN

    @property
    def points_to(self) -> str:
        """What the later tokens point to, be it by chance; empty where to nothing."""
        name, won = max(self.later.parts(self.tau).items(), key=lambda part: part[1])
        if won < ONE_POINTING and self.later.log_e(self.tau) < POINTING:
            return ""
        e_value = power_of_ten(won / LOG_10)
        return f"tokens that deviate (e = {e_value} by the bet on {name})"

    @property
    def laws_differ(self) -> bool:
        """Whether the law differs from the plain server's by more than noise."""
        if len(self.differences) < FEWEST_LAWS:
            return False
        mean = sum(self.differences) / len(self.differences)
        return mean > max(LAWS_DIFFER, 2.0 * self.tau)

    def _fitting(self) -> list[int]:
        """Moves of the laws, by 1 or -1, that fit tokens which deviate from the laws as stated."""

        def log_e(move: int) -> float:
            evidence = Bets(self.seed)
            for n, (token, near) in enumerate(self._kept):
                evidence.add(token, near[1 + move], Shown(n))
            return evidence.log_e(self.tau) if evidence.num_tokens else math.inf

        is_accused = self._kept and log_e(0) >= self.wanted.accused
        return [move for move in (1, -1) if log_e(move) < POINTING] if is_accused else []

    def judged(self) -> tuple[str, str]:
        """Class of the verdict, and finding."""
        if not self.has_laws:
            return NOT_JUDGED, reports.NO_LAW
        tau, accused = self.tau, self.wanted.accused
        if self.laws_differ and self.control.log_e(tau) < NOT_CLEAN:
            return LOSSY, reports.ANOTHER_LAW
        if self.needed is not None:
            if not self.control_is_clean:
                return NOT_JUDGED, reports.LAW_MISREAD
            if not self.is_controlled:
                return NOT_JUDGED, reports.NO_CONTROL
            return LOSSY, reports.DEVIATES
        if max(self.first.log_e(tau), self.control.log_e(tau)) >= accused:
            return NOT_JUDGED, reports.LAW_MISREAD
        if self.later.num_tokens == 0:
            return NOT_JUDGED, ""
        if self.acceptance.drafted == 0:
            return NOT_JUDGED, reports.NOTHING_DRAFTED
        if self.acceptance.log_e >= accused:
            return NOT_JUDGED, reports.TOO_MUCH_ACCEPTED
        if self.later.num_uncertain == 0:
            return NOT_JUDGED, reports.NO_CHOICE
        if self.points_to:
            return NOT_SETTLED, ""
        if self.has_ended_early:
            return NOT_JUDGED, reports.ENDED_EARLY
        if self.acceptance.drafted is None:
            return NOT_JUDGED, reports.DRAFTS_UNSEEN
        return NO_DEVIATION, ""

    def _example(self, curl: Callable[[Sequence[int], bool], str]) -> Example:
        """Token that deviates most as the first that may be drafted, else what the best bet is on.

        With it comes the request for such texts.
        """
        if self.laws_differ:
            at = self.farthest
            return Example(f"the law after the tokens {at}", repeat=curl(at, False) if at else "")
        ask = next((prompt for prompt, _, _ in self._begun.values() if prompt), ())
        bet, stated, counted = self.later.oddest()
        example = Example(f"{bet}, over all texts", (), stated, counted, self.later.num_tokens)
        most = _TELLING
        for name, (prompt, before, law) in self._begun.items():
            counts = self.later.after(name)
            size, p = max(sum(counts.values()), 1), law.p[: law.ids.size]
            shares = np.array([counts.get(x, 0) for x in law.ids.tolist()]) / size
            n = oddest(shares, p, size)
            if (odd := abs(math.sqrt(shares[n]) - math.sqrt(p[n])) * math.sqrt(size)) > most:
                most, ask = odd, prompt
                where = f"after {f'the prompt {list(prompt)} and ' if prompt else ''}{list(before)}"
                both = float(p[n]), float(shares[n])
                example = Example(where, (int(law.ids[n]),), *both, size)
        return replace(example, repeat=curl(ask, True) if ask else "")

    def report(
        self, curl: Callable[[Sequence[int], bool], str] = lambda prompt, is_whole: "", **own: Any
    ) -> ServerReport:
        """Report of the findings so far.

        `curl` makes the line for a shell that asks for a text, or for one token, after a prompt.
        """
        from statistics import NormalDist

        self.look()
        verdict_class, finding = self.judged()
        accused = finding in (reports.DEVIATES, reports.NO_CONTROL, reports.LAW_MISREAD)
        moves, best = self._fitting() if accused else [], self._measured(self.later).bets[:1]
        cause = best[0][0] if finding == reports.DEVIATES else ""
        if moves:
            cause = " or ".join(reports.MOVED[move] for move in moves)
        if moves == [1]:  # no engine draws a token from a law that follows it
            verdict_class, finding = NOT_JUDGED, reports.LAW_MISREAD
        elif moves:
            cause = f"possibly {cause}"
        wanted, later, tau = self.wanted, self.later, self.tau
        z, alpha = NormalDist().inv_cdf((1 + wanted.confidence) / 2), 1 - wanted.confidence
        temperature, temperature_interval = later.temperature(z)
        excess, excess_interval = later.top_excess(z)
        counted, at_least = self.acceptance, later.distance_at_least(alpha)
        differences = self.differences
        detectable = detectable_distance(
            later.num_uncertain, tau, wanted.false_alarm, NormalDist().inv_cdf(wanted.power)
        )
        notes = list(own.pop("notes", ()))
        if later.num_unlisted:
            notes.append(
                f"{later.num_unlisted:,} tokens were not among those listed, and nothing is known "
                "of how likely they were: the others were held against their law given that they "
                "are listed"
            )
        return ServerReport(
            verdict_class=verdict_class,
            points_to=self.points_to if verdict_class == NOT_SETTLED else "",
            example=self._example(curl) if verdict_class in (LOSSY, NOT_SETTLED) else None,
            finding=finding,
            method="sampling",
            num_trials=later.num_tokens,
            detectable_bias=detectable,
            direction=reports.BETS,
            false_alarm=wanted.false_alarm,
            power=wanted.power,
            confidence=wanted.confidence,
            p_value=math.exp(-max(later.peak, 0.0)) if later.num_tokens else None,
            total_variation=max(later.distance(), at_least),
            total_variation_interval=above_zero(Interval(at_least, 1.0), verdict_class),
            tolerance=tau,
            acceptance_rate=counted.rate,
            optimal_acceptance_rate=counted.optimum,
            num_violations=later.num_impossible,
            cause=cause,
            notes=tuple(notes),
            later=self._measured(later),
            first=self._measured(self.first),
            control=self._measured(self.control),
            temperature=temperature,
            temperature_interval=temperature_interval,
            top_excess=excess,
            top_excess_interval=excess_interval,
            drafted=counted.drafted,
            accepted=counted.accepted,
            accepted_by_position=counted.by_position,
            known_drafts=counted.known_drafts,
            known_acceptance=counted.known_rate,
            optimal_acceptance=counted.optimum,
            acceptance_log10_e=counted.log_e / LOG_10,
            law_noise=self.noise,
            law_distance=sum(differences) / len(differences) if differences else None,
            num_laws=len(differences),
            **own,
        )

    def _measured(self, evidence: Bets) -> BetsOutcome:
        if evidence.num_tokens == 0:
            return BetsOutcome()
        best = sorted(evidence.parts(self.tau).items(), key=lambda part: -part[1])[:_MOST_BETS]
        return BetsOutcome(
            tokens=evidence.num_tokens,
            log10_e=evidence.log10_e(self.tau),
            at_least=evidence.distance_at_least(1 - self.wanted.confidence),
            impossible=evidence.num_impossible,
            bets=tuple((name, won / LOG_10) for name, won in best if won > 0),
        )
