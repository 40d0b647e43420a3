"""What to do next about an agent: each app adds what it can offer, for the cards of the cast and the agent's own page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from django.http import HttpRequest
from django.urls import reverse

from agents.admin import display
from evaluation.change.overview import Card
from evaluation.models import EvaluationScore


class Step(NamedTuple):
    """Something to do: a label that leads somewhere, and why."""

    label: str
    url: str
    why: str = ""


Finder = Callable[[HttpRequest, Sequence[Card]], Mapping[int, Sequence[Step]]]
_finders: list[Finder] = []


def add_steps(finder: Finder) -> None:
    """Have `finder` offer steps, by the agent's primary key; it must not need more queries for more cards."""
    _finders.append(finder)


def steps_of(request: HttpRequest, cards: Sequence[Card]) -> dict[int, list[Step]]:
    """The steps for each card: the most urgent first."""
    found: dict[int, list[Step]] = defaultdict(list)
    for finder in (measuring_steps, *_finders):
        for agent, steps in finder(request, cards).items():
            found[agent].extend(steps)
    return found


def measuring_steps(request: HttpRequest, cards: Sequence[Card]) -> dict[int, list[Step]]:
    """Read what fell, measure what is not known, capture anew what was meant to change."""
    may_ask = request.user.has_perm("evaluation.add_evaluationrun")
    may_read = request.user.has_perm("evaluation.view_evaluationscore")
    return {card.agent.pk: _steps(card, may_ask=may_ask, may_read=may_read) for card in cards}


def _steps(card: Card, *, may_ask: bool, may_read: bool) -> list[Step]:
    steps = []
    if card.state in ("fell", "maybe") and may_read:
        steps.append(Step("Read what was judged", scores_behind(card), "its judgements now, with the judge's reasons"))
    if not may_ask:
        return steps
    if card.state in ("never measured", "no baseline"):
        steps.append(
            Step("Capture a baseline", ask_url(card.agent.pk, "capture"), "so that there is something to compare with")
        )
    elif card.state in ("not measured since", "nothing in common"):
        steps.append(Step("Evaluate now", ask_url(card.agent.pk, "evaluate"), "nothing was measured since"))
    elif card.sides.persona_edited:
        why = "the persona was edited since; if the change was meant, measure from here on"
        steps.append(Step("Capture a new baseline", ask_url(card.agent.pk, "capture"), why))
    elif card.state == "maybe":
        steps.append(Step("Evaluate now", ask_url(card.agent.pk, "evaluate"), "more messages would tell"))
    return steps


def ask_url(agent: int, what: str) -> str:
    """The page that estimates and asks before an evaluation (`what`: ``evaluate`` or ``capture``) is queued."""
    return reverse(f"admin:evaluation_agent_{what}", args=[agent])


def scores_behind(card: Card) -> str:
    """The judgements now of what the sentence is about."""
    if card.told is None:
        return display.list_url(EvaluationScore)
    return display.list_url(
        EvaluationScore,
        run=card.told.now_run,
        dimension__exact=card.told.dimension,
        proposition_id=card.told.proposition,
    )
