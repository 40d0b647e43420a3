"""The cast: a card per agent, the flattest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.models import Agent
from evaluation.cast.choosing import sides_of
from evaluation.cast.evidence import Told, claims_of, courses_of, quotes_of, tags_since
from evaluation.cast.moves import Compared, dimension_moves, is_sure, moves_of
from evaluation.cast.values import Card, DimensionMove, Judged, Move, Sides, State, Tag
from evaluation.statistics.difference import MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Some of the cards, and how many agents are in which state.

    Attributes:
        cards: Those asked for, with quotes, tags and scores since.
        total: How many cards there are of the state asked for.
        states: How many of them are in each state.
    """

    cards: Sequence[Card]
    total: int
    states: dict[State, int]


def cast(
    agents: Sequence[Agent],
    judged: Judged | None,
    *,
    then: Tag | None = None,
    now: Tag | None = None,
    state: State | None = None,
    start: int = 0,
    stop: int | None = None,
    quotes: bool = True,
) -> Cast:
    """Rank agents by what they lost between two measurements, and tell of some of them.

    The number of queries does not depend on how many agents, evaluations or scores there are.

    Args:
        agents: Whom to rank.
        judged: By whom and how both sides were judged; None: nobody was measured yet.
        then, now: As `sides_of` takes them.
        state: Cards of agents in this state only; default all.
        start, stop: The places to give cards of, from 0.
        quotes: Whether to look for the messages behind the sentences.
    """
    if judged is None:
        ranked = [Card(agent=agent, judged=None, state="never measured", sides=Sides()) for agent in agents]
    else:
        sides = sides_of(agents, judged, then=then, now=now)
        compared = moves_of(sides, judged)
        ranked = [_card(agent, judged, sides[agent.pk], compared[agent.pk]) for agent in agents]
    ranked.sort(key=lambda card: card.place)
    states: dict[State, int] = {}
    for card in ranked:
        states[card.state] = states.get(card.state, 0) + 1
    wanted = [card for card in ranked if state in (None, card.state)]
    return Cast(cards=_with_evidence(wanted[start:stop], judged, quotes=quotes), total=len(wanted), states=states)


def _card(agent: Agent, judged: Judged, sides: Sides, compared: Compared) -> Card:
    dimensions = dimension_moves(compared)
    state, told = _told(sides, compared, dimensions)
    return Card(
        agent=agent,
        judged=judged,
        state=state,
        sides=sides,
        dimensions=dimensions,
        moves=compared.moves,
        told=told,
        lost=compared.lost,
        changed=compared.changed,
    )


def _told(sides: Sides, compared: Compared, dimensions: Sequence[DimensionMove]) -> tuple[State, Move | None]:
    """The state, and what to tell: the largest sure fall, else the largest sure rise, else the largest fall there may be.

    Without a sure fall, what was lost, or too little to score, leaves nothing else to say.
    """
    moves = compared.moves
    if not sides.then and not sides.now:
        return "never measured", None
    if not sides.then:
        return "no baseline", None
    if not sides.now:
        return "not measured since", None
    lacking = compared.lost or any(d.reason and d.then is not None for d in dimensions)
    if not moves and not lacking:
        return "nothing in common", None
    falls = [move for move in moves if move.delta <= -MARGIN]
    sure = [move for move in falls if is_sure(move)]
    if sure:
        return "fell", sure[0]
    if lacking:
        return "not enough data", None
    rises = [move for move in reversed(moves) if is_sure(move)]
    if rises:
        return "rose", rises[0]
    return ("maybe", falls[0]) if falls else ("held", None)


def _with_evidence(cards: Sequence[Card], judged: Judged | None, *, quotes: bool) -> list[Card]:
    if judged is None:
        return list(cards)
    told = {card.agent.pk: Told.of(card.told) for card in cards if card.told is not None}
    said = quotes_of(told.values()) if quotes else {}
    asked = {key: quote.claim for key, pair in said.items() for quote in pair if quote is not None}
    claims = {**asked, **claims_of(key for key in told.values() if key not in asked)}
    tags = tags_since(told.values())
    courses = courses_of([card.agent for card in cards], judged)
    found = []
    for card in cards:
        key, course = told.get(card.agent.pk), courses.get(card.agent.pk, ())
        if key is None or card.told is None:
            found.append(replace(card, course=course))
            continue
        then, now = said.get(key, (None, None))
        moved = replace(card.told, since=tags.get(key))
        found.append(
            replace(card, course=course, told=moved, claim=claims[key], then_quote=then, now_quote=now),
        )
    return found
