"""From rows to what a draft is judged by: persona, and the conversation around the gap. One to three queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Subquery

from agents.models import Agent, Channel, Message, PersonaVersion
from agents.persona import TraitValue, render_persona
from agents.turn.values import Draft, Turn
from correction.gate_claims import Claims
from correction.gate_values import Action
from evaluation.trajectory import Event


def action_of_draft(turn: Turn, draft: Draft, claims: Claims) -> Action:
    """A draft of a turn, with the end and the start of its channel as they are now."""
    trigger = turn.trigger
    return _action(
        text=draft.text,
        agent=turn.agent,
        channel=turn.channel,
        persona_version_id=turn.persona_version_id,
        before=None,
        is_reply=trigger is not None and trigger.channel_id == turn.channel.pk and trigger.parent_id is not None,
        claims=claims,
    )


def action_of_message(message: Message, agent: Agent, claims: Claims) -> Action:
    """A message that was said already, with what stood before it."""
    return _action(
        text=message.text,
        agent=agent,
        channel=message.channel,
        persona_version_id=message.persona_version_id,
        before=message.position,
        is_reply=message.parent_id is not None,
        claims=claims,
    )


def _action(
    *,
    text: str,
    agent: Agent,
    channel: Channel,
    persona_version_id: int | None,
    before: int | None,
    is_reply: bool,
    claims: Claims,
) -> Action:
    shown = any(p.include_personas for judged in claims.judged.values() for p in judged)
    asked = any(claims.judged.values())
    before_gap = _conversation(agent, channel, before, claims.first_n, claims.last_n) if asked else {}
    return Action(
        text=text,
        agent_name=agent.display_name,
        agent_slug=agent.slug,
        seeded=agent.seeded,
        persona=persona_of(agent, persona_version_id) if shown else None,
        channel_name=str(channel),
        channel_kind=channel.kind,
        is_reply=is_reply,
        **before_gap,
    )


def persona_of(agent: Agent, version_id: int | None) -> str:
    """The persona it speaks under: that of the version, or the agent's present one where there is no version."""
    found = PersonaVersion.objects.filter(pk=version_id).order_by() if version_id is not None else None
    version = found.values_list("system_prompt", "traits").first() if found is not None else None
    if version is None:
        return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return render_persona(system_prompt=version[0], traits=[TraitValue(**row) for row in version[1]])


def _conversation(agent: Agent, channel: Channel, before: int | None, first_n: int, last_n: int) -> dict[str, Any]:
    """The first and the last events of the channel. A short channel costs one query, a long one two."""
    said = Message.objects.filter(channel=channel)
    if not channel.synthetic:  # what was played for an evaluation is no part of a real conversation
        said = said.filter(synthetic=False)
    if before is not None:
        said = said.filter(position__lt=before)
    latest = list(said.order_by("-position").values_list(*_COLUMNS)[: first_n + last_n + 1])[::-1]
    if len(latest) <= first_n + last_n:
        return {"events": tuple(_event(agent, row) for row in latest)}
    total = said.order_by().values("channel").annotate(number=Count("pk")).values("number")
    first = list(said.annotate(total=Subquery(total)).order_by("position").values_list(*_COLUMNS, "total")[:first_n])
    known = first[0][-1] if first else said.count()
    events = tuple(_event(agent, row) for row in (*first, *latest[len(latest) - last_n :]))
    return {"events": events, "head": len(first), "omitted": max(1, known - len(events))}


# The columns an event is made of, and no others: rows of three whole tables cost more than the query itself.
_COLUMNS = ("agent", "agent__display_name", "user__username", "user__first_name", "user__last_name", "outsider", "text")


def _event(agent: Agent, row: Sequence[Any]) -> Event:
    author, display_name, username, first_name, last_name, outsider, text = row[: len(_COLUMNS)]
    if author == agent.pk:
        return Event("action", agent.display_name, text)
    speaker = display_name or f"{first_name or ''} {last_name or ''}".strip() or username or outsider
    return Event("stimulus", agent.display_name, text, speaker=speaker)
