"""What the page of an evaluation shows of conversations: channels, ideas, and which voices are alike."""

from __future__ import annotations

from typing import Any

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.models import Message
from evaluation.admin.display import number
from evaluation.models import EvaluationRun
from evaluation.runs.ideas import DistinctIdea, distinct_ideas
from evaluation.runs.summary import DimensionSummary

IDEAS_SHOWN, PAIRS_SHOWN, PLACES_SHOWN = 100, 15, 5


def channel_rows(found: DimensionSummary) -> list[dict[str, Any]]:
    """The channels an agent's dimension was measured in, each leading to its own evaluation."""
    return [
        {
            "channel": display.page_of(part.run, str(part.run.channel)),
            "score": number(part.score, part.count, share=part.share),
            "messages": f"{part.messages:,}",
        }
        for part in found.channels
    ]


def idea_rows(run: EvaluationRun) -> list[dict[str, Any]]:
    """The distinct ideas of a channel's run, with what was taken for the same and links to where it was said."""
    if run.channel_id is None:
        return []
    ideas = distinct_ideas(run)[:IDEAS_SHOWN]
    wanted = {position for idea in ideas for position in idea.positions[:PLACES_SHOWN]}
    said = {m.position: m for m in Message.objects.filter(channel=run.channel_id, position__in=wanted)}
    return [_idea_row(idea, said) for idea in ideas]


def _idea_row(found: DistinctIdea, said: dict[int, Message]) -> dict[str, Any]:
    places = [said[position] for position in found.positions[:PLACES_SHOWN] if position in said]
    return {
        "idea": display.visible(found.idea.idea),
        "description": display.visible(found.idea.description),
        "same": [display.visible(variant.idea) for variant in found.variants],
        "by": display.visible(", ".join(found.speakers)),
        "places": [
            display.link(transcript_url(message), f"{message.position}", "in its conversation") for message in places
        ],
    }


def pair_rows(run: EvaluationRun, dimension: str) -> list[dict[str, str]]:
    """The pairs of agents whose words are most alike."""
    pairs = run.figures.get(dimension, {}).get("pairs", [])[:PAIRS_SHOWN]
    return [
        {"first": first, "second": second, "similarity": f"{similarity:.0%}"} for first, second, similarity in pairs
    ]
