"""How an agent changed, in one sentence made from its scores alone.

A proposition is called by its id; no verb is guessed from its words.
"""

from __future__ import annotations

import re

from agents.builds import tag_name
from agents.kit.text.wording import counted, day_text, decimal, interval_text, time_text
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import Comparison
from evaluation.change.evidence import MEASURE_NEWER
from evaluation.change.lost import Lost
from evaluation.change.models import Change
from evaluation.change.overview import AgentDrift
from evaluation.models import EvaluationRun
from evaluation.runs.shares import TOO_LITTLE

HELD = 6.0  # a claim with at least this score held
HOLDS_NO_MORE = 4.0  # with at most this score it does not
MOST_LOST = 3  # propositions named in a sentence
TRAIT_DIGEST = re.compile(r"-[0-9a-f]{6}$")  # at the end of a trait's id


def short_name(proposition: str, agent: str, dimension: str = "") -> str:
    """Return a proposition's id without what every id of its kind begins with: ``michael-no-lists`` is *no lists*.

    That is ``trait`` (and then the digest at the end), ``default``, the agent's slug and the dimension, as far as something is left.
    """
    name = proposition
    for prefix in ("trait", "default", agent, dimension):
        if prefix and name.startswith(f"{prefix}-") and len(name) > len(prefix) + 1:
            name = name.removeprefix(f"{prefix}-")
            if prefix == "trait":
                name = TRAIT_DIGEST.sub("", name)
    return re.sub(r"[-_\s]+", " ", name).strip() or proposition


def sentence_of(drift: AgentDrift) -> str:
    """Return how the agent changed, with the scores behind it; where there are none it says what is missing."""
    baseline = drift.baseline_name
    match drift.state:
        case "never measured":
            return _never_measured(drift)
        case "no baseline":
            missing = f"no evaluation of {baseline}" if baseline else "no baseline"
            return f"Measured ({candidate_words(drift)}), but there is {missing} to compare it with."
        case "not measured since":
            return f"Not measured since {baseline}: {_why_not_since(drift)}."
        case "not comparable":
            return f"Measured, but nothing was scored both in {baseline} and now."
        case "not enough data":
            return f"Not enough data{_what_is_lacking(drift)}."
    # It drifted, possibly drifted, improved or is steady.
    if drift.main is not None:
        return _main_change(drift, drift.main)
    return _steady(drift)


def _never_measured(drift: AgentDrift) -> str:
    asked_for = [f"of {name}" for name in (drift.baseline_name, drift.candidate_name) if name]
    if asked_for:
        return f"There is no evaluation {' and none '.join(asked_for)}."
    return "Not measured yet: there is no baseline."


def _main_change(drift: AgentDrift, main: Change) -> str:
    """Return the sentence about the proposition that changed most."""
    change = _what_changed(main, f"“{_name(drift, main)}”")
    if drift.state == "possibly drifted":
        change = f"Possibly {change[0].lower()}{change[1:]}"
    return f"{change}: {numbers_of(main.result)} since {since_of(drift)}."


def since_of(drift: AgentDrift) -> str:
    """Return since when an agent changed: a tag such as ``build 41``, else its baseline."""
    if drift.main is not None and drift.main.since is not None:
        return tag_name(drift.main.since)
    return drift.baseline_name


def predicate_of(drift: AgentDrift) -> str:
    """Return the sentence that follows the agent's name: its state, between which two, what changed most, and how sure that is."""
    if drift.state == "steady":
        return f"is s{_steady(drift)[1:]}"
    if drift.state == "not enough data":
        return f"has not enough data{_what_is_lacking(drift)}."
    main = drift.main
    if main is None:
        return f"was measured, but nothing was scored both in {drift.baseline_name} and in {drift.candidate_name}."
    between = f"from {drift.baseline_name} to {drift.candidate_name}"
    if main.since is not None:
        between = f"since {since_of(drift)}"
    change = _what_changed(main, f"“{_name(drift, main)}”")
    change = f"{change[0].lower()}{change[1:]}"
    return f"{drift.state} {between}: {change}, {numbers_of(main.result)} ({how_sure(drift)})."


