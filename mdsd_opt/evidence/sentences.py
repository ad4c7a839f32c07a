"""What reports conclude and tell: classes of verdicts, sentences of them, and lines of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd_opt.base.checked import real
from mdsd_opt.base.frames import Column, If, Words, told
from mdsd_opt.errors import InvalidInput

#: Answers of `Report.verdict_class`.
LOSSLESS, NO_DEVIATION, EDGE = "lossless", "no deviation", "edge"
LOSSY, NOT_JUDGED, NOT_SETTLED = "lossy", "not judged", "not settled"

#: All verdict classes, from best to worst.
CLASSES = (LOSSLESS, NO_DEVIATION, EDGE, NOT_JUDGED, NOT_SETTLED, LOSSY)

#: Classes in which nothing was found wrong.
CLEAN = (LOSSLESS, NO_DEVIATION)

#: Beginning of a note about a limit of time that was reached before the work was done.
TIME_UP = "the time was up"

#: A report is `lossless` only where no larger bias could have stayed hidden.
HIDDEN_AT_MOST = 0.05

#: Answers to the question whether an audit is passed, from best to worst, with their exit codes.
ANSWERS = {"PASS": 0, "EDGE": 0, "TOO WEAK": 3, "NOT JUDGED": 3, "NOT SETTLED": 3, "FAIL": 1}


@dataclass(frozen=True, slots=True)
class Bar:
    """What a report of an audit has to reach to pass.

    Attributes
    ----------
    detect : float
        Total variation that may stay hidden, in (0, 1].
    tolerate_edge : float
        Probability of values that must not come, up to which an edge passes.
    """

    detect: float = HIDDEN_AT_MOST
    tolerate_edge: float = 1e-12

    def __post_init__(self) -> None:
        if not 0 < real(self.detect) <= 1:
            raise InvalidInput(
                f"detect is {self.detect!r}: give a total variation above 0, up to 1"
            )
        if not 0 <= real(self.tolerate_edge) <= 1:
            raise InvalidInput(f"tolerate_edge is {self.tolerate_edge!r}: give a probability")

    def answer(self, report: Any) -> str:
        """One of `ANSWERS`, for a report, or the audit of an engine."""
        if report.verdict_class in (NOT_JUDGED, NOT_SETTLED):
            return str(report.verdict_class).upper()
        is_edge = report.verdict_class == EDGE and (report.edge_mass or 0.0) <= self.tolerate_edge
        wrong_drafts = getattr(report, "drafts_follow_law", None) is False
        if not (report.faultless or (is_edge and not wrong_drafts)):
            return "FAIL"
        if report.verdict_class != LOSSY and report.detectable_bias > self.detect:
            return "TOO WEAK"
        return "PASS" if report.faultless else "EDGE"

    def told(self, report: Any) -> str:
        """The answer, and the verdict in a sentence."""
        answer, verdict = self.answer(report), str(report.verdict)
        if answer == "TOO WEAK":
            hidden = f"a bias of {report.detectable_bias:.2g} could have stayed hidden"
            # it falls with the root of the number of calls or tokens
            more = (report.detectable_bias / self.detect) ** 2
            takes = f": it takes {more:,.1f} times as long" if report.detectable_bias < 1 else ""
            takes = next((f": {note}" for note in report.notes if note.startswith(TIME_UP)), takes)
            return (
                f"{answer}: {hidden}, where {self.detect:g} is allowed (detect){takes}; {verdict}"
            )
        return verdict if verdict.startswith(answer) else f"{answer}: {verdict}"


def worst_class(classes: Iterable[str]) -> str:
    """Worst of some classes of verdicts."""
    return max(classes, key=CLASSES.index)


#: Kind of a `Violation` that explains another fault, and is none by itself.
RESTART = "restart"

#: Kinds of `Violation` without evidence about a law: the call gave no tokens.
NO_ANSWERS = ("exception", "not a token", "not tokens")

#: Why nothing is judged where every law has one possible token.
CERTAIN_LAWS = "every law has one possible token: that these came says nothing of drafts"

#: Deviations of single tokens are reported in standard deviations up to this number.
LARGEST_Z = 40.0

#: Kinds: single tokens or drafts, texts of a tree, texts of a function, tokens of a server, laws of
#: all kinds, a function of an engine.
SINGLE, TREES, TEXTS, TOKENS, LAWS, ENGINE = "single", "trees", "texts", "tokens", "laws", "engine"

#: Sentence by situation, which mostly is the class of the verdict, by kind, and by method; by the
#: first two of these, or by the situation alone, where that is enough.
SENTENCES: dict[tuple[str, ...], Words] = {
    (NOT_SETTLED,): "NOT SETTLED in {num_trials:,} calls: they point to {points_to}.{on}",
    (EDGE,): If("all_wrong", "EDGE ONLY{edge_size}: right but for impossible values, e.g. "
        "{all_wrong[0].message}.{on}",
        "EDGE ONLY: the law is {total_variation:.2g} away from the target's, as float32 arithmetic "
        "can be.{on}"),
    (NOT_JUDGED,): If("failed", "NOT JUDGED: {failed_calls} failed, e.g. {failure}.{on}",
        If("unmet", "NOT JUDGED:{unmet}{on}", f"NOT JUDGED: {CERTAIN_LAWS}.{{on}}")),
    ("beyond the frontier", SINGLE): "BEYOND THE FRONTIER: no law as near to the target allows so "
        "much acceptance; do the drafts follow the law assumed?",
    ("lossy as meant", SINGLE): "lossy: total variation {total_variation:.3g}, and "
        "{acceptance_rate:.4g} accepted (lossless {standing.lossless_acceptance_rate:.4g}); the "
        "best law at that distance allows {standing.best_acceptance_rate:.4g}, and so much "
        "acceptance needs {standing.least_tv:.3g}.",
    ("wrong drafts", SINGLE): "the tokens may follow the target, but the DRAFTS DO NOT FOLLOW "
        "THEIR LAW: {token_reason}.",
    (LOSSY, SINGLE): If("of_drafts", "NOT FROM THIS LAW: {token_reason}.",
        "NOT LOSSLESS: {token_reason}."),
    (NO_DEVIATION, SINGLE): "{none_found}{unmet}",
    (NO_DEVIATION, SINGLE, "enumeration"): "no deviation: the stated law is lossless (enumerated); "
        "{calls_show}.",
    (LOSSLESS, SINGLE): "lossless, {exact}: the law found by driving it fits; {calls_show}.{unmet}",
    (LOSSY, TREES): "NOT LOSSLESS: {tree_reason}{caused}.{on}",
    (LOSSLESS, TREES): "lossless, {exact}: the law of {length} tokens is the target's."
        "{longest}{blind}{unmet}",
    (NO_DEVIATION, TREES): If("too_few", "{none_found}", "{none_found}{longest}{blind}{unmet}"),
    (LOSSY, TEXTS): "NOT LOSSLESS: {text_reason}{because}.",
    (LOSSLESS, TEXTS): "lossless: {driven_law}, {exact}.{longest}{unseen}",
    (NO_DEVIATION, TEXTS): If("num_checks",
        "no deviation: {driven_law}, {up_to}; {none_found}{longest}{unseen}",
        "{none_found}{longest}{unseen}"),
    ("law misread", TOKENS): If("cause", "LAW MISREAD, nothing is said of drafts: {most} "
        "({later.said}).",
        "LAW MISREAD, nothing is said of drafts: tokens without speculation deviate from these "
        "laws as well ({later.said}; without: {without})."),
    ("another law", TOKENS): "LOSSY: the law is not that of the plain server, {law_distance:.3g} "
        "away at {num_laws} texts.",
    ("tokens deviate", TOKENS): "LOSSY: {later.said}, total variation {at_least}; {most}. Without "
        "speculation: {control.said}.",
    ("nothing drafted", TOKENS): "NOT JUDGED, nothing was drafted: {tokens_clean}",
    ("drafts not seen", TOKENS): "NOT JUDGED, drafts not seen: no counter says that anything was "
        "drafted. If the server's log does, say how much (drafted). As far as that goes, "
        "{tokens_clean}",
    ("ended early", TOKENS): "NOT JUDGED, ended early, see the note: {tokens_clean}",
    ("no choice", TOKENS): f"NOT JUDGED, no choice: {CERTAIN_LAWS}.",
    ("no law", TOKENS): "NOT JUDGED, no law: the server says of no token how likely it was.",
    ("no control", TOKENS): "NOT JUDGED, no control: tokens deviate from these laws "
        "({later.said}, {most}); only with as many tokens that were made without drafts can "
        "anybody say whether these are at fault, or the laws.",
    ("acceptance above the optimum", TOKENS): "NOT JUDGED, acceptance above the optimum: "
        "{known_acceptance:.3f} of {known_drafts:,} drafts, where {optimal_acceptance:.3f} is the "
        "most for drafts of this law (e = {accepted_e}); {tokens_clean}",
    (NOT_JUDGED, TOKENS): "NOT JUDGED, there are no tokens.",
    (NOT_SETTLED, TOKENS): "NOT SETTLED: {later.said}, which points to {points_to}: ask for more "
        "tokens.",
    (NO_DEVIATION, TOKENS): If("too_few",
        "no deviation found, but there are too few tokens to see one.",
        "no deviation found in {tokens:,} tokens ({later.said}); {found}."),
    (LOSSLESS, LAWS): "{nothing_found}{longest}{unmet}{beside}",
    (NO_DEVIATION, LAWS): "{nothing_found}{longest}{unmet}{beside}",
    ("laws refused", LAWS): "NOT JUDGED {on_laws}:{beside}",
    ("drafts idle", LAWS): "NOT JUDGED {on_laws}:{unmet}",
    ("as the worst", LAWS): "{worst.report.verdict} (laws: {worst.law}, V = "
        "{worst.vocab_size:,}){worst_cause}{beside}",
    ("both", ENGINE): "texts: {texts.verdict} One token: {zeros.verdict}",
}  # fmt: skip


def all_wrong(report: Any) -> tuple[Any, ...]:
    """Violations of a report, those at the edges of its draws last."""
    return (*report.violations, *report.edge_violations)


def _is_driven(report: Any) -> bool:
    return bool(report.method == "driven")


def _is_sampled(report: Any) -> bool:
    return bool(report.method == "sampling")


def _impossible(report: Any) -> list[Any]:
    """Outcomes that are always wrong, of what the verdict is about."""
    return [
        one for one in report.violations if report.num_violations
        and (report.kind != SINGLE or (one.kind == "impossible drafts") == report.about_drafts)
    ]  # fmt: skip


def _p_value(report: Any) -> float | None:
    """p-value of the checks of what the verdict is about; None if none decides it."""
    found: float | None = report.drafts_p_value if report.about_drafts else report.p_value
    return found


def _check(report: Any) -> Any:
    """That p-value, and the oddest of the checks."""
    checks = [check for check in report.checks if check.of_drafts == report.about_drafts]
    worst = min(checks, key=lambda check: check.p_value / check.weight)
    size = p_text(_p_value(report) or 0.0, 2)
    return told("{0}, from the check of {1}{restarts}", report, size, worst.name)


def _driven_law(report: Any) -> str:
    """Words about the laws of texts that were driven and fit."""
    driven = [trial for trial in report.tried if trial.method == "driven"]
    *first, last = map(str, sorted({trial.vocab_size for trial in driven}))
    sizes = " and ".join([", ".join(first), last] if first else [last])
    most = max(trial.length for trial in driven)
    return f"the law of up to {most} tokens is the target's at V = {sizes}"


def _most(report: Any) -> str:
    """Words about the bet that won most, or about laws that fit once they are moved."""
    name = report.later.bets[0][0] if report.later.bets else ""
    if report.cause not in ("", name):
        return f"{report.cause}: moved by one, they fit"
    return f"best seen by the bet on {name}" if name else "no bet"


def _deviation(token: Any) -> str:
    z, noise = token.z, ""
    if z is not None:
        noise = f", |z| > {LARGEST_Z:.0f}" if abs(z) >= LARGEST_Z else f", z = {z:+.1f}"
    return f"expected {token.expected:.4g}, observed {token.observed:.4g}{noise}"


def found(hidden: Any, power: float) -> str:
    """Words about the bias that would have been found, and where it is looked for."""
    sized = (hidden.detectable_bias, hidden.direction), (hidden.class_bias, hidden.classes)
    sizes = [f"{size:.2g} {where}" for size, where in sized if size is not None and size < 1.0]
    within = f" (one of {sizes[1]})" if len(sizes) > 1 else ""
    return f"a bias of {sizes[0]}{within} would have been found with probability {power:g}"


def listed(heading: str, items: Iterable[str] | None, between: str = "; ") -> str:
    """Sentence with what is listed, or "" without any."""
    text = between.join(items or ())
    return f" {heading}: {text}." if text else ""


def carried(value: float, interval: Any) -> str:
    """Text of a number, and of its interval if it is not known exactly."""
    if interval is None:
        return f"{value:.6g}"
    return f"{value:.6g} in [{interval.low:.6g}, {interval.high:.6g}]"


def p_value_text(value: float, digits: int = 3) -> str:
    """Text of a p-value; one too small for floating point is not shown as zero."""
    return "< 1e-300" if value < 1e-300 else f"{value:.{digits}g}"


def p_text(value: float, digits: int = 3) -> str:
    """p-value as an equation, or as an inequality."""
    text = p_value_text(value, digits)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def power_of_ten(exponent: float) -> str:
    """Text of a number, given its common logarithm."""
    return f"{10**exponent:.2g}" if -3 < exponent < 3 else f"10^{exponent:.1f}"


#: Parts of sentences and lines: words, conditions of words, and what these are about.
PARTS: dict[str, Words] = {
    "all_wrong": all_wrong,
    "too_few": lambda x: x.detectable_bias >= 1.0 and (x.class_bias or 1.0) >= 1.0,
    "failed": lambda x: [one for one in x.violations if one.kind in NO_ANSWERS],
    "impossible": _impossible,
    "of_drafts": lambda x: x.subject == "drafts",
    "on": lambda x: f" ({x.laws})" if getattr(x, "laws", "") else "",
    "calls": lambda x: {SINGLE: "trials", TREES: "steps", TEXTS: "texts"}[x.kind],
    "distance": lambda x: carried(x.total_variation, x.total_variation_interval),
    "up_to": "exact up to {num_checks:,} random checks",
    "exact": "{up_to} (below {detectable_bias:.2g} may be hidden)",
    "found": lambda x: found(x, x.power),
    "none_found": If("too_few", "no deviation found, but there are too few trials to see one.",
        "no deviation found in {num_trials:,} {calls}; {found}."),
    "longest": If("longest_text",
        " The promise was tried on texts of up to {longest_text} tokens."),
    "unmet": lambda x: listed("Never met", x.coverage and x.coverage.unmet),
    "caused": If("cause", " ({cause})"),
    "restarts": lambda x: "".join(f"; {v.message}" for v in x.violations if v.kind == RESTART),
    "edge_size": If(lambda x: x.edge_mass is not None, " of probability {edge_mass:.2g} at most"),
    "failed_calls": If(lambda x: x.num_violations == 1, "1 call", "{num_violations:,} calls"),
    "failure": lambda x: told("{failed[0].message}", x).removesuffix("."),
    "outcomes": If("impossible",
        "{num_violations:,} impossible outcomes, e.g. {impossible[0].message}{restarts}",
        If("edge_violations", "at the edge of its draws, {edge_violations[0].message}")),
    "check": _check,
    "p": lambda x: p_value_text(x.p_value),
    "bias": If("too_few", "any: too few trials", "below {detectable_bias:.3g}"),
    "edges_wrong": If("edge_violations", "{num_edges} violations listed", "none wrong"),
    "num_edges": lambda x: len(x.edge_violations),
    # of single tokens and drafts
    "over": "({confidence:.0%} interval of {num_trials:,} trials)",
    "law": If(_is_driven, "{up_to}", "of the stated law"),
    "calls_show": If(lambda x: x.trial_bias >= 1.0,
        "{num_trials:,} trials are too few to see whether the calls follow it",
        "the calls follow it in {num_trials:,} trials, where a bias of {trial_bias:.2g} would have "
        "been found with probability {power:g}"),
    "token_reason": If("outcomes", "{outcomes}", If(lambda x: _p_value(x) is None,
        "{foretold}the output law is {total_variation:.3g} away from the target{caused}{restarts}",
        If(lambda x: x.about_drafts or not _is_sampled(x), "{check}",
            If("total_variation_interval", "{size}{caused}; {check}", "{check}{caused}")))),
    "foretold": If(_is_driven, "{up_to}, "),
    "size": "total variation {total_variation:.3g} in [{total_variation_interval.low:.3g}, "
        "{total_variation_interval.high:.3g}]",
    # of texts of a tree
    "blind": lambda x: listed("Not seen", x.blind_spots),
    "tree_reason": If(lambda x: _is_driven(x) and x.total_variation > (x.tolerance or 0.0),
        "the law of {length} tokens is {total_variation:.3g} away from the target's, {first}"
        "{failing}",
        If("outcomes", "{outcomes}", "total variation {distance}, {first_token_variation:.3g} of "
            "it in the first token; {check}")),
    "first": If(lambda x: (x.first_token_variation or 0.0) <= (x.tolerance or 0.0),
        "which its first token does not show",
        "{first_token_variation:.3g} of it in the first token"),
    "failing": If("violations", "; {violations[0].message}"),
    # of texts of a function
    "because": lambda x: "".join(f"; {cause}" for cause in x.causes),
    "text_reason": If(lambda x: _is_sampled(x) and told("{outcomes}", x), "{outcomes}",
        "{looked}, the law of {length} tokens is {distance} away from the target's at V = "
        "{vocab_size}{from_token}{failing}"),
    "looked": If(_is_driven, "{up_to}", "in {num_trials:,} sampled texts"),
    "from_token": If(lambda x: x.position is not None, ", from token {place} on"),
    "place": lambda x: x.position + 1,
    "driven_law": _driven_law,
    # of tokens of a server
    "most": _most,
    "at_least": "{total_variation:.2g}, at least {later.at_least:.2g}",
    "without": lambda x: max(x.first, x.control, key=lambda side: side.log10_e).said,
    "tokens_clean": "the tokens show no deviation ({later.said}).",
    "accepted_e": lambda x: power_of_ten(x.acceptance_log10_e),
    "counted": lambda x: x.drafted is not None,
    "of_accepted": If(lambda x: x.accepted is not None, ", accepted {accepted:,}{of_drafted}"),
    "of_drafted": If(lambda x: x.drafted and x.accepted, " ({accepted_share:.1%})"),
    "accepted_share": lambda x: x.accepted / x.drafted,
    "gap": lambda x: x.left_on_the_table or 0.0,
    "twice": If(lambda x: x.law_noise is not None,
        " (the same text twice: {law_noise:.2g} at most)"),
    # of laws of all kinds
    "on_laws": lambda x: f"on {len(x.tried)} kind{'s' * (len(x.tried) != 1)} of laws, V up to "
        f"{x.largest_vocab_size:,}",
    "beside": lambda x: listed("Not tried, or refused",
        (one.law for one in x.tried if one.report is None), ", "),
    "worst_cause": If(lambda x: x.cause and x.cause != x.worst.report.cause, " Cause: {cause}."),
}  # fmt: skip


def _measured(interval: str, over: str = "", digits: int = 6, unit: str = "") -> If:
    """Words about a number, and its interval, the field of that name, if it was measured."""
    low, high = (f"{{{interval}.{end}:.{digits}g}}" for end in ("low", "high"))
    value = f"{{0:.{digits}g}}"
    return If(interval, f"{value} in [{low}, {high}]{over}{unit}", f"{value}{unit}")


_VERDICT, _FIRST = Column("verdict"), Column(
    "first_token_variation", "total variation of the first token", "{0:.6g}"
)  # fmt: skip
_P_VALUE = Column("p_value", "p-value", "{p} (false alarm below {false_alarm:g})")
_BIAS = (
    Column("detectable_bias", "bias that may be hidden",
        If("clean", "{bias} {direction} (power {power:g})")),
    Column("class_bias", "the same", If(lambda x: x.clean and not told(PARTS["too_few"], x),
        "below {0:.3g} {classes} (power {power:g})")),
)  # fmt: skip
_COVERAGE = Column("coverage.levels", "drafts at level {1}",
    "accepted {0.accepted:.2%}, refused {0.refused:.2%}")  # fmt: skip
_NOTES = (
    Column("notes", "note"), Column("example.said", "example"),
    Column("example.repeat", "to repeat it"),
)  # fmt: skip
_CHECKS = Column("checks", "check: {0.name}", lambda check: p_text(check.p_value))
_EDGES = If("num_edge_probes",
    "{0:,} calls with a draw at an end of its range, {edges_wrong}",
    "not probed: no draw of the verifier was put to an end of its range")  # fmt: skip
_VIOLATIONS = Column("violations", "{0.kind}", "{0.message}", all_wrong)

#: Facts that are worth a line, by kind.
FACTS: dict[str, Sequence[Column]] = {
    SINGLE: (
        _VERDICT, Column("method"), Column("num_trials", "trials", "{0:,}"), _P_VALUE,
        Column("drafts_p_value", "p-value of the drafts", If("of_drafts", "", p_value_text)),
        Column("law_proven_lossless", "stated law lossless", If("law_proven_lossless",
            "proven, to {tolerance:g} (enumeration)", "refuted, to {tolerance:g} (enumeration)")),
        Column("total_variation", shown=If(_is_sampled,
            _measured("total_variation_interval", " {over}"), "{0:.6g} ({law})")),
        Column("impossible_mass", "impossible tokens",
            If("impossible_mass", "probability {0:.3g} ({law})")),
        Column("acceptance_rate", shown=If(_is_sampled,
            _measured("acceptance_interval", " {over}"), "{0:.6g} ({law})")),
        Column("sampler_p_value", "p-value of the calls",
            lambda p: f"{p_value_text(p)} (that they follow it)"),
        Column("total_variation_interval", "total variation of the calls",
            If(_is_sampled, "", "in [{0.low:.6g}, {0.high:.6g}] {over}")),
        Column("sampled_acceptance_rate", "acceptance rate of the calls",
            _measured("acceptance_interval", " {over}")),
        Column("optimal_acceptance_rate", shown="{0:.6f}"),
        Column("accept_length", "tokens a step", "{0:.6g}"),
        Column("optimal_accept_length", "tokens a step at the optimum", "{0:.6g}"),
        Column("standing.best_acceptance_rate", "best rate at its TV",
            _measured("standing.best_acceptance_interval")),
        Column("standing.least_tv", "least TV for its rate",
            _measured("standing.least_tv_interval")),
        Column("standing.least_kl", "least KL for its rate",
            _measured("standing.least_kl_interval", unit=" nats")),
        Column("standing.kl", "KL", "{0:.6g} nats"),
        Column("standing.best_acceptance_rate_at_kl", "best rate at its KL", "{0:.6g}"),
        *_BIAS, *_NOTES, _COVERAGE,
        Column("num_edge_probes", "edges of the draws",
            If(lambda x: x.subject == "verifier", _EDGES)),
        _CHECKS, Column("tokens", "token {0.token}", _deviation), _VIOLATIONS,
    ),
    TREES: (
        _VERDICT,
        Column("method", shown=If(_is_driven, "{0} ({num_trees:,} trees, {up_to})",
            "{0} (sampled, {num_trials:,} steps)")),
        Column("total_variation", shown="{distance} (texts of {length} tokens)"), _FIRST,
        Column("accept_length", "tokens a step", "{0:.6f}"),
        Column("optimal_accept_length", "tokens a step at the optimum", "{0:.6f}"),
        _P_VALUE, _CHECKS, Column("num_edge_probes", "edges of the draws", _EDGES), *_BIAS,
        _COVERAGE, Column("blind_spots", "not seen"), *_NOTES, _VIOLATIONS,
    ),
    TEXTS: (
        _VERDICT, Column("verdict_class", "class"), Column("method"),
        Column("total_variation", shown="{distance} (V = {vocab_size}, {length} tokens)"), _FIRST,
        Column("position", "parts at", "token {place}, given those before it"),
        Column("after", "after {0.event}", "{0.total_variation:.3g} in {0.share:.0%} of texts"),
        Column("causes", "cause"),
        Column("tried", "tried: {0.models}", "{0.total_variation:.3g} ({0.how})"),
        Column("met", "tokens met", of=lambda x: ", ".join(
            f"{count:,} {kind}" for kind, count in x.met.items() if count) or "none"),
        _P_VALUE, *_BIAS, *_NOTES, Column("seconds", shown="{0:.1f}"), _CHECKS, _VIOLATIONS,
    ),
    TOKENS: (
        _VERDICT, Column("verdict_class", "class"), Column("finding"),
        Column("later.said", "later tokens"), Column("first.said", "first tokens"),
        Column("control.said", "without speculation", If("control.tokens", "{0}", "not asked")),
        Column("total_variation", shown="{at_least}"),
        Column("tolerance", shown="{0:.3g}{twice}"), *_BIAS,
        Column("later.impossible", "impossible tokens", If("later.impossible", "{0:,}")),
        Column("later.bets", "bet", lambda bet: f"{bet[0]}: {power_of_ten(bet[1])}"),
        Column("temperature", shown=If("temperature_interval",
            "{0:.3g} in [{temperature_interval.low:.3g}, {temperature_interval.high:.3g}] times "
            "stated")),
        Column("top_excess", "likeliest token, beyond stated",
            _measured("top_excess_interval", digits=3)),
        Column("drafted", "drafts", If("counted", "{drafted:,}{of_accepted}",
            "not counted by the server"), lambda x: x),
        Column("accepted_by_position", shown=If("counted", "{0}"),
            of=lambda x: ", ".join(f"{share:.1%}" for share in x.accepted_by_position)),
        Column("known_acceptance", "acceptance after known texts",
            If(lambda x: x.drafted is not None and x.optimal_acceptance is not None,
                "{0:.3f} of {known_drafts:,}, optimum {optimal_acceptance:.3f}: {gap:+.1%} speed "
                "left on the table")),
        Column("law_distance", "law against the plain server's",
            "{0:.3g} on average at {num_laws:,} texts"),
        *_NOTES, Column("requests", shown="{0:,} in {seconds:.0f} s"),
    ),
    LAWS: (
        _VERDICT, Column("tried", "{0.label}", "{0.said}"), *_BIAS,
        Column("drafts_from", "drafts drawn"), _COVERAGE, *_NOTES,
        Column("worst.report", "{0[0]}", "{0[1]}", lambda x: x.details),
    ),
    ENGINE: (
        Column("engine.function", "function", "{0} ({engine.package} {engine.version})"),
        Column("engine.rebound", "rebound"), Column("texts.verdict", "whole texts"),
        Column("texts.accept_length", "tokens a step", "{0:.4f}"),
        Column("texts.optimal_accept_length", "the optimum", "{0:.4f}"),
        Column("zeros.verdict", "zeros in the target"), Column("example.said", "example"),
    ),
}  # fmt: skip


def sentence(report: Any) -> str:
    """Verdict of a report in one sentence."""
    asked = report.situation, report.kind, report.method
    key = next(asked[:n] for n in (3, 2, 1) if asked[:n] in SENTENCES)
    return str(told(SENTENCES[key], report))
