"""How an agent changed, in one sentence made from its scores alone.

A proposition is called by its id; no verb is guessed from its words.
"""

from __future__ import annotations

import re

from django.utils import timezone
from django.utils.dateformat import format as date_format

from agents.kit.text.wording import counted, decimal, interval_text
from evaluation.change.change import ChangeResult
from evaluation.change.evidence import MEASURE_NEWER
from evaluation.change.models import Change
from evaluation.change.overview import AgentDrift, tag_name
from evaluation.models import EvaluationRun
from evaluation.runs.summary import TOO_LITTLE

SHOWN, GONE = 6.0, 4.0  # at least, at most: a claim that held and does so no more
MOST_LOST = 3  # propositions named in a sentence
_DIGITS = re.compile(r"-[0-9a-f]{6}$")


def short_name(proposition: str, agent: str, dimension: str = "") -> str:
    """A proposition's id without what every id of its kind begins with: ``michael-no-lists`` is *no lists*."""
    name = proposition
    for start in ("trait", "default", agent, dimension):
        if start and name.startswith(f"{start}-") and len(name) > len(start) + 1:
            name = name[len(start) + 1 :]
            name = _DIGITS.sub("", name) if start == "trait" else name
    return re.sub(r"[-_\s]+", " ", name).strip() or proposition


def sentence_of(drift: AgentDrift) -> str:
    """Return how the agent changed, with the scores behind it; where there are none it says what is missing."""
    baseline, candidate = drift.baseline_name, drift.candidate_name
    if drift.state == "never measured":
        asked = [f"of {name}" for name in (baseline, candidate) if name]
        if asked:
            return f"There is no evaluation {' and none '.join(asked)}."
        return "Not measured yet: there is no baseline."
    if drift.state == "no baseline":
        missing = f"no evaluation of {baseline}" if baseline else "no baseline"
        return f"Measured ({candidate_words(drift)}), but there is {missing} to compare it with."
    if drift.state == "not measured since":
        return f"Not measured since {baseline}: {_why_not_since(drift)}."
    if drift.state == "not comparable":
        return f"Measured, but nothing was scored both in {baseline} and now."
    if drift.state == "not enough data":
        return f"Not enough data{_what_is_lacking(drift)}."
    if drift.main is not None:
        what = _verb(drift.main, f"“{_name(drift, drift.main)}”")
        if drift.state == "possibly drifted":
            what = f"Possibly {what[0].lower()}{what[1:]}"
        since = tag_name(drift.main.since) if drift.main.since is not None else baseline
        return f"{what}: {numbers_of(drift.main.result)} since {since}."
    least = drift.propositions[0]
    if (least.points or 0.0) >= 0:
        return f"Steady: no proposition fell since {baseline} ({', '.join(map(dimension_words, drift.dimensions))})."
    return f"Steady: the largest fall is “{_name(drift, least)}”: {numbers_of(least.result)} since {baseline}."


def _name(drift: AgentDrift, row: Change) -> str:
    return short_name(row.proposition, drift.agent.slug, row.dimension)


def _why_not_since(drift: AgentDrift) -> str:
    if drift.candidate_name:
        return f"there is no evaluation of {drift.candidate_name}"
    at = drift.baseline_newest
    said = f" ({date_format(timezone.localtime(at), 'j M Y H:i')})" if at is not None else ""
    return f"no evaluation scored a message newer than its newest{said}; {MEASURE_NEWER}"


