"""Accounts, agents, conversations and the ledger."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from rest_framework.authtoken.models import Token

from agents.models import (
    Agent,
    Channel,
    Import,
    ImportFile,
    LLMBatch,
    LLMCall,
    Message,
    ModelPrice,
    PersonaVersion,
    Run,
    WorkerHeartbeat,
)
from tests.listed_rows.cast import LLM, SENTENCE, Cast, new_agent, store, version_of


def users(cast: Cast, have: int, more: int) -> None:
    store(User, (User(username=f"user{n}", password="!") for n in range(have, have + more)))


def groups(cast: Cast, have: int, more: int) -> None:
    store(Group, (Group(name=f"group {n}") for n in range(have, have + more)))


def tokens(cast: Cast, have: int, more: int) -> None:
    store(User, (User(username=f"holder{n}", password="!") for n in range(have, have + more)))
    holders = User.objects.filter(username__startswith="holder", auth_token__isnull=True)
    store(Token, (Token(user=user, key=uuid.uuid4().hex) for user in holders.iterator()))


def agents(cast: Cast, have: int, more: int) -> None:
    store(Agent, (new_agent(1000 + n) for n in range(have, have + more)))
    fresh = Agent.objects.filter(persona_versions__isnull=True)
    store(PersonaVersion, [version_of(agent) for agent in fresh.iterator()])


def channels(cast: Cast, have: int, more: int) -> None:
    store(Channel, (Channel(slug=f"room-{n}", name=f"room {n}", kind="public") for n in range(have, have + more)))


def messages(cast: Cast, have: int, more: int) -> None:
    def rows() -> Iterator[Message]:
        for n in range(have, have + more):
            author: dict[str, Any] = {"agent": cast.agent(n)} if n % 3 else {"outsider": "Visitor"}
            yield Message(
                channel=cast.channel(n),
                position=10_000_000 + n,
                text=SENTENCE,
                sent_at=cast.at(n),
                tags={"build": "41"},
                **author,
            )

    store(Message, rows())


def calls(cast: Cast, have: int, more: int) -> None:
    store(
        LLMCall,
        (
            LLMCall(
                created_at=cast.at(n),
                role="judge",
                purpose="gate",
                mechanism="gate",
                dimension="adherence",
                agent=cast.agent(n),
                provider="anthropic",
                model=LLM,
                status="timeout" if n % 97 == 0 else "ok",
                input_tokens=900,
                output_tokens=80,
                cost_usd=Decimal("0.00013"),
                latency_ms=900,
            )
            for n in range(have, have + more)
        ),
    )


def batches(cast: Cast, have: int, more: int) -> None:
    store(
        LLMBatch,
        (
            LLMBatch(
                status="completed",
                role="judge",
                model=LLM,
                batch_id=f"batch_{n}",
                requests=100,
                answered=100,
                agent=cast.agent(n),
                planned_usd=Decimal("0.1"),
                next_look_at=cast.now,
            )
            for n in range(have, have + more)
        ),
    )


def prices(cast: Cast, have: int, more: int) -> None:
    store(
        ModelPrice,
        (
            ModelPrice(
                model=f"model-{n}",
                effective_from=cast.now.date(),
                input_usd=1,
                output_usd=5,
                cache_write_usd=1,
                cache_read_usd=1,
                source="a list",
            )
            for n in range(have, have + more)
        ),
    )


def runs(cast: Cast, have: int, more: int) -> None:
    store(
        Run,
        (
            Run(
                agent=cast.agent(n),
                channel=cast.channel(n),
                status="errored" if n % 50 == 0 else "completed",
                error="it broke" if n % 50 == 0 else "",
                prompt="Say something.",
                trace=[],
            )
            for n in range(have, have + more)
        ),
    )


def workers(cast: Cast, have: int, more: int) -> None:
    store(
        WorkerHeartbeat,
        (
            WorkerHeartbeat(
                name=f"host:{n}",
                host="host",
                pid=n,
                kind="worker",
                queues="",
                started_at=cast.at(n),
                seen_at=cast.at(n),
            )
            for n in range(have, have + more)
        ),
    )


def imports(cast: Cast, have: int, more: int) -> None:
    store(
        Import,
        (
            Import(
                kind="transcript",
                status="failed" if n % 50 == 1 else "cancelled",
                error="it could not be read" if n % 50 == 1 else "",
                stored=n,
            )
            for n in range(have, have + more)
        ),
    )
    fresh = Import.objects.filter(files__isnull=True)
    store(ImportFile, [ImportFile(of=job, name=f"talk {job.pk}.jsonl", size=1_000) for job in fresh.iterator()])
