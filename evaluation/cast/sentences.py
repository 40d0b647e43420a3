"""One sentence per agent, made from its scores and from nothing else.

A proposition is called by its own id, so that the sentence fits any claim: no verb is guessed from its words.
"""

from __future__ import annotations

import re
from datetime import datetime

from django.utils import timezone
from django.utils.dateformat import format as date_format

from evaluation.cast.choosing import tag_name
from evaluation.cast.moves import is_sure
from evaluation.cast.values import Card, DimensionMove, Move
from evaluation.models import EvaluationRun
from evaluation.runs.coverage import TOO_LITTLE
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
    """What became of the agent, with the scores behind it; where there are none it says what is missing."""
    sides = card.sides
    if card.state == "never measured":
        asked = [f"of {name}" for name in (sides.then_name, sides.now_name) if name]
        return (
            f"There is no evaluation {' and none '.join(asked)}."
            if asked
            else "Not measured yet: there is no baseline."
        )
    if card.state == "no baseline":
        missing = f"no evaluation of {sides.then_name}" if sides.then_name else "no baseline"
        return f"Measured ({now_words(card)}), but there is {missing} to compare it with."
    if card.state == "not measured since":
        if sides.now_name:
            return f"Not measured since {sides.then_name}: there is no evaluation of {sides.now_name}."
        return f"Not measured since {sides.then_name}: {nothing_newer(sides.then_newest)}."
    if card.state == "nothing in common":
        return f"Measured, but nothing was scored both in {sides.then_name} and now."
    if card.state == "not enough data":
        return _too_little(card)
    if card.told is not None:
        return _moved(card, card.told)
    least = card.moves[0]
    if least.delta >= 0:
        scores = ", ".join(map(dimension_words, card.dimensions))
        return f"Holds: no claim fell since {sides.then_name} ({scores})."
    label = short_name(least.proposition, card.agent.slug, least.dimension)
    return f"Holds: the largest fall is “{label}”: {numbers_of(least)} since {sides.then_name}."


def dimension_words(move: DimensionMove) -> str:
    """E.g. ``adherence 7.2 → 6.9``."""
    then, now = ("–" if score is None else decimal(score) for score in (move.then, move.now))
    return f"{move.dimension.replace('_', ' ')} {then} → {now}"


def _too_little(card: Card) -> str:
    """What is scored too little now: dimensions without a score, else the propositions with both their shares."""
    short = [f"{move.dimension.replace('_', ' ')}: {move.reason}" for move in card.dimensions if move.reason]
    if short:
        return f"Not enough data for {'; '.join(short).replace(f'{TOO_LITTLE}: ', '')}."
    named = [
        f"“{short_name(lost.proposition, card.agent.slug, lost.dimension)}” {lost.before} → {lost.now}"
        for lost in card.lost[:MOST_LOST]
    ]
    more = f" and {len(card.lost) - MOST_LOST} more" if len(card.lost) > MOST_LOST else ""
    return f"Not enough data: judgements scored {', '.join(named)}{more} since {card.sides.then_name}."


def numbers_of(move: Move) -> str:
    """E.g. ``8.1 → 3.2``."""
    return f"{decimal(move.then.mean or 0.0)} → {decimal(move.now.mean or 0.0)}"


def how_sure(move: Move) -> str:
    """What stands behind a difference: how much was judged, and whether that decides."""
    if not (move.then.n and move.now.n):
        return "judged once over the whole window: one judgement decides nothing"
    judged = f"{counted(move.then.scored, 'judgement')} then, {move.now.scored:,} now"
    if is_sure(move):
        return f"{judged}; more than chance, among all claims looked at"
    return f"{judged}; too few to tell from chance"


def _moved(card: Card, move: Move) -> str:
    label = f"“{short_name(move.proposition, card.agent.slug, move.dimension)}”"
    what = _verb(move, label)
    if card.state == "maybe":
        what = f"Perhaps {what[0].lower()}{what[1:]}"
    return f"{what}: {numbers_of(move)} since {since(card, move)}."


def _verb(move: Move, label: str) -> str:
    """Of an inverted claim a high score says that it does not hold."""
    then, now = move.then.mean or 0.0, move.now.mean or 0.0
    if move.delta > 0:
        return f"{'Less' if move.now.inverted else 'More'} {label}"
    turned = then >= SHOWN and now <= GONE
    if move.now.inverted:
        return f"Slipped into {label}" if turned else f"More {label}"
    if turned:
        return f"Broke {label}" if label.startswith("“no ") else f"Stopped {label}"
    return f"Less {label}"


def since(card: Card, move: Move) -> str:
    """The tag that all messages have now and none had then, else what the first measurement is called."""
    return tag_name(move.since) if move.since is not None else card.sides.then_name


def nothing_newer(newest: datetime | None) -> str:
    """Why there is nothing to compare with a first measurement, and what to do."""
    of = f" ({date_format(timezone.localtime(newest), 'j M Y H:i')})" if newest is not None else ""
    return (
        f"no evaluation scored a message newer than its newest{of}; evaluate newer messages, or capture a baseline of "
        "older ones (--window, --where)"
    )


def now_words(card: Card) -> str:
    """When and over what the second measurement was made, of several by dimension; empty without one."""
    if card.sides.now and card.sides.now_name:
        return card.sides.now_name
    runs: dict[int, list[str]] = {}
    for name, run in card.sides.now.items():
        runs.setdefault(run.pk, []).append(name.replace("_", " "))
    words = {run.pk: run_words(run) for run in card.sides.now.values()}
    return "; ".join(
        f"{', '.join(sorted(names))}: {words[pk]}" if len(runs) > 1 else words[pk] for pk, names in sorted(runs.items())
    )


def run_words(run: EvaluationRun) -> str:
    """The tags and the day of an evaluation, e.g. ``build 41, 22 Nov 2026``."""
    day = date_format(timezone.localtime(run.window_end or run.finished_at or run.created_at), "j M Y")
    return ", ".join(filter(None, (tag_words(run), day)))


def tag_words(run: EvaluationRun) -> str:
    """The tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    return "" if run.simulated else ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
