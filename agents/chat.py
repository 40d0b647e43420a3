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
from django.db.models import SET_NULL, Model, QuerySet
from django.db.models.deletion import get_candidate_relations_to_delete
from django.utils.module_loading import import_string
from pydantic import BaseModel, Field

from agents.kit.capability import declared_list
from agents.models import Agent, Channel, ChannelMember, Message, Run, RunStep
from agents.models.conversations import CHAT_PREFIX, COPY_PREFIX
from agents.turn.orchestrator import finish_turn
from agents.turn.pipeline import pipeline
from agents.turn.prompt import recent_messages
from agents.turn.send_message import append, check_message, start_turn

PERSON = "you"  # the author, where nobody else is named


class ChatOpen(ValueError):
    """The chat cannot be deleted: a turn in it has not ended."""


class TurnReport(BaseModel):
    """The report of an app on a turn of a chat.

    Attributes:
        trace: As JSON; None where it took no part.
        lines: The trace for a terminal, a line for each thing that happened.
        summary_failed: Why the newest older messages are not summarised; empty when they are.
    """

    trace: dict[str, Any] | None = None
    lines: list[str] = Field(default_factory=list)
    summary_failed: str = ""


class Exchange(BaseModel):
    """A message of a chat with its turn and replies.

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
    """Return the agent's chats, the newest first."""
    return chats().filter(memberships__agent=agent).order_by("-pk")


def chats() -> QuerySet[Channel]:
    """Return all chats."""
    return Channel.objects.filter(synthetic=True, kind=Channel.Kind.DM, slug__startswith=CHAT_PREFIX)


def is_chat(channel: Channel) -> bool:
    """Return whether the channel is a chat."""
    return chats().filter(pk=channel.pk).exists()


def begin_chat(agent: Agent, *, user: AbstractBaseUser | None = None) -> Channel:
    """Begin a chat with an agent, for a user of the console or for a person at a terminal."""
    return _new_direct_message(f"{CHAT_PREFIX}{agent.slug}-", agent, user)


def _new_direct_message(prefix: str, agent: Agent, user: AbstractBaseUser | None) -> Channel:
    """Make a synthetic direct message with an agent and, where one is given, a user; its slug is the prefix and the next free number."""
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
    """Say something to an agent and queue its turn; the stages hear of it once that is committed, and nothing they raise is raised here.

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

    The copy is a new channel with the last messages that a turn is shown, at the same positions. A worker takes the turn.

    Raises:
        TurnRefused: The agent may not speak.
    """
    with transaction.atomic():
        channel = _new_direct_message(f"{COPY_PREFIX}{question.pk}-", agent, question.user)
        before = recent_messages(channel=question.channel, trigger=question, until=question.position)
        copies = [_copy_of(message, channel) for message in before]
        Message.objects.bulk_create(copies)
        Channel.objects.filter(pk=channel.pk).update(next_position=question.position + 1)
        overrides_of_copy = {**(overrides or {}), "system_prompt": system_prompt}
        copy_of_question = copies[-1]
        return start_turn(agent=agent, channel=channel, trigger=copy_of_question, overrides=overrides_of_copy)


def _copy_of(message: Message, channel: Channel) -> Message:
    """Return a copy of a message for another channel; not stored."""
    return Message(
        channel=channel,
        position=message.position,
        agent=message.agent,
        user=message.user,
        outsider=message.outsider,
        text=message.text,
        payload=message.payload,
        sent_at=message.sent_at,
        persona_version_id=message.persona_version_id,
        synthetic=True,
    )


def answers_again(question: Message) -> QuerySet[Run]:
    """Return the turns in which a question was answered again, the newest first."""
    copies = Channel.objects.filter(slug__startswith=f"{COPY_PREFIX}{question.pk}-", synthetic=True)
    return Run.objects.filter(channel__in=copies).order_by("-pk")


def delete_chat(chat: Channel) -> None:
    """Delete a chat with its copies, their turns and what was logged of them. Calls stay in the ledger: they cost money.

    Raises:
        ChatOpen: A turn has not ended.
    """
    channels = [chat.pk, *(copy.pk for copy in _copies_of(chat))]
    if Run.objects.filter(channel__in=channels).exclude(status__in=Run.FINAL).exists():
        raise ChatOpen("a turn of this chat has not ended; stop it first")
    with transaction.atomic():
        # Rows that would only lose their channel or message (SET_NULL), and count as logs of real messages from then on.
        for relation in _relations_set_null(Channel):
            rows = relation.related_model._base_manager
            rows.filter(**{f"{relation.field.name}__in": channels}).delete()
        for relation in _relations_set_null(Message):
            # Models say themselves whether their rows go; a measurement and the record of another turn stay, without the message.
            if getattr(relation.related_model, "deleted_with_chat", False):
                rows = relation.related_model._base_manager
                rows.filter(**{f"{relation.field.name}__channel__in": channels}).delete()
        Channel.objects.filter(pk__in=channels).delete()


def _copies_of(chat: Channel) -> list[Channel]:
    """Return the copies of a chat in which one of its questions was answered again."""
    questions = set(Message.objects.filter(channel=chat, agent=None).values_list("pk", flat=True))
    of_its_agent = Channel.objects.filter(
        memberships__agent__memberships__channel=chat, slug__startswith=COPY_PREFIX, synthetic=True
    )
    copies = []
    for channel in of_its_agent.distinct():
        numbers = re.fullmatch(rf"{COPY_PREFIX}(\d+)-\d+", channel.slug)  # of the question, and of the copy
        if numbers and int(numbers[1]) in questions:
            copies.append(channel)
    return copies


def _relations_set_null(model: type[Model]) -> list[Any]:
    """Return the relations to a model whose rows stay, without it, when a row of it is deleted."""
    relations: list[Any] = list(get_candidate_relations_to_delete(model._meta))
    return [relation for relation in relations if relation.on_delete is SET_NULL]


def exchange(agent: Agent, channel: Channel, text: str, *, overrides: Mapping[str, Any] | None = None) -> Exchange:
    """Say something to an agent and have it answer in this process; a turn that failed is no exception, see `status` and `error`.

    Raises:
        SendRefused: The text cannot be said.
        TurnRefused: The agent may not speak there, or an earlier turn of its was left unfinished.
    """
    run = finish_turn(ask(agent, channel, text, overrides=overrides))
    replies = list(Message.objects.filter(run=run).order_by("pk").values_list("text", flat=True))
    silent = ""
    if not replies:
        silent = why_silent(run, list(RunStep.objects.filter(run=run).order_by("number")))
    report = _report_of_turn(agent, channel, run)
    return Exchange(
        message=text,
        replies=replies,
        silent=silent,
        run=run.pk,
        status=run.status,
        error=run.error,
        trace=report.trace,
        summary_failed=report.summary_failed,
        lines=report.lines,
    )


def _report_of_turn(agent: Agent, channel: Channel, run: Run) -> TurnReport:
    """Return the report of the first app that has something to tell of a turn; an empty one where none has."""
    reports: list[TurnReport] = [import_string(path)(agent, channel, run) for path in declared_list("chat_reports")]
    for report in reports:
        if report.lines:
            return report
    return TurnReport()


def why_silent(run: Run, steps: Sequence[RunStep]) -> str:
    """Return the reason for saying nothing that the agent gave last; without one, how its turn ended."""
    for step in reversed(steps):
        if step.detail.get("reason"):
            return str(step.detail["reason"])
    return run.error or run.get_stop_reason_display()
