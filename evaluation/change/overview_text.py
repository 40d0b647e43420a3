"""One sentence per agent of the drift overview, made from its scores and from nothing else.

A proposition is called by its own id, so that the sentence fits any text: no verb is guessed from its words.
"""

from __future__ import annotations

import re
from datetime import datetime

from django.utils import timezone
from django.utils.dateformat import format as date_format

from evaluation.change.change import Change
from evaluation.change.overview import Card, Move, tag_name
from evaluation.models import EvaluationRun
from evaluation.runs.summary import TOO_LITTLE
from evaluation.wording import counted, decimal

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


def sentence_of(card: Card) -> str:
    """How the agent changed, with the scores behind it; where there are none it says what is missing."""
    compared, slug = card.compared, card.agent.slug
    baseline, candidate = compared.baseline_name, compared.candidate_name
    if card.state == "never measured":
        asked = [f"of {name}" for name in (baseline, candidate) if name]
        none = f"There is no evaluation {' and none '.join(asked)}."
        return none if asked else "Not measured yet: there is no baseline."
    if card.state == "no baseline":
        missing = f"no evaluation of {baseline}" if baseline else "no baseline"
        return f"Measured ({candidate_words(card)}), but there is {missing} to compare it with."
    if card.state == "not measured since":
        why = f"there is no evaluation of {candidate}" if candidate else nothing_newer(compared.baseline_newest)
        return f"Not measured since {baseline}: {why}."
    if card.state == "not comparable":
        return f"Measured, but nothing was scored both in {baseline} and now."
    if card.state == "not enough data":
        short = [f"{move.dimension.replace('_', ' ')}: {move.reason}" for move in card.dimensions if move.reason]
        if short:
            return f"Not enough data for {'; '.join(short).replace(f'{TOO_LITTLE}: ', '')}."
        lost = [f"“{short_name(one.proposition, slug, one.dimension)}” {one.before} → {one.now}" for one in card.lost]
        more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
        return f"Not enough data: judgements scored {', '.join(lost[:MOST_LOST])}{more} since {baseline}."
    if card.main is not None:
        what = _verb(card.main, f"“{short_name(card.main.proposition, slug, card.main.dimension)}”")
        if card.state == "possibly drifted":
            what = f"Possibly {what[0].lower()}{what[1:]}"
        return f"{what}: {numbers_of(card.main)} since {since(card, card.main)}."
    least = card.moves[0]
    if least.points >= 0:
        return f"Steady: no proposition fell since {baseline} ({', '.join(map(dimension_words, card.dimensions))})."
    label = short_name(least.proposition, slug, least.dimension)
    return f"Steady: the largest fall is “{label}”: {numbers_of(least)} since {baseline}."


def dimension_words(move: Change) -> str:
    """E.g. ``adherence 7.2 → 6.9``."""
    scores = ("–" if score is None else decimal(score) for score in (move.baseline, move.candidate))
    return f"{move.dimension.replace('_', ' ')} {' → '.join(scores)}"


def numbers_of(move: Move) -> str:
    """E.g. ``8.1 → 3.2``."""
    return f"{decimal(move.baseline or 0.0)} → {decimal(move.candidate or 0.0)}"


def how_sure(move: Move) -> str:
    """What stands behind a difference: how much was judged, and whether that decides."""
    if not (move.baseline_n and move.n):
        return "judged once over the whole window: one judgement decides nothing"
    judged = f"{counted(move.baseline_scored, 'judgement')} in the baseline, {move.scored:,} now"
    return f"{judged}; {'more than chance explains, among all propositions compared' if move.is_sure else 'too few to tell from chance'}"


def _verb(move: Move, label: str) -> str:
    """Of an inverted claim a high score says that it does not hold."""
    if move.points > 0:
        return f"{'Less' if move.inverted else 'More'} {label}"
    turned = (move.baseline or 0.0) >= SHOWN and (move.candidate or 0.0) <= GONE
    if move.inverted:
        return f"Slipped into {label}" if turned else f"More {label}"
    if turned:
        return f"Broke {label}" if label.startswith("“no ") else f"Stopped {label}"
    return f"Less {label}"


def since(card: Card, move: Move) -> str:
    """The tag that all messages have now and none had in the baseline, else what the baseline is called."""
    return tag_name(move.since) if move.since is not None else card.compared.baseline_name


def nothing_newer(newest: datetime | None) -> str:
    """Why there is nothing to compare with a baseline, and what to do."""
    of = f" ({date_format(timezone.localtime(newest), 'j M Y H:i')})" if newest is not None else ""
    return (
        f"no evaluation scored a message newer than its newest{of}; evaluate newer messages, or capture a baseline of "
        "older ones (--window, --where)"
    )


def candidate_words(card: Card) -> str:
    """When and over what the candidate was measured, of several evaluations by dimension; empty without one."""
    if card.compared.candidate and card.compared.candidate_name:
        return card.compared.candidate_name
    names: dict[int, list[str]] = {}
    words: dict[int, str] = {}
    for name, run in card.compared.candidate.items():
        names.setdefault(run.pk, []).append(name.replace("_", " "))
        day = date_format(timezone.localtime(run.window_end or run.finished_at or run.created_at), "j M Y")
        words[run.pk] = ", ".join(filter(None, (tag_words(run), day)))
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{', '.join(sorted(names[pk]))}: {words[pk]}" for pk in sorted(words))


def tag_words(run: EvaluationRun) -> str:
    """The tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    return "" if run.simulated else ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
