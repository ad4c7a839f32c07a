"""A rule for trees of drafts on two models: trees are drawn for it, and its texts counted.

Report of a rule for trees on the laws that it was given: driven if possible, else sampled.

Report of an audit of whole texts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, zip_longest
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.auditing.checks import acceptance_check, length_check
from mdsd_opt.auditing.driven_laws import Driver, found_law, law_of, settled_law
from mdsd_opt.auditing.driving import Budget, Leaf
from mdsd_opt.auditing.edges import tree_edges
from mdsd_opt.auditing.findings import Findings, FoundLaw
from mdsd_opt.auditing.laws import ModelLaws, PlaceLaws, Texts, drawn_trees
from mdsd_opt.auditing.pace import outcomes, settled
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.seen_texts import ByPlace, Numbered, by_place
from mdsd_opt.auditing.subject import (
    HOPELESS_CALLS,
    AlwaysFails,
    DraftChain,
    Failure,
    TreeVerify,
    ViolationLog,
    answered,
    described,
    on_path,
    outcome_of,
)
from mdsd_opt.base.arrays import Text, Vector
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.drafts import DraftScheme, SchemeMaker, WithReplacement
from mdsd_opt.errors import ProblemTooLarge, UnsupportedScheme
from mdsd_opt.evidence import (
    LOSSY,
    NOT_DRIVEN,
    TIME_UP,
    TREES,
    Check,
    Coverage,
    Example,
    Level,
    Options,
    Promises,
    Report,
    changes_with_text,
    oddest,
    statistics,
)
from mdsd_opt.trees import Node, Topology, ValuedTopology, set_targets, tree_bound, valued
from mdsd_opt.trees import drawn as drawn_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAuditReport(Report):
    """Verdict of `audit_tree`.

    Attributes
    ----------
    length : int
        Tokens of the texts that were compared: the most that one step gives.
    num_trees : int
        Trees of drafts that were enumerated; 0 by sampling.
    blind_spots : tuple of str
        Faults that no audit on these laws and this tree can see.
    laws : str
        Name of the laws on which this was found; empty if they are the given ones.
    """

    length: int
    num_trees: int = 0
    blind_spots: tuple[str, ...] = ()
    laws: str = ""

    kind: ClassVar = TREES

    @property
    def coverage_unmet(self) -> bool:
        """Whether some situation never occurred, so that nothing is known of it."""
        return self.coverage is not None and bool(self.coverage.unmet)


def blind_spots(vocab_size: int, depth: int) -> tuple[str, ...]:
    """Faults that no audit can see on problems so small, in words."""
    spots = []
    if vocab_size < 3:
        spots.append(
            f"a residual of the wrong scale (with V = {vocab_size} it is one token: take V >= 3)"
        )
    if depth < 2:
        spots.append("what is wrong from the second draft on (take two levels or more)")
    elif depth < 3:
        spots.append("what is wrong in the middle of a block only (take three levels or more)")
    return tuple(spots)


#: Texts times stages of the search for the optimum of the tree: some seconds of work.
_OPTIMUM_WORK = 100_000

Laws = ModelLaws | PlaceLaws


class AuditedRule:
    """A rule on two models, functions from a text to the law of the next token, and its settings.

    `target` is the law that texts are to follow, `draft` the one that drafts are drawn from. Under
    promises `shown` are the laws of the models, to which the rule has to apply them, but for the
    sides that are `applied`. Laws `by_place` depend on the length of the text alone, and have no
    `texts` that can be told apart.
    """

    def __init__(
        self,
        verify: TreeVerify,
        target: Any,
        draft: Any,
        topology: Topology,
        make: SchemeMaker,
        options: Options,
        promises: Promises = (None, None),
        *,
        by_place: bool = False,
        applied: tuple[bool, bool] = (False, False),
    ) -> None:
        self.verify, self.topology = verify, topology
        self.options, self.promises = options, promises
        length = topology.depth + 1

        def laws(promises: Promises) -> tuple[Laws, Laws]:
            of_p, of_q = promises
            if by_place:
                return PlaceLaws(target, length, of_p), PlaceLaws(draft, length - 1, of_q)
            return ModelLaws(target, "target", of_p), ModelLaws(draft, "draft", of_q)

        self.target, self.draft = laws(promises)
        self.shown: tuple[Laws, Laws] | None = None
        if promises != (None, None):
            p, q = laws((None, None))
            self.shown = self.target if applied[0] else p, self.draft if applied[1] else q
        self.texts: Texts | None = None
        if isinstance(self.target, ModelLaws):
            self.texts = Texts(self.target, length)
        is_kept = isinstance(self.draft, ModelLaws) or not self.draft.by_text
        self.make = _making_once(make) if is_kept else make

    @cached_property
    def _shape(self) -> ValuedTopology:
        return valued(self.topology)

    def drawn(self, rng: np.random.Generator) -> Any:
        """Random tree of drafts, with the laws at its nodes that the rule is shown."""

        def laws(texts: Sequence[Sequence[int]]) -> Any:
            return [self.draft(tuple(text)) for text in texts]  # wide rows are not copied

        root = drawn_tree(laws, self._shape, self.make, rng)
        if self.shown is None:
            set_targets(root, self.target)
        self._show(root)
        return root

    def trees(self) -> Iterator[tuple[Any, float]]:
        """All trees of drafts with their probabilities, and the laws that the rule is shown."""
        for root, probability in drawn_trees(self.target, self.draft, self.topology, self.make):
            self._show(root)
            yield root, probability

    def _show(self, root: Node) -> None:
        """Replace the promised laws of a tree by those that the rule is shown."""
        if self.shown is None:
            return
        target, draft = self.shown
        for node in root.walk():
            node.target = target(node.tokens)
            if node.drafts is not None:
                node.drafts = self.make(draft(node.tokens), node.drafts.num_drafts)

    def outcome(self, root: Node | DraftChain, rng: np.random.Generator) -> Hashable:
        """Tokens of a call, or a `Failure`."""
        return outcome_of(partial(answered, self.verify, root, rng, self.target.vocab_size))

    def optimum(self) -> float | None:
        """Upper bound of the mean number of tokens of a step, or None if it is not known."""
        if self.texts is None:
            return None
        stages = max(_OPTIMUM_WORK // self.texts.law.size, 1)
        laws = self.target, self.draft
        try:
            bound = tree_bound(*laws, self.topology, self.make, time_limit=None, max_stages=stages)
        except (ProblemTooLarge, UnsupportedScheme):
            return None
        return 1.0 + bound.upper

    def report(self, findings: Findings, first: float, num_trees: int = 0) -> TreeAuditReport:
        """Report of findings; `first` is the distance of the first token."""
        depth = self.topology.depth
        spots = () if self.texts is None else blind_spots(self.target.vocab_size, depth)
        return findings.report(
            TreeAuditReport,
            length=depth + 1,
            longest_text=depth + 1 if changes_with_text(self.promises[0]) else None,
            first_token_variation=first,
            num_trees=num_trees,
            blind_spots=spots,
        )


class ChainRule(AuditedRule):
    """A rule for chains of drafts with replacement, which are drawn as such."""

    def drawn(self, rng: np.random.Generator) -> DraftChain:
        drafts: Text = ()
        for _ in range(self.topology.depth):
            drafts += (self.draft.drawn(drafts, rng),)
        return self._with_laws(drafts)

    def trees(self) -> Iterator[tuple[DraftChain, float]]:
        chains: list[tuple[Text, float]] = [((), 1.0)]
        for _ in range(self.topology.depth):
            chains = [
                ((*drafts, token), probability * q)
                for drafts, probability in chains
                for token, q in enumerate(self.draft(drafts).tolist())
                if q > 0
            ]
        return ((self._with_laws(drafts), probability) for drafts, probability in chains)

    def _with_laws(self, drafts: Text) -> DraftChain:
        target, draft = self.shown or (self.target, self.draft)
        return DraftChain(target.along(drafts), draft.along(drafts[:-1]), drafts)


class Met:
    """Counts, by depth, of accepted and refused drafts, and of the `tokens` of all outcomes."""

    def __init__(self, depth: int) -> None:
        self._accepted, self._refused = [0.0] * depth, [0.0] * depth
        self._all = self.tokens = 0.0
        #: Tokens that came after all or some drafts were refused, by the text before them.
        self._after: defaultdict[Text, set[int]] = defaultdict(set)

    def add(self, root: Node | DraftChain, outcome: Text, weight: float) -> None:
        """Count an outcome: the path of accepted drafts, and one more token."""
        node = root
        self._all += weight
        self.tokens += weight * len(outcome)
        if isinstance(root, DraftChain):
            last = len(outcome) - 1
            for level in range(last):
                self._accepted[level] += weight
            if last < len(root.drawn):
                self._refused[last] += weight
                if outcome[last] != root.drawn[last]:
                    self._after[root.drawn[:last]].add(outcome[last])
            return
        for level, token in enumerate(outcome):
            children = node.children
            if not children:
                return  # all drafts on the way were accepted
            if token != next(iter(children)):
                self._after[node.tokens].add(token)
            if level == len(outcome) - 1:
                self._refused[level] += weight
                return
            self._accepted[level] += weight
            node = children[token]

    @property
    def mean_length(self) -> float:
        return self.tokens / (self._all or math.nan)

    @property
    def coverage(self) -> Coverage:
        several = {len(text) for text, tokens in self._after.items() if len(tokens) > 1}
        all_calls = self._all or 1.0
        pairs = enumerate(zip(self._accepted, self._refused, strict=True))
        return Coverage(
            tuple(Level(a / all_calls, r / all_calls, n in several) for n, (a, r) in pairs)
        )


def _making_once(make: SchemeMaker) -> SchemeMaker:
    """Scheme maker that makes the drafts of one law once: thousands of trees have them."""
    schemes: dict[tuple[int, int], tuple[Vector, DraftScheme]] = {}

    def known(law: Vector, num_drafts: int) -> DraftScheme:
        key = id(law), num_drafts  # of a law that is kept: no other one has its number
        if key not in schemes:
            schemes[key] = law, make(law, num_drafts)
        return schemes[key][1]

    return known


class TreeSample:
    """Texts that a rule gives for trees that are drawn, counted as they come."""

    def __init__(self, rule: AuditedRule, rng: np.random.Generator) -> None:
        self.rule, self._rng = rule, rng
        self.texts: Numbered | ByPlace
        if isinstance(rule.target, PlaceLaws) and isinstance(rule.draft, PlaceLaws):
            self.texts = by_place(rule.target, rule.draft)
        else:
            assert rule.texts is not None
            self.texts = Numbered(rule.texts)
        self._log, self._met = ViolationLog(), Met(rule.topology.depth)
        self._calls = self._drafted = 0

    def sample(
        self,
        number: int,
        deadline: float = math.inf,
        counts: Callable[[], bool] = lambda: True,
        progress: bool | None = False,
    ) -> None:
        """Add up to this number of calls, as long as there is time.

        `counts` tells after each call whether its text belongs to the sample.
        """
        with served(self._rng) as serving, progress_bar("steps", number, progress) as advance:
            drawn = (self.rule.drawn(self._rng) for _ in range(number))
            made = self.rule.outcome, serving, deadline, self._calls
            for root, outcome in outcomes(drawn, *made):
                advance(1)
                if counts():
                    self.count(root, outcome)
                else:
                    self._calls += 1
        self._log.restarts(serving.restarting)

    def settled(
        self,
        deadline: float = math.inf,
        counts: Callable[[], bool] = lambda: True,
        number: int | None = None,
    ) -> TreeAuditReport:
        """Report after the calls of the options, or another number, or more of them, see `looks`.

        `counts` is that of `sample`.
        """
        options = self.rule.options

        def look(options: Options) -> list[TreeAuditReport]:
            wanted = options.num_trials
            rest = max(wanted - self._calls, 0)
            self.sample(rest, deadline, counts, options.progress)
            notes: tuple[str, ...] = ()
            if self._calls < wanted:
                notes = (options.up(f"{self._calls:,} of {wanted:,} calls were made"),)
            return [self.report(options, notes)]

        number = options.num_trials if number is None else number
        return settled(look, replace(options, num_trials=number), deadline)[0]

    def count(self, root: Node | DraftChain, outcome: object) -> None:
        """Add the outcome of one call: tokens, or a `Failure`."""
        self._calls += 1
        if isinstance(outcome, Failure):
            self._log.add(outcome.kind, (), f"{described(root)} {outcome.message}")
            if self._log.count == self._calls == HOPELESS_CALLS:
                raise AlwaysFails(outcome, "It is called with (root, rng).")
            return
        assert isinstance(outcome, tuple)
        if not self.texts.add(outcome, self._rng):
            message = f"{described(root)} gave {outcome}, which has probability zero"
            self._log.add("impossible text", (), message)
            return
        self._met.add(root, outcome, 1.0)
        self._drafted += on_path(root, outcome[:1])

    def report(
        self,
        options: Options | None = None,
        notes: tuple[str, ...] = (),
        checks: Sequence[Check] = (),
    ) -> TreeAuditReport:
        rule, texts, options = self.rule, self.texts, options or self.rule.options
        rng, optimum = self._rng, rule.optimum()
        seen = texts.examined(rng, options.confidence)
        findings = Findings(
            options=options,
            num_trials=texts.size + self._log.count,
            checks=(*seen.checks, *self._acceptance_checks(optimum), *checks),
            distance=(seen.distance, seen.interval),
            sight=seen.sight,
            coverage=self._met.coverage,
            wrong_tokens=self._log,
            accept_length=self._met.mean_length,
            optimal_accept_length=optimum,
            edges=tree_edges(
                rule.verify,
                lambda: rule.drawn(rng),
                rule.target.vocab_size,
                rng,
                options.edge_probes,
            ),
            example=texts.example(seen.place),
            notes=notes,
        )
        report = rule.report(findings, seen.first)
        return report if report.clean else replace(report, cause=texts.cause(seen.place))

    def _acceptance_checks(self, optimum: float | None) -> list[Check]:
        """Check that no more is accepted than the optimum, of all levels or of a single draft."""
        rule, texts = self.rule, self.texts
        if optimum is not None:
            excess = self._met.mean_length - optimum
            return [length_check(excess, rule.topology.depth, texts.size)] if texts.size else []
        root = rule.make(rule.draft(()), rule.topology.drafts_at(()))
        if rule.texts is None and isinstance(root, WithReplacement) and root.num_drafts == 1:
            overlap = float(np.minimum(rule.target(()), rule.draft(())).sum())
            above = statistics.at_most(self._drafted, texts.size, overlap + 1e-12)
            return [acceptance_check(above)]
        return []


def report_of(rule: AuditedRule, rng: np.random.Generator) -> TreeAuditReport:
    """Report of the rule, driven if that is asked for and possible, else sampled."""
    options, notes, deadline = rule.options, tuple[str, ...](), rule.options.deadline()
    driven: tuple[TreeAuditReport, FoundLaw] | None = None
    if options.method != "sampling":
        trees = list(islice(rule.trees(), options.max_trees + 1))
        if len(trees) > options.max_trees:
            notes = (
                f"{NOT_DRIVEN}: there are more than {options.max_trees:,} trees of drafts "
                "(max_trees)",
            )
        else:
            drive = partial(_driven, rule, trees, deadline, rng)
            driven, notes = settled_law(drive, options, options.up)
    if driven is not None and not driven[1].is_doubtful:
        return driven[0]
    if any(note.startswith(TIME_UP) for note in notes):
        deadline = options.deadline()  # as long again
    report = TreeSample(rule, rng).settled(deadline)
    notes += report.notes
    if driven is not None and report.verdict_class != LOSSY:  # in doubt, which no sample settles
        return replace(driven[0], num_trials=report.num_trials, notes=notes)
    return replace(report, notes=notes)


def _laws_at(root: Node | DraftChain) -> Iterator[tuple[Vector, Vector | None]]:
    """Target and draft laws at the nodes of a tree, without a draft after the last ones."""
    if isinstance(root, DraftChain):
        yield from zip_longest(root.p, root.q)
        return
    for node in root.walk():
        yield node.target, None if node.drafts is None else node.drafts.propensity()


def _driven(
    rule: AuditedRule,
    trees: list[tuple[Any, float]],
    deadline: float,
    rng: np.random.Generator,
    options: Options,
) -> tuple[TreeAuditReport, FoundLaw]:
    """Report by the law of all texts, from that of each tree, and that law."""
    texts, log, met = rule.texts, ViolationLog(), Met(rule.topology.depth)
    assert texts is not None
    shares = [share for _, share in trees]
    driver = Driver(shares, options, Budget(options.max_calls, deadline), rng, texts.vocab_size)
    for p, q in (both for root, _ in trees for both in _laws_at(root)):
        driver.expect(p, q)
    law, failure = np.zeros(texts.law.size), [Failure("", "", "")]
    with progress_bar("trees of drafts", len(trees), options.progress) as advance:
        for n, (root, share) in enumerate(trees):

            def failed(one: Failure, leaf: Leaf, root: Any = root, share: float = share) -> None:
                failure[0] = one
                text = f"{described(root)} {one.message}: probability {leaf.mass:.3g}"
                log.add(one.kind, (), f"{text} given these drafts", share * leaf.mass)

            def impossible(text: Any, leaf: Leaf, root: Any = root, share: float = share) -> None:
                where, mass = f" with {leaf.where}" if leaf.where else "", share * leaf.mass
                told = f"{described(root)}{where} gave {text}, which has probability zero"
                log.add("impossible text", (), f"{told}: probability {mass:.3g} in all", mass)

            leaves = driver.leaves(n, partial(rule.outcome, root))
            law += share * law_of(leaves, texts, failed, impossible)
            for leaf in leaves:
                if isinstance(leaf.outcome, tuple):
                    met.add(root, leaf.outcome, share * leaf.mass)
            log.restarts(driver.restarting)
            advance(1)
    if not law.sum() > 1e-9:
        raise AlwaysFails(failure[0], "It is called with (root, rng).")
    found = found_law(law, texts.law, options, driver)
    odd = oddest(law, texts.law)
    findings = Findings(
        options=options,
        law=found,
        example=Example("", texts.text(odd), float(texts.law[odd]), float(law[odd])),
        wrong_tokens=log,
        accept_length=met.tokens,
        optimal_accept_length=rule.optimum(),
        edges=(ViolationLog(), None),
        coverage=met.coverage,
    )
    first = texts.first_token(law) - texts.first_token(texts.law)
    return rule.report(findings, 0.5 * float(np.abs(first).sum()), len(trees)), found
