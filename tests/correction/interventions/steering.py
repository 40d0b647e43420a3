"""Agents that are steered: turns prepared by the real stages, conversations that agree, judges that answer claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Pipeline, Section, TraceEntry, Turn
from correction.config.settings import resolve_config
from correction.interventions import FunctionalPrecondition, Intervention, InterventionContext, PromptModification
from correction.interventions.evaluate import evaluate_interventions
from correction.interventions.functions import Surroundings
from correction.interventions.models import Intervention as InterventionRow
from correction.interventions.models import InterventionLog
from correction.interventions.stages import Nudges
from correction.models import AgentEvaluationConfig
from correction.stages import RepetitionSuppression
from tests.factories import make_agent, say

ECHOES = (
    "The picnic on Friday is a great idea, everybody will love it!",
    "I agree, the picnic is a great idea. I love it.",
    "Agreed. Great idea, love the picnic.",
    "Yes, I agree, a picnic on Friday is a great idea.",
)
AGREEMENT = (  # in their own words: hardly any of them is said twice
    "So I thought we could eat outside on Friday, if the weather holds.",
    "Outside is nice. I am always happier when there is a grill.",
    "Oh, that would be lovely. Bob has some folding chairs we can borrow.",
    "Works for me. Anything but the conference room again.",
)
MIXED = (
    "The forklift needs a new battery before the inspection.",
    "Has anybody fed the office plant since Tuesday?",
    "My sister is visiting, so I leave early today.",
    "Invoices from Utica are late again, call their accountant.",
)


def configure(agent: Agent, **config: Any) -> None:
    AgentEvaluationConfig.objects.update_or_create(agent=agent, defaults=config)


def chatter(channel: Channel, texts: Iterable[str] = ECHOES, *, prefix: str = "guest") -> list[Message]:
    """One message each by agents of their own."""
    got = []
    for number, text in enumerate(texts):
        slug = f"{prefix}-{number}"
        got.append(say(channel, Agent.objects.filter(slug=slug).first() or make_agent(slug), text))
    return got


def prepared(agent: Agent, channel: Channel, **fields: Any) -> Turn:
    """A turn that has passed both preparing stages of this floor."""
    channel.refresh_from_db()
    turn = Turn(agent=agent, channel=channel, **fields)
    Pipeline([RepetitionSuppression(), Nudges()]).prepare(turn)
    failed = [entry for entry in turn.trace if entry.status == "failed"]
    assert not failed, failed
    return turn


def looked_at(agent: Agent, channel: Channel, *interventions: Intervention, **fields: Any) -> Turn:
    """A turn for which these interventions were evaluated."""

    class Stage:
        name = "interventions"

        def prepare(self, turn: Turn) -> None:
            evaluate_interventions(turn, interventions, config=resolve_config(agent, turn.overrides))

    channel.refresh_from_db()
    turn = Turn(agent=agent, channel=channel, **fields)
    Pipeline([Stage()]).prepare(turn)
    assert turn.trace[-1].status == "ran", turn.trace[-1].why
    return turn


def context_of(agent: Agent, channel: Channel, window: int = 10) -> InterventionContext:
    around = Surroundings.read(agent=agent, channel=channel, reach=window)
    return InterventionContext(agent=agent, channel=channel, messages=around.messages, surroundings=around)


def always(held: bool = True) -> FunctionalPrecondition:
    return FunctionalPrecondition(test=lambda context: held, text=f"always {held}")


def advice(text: str = "Say something else.") -> Callable[[InterventionContext], PromptModification]:
    return lambda context: PromptModification(guidance=text)


def dormant(*preconditions: Any, name: str = "probe", **fields: Any) -> Intervention:
    """An intervention with this advice, without a cooldown."""
    return Intervention(
        name=name, preconditions=preconditions or (always(),), **{"effect": advice(), "cooldown_messages": 0, **fields}
    )


def row(slug: str = "quiet", **fields: Any) -> InterventionRow:
    """An operator's intervention that is enabled."""
    return InterventionRow.objects.create(
        slug=slug, **{"is_enabled": True, "nudge": "Speak up.", "cooldown_messages": 0, **fields}
    )


def guidance(turn: Turn) -> list[Section]:
    return [section for section in turn.sections if section.heading == "Conversation Guidance"]


def entry_of(turn: Turn, stage: str = "interventions") -> TraceEntry:
    return next(entry for entry in turn.trace if entry.stage == stage)


def logs(**where: Any) -> list[InterventionLog]:
    return list(InterventionLog.objects.filter(**where).order_by("pk"))