def _what_is_lacking(drift: AgentDrift) -> str:
    """Of what too little was scored, or what is not decided."""
    unscored = [f"{d.dimension.replace('_', ' ')}: {d.reason}" for d in drift.dimensions if d.delta is None]
    if unscored:
        return f" for {'; '.join(unscored).replace(f'{TOO_LITTLE}: ', '')}"
    since = f"since {drift.baseline_name}"
    if drift.lost:
        lost = []
        for each in drift.lost[:MOST_LOST]:
            lost.append(
                f"“{short_name(each.proposition, drift.agent.slug, each.dimension)}” {each.before} → {each.now}"
            )
        more = f" and {len(drift.lost) - MOST_LOST} more" if len(drift.lost) > MOST_LOST else ""
        return f": judgements scored {', '.join(lost)}{more} {since}"
    if drift.halved:
        shares = [f"{name.replace('_', ' ')} {was} → {now}" for name, (was, now) in drift.halved.items()]
        return f": judgements scored {', '.join(shares)} {since}"
    if (undecided := drift.undecided) is not None:
        return f" to call it steady: {dimension_words(undecided)}{_between(undecided)} {since}"
    hits = next(row for row in drift.propositions if row.result.hits is not None)
    return f" to call it steady: “{_name(drift, hits)}” {numbers_of(hits.result)} {since}"


def _between(change: ChangeResult) -> str:
    return f" ({interval_text(change.interval)})" if change.interval is not None else ""


def dimension_words(change: ChangeResult) -> str:
    """E.g. ``adherence 7.2 → 6.9``."""
    return f"{change.dimension.replace('_', ' ')} {numbers_of(change)}"


def numbers_of(change: ChangeResult) -> str:
    """E.g. ``8.1 → 3.2``, or ``words 8.1 → 3.2``."""
    if change.hits is not None:
        return f"hits in {change.baseline_hits} → {change.hits} messages"
    scores = ("–" if score is None else decimal(score) for score in (change.baseline, change.candidate))
    return f"{'words ' if change.of_words else ''}{' → '.join(scores)}"


def why_drifted(drift: AgentDrift) -> str:
    """Return how sure the sentence is: how much was judged, and whether that decides; of a fall of a dimension as a whole, that."""
    main = drift.main
    if main is None:
        return ""
    result = main.result
    whole = next((d for d in drift.fallen if d.dimension == main.dimension), None)
    if whole is not None and not result.is_sure and drift.state == "drifted":
        return f"as a whole {dimension_words(whole)}{_between(whole)}, more than chance explains"
    if result.unit == "repeats":
        return "judged once over the whole window: one judgement decides nothing"
    if result.hits is not None:
        judged = f"{counted(main.baseline_n, 'message')} in the baseline, {main.n:,} now"
    elif result.of_words:
        judged = f"by the words repeated in {counted(main.baseline_n, 'message')} in the baseline, {main.n:,} now"
    else:
        judged = f"{counted(main.baseline_scored, 'judgement')} in the baseline, {main.scored:,} now"
    if result.is_sure:
        return f"{judged}; more than chance explains, among all propositions compared"
    return f"{judged}; too few to tell from chance"


def _verb(row: Change, label: str) -> str:
    """Of an inverted claim a high score says that it does not hold."""
    if (row.points or 0.0) > 0:
        return f"{'Less' if row.inverted else 'More'} {label}"
    turned = (row.baseline or 0.0) >= SHOWN and (row.candidate or 0.0) <= GONE
    if row.inverted:
        return f"Now matches {label}" if turned else f"More {label}"
    if turned:
        return f"No longer {label}"
    return f"Less {label}"


def candidate_words(drift: AgentDrift) -> str:
    """When and over what the candidate was measured, of several evaluations by dimension; empty without one."""
    if drift.candidate_runs and drift.candidate_name:
        return drift.candidate_name
    dimensions: dict[EvaluationRun, list[str]] = {}
    for name, run in sorted(drift.candidate_runs.items(), key=lambda item: item[1].pk):
        dimensions.setdefault(run, []).append(name.replace("_", " "))
    words = {}
    for run in dimensions:
        day = date_format(timezone.localtime(run.window_end or run.finished_at or run.created_at), "j M Y")
        words[run] = ", ".join(filter(None, (tag_words(run), day)))
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{', '.join(sorted(names))}: {words[run]}" for run, names in dimensions.items())


def tag_words(run: EvaluationRun) -> str:
    """The tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    return "" if run.simulated else ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