def _steady(drift: AgentDrift) -> str:
    """Return the sentence about an agent that did not change, with its largest fall."""
    least = drift.propositions[0]
    if (least.points or 0.0) >= 0:
        dimensions = ", ".join(dimension_words(change) for change in drift.dimensions)
        return f"Steady: no proposition fell since {drift.baseline_name} ({dimensions})."
    return (
        f"Steady: the largest fall is “{_name(drift, least)}”: {numbers_of(least.result)} since {drift.baseline_name}."
    )


def _name(drift: AgentDrift, row: Change | Lost) -> str:
    return short_name(row.proposition, drift.agent.slug, row.dimension)


def _why_not_since(drift: AgentDrift) -> str:
    """Return why nothing was measured that could be compared with the baseline."""
    if drift.candidate_name:
        return f"there is no evaluation of {drift.candidate_name}"
    at = drift.baseline_newest
    when = f" ({time_text(at)})" if at is not None else ""
    return f"no evaluation scored a message newer than its newest{when}; {MEASURE_NEWER}"


def _what_is_lacking(drift: AgentDrift) -> str:
    """Return of what too little was scored, or what is not decided: the first that holds, from nothing scored to hits."""
    unscored = [f"{_heading(change.dimension)}: {change.reason}" for change in drift.dimensions if change.delta is None]
    if unscored:
        return f" for {'; '.join(unscored).replace(f'{TOO_LITTLE}: ', '')}"
    since = f"since {drift.baseline_name}"
    if drift.lost:
        return f": judgements scored {_lost_words(drift)} {since}"
    if drift.halved:
        shares = [f"{_heading(name)} {before} → {now}" for name, (before, now) in drift.halved.items()]
        return f": judgements scored {', '.join(shares)} {since}"
    undecided = drift.undecided
    if undecided is not None:
        return f" to call it steady: {dimension_words(undecided)}{_interval_words(undecided)} {since}"
    # Nothing else is left: the state is "not enough data" where hits are not decided (`state_of`).
    by_hits = next(row for row in drift.propositions if row.result.hits is not None)
    return f" to call it steady: “{_name(drift, by_hits)}” {numbers_of(by_hits.result)} {since}"


def _lost_words(drift: AgentDrift) -> str:
    """Return the propositions of which less than half as much is scored, a few of them by name."""
    propositions = [f"“{_name(drift, lost)}” {lost.before} → {lost.now}" for lost in drift.lost[:MOST_LOST]]
    words = ", ".join(propositions)
    others = len(drift.lost) - MOST_LOST
    return f"{words} and {others} more" if others > 0 else words


def _heading(dimension: str) -> str:
    return dimension.replace("_", " ")


def _interval_words(change: ChangeResult) -> str:
    return f" ({interval_text(change.interval)})" if change.interval is not None else ""


def dimension_words(change: ChangeResult) -> str:
    """Return a dimension with its scores, e.g. ``adherence 7.2 → 6.9``."""
    return f"{_heading(change.dimension)} {numbers_of(change)}"


def numbers_of(change: ChangeResult) -> str:
    """Return the two numbers of a change, e.g. ``8.1 → 3.2``, or ``variety of words 8.1 → 3.2``."""
    if change.hits is not None:
        return f"hits against it in {change.baseline_hits} → {change.hits} messages"
    numbers = f"{_score_words(change.baseline)} → {_score_words(change.candidate)}"
    return f"variety of words {numbers}" if change.of_words else numbers


def _score_words(score: float | None) -> str:
    return "–" if score is None else decimal(score)


