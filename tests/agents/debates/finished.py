"""A debate as it stands in the tables after its rounds, without playing it: for tests of what shows debates."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.utils import timezone

from agents.debates.answers import Answer, Stance
from agents.debates.measures import Exit, changes, groupthink, offline_consensus, statistics, vote
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message, Run
from tests.factories import make_agent

TOPIC = "Should the office move to Stamford?"
Said = Answer | str  # an answer, or why there is none


def says(
    seat: int, stance: Stance | None = "yes", confidence: float | None = 0.7, position: str = "", **more: Any
) -> Answer:
    position = position or f"Seat {seat} says {stance}."
    more = {"reasoning": f"Because seat {seat} has its reasons.", **more}
    return Answer(seat=seat, stance=stance, confidence=confidence, position=position, **more)


def make_debate(
    rounds: Sequence[Sequence[Said]],
    *,
    mode: str = "delphi",
    topic: str = TOPIC,
    slug: str = "debate-1",
    agents: Sequence[Agent] = (),
    poll: bool = True,
    ended: Exit | None = None,
    tokens: int = 100,
    **fields: Any,
) -> Debate:
    """A debate with these rounds; each has an answer, or the reason of a failure, for every seat in order.

    Args:
        agents: Who sits where; else agents are made.
        poll: Whether the first of the rounds is the blind poll.
        ended: How it ended; else it waits for its next round.
        tokens: That each turn used.
        fields: More columns of the debate.
    """
    people = agents or [make_agent(f"{slug}-{n}") for n in range(1, max((len(r) for r in rounds), default=2) + 1)]
    channel = Channel.objects.create(slug=slug, name=topic[:80], kind="debate", synthetic=True)
    state: dict[str, Any] = {
        "status": "waiting",
        "settings": {"poll": poll},
        "rounds_asked": max(len(rounds) - poll, 0),
    }
    if ended is not None:
        now = timezone.now()
        state |= {"status": "completed", "started_at": now, "finished_at": now}
        state |= {"exit_reason": ended.reason or "", "exit_details": ended.details}
    debate: Debate = Debate.objects.create(channel=channel, mode=mode, topic=topic, **{**state, **fields})
    seats = []
    for number, agent in enumerate(people, 1):
        channel.memberships.create(agent=agent)
        seats.append(
            DebateSeat.objects.create(debate=debate, number=number, agent=agent, label=f"Participant {number}")
        )
    before: list[Answer] = []
    for number, said in enumerate(rounds, 0 if poll else 1):
        play_round(
            debate, number, said, before=before, ended=ended if number == len(rounds) - poll else None, tokens=tokens
        )
        before = [answer for answer in said if isinstance(answer, Answer)]
    return debate


def play_round(
    debate: Debate,
    number: int,
    said: Sequence[Said],
    *,
    before: Sequence[Answer] = (),
    ended: Exit | None = None,
    tokens: int = 100,
) -> None:
    """Store a round of a debate: its turns with runs, messages and model calls, and what it came to."""
    channel, answers = debate.channel, [answer for answer in said if isinstance(answer, Answer)]
    for seat, answer in zip(debate.seats.order_by("number"), said, strict=False):
        run = Run.objects.create(agent=seat.agent, channel=channel, status="completed")
        turn = DebateTurn(debate=debate, round=number, seat=seat, run=run)
        LLMCall.objects.create(
            run=run, role="actor", status="ok", input_tokens=tokens - 10, output_tokens=10, cost_usd=Decimal("0.001")
        )
        if isinstance(answer, Answer):
            payload = answer.model_dump(mode="json", exclude={"seat", "role"}, exclude_none=True)
            channel.refresh_from_db()
            turn.status = DebateTurn.Status.ANSWERED
            turn.message = Message.objects.create(
                channel=channel,
                position=channel.next_position,
                agent=seat.agent,
                text=f"I say: {answer.position}",
                payload=payload,
                run=run,
                synthetic=True,
            )
            channel.next_position += 1
            channel.save()
        else:
            turn.status, turn.error = DebateTurn.Status.FAILED, answer
        turn.save()
    consensus = offline_consensus(answers)
    seen = [text for answer in before for text in (answer.position, answer.reasoning)]
    counted = {
        **statistics(answers).model_dump(mode="json"),
        "vote": vote(answers).model_dump(mode="json"),
        "changes": changes(before, answers, seen).model_dump(mode="json") if before else None,
    }
    DebateRound.objects.create(
        debate=debate,
        number=number,
        consensus=consensus.model_dump(mode="json"),
        groupthink=groupthink(answers, consensus.agreement).model_dump(mode="json"),
        statistics=counted,
        exit=(ended or Exit(ends=False)).model_dump(mode="json"),
    )
