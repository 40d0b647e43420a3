"""Chats: a person and an agent in a direct message of their own, marked synthetic, so that nothing of it enters a measurement.

The page of the console queues each turn for a worker (`ask`); ``manage.py chat`` takes it in its own process (`exchange`). `ask_again` has
a question answered under an edited persona, in a copy of the conversation, so that later turns read one answer only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import SET_NULL, QuerySet
from django.db.models.deletion import get_candidate_relations_to_delete
from django.utils.module_loading import import_string
from pydantic import BaseModel, Field

from agents.kit.capability import declared_list
from agents.models import Agent, Channel, ChannelMember, Message, Run, RunStep
from agents.turn.orchestrator import finish_turn
from agents.turn.pipeline import pipeline
from agents.turn.prompt import recent_messages
from agents.turn.send_message import append, check_message, start_turn

PERSON = "you"  # who writes, where nobody else is named
CHAT, COPY = "chat-", "talk-"  # how the slugs of chats begin, and those of copies in which a question is answered again


class ChatOpen(ValueError):
    """The chat cannot be deleted: a turn in it has not ended."""


class TurnReport(BaseModel):
    """What an app did in a turn of a chat.

    Attributes:
        trace: As JSON; None where it took no part.
        lines: The trace for a terminal, a line for each thing that happened.
        summary_failed: Why the newest older messages are not summarised; empty when they are.
    """

    trace: dict[str, Any] | None = None
    lines: list[str] = Field(default_factory=list)
    summary_failed: str = ""


class Exchange(BaseModel):
    """A message and what became of it.

    Attributes:
        message: What the person wrote.
        replies: What the agent said.
        silent: Why the agent said nothing, where it did.
        run, status, error: The turn, and how it ended.
        trace, lines, summary_failed: What the app that took part in it reports (`TurnReport`).
    """

    message: str
    replies: list[str]
    silent: str = ""
    run: int
    status: str
    error: str
    trace: dict[str, Any] | None
    summary_failed: str = ""
    lines: list[str] = Field(default_factory=list, exclude=True)


def chats_of(agent: Agent) -> QuerySet[Channel]:
    """The agent's chats, the newest first."""
    return chats().filter(memberships__agent=agent).order_by("-pk")


def chats() -> QuerySet[Channel]:
    return Channel.objects.filter(synthetic=True, kind=Channel.Kind.DM, slug__startswith=CHAT)


def is_chat(channel: Channel) -> bool:
    """Return whether the channel is a chat."""
    return chats().filter(pk=channel.pk).exists()


def begin_chat(agent: Agent, *, user: AbstractBaseUser | None = None) -> Channel:
    """A new chat with an agent, of a user of the console or of a person at a terminal."""
    return _direct_message(f"{CHAT}{agent.slug}-", agent, user)


def _direct_message(prefix: str, agent: Agent, user: AbstractBaseUser | None) -> Channel:
    """A synthetic direct message, its slug the prefix and the next free number."""
    for number in count(1 + Channel.objects.filter(slug__startswith=prefix).count()):
        slug = f"{prefix}{number}"
        try:
            with transaction.atomic():
                channel: Channel = Channel.objects.create(slug=slug, name=slug, kind=Channel.Kind.DM, synthetic=True)
        except IntegrityError:  # another tab was faster, or an earlier one was deleted
            continue
        ChannelMember.objects.create(channel=channel, agent=agent)
        if user is not None:
            ChannelMember.objects.create(channel=channel, user_id=user.pk)
        return channel
    raise AssertionError("numbers do not end")


