"""What a reader of the comparisons must know beside the numbers: what was left out of them, and why there is no score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.change.comparison import Comparison
from evaluation.ci.findings import Findings
from evaluation.ci.gather import AgentResult
from evaluation.ci.verdict import why_no_score
from evaluation.models import Dimension, is_heuristic

MOST_NAMED = 5  # claims in one note
SCRIPTED_FLUENCY = (
    "fluency: the offline actor says the persona's few sample lines again and again; "
    "the score shows that, and not how a model would speak"
)
VISIBLE = 0.05  # points: less does not show in a score with one decimal


def notes_of(results: Sequence[AgentResult]) -> dict[str, list[str]]:
    """Notes on the numbers and comparisons, with the agents each holds for."""
    found: dict[str, list[str]] = {}
    for result in results:
        if (
            result.run.simulated
            and is_heuristic(result.run.actor_model)
            and result.score(Dimension.FLUENCY) is not None
        ):
            found.setdefault(SCRIPTED_FLUENCY, []).append(result.agent)
        if result.comparison is not None:
            for note in (*result.comparison.notes, *_left_out(result, result.comparison)):
                found.setdefault(note, []).append(result.agent)
    return found


def _left_out(result: AgentResult, comparison: Comparison) -> Iterator[str]:
    """Where a score and its change are not over the same claims: the comparable scores, and the claims that are in one only."""
    for change in comparison.dimensions:
        name = change.dimension
        pairs = (change.candidate, result.score(name)), (change.baseline, comparison.baseline.scores.get(name))
        if change.counted or change.delta is None or change.baseline is None or change.candidate is None:
            continue
        if all(here is None or there is None or abs(here - there) < VISIBLE for here, there in pairs):
            continue
        asked = comparison.candidate.proposition_scores.get(name, {})
        scored = [claim for claim, score in asked.items() if score is not None]
        common = [c for c in comparison.propositions.get(name, ()) if c.delta is not None]
        parts = [
            f"{name}: the change is over {len(common)} of {len(scored)} claims, {change.baseline:.1f} → {change.candidate:.1f}"
        ]
        for what, claims in (
            ("only now", comparison.only_candidate),
            ("only before", comparison.only_baseline),
            ("scored in one of the two only", comparison.scored_in_one),
            ("reworded", comparison.changed),
        ):
            of = [claim.partition("/")[2] for claim in claims if claim.startswith(f"{name}/")]
            more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
            if of:
                parts.append(f"{what}: {', '.join(of[:MOST_NAMED])}{more}")
        yield "; ".join(parts)


def without_score(results: Sequence[AgentResult], findings: Findings) -> dict[str, list[str]]:
    """By reason the agents, or agents' dimensions, that have no score; without those that the verdict names already."""
    named = {(u.agent, u.dimension) for u in findings.unjudged}
    named |= {(lack.agent, lack.dimension) for lack in findings.lacking if not lack.proposition}
    found: dict[str, list[str]] = {}
    for result in results:
        if (result.agent, "") in named:
            continue
        if not result.summary.measured:
            why = result.run.error or "; ".join(
                dict.fromkeys(f"{why_no_score(result, d)}" for d in result.run.dimensions)
            )
            found.setdefault(why or "nothing to judge", []).append(result.agent)
            continue
        for dimension in result.run.dimensions:
            if result.score(dimension) is None and (result.agent, dimension) not in named:
                found.setdefault(f"{dimension}: {why_no_score(result, dimension)}", []).append(result.agent)
    return found
