"""Self-consistency (S-6.2): does the agent still sound like itself? Pairs of now and before, the persona withheld."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from django.db.models import Q

from agents.models import Message
from evaluation.judge.prompts import Context, Event, Window
from evaluation.scorers.subjects import Item, Subject, can_pair, find_pairs, said
from evaluation.scorers.windows import NO_MESSAGE

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

DIMENSION = "consistency"
SAID_BEFORE = 2  # messages of the channel shown before each message of a pair
NEAR, READ_AHEAD = 8, 50  # positions looked at before a message; messages that share a query
PROFILED = 200  # most earlier messages that the offline judge's profile is made of: the newest


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Every proposition on every pair (AC-6.2.3, AC-6.2.4); with no pair once each, to say why it cannot be judged (AC-6.2.6)."""
    halves = subject.halves()
    pairs = find_pairs(halves, seed=subject.seed)
    if not pairs:
        return [Item(proposition) for proposition in propositions] if halves.current else []
    return [Item(p, pair.current, pair.earlier) for pair in pairs for p in propositions]


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """The two messages, each after what was said just before it; never the persona (AC-6.2.4)."""
    if message is None or earlier is None:
        raise ValueError("consistency is judged pair by pair")
    style = subject.usual_style(PROFILED)
    return Context(
        agent_name=subject.agent.display_name,
        pair=(_moment(subject, earlier), _moment(subject, message)),
        channel_name=str(message.channel),
        measured={"style": asdict(style)} if style else None,
    )


def read_ahead(subject: Subject, messages: Iterable[Message]) -> None:
    """Read what was said just before each of many messages in one query, where `context` would ask for each."""
    wanted = [message for message in messages if message.pk not in subject.before][:READ_AHEAD]
    if not wanted:
        return
    positions: dict[int, set[int]] = {}
    for message in wanted:
        positions.setdefault(message.channel_id, set()).update(range(message.position - NEAR, message.position))
    near = Q()
    for channel, looked_at in positions.items():
        near |= Q(channel=channel, position__in=sorted(looked_at))
    around = said(Message.objects.filter(near, synthetic=subject.simulated).order_by("position"))
    for message in wanted:
        near_it = [
            s for s in around if s.channel_id == message.channel_id and 0 < message.position - s.position <= NEAR
        ]
        if (
            len(near_it) >= SAID_BEFORE or message.position <= NEAR
        ):  # else something was deleted: `context` looks further
            subject.before[message.pk] = tuple(map(subject.event, near_it[-SAID_BEFORE:]))


def _moment(subject: Subject, message: Message) -> Window:
    before = subject.before.get(message.pk)
    if before is None:
        around = Message.objects.filter(
            channel=message.channel_id, position__lt=message.position, synthetic=message.synthetic
        )
        newest = said(around.order_by("-position")[:SAID_BEFORE])
        before = tuple(subject.event(one) for one in reversed(newest))
    own = Event("action", subject.agent.display_name, message.text)
    return Window((*before, own), 0, ())


def not_evaluable(subject: Subject) -> str:
    """Why nothing can be judged for this dimension; empty when it can. A beginner has no past to be true to (AC-6.2.6)."""
    halves = subject.halves()
    if not halves.current:
        return NO_MESSAGE
    if not halves.history and subject.simulated:
        return "not evaluable: what was simulated has no past"
    if not halves.history:
        return "not evaluable: the agent said nothing before this window that it could be compared with"
    if not can_pair(halves):
        return "not evaluable: no channel has messages of the agent both in the window and in its history"
    return ""