def ask(
    agent: Agent,
    channel: Channel,
    text: str,
    *,
    user: AbstractBaseUser | None = None,
    person: str = PERSON,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """Say something to an agent and queue its turn; the stages hear of it once that is committed.

    Args:
        user: Who says it; without one `person` does, who is no user.
        overrides: Of the turn, e.g. the gate's mode.

    Raises:
        SendRefused: The text cannot be said.
        TurnRefused: The agent may not speak there.
    """
    check_message(channel=channel, text=text, parent=None, key="", tags=None)
    author = {"outsider": person} if user is None else {"user_id": user.pk}
    with transaction.atomic():
        message = append(channel=channel, text=text, **author)
        run = start_turn(agent=agent, channel=channel, trigger=message, overrides=overrides)
    transaction.on_commit(partial(pipeline().received, message=message, agent=agent), robust=True)
    return run


def ask_again(
    question: Message, *, agent: Agent, system_prompt: str, overrides: Mapping[str, Any] | None = None
) -> Run:
    """Have a question of a chat answered under another system prompt, in a copy of what was said up to it. Traits stay.

    Raises:
        TurnRefused: The agent may not speak.
    """
    with transaction.atomic():
        channel = _direct_message(f"{COPY}{question.pk}-", agent, question.user)
        copies = [
            Message(
                channel=channel, position=said.position, agent=said.agent, user=said.user, outsider=said.outsider,
                text=said.text, payload=said.payload, sent_at=said.sent_at, persona_version_id=said.persona_version_id,
                synthetic=True,
            )
            for said in recent_messages(channel=question.channel, trigger=question, until=question.position)
        ]  # fmt: skip
        Message.objects.bulk_create(copies)
        Channel.objects.filter(pk=channel.pk).update(next_position=question.position + 1)
        given = {**(overrides or {}), "system_prompt": system_prompt}
        return start_turn(agent=agent, channel=channel, trigger=copies[-1], overrides=given)


def answers_again(question: Message) -> QuerySet[Run]:
    """The turns in which a question was answered again, the newest first."""
    return Run.objects.filter(channel__slug__startswith=f"{COPY}{question.pk}-", channel__synthetic=True).order_by(
        "-pk"
    )


def delete_chat(chat: Channel) -> None:
    """Delete a chat with its copies, their turns and what was logged of them. Calls stay in the ledger: they cost money.

    Raises:
        ChatOpen: A turn has not ended.
    """
    questions = set(Message.objects.filter(channel=chat, agent=None).values_list("pk", flat=True))
    copies = Channel.objects.filter(memberships__agent__memberships__channel=chat, slug__startswith=COPY)
    gone = [chat.pk] + [
        copy.pk
        for copy in copies.filter(synthetic=True).distinct()
        if (named := re.fullmatch(rf"{COPY}(\d+)-\d+", copy.slug)) and int(named[1]) in questions
    ]
    if Run.objects.filter(channel__in=gone).exclude(status__in=Run.FINAL).exists():
        raise ChatOpen("a turn of this chat has not ended; stop it first")
    with transaction.atomic():
        for model, its_channel in ((Channel, ""), (Message, "__channel")):
            relations: list[Any] = list(get_candidate_relations_to_delete(model._meta))  # type: ignore[arg-type]
            for relation in relations:
                # A measurement and the record of another turn stay, without the message.
                stays = model is Message and not getattr(relation.related_model, "deleted_with_chat", False)
                if relation.on_delete is SET_NULL and not stays:  # else a log would count as one of real messages
                    of_chat = {f"{relation.field.name}{its_channel}__in": gone}
                    relation.related_model._base_manager.filter(**of_chat).delete()
        Channel.objects.filter(pk__in=gone).delete()


def exchange(
    agent: Agent, channel: Channel, text: str, *, person: str = PERSON, overrides: Mapping[str, Any] | None = None
) -> Exchange:
    """Say something to an agent and have it answer in this process.

    Raises:
        SendRefused: The text cannot be said.
        TurnRefused: The agent may not speak there, or an earlier turn of its was left unfinished.
    """
    run = finish_turn(ask(agent, channel, text, person=person, overrides=overrides))
    said = Message.objects.filter(run=run).order_by("pk").values_list("text", flat=True)
    reports = [import_string(path)(agent, channel, run) for path in declared_list("chat_reports")]
    report = next((report for report in reports if report.lines), TurnReport())
    return Exchange(
        message=text,
        replies=list(said),
        silent="" if said else why_silent(run, list(RunStep.objects.filter(run=run).order_by("number"))),
        run=run.pk,
        status=run.status,
        error=run.error,
        trace=report.trace,
        summary_failed=report.summary_failed,
        lines=report.lines,
    )


def why_silent(run: Run, steps: Sequence[RunStep]) -> str:
    """The reason that the agent gave last, or how its turn ended."""
    given = (str(step.detail["reason"]) for step in reversed(steps) if step.detail.get("reason"))
    return next(given, run.error or run.get_stop_reason_display())
