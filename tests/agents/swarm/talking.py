"""A long conversation between a person and an agent, turn by turn, as the stages of a swarm take it: state, summaries, prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction

from agents.kit.models import owner_name
from agents.models import Agent, Channel, Message
from agents.swarm.memory import remember
from agents.swarm.models import DialogState, DialogSummary
from agents.swarm.state import KINDS, Entry, add_quoted, advance, updating
from agents.swarm.summaries import newest_summary, queue_summary, work_one
from agents.turn.pipeline import TraceEntry
from agents.turn.prompt import Prompt, build_prompt, new_turn
from tests.factories import make_agent, make_channel, say

THINGS = ("kettle", "bicycle", "garden", "piano", "passport", "kitchen", "tent", "boat", "camera", "fence")
PLACES = ("Lisbon", "Oslo", "Ghent", "Porto", "Turin", "Bergen", "Leeds")


def seated() -> tuple[Agent, Channel]:
    """The agent and its channel; made once."""
    agent = Agent.objects.filter(slug="ada").first() or make_agent("ada")
    return agent, Channel.objects.filter(slug="office").first() or make_channel()


def spoken(number: int) -> str:
    """What the person says in a turn, from 1 on."""
    thing, place = THINGS[number % len(THINGS)], PLACES[number % len(PLACES)]
    return (
        f"I bought {thing} number {number} in {place} on day {number} of the trip. It does not fit into the car. "
        f"Do you know how I could get it home before week {number + 3}?"
    )


def answered(number: int) -> str:
    return f"A carrier from {PLACES[number % len(PLACES)]} takes about {number % 9 + 2} days. We agreed on the cheapest one."


def take_turn(
    agent: Agent,
    channel: Channel,
    number: int,
    *,
    look: Callable[[], object] = lambda: None,
    pin_every: int = 1,
) -> None:
    """Everything that a turn does to state and summaries; doing it again, or again in part, changes nothing.

    Args:
        look: Called when the agent would be asked.
        pin_every: Turns after which a fact is pinned; the others are kept without that.
    """
    position = 2 * number - 1
    message = Message.objects.filter(channel=channel, position=position).first()
    with transaction.atomic():
        message = message or say(channel, "Mia", spoken(number))
    thing = THINGS[number % len(THINGS)]
    with updating(agent, channel) as state:
        if advance(state, message):
            quote = f"I bought {thing} number {number}"
            new = [
                Entry(text=quote, position=position, quote=quote, pinned=number % pin_every == 0),
                Entry(text="User won a boat", position=position, quote="I won a boat"),
            ]
            add_quoted(state, "facts", new, [message])
            goal = Entry(
                text=f"wants it home before week {number + 3}", position=position, quote="how I could get it home"
            )
            add_quoted(state, "goal", [goal], [message])
            add_quoted(state, "anchor", [goal], [message])
            queue_summary(state)
    look()
    if not Message.objects.filter(channel=channel, position=position + 1).exists():
        with transaction.atomic():
            say(channel, agent, answered(number))
    while work_one(owner=owner_name()):
        pass


def prompt_of(agent: Agent, channel: Channel) -> Prompt:
    """What the agent would be shown if it were to answer now."""
    state = DialogState.objects.get(agent=agent, channel=channel)
    turn = new_turn(agent=agent, channel=channel)
    turn.running.append(TraceEntry("swarm", "prepare"))
    remember(turn, state, {"units": "metric"}, message=turn.transcript[-1])
    return build_prompt(turn)


def record(agent: Agent, channel: Channel) -> dict[str, Any]:
    """State, entries and summaries, without times and keys."""
    state = DialogState.objects.get(agent=agent, channel=channel)
    columns = ("text", "quote", "position", "author", "pinned", "leaving", "by", "removed")
    summaries = DialogSummary.objects.filter(agent=agent, channel=channel).order_by("to_position")
    newest = newest_summary(agent, channel)
    return {
        **{field: getattr(state, field) for field in ("position", "turn", "dropped")},
        **{kind: list(state.entries.filter(kind=kind).values(*columns)) for kind in KINDS},
        "summaries": list(summaries.values_list("from_position", "to_position", "status", "text")),
        "newest": newest.to_position if newest else 0,
        "messages": list(Message.objects.filter(channel=channel).order_by("position").values_list("position", "text")),
    }
