"""A card of the cast as the template shows it; the same on the cast page and on the agent's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.charts import sparkline
from agents.admin.transcript import transcript_url
from evaluation.admin.cast_steps import Step, scores_behind, steps_of
from evaluation.admin.cast_words import state_badge
from evaluation.admin.display import dimension_badge, meter
from evaluation.change.overview import Card, DimensionMove, Quote
from evaluation.change.overview_text import how_sure, now_words, sentence_of
from evaluation.models import EvaluationRun
from evaluation.wording import signed

QUOTED = 280  # characters of a message


def shown_cards(request: HttpRequest, cards: Sequence[Card]) -> list[dict[str, Any]]:
    """The cards for the template, with what to do next."""
    steps = steps_of(request, cards)
    return [_shown(card, steps.get(card.agent.pk, [])) for card in cards]


def _shown(card: Card, steps: Sequence[Step]) -> dict[str, Any]:
    agent, told = card.agent, card.told
    runs = {run.pk: run for run in card.sides.now.values()}
    return {
        "agent": agent,
        "chip": display.agent_chip(agent),
        "title": display.isolated(agent.title) if agent.title else "",
        "inactive": not agent.is_active,
        "state": card.state,
        "badge": state_badge(card.state),
        "sentence": display.visible(sentence_of(card)),
        "claim": display.visible(card.claim.rstrip(".")),
        "inverted": told is not None and told.now.inverted,
        "sure": how_sure(told) if told is not None else "",
        "scores_url": scores_behind(card) if told is not None else "",
        "edited": card.sides.persona_edited,
        "quotes": [
            _quote(name, quote)
            for name, quote in (("Then", card.then_quote), ("Now", card.now_quote))
            if quote is not None
        ],
        "dimensions": [_dimension(move) for move in card.dimensions],
        "then": display.visible(card.sides.then_name),
        "now": display.visible(now_words(card)),
        "now_runs": [display.page_of(run, f"evaluation {pk}") for pk, run in sorted(runs.items())],
        "course": _course(card),
        "course_url": display.list_url(EvaluationRun, agent__id__exact=agent.pk),
        "steps": steps[:3],
    }


def _dimension(move: DimensionMove) -> dict[str, Any]:
    return {
        "badge": dimension_badge(move.dimension),
        "then": meter(move.then, share=move.then_share, why=move.reason),
        "now": meter(move.now, share=move.now_share, why=move.reason),
        "change": signed(move.delta),
    }


def _quote(name: str, quote: Quote) -> dict[str, Any]:
    message = quote.message
    return {
        "name": name,
        "score": quote.score,
        "text": display.visible(display.shortened(" ".join(message.text.split()), QUOTED)),
        "when": display.moment(message.sent_at) if message.sent_at else "",
        "tags": display.tags(message.tags) if message.tags else "",
        "place": display.link(transcript_url(message), "in its conversation"),
        "synthetic": message.synthetic,
    }


def _course(card: Card) -> SafeString | str:
    if len(card.course) < 2:
        return ""
    return sparkline(card.course, label=f"Overall score of the last {len(card.course)} evaluations, 0 to 9")
