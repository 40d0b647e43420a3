"""The verdict on a build: it is decided from findings, of which every report shows a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, model_serializer

from agents.kit.text.wording import counted
from evaluation.change.comparison import MORE_HITS
from evaluation.ci.findings import (
    WORSE,
    Finding,
    Kind,
    find_below_threshold,
    find_fading,
    find_hits,
    find_not_enough_data,
    find_one_sided,
    find_regressions,
    find_undecided,
    find_unjudged,
    find_without_passport,
)
from evaluation.ci.limits import Limits
from evaluation.ci.results import AgentResult

if TYPE_CHECKING:
    from evaluation.change.position import PositionProfile
    from evaluation.judge.passport import Passport
    from evaluation.simulation.conversations import Simulation

LARGE_FALL = 1.0  # points of 0 to 9
TICK, WARNING, CROSS = "✅", "⚠️", "❌"

Verdict = Literal[
    "pass",
    "regression",
    "below threshold",
    "could not judge enough",
    "judge without a passport",
    "not enough data",
    "cannot tell yet",
]
EXIT_CODES: dict[Verdict, int] = {
    "pass": 0,
    "regression": 1,
    "below threshold": 1,
    "could not judge enough": 2,
    "judge without a passport": 2,
    "not enough data": 2,  # where a dimension lost its score, or with `Limits.strict`, else 0
    "cannot tell yet": 2,
}


class Findings(BaseModel):
    """The verdict and everything it rests on, what weighs most first. Dumped it is the lists of ``--json``, by kind."""

    verdict: Verdict
    exit_code: int
    findings: list[Finding] = []
    without_baseline: list[tuple[str, str]] = []  # agent, why

    @model_serializer
    def _lists_by_kind(self) -> dict[str, list[dict[str, Any]]]:
        """Return the findings as ``--json`` lists them: by kind, those with data."""
        lists: dict[str, list[dict[str, Any]]] = {kind: [] for kind in get_args(Kind)}
        for finding in self.findings:
            if finding.data is not None:
                entry = {"agent": finding.agent, "dimension": finding.dimension, **finding.data}
                lists[finding.kind].append(entry)
        return lists

    def of_kind(self, *kinds: Kind) -> list[Finding]:
        """Return the findings of some kinds, each line once; of those with the same agent, dimension, proposition and verdict the last."""
        by_line = {}
        for finding in self.findings:
            if finding.kind in kinds:
                by_line[finding.agent, finding.dimension, finding.proposition, finding.verdict] = finding
        return list(by_line.values())

    @property
    def unexplained_falls(self) -> int:
        """Return how many scores fell by `LARGE_FALL` or more without an interval to say how sure that is: they alone fail nothing."""
        falls = 0
        for finding in self.findings:
            change = finding.undecided_change
            if change is None or change.interval is not None or change.delta is None:
                continue
            if change.delta <= -LARGE_FALL:
                falls += 1
        return falls

    @property
    def sign(self) -> str:
        """Return what is seen first: a tick only for a pass in which nothing fell unexplained."""
        if EXIT_CODES[self.verdict] == 1:
            return CROSS
        if self.verdict != "pass" or self.unexplained_falls or self.of_kind("one_sided"):
            return WARNING
        return TICK

    @property
    def outcome(self) -> str:
        """Return the verdict, and beside a pass what it does not cover: scores on one side only, and falls without an interval."""
        if self.verdict != "pass":
            return self.verdict
        uncovered = []
        one_sided = len(self.of_kind("one_sided"))
        if one_sided:
            verb = "is" if one_sided == 1 else "are"
            uncovered.append(f"{counted(one_sided, 'score')} {verb} on one side only")
        if self.unexplained_falls:
            fell = counted(self.unexplained_falls, "score")
            uncovered.append(f"{fell} fell by a point or more without an interval to say how sure that is")
        return f"pass, but {' and '.join(uncovered)}" if uncovered else "pass"

    @property
    def headline(self) -> str:
        """Return what is wrong, counted in a sentence."""
        total = Counter(finding.kind for finding in self.findings)
        worse = [finding for finding in self.of_kind("regressions") if finding.verdict == WORSE]
        worse_propositions = sum(bool(finding.proposition) for finding in worse)
        lacking = self.of_kind("not_enough_data")
        lacking_propositions = sum(bool(finding.proposition) for finding in lacking)
        more_hits = sum(finding.verdict == MORE_HITS for finding in self.of_kind("hits"))
        counts = [
            (len(worse) - worse_propositions, "dimension", "significantly worse"),
            (worse_propositions, "proposition", "significantly worse"),
            (total["fading"], "score", "fading within conversations"),
            (total["below_threshold"], "score", "below threshold"),
            (total["could_not_judge"], "part", "not judged enough"),
            (total["without_passport"], "dimension", "in which the judge is not shown to be usable"),
            (len(lacking) - lacking_propositions, "score", "empty for too little data"),
            (lacking_propositions, "proposition", "scored much less than before"),
            (total["one_sided"], "score", "on one side only"),
            (total["cannot_tell_yet"], "comparison", "not decided"),
            (sum(finding.suspected for finding in self.findings), "suspected regression", "among them"),
            (more_hits, "proposition", "with more hits, but not significantly"),
            (len(self.without_baseline), "agent", "without a baseline"),
        ]
        words = [f"{counted(n, thing)} {state}" for n, thing, state in counts if n]
        return f"{', '.join(words)}." if words else "Nothing got worse."


def decide(
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    profiles: Sequence[PositionProfile] = (),
    simulations: Sequence[Simulation] = (),
    passports: Sequence[Passport] = (),
) -> Findings:
    """Return the verdict on a build.

    Args:
        profiles: The scores by position that may fade.
        simulations: What was simulated to be measured; some of it may be missing among the results.
        passports: The judge's, in each dimension that it scored.
    """
    unjudged = find_unjudged(results, simulations, limits)
    findings = [
        *unjudged,
        *find_without_passport(results, passports, limits),
        *find_regressions(results, limits),
        *find_fading(profiles, limits),
        *find_below_threshold(results, limits),
        *find_not_enough_data(results, unjudged),
        *find_one_sided(results),
        *find_undecided(results, limits),
        *find_hits(results, limits),
    ]
    without_baseline = []
    for result in results:
        if result.no_baseline and result.summary.measured:  # without any number there is nothing to compare
            without_baseline.append((result.agent, result.no_baseline))
    kinds = {finding.kind for finding in findings}
    verdict = _verdict(kinds, limits, all_compared=not without_baseline)
    return Findings(
        verdict=verdict,
        exit_code=_exit_code(verdict, results, limits),
        findings=findings,
        without_baseline=without_baseline,
    )


def _verdict(kinds: set[Kind], limits: Limits, *, all_compared: bool) -> Verdict:
    """Return the verdict for these kinds of findings.

    What could not be judged enough comes first, then a judge that is not shown to be usable: there neither a pass nor a fall says what it
    seems to say. Hits fail
    nothing; what is not decided, one-sided or not compared does so only with `Limits.strict`.
    """
    if "could_not_judge" in kinds:
        return "could not judge enough"
    if "without_passport" in kinds:
        return "judge without a passport"
    if "regressions" in kinds or "fading" in kinds:
        return "regression"
    if "below_threshold" in kinds:
        return "below threshold"
    if "not_enough_data" in kinds:
        return "not enough data"
    decided = all_compared and "one_sided" not in kinds and "cannot_tell_yet" not in kinds
    if limits.strict and not decided:
        return "cannot tell yet"
    return "pass"


def _exit_code(verdict: Verdict, results: Sequence[AgentResult], limits: Limits) -> int:
    """Return the exit code: "not enough data" fails a build only where a dimension lost its score, or with `Limits.strict`."""
    any_lost = any(result.lost_dimensions for result in results)
    if verdict == "not enough data" and not limits.strict and not any_lost:
        return 0
    return EXIT_CODES[verdict]