def why_drifted(drift: AgentDrift) -> str:
    """Return how sure the sentence is: how much was judged, and whether that decides; empty where it is about no proposition.

    Where the agent drifted because a dimension fell as a whole, and the proposition alone is not sure, it is about the dimension.
    """
    main = drift.main
    if main is None:
        return ""
    if _fallen_as_a_whole(drift) is not None or main.result.unit == "repeats":
        return how_sure(drift)
    reasons = f"{_judged_words(main)}; {how_sure(drift)}"
    return f"{reasons}, among all propositions compared" if main.result.is_sure else reasons


def how_sure(drift: AgentDrift) -> str:
    """Return whether what the sentence says is more than chance; empty where it is about no proposition."""
    main = drift.main
    if main is None:
        return ""
    fallen = _fallen_as_a_whole(drift)
    if fallen is not None:
        return f"as a whole {dimension_words(fallen)}{_interval_words(fallen)}, more than chance explains"
    if main.result.unit == "repeats":
        return "judged once over the whole window: one judgement decides nothing"
    return "more than chance explains" if main.result.is_sure else "too few to tell from chance"


def _fallen_as_a_whole(drift: AgentDrift) -> ChangeResult | None:
    """Return the dimension that the agent drifted in, where its main proposition alone is not sure."""
    main = drift.main
    if main is None or drift.state != "drifted" or main.result.is_sure:
        return None
    for fallen in drift.fallen:
        if fallen.dimension == main.dimension:
            return fallen
    return None


def _judged_words(row: Change) -> str:
    """Return how much a change rests on."""
    if row.result.hits is not None:
        return f"{counted(row.baseline_n, 'message')} in the baseline, {row.n:,} now"
    if row.result.of_words:
        return f"by the words repeated in {counted(row.baseline_n, 'message')} in the baseline, {row.n:,} now"
    return f"{counted(row.baseline_scored, 'judgement')} in the baseline, {row.scored:,} now"


def _what_changed(row: Change, label: str) -> str:
    """Return what a proposition does now. Of an inverted claim a high score says that it does not hold."""
    if (row.points or 0.0) > 0:
        return f"Less {label}" if row.inverted else f"More {label}"
    held_before = (row.baseline or 0.0) >= HELD
    holds_no_more = (row.candidate or 0.0) <= HOLDS_NO_MORE
    if held_before and holds_no_more:
        if row.inverted:
            return f"Now matches {label}"
        # "No longer “no lists”" would be a riddle.
        return f"Broke {label}" if label.startswith("“no ") else f"No longer {label}"
    return f"More {label}" if row.inverted else f"Less {label}"


def channel_predicate(comparison: Comparison) -> str:
    """Return the sentence that follows a channel's name: each dimension with its verdict."""
    changes = [
        f"{dimension_words(change)}{_interval_words(change)}, {change.verdict}" for change in comparison.dimensions
    ]
    between = f"from {comparison.baseline.name} to {comparison.candidate.name}"
    return f"{between}: {'; '.join(changes) or 'nothing was measured in both'}."


def candidate_words(drift: AgentDrift) -> str:
    """Return when and over what the candidate was measured (``build 41, 3 Nov 2026``); of several evaluations by dimension.

    Of a tag that was asked for it is the tag alone; empty without an evaluation.
    """
    if drift.candidate_runs and drift.candidate_name:
        return drift.candidate_name
    dimensions: dict[EvaluationRun, list[str]] = {}
    for dimension, run in sorted(drift.candidate_runs.items(), key=lambda item: item[1].pk):
        dimensions.setdefault(run, []).append(_heading(dimension))
    if len(dimensions) == 1:
        return _evaluation_words(next(iter(dimensions)))
    return "; ".join(f"{', '.join(sorted(names))}: {_evaluation_words(run)}" for run, names in dimensions.items())


def _evaluation_words(run: EvaluationRun) -> str:
    """Return the tags and the day of an evaluation, e.g. ``build 41, 3 Nov 2026``."""
    day = day_text(run.window_end or run.finished_at or run.created_at)
    tags = tag_words(run)
    return f"{tags}, {day}" if tags else day


def tag_words(run: EvaluationRun) -> str:
    """Return the tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    if run.simulated:
        return ""
    return ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
