"""Old logs go in small batches: what was said and measured stays, figures stay what they were, and others go on writing."""

from __future__ import annotations

import io
import json
import re
import uuid
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert, Delivery, Receiver
from agents.kit.models import (
    IdempotentRequest,
    LLMBatch,
    LLMBatchRequest,
    LLMCall,
    LLMPayload,
    ReviewItem,
    Rollup,
    TraceSpan,
)
from agents.kit.ops import retention
from agents.kit.registry import prunings
from agents.models import Agent, Channel, Import, ImportChunk, Message, Reaction, Run, RunMessage, RunStep
from agents.swarm.models import DialogSummary, SwarmTurn
from correction.behavior.models import BehaviorEffect, BehaviorRequest
from correction.costs import get_cost_summary
from correction.gate.statistics import get_gate_statistics
from correction.gate.thresholds import mark_result
from correction.interventions.models import InterventionLog
from correction.litellm.models import GatedReply
from correction.models import CorrectionLog, GateDimensionResult, GateSession, ObservedMessage
from correction.sending.models import ScoreDelivery, ScoreReceiver
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.windows import MessageWindow
from tests.console import superuser
from tests.correction.judged_drafts import add_attempt
from tests.factories import make_agent, make_channel, say

OLD = timezone.now() - timedelta(days=100)
AGED: Any = {
    LLMCall: "created_at",
    CorrectionLog: "created_at",
    GateSession: "created_at",
    InterventionLog: "created_at",
    IdempotentRequest: "created_at",
    TraceSpan: "created_at",
    SwarmTurn: "created_at",
    ReviewItem: "created_at",
}
LOGS = (
    LLMCall,
    LLMPayload,
    LLMBatch,
    LLMBatchRequest,
    GateSession,
    CorrectionLog,
    GateDimensionResult,
    InterventionLog,
    ObservedMessage,
    GatedReply,
    BehaviorEffect,
    BehaviorRequest,
    RunStep,
    RunMessage,
    SwarmTurn,
    IdempotentRequest,
    TraceSpan,
    Import,
    ImportChunk,
    Alert,
    Delivery,
    ScoreDelivery,
    ReviewItem,
)


def prune(*args: str) -> str:
    out = io.StringIO()
    call_command("prune_logs", "--older-than", "90d", *args, stdout=out)
    return out.getvalue()


def aged(row: Any, at: datetime) -> Any:
    type(row).objects.filter(pk=row.pk).update(**{AGED[type(row)]: at})
    return row


def call(agent: Agent, at: datetime, **fields: Any) -> LLMCall:
    made = LLMCall.objects.create(
        agent=agent, role="judge", purpose="gate", provider="anthropic", model="m", status="ok", input_tokens=7,
        cost_usd=Decimal("0.01"), **fields,
    )  # fmt: skip
    aged(made, at)
    return made


def attempt(
    agent: Agent, channel: Channel, at: datetime, *, passed: bool = False, judged_by: LLMCall | None = None
) -> CorrectionLog:
    made = add_attempt(agent=agent, channel=channel, outcome="passed" if passed else "corrected", score_sum=3)
    GateDimensionResult.objects.create(
        log=made, dimension="adherence", status="scored", score=3, threshold=5, passed=passed, call=judged_by
    )
    aged(made, at)
    aged(made.session, at)
    return made


def fired(agent: Agent, channel: Channel, at: datetime, *, did: bool = True) -> InterventionLog:
    made: InterventionLog = aged(
        InterventionLog.objects.create(name="variety", agent=agent, channel=channel, fired=did), at
    )
    return made


def everything(at: datetime) -> Agent:
    """One agent with a row of every log of that time, and an evaluation that a call of that time served."""
    ada = Agent.objects.filter(slug="ada").first() or make_agent()
    office = Channel.objects.filter(slug="office").first() or make_channel()
    message = say(office, ada, "Good morning.")
    run = Run.objects.create(agent=ada, channel=office, status="completed", finished_at=at)
    step = RunStep.objects.create(run=run, number=1, kind="model_call")
    RunMessage.objects.create(run=run, step=step, number=1, role="assistant", content={"text": "x"}, message=message)
    aged(SwarmTurn.objects.create(agent=ada, channel=office, run=run), at)
    for upto in (2 * message.position, 2 * message.position + 1):  # the newest stays
        DialogSummary.objects.create(
            agent=ada, channel=office, from_position=1, to_position=upto, status="completed", finished_at=at
        )
    served = call(ada, at, run=run)
    LLMPayload.objects.create(call=served, request={"x": "y"}, reply="z")
    attempt(ada, office, at, judged_by=served)
    fired(ada, office, at, did=False)
    ObservedMessage.objects.create(message=message, session=uuid.uuid4(), status="completed", finished_at=at)
    asked = BehaviorRequest.objects.create(message=message, agent=ada, status="no_request", finished_at=at)
    BehaviorEffect.objects.create(request=asked, judge="m", status="failed", finished_at=at)
    batch = LLMBatch.objects.create(
        work_id="evaluation_run:1",
        role="judge",
        model="m",
        base_url="x",
        status="completed",
        finished_at=at,
        next_look_at=at,
    )
    LLMBatchRequest.objects.create(
        batch=batch, custom_id=str(uuid.uuid4()), work_id="evaluation_run:1", request_key=str(uuid.uuid4()), request_digest="",
        label={}, result="succeeded", text="of a run that was cancelled", call=served,
    )  # fmt: skip
    user, _ = User.objects.get_or_create(username="eve")
    GatedReply.objects.create(user=user, call_id=str(uuid.uuid4()), status="completed", finished_at=at)
    aged(
        IdempotentRequest.objects.create(user=user, key=str(uuid.uuid4()), method="POST", path="/", body_digest=""), at
    )
    aged(TraceSpan.objects.create(trace=str(uuid.uuid4()), span="s1", agent="Ada", conversation="desk"), at)
    handed_in = Import.objects.create(name="talk.jsonl", size=1, status="completed", finished_at=at)
    ImportChunk.objects.create(of=handed_in, number=0, content=b"x")
    aged(ReviewItem.objects.create(kind="failures", key=f"{at}"), at)
    Alert.objects.create(kind="budget", about=f"{at}", title="x", acknowledged_at=at, ended_at=at)
    ops, _ = Receiver.objects.get_or_create(name="ops", address="ops@example.com")
    Delivery.objects.create(receiver=ops, status="completed", finished_at=at)
    otlp, _ = ScoreReceiver.objects.get_or_create(name="otlp")
    ScoreDelivery.objects.create(receiver=otlp, kind="attempt", object_id=1, status="completed", finished_at=at)
    measured = EvaluationRun.objects.create(
        agent=ada, dimensions=["adherence"], judge="m", status="completed", overall_score=5
    )
    EvaluationScore.objects.create(
        evaluation_run=measured, dimension="adherence", proposition_id="p", message=message, claim="c", status="scored",
        score=5, raw_score=5, call=served,
    )  # fmt: skip
    return ada


def figures() -> Any:
    costs = get_cost_summary(window=MessageWindow())
    return (
        costs.total,
        costs.by,
        get_gate_statistics(),
        list(GateDimensionResult.objects.exclude(mark="").values("dimension", "mark")),
    )


def counts() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in LOGS}


# -- what goes and what stays
@pytest.mark.django_db
def test_old_logs_go_and_what_was_said_and_measured_stays() -> None:
    everything(OLD)
    everything(timezone.now())

    prune()

    assert counts() == {**dict.fromkeys((model.__name__ for model in LOGS), 1)}
    assert (Message.objects.count(), Run.objects.count()) == (2, 2)
    assert list(EvaluationScore.objects.order_by("pk").values_list("score", flat=True)) == [5, 5]
    assert [score.call is None for score in EvaluationScore.objects.order_by("pk")] == [True, False]


@pytest.mark.django_db
def test_costs_statistics_and_marks_are_the_same_before_and_after() -> None:
    ada = everything(OLD)
    office = Channel.objects.get()
    for n in range(30):
        call(ada, OLD + timedelta(hours=n))
        attempt(ada, office, OLD + timedelta(hours=n), passed=n % 3 == 0)
    failed = GateDimensionResult.objects.filter(passed=False).first()
    assert failed is not None
    mark_result(result=failed, mark="false_alarm", user=None)
    before = figures()
    assert before[0].calls == 31
    [ledger] = [one for one in prunings() if one.tables[0] == "llm_calls"]
    next(retention.prune(ledger, OLD + timedelta(days=5), batch=7))  # stopped after a batch
    assert LLMCall.objects.count() == 25
    assert figures() == before

    prune()

    assert LLMCall.objects.count() == 0
    assert list(CorrectionLog.objects.values_list("pk", flat=True)) == [failed.log_id]  # with what a person said of it
    assert figures() == before


@pytest.mark.django_db
def test_the_last_time_an_intervention_fired_stays_for_its_cooldown() -> None:
    ada, office = make_agent(), make_channel()
    fired(ada, office, OLD)
    last = fired(ada, office, OLD)
    fired(ada, office, OLD, did=False)

    prune()

    assert list(InterventionLog.objects.all()) == [last]


@pytest.mark.django_db
def test_what_a_run_that_has_not_ended_goes_on_from_stays() -> None:
    run = Run.objects.create(agent=make_agent(), status="running")
    RunStep.objects.create(run=run, number=1, kind="model_call")
    Run.objects.update(created_at=OLD)

    prune()

    assert RunStep.objects.count() == 1


# -- telling
@pytest.mark.django_db
def test_a_dry_run_counts_rows_and_bytes_and_changes_nothing() -> None:
    everything(OLD)
    before = counts()

    report = json.loads(prune("--dry-run", "--json"))

    rows = {table["table"]: table["rows"] for table in report["tables"]}
    assert {rows[model._meta.db_table] for model in LOGS} == {1}
    assert set(rows) == {name for rule in prunings() for name in rule.tables}
    assert all(0 < table["bytes"] < 2000 for table in report["tables"] if table["rows"])
    assert counts() == before
    assert not Rollup.objects.exists()
    for model in (*LOGS, DialogSummary):
        model._default_manager.all().delete()
    shown = prune("--dry-run")
    assert " 0 rows" not in shown
    assert re.search(r"Nothing was found that old in \d+ tables\.", shown)


# -- batches
@pytest.mark.django_db
def test_a_batch_counts_dependent_rows_and_a_stopped_pruning_can_begin_again() -> None:
    ada, office = make_agent(), make_channel()
    for _ in range(7):
        attempt(ada, office, OLD)
    [sessions] = [one for one in prunings() if one.tables[0] == "gate_sessions"]
    cutoff = timezone.now() - timedelta(days=90)

    begun = retention.prune(sessions, cutoff, batch=6, rest=lambda _: None)
    first = next(begun)
    begun.close()

    assert first.rows == {"gate_sessions": 2, "correction_logs": 2, "correction_dimension_results": 2}
    assert CorrectionLog.objects.count() == GateDimensionResult.objects.count() == 5
    rest = list(retention.prune(sessions, cutoff, batch=6, rest=lambda _: None))
    assert [sum(one.rows.values()) for one in rest] == [6, 6, 3]
    assert (rest[-1].done, CorrectionLog.objects.count()) == (1.0, 0)


def heard(slug: str, *, stored: datetime = OLD, **fields: Any) -> Channel:
    """A conversation that another program had, of two messages that were stored then."""
    channel = make_channel(slug)
    for text in ("Good morning.", "How can I help?"):
        say(channel, make_agent("ada") if not Agent.objects.exists() else Agent.objects.get(slug="ada"), text, **fields)
    channel.messages.update(created_at=stored)
    Channel.objects.filter(pk=channel.pk).update(created_at=stored)
    return channel


def test_messages_stay_for_ever_unless_switched_on(db: None) -> None:
    heard("old")
    assert "messages" not in prune()
    assert Message.objects.count() == 2


def test_old_conversations_go_that_nothing_refers_to(db: None, settings: Settings) -> None:
    settings.MESSAGES_KEPT_DAYS = 30
    kept = {
        "young": heard("young", stored=timezone.now()),
        "going on": heard("going-on"),
        "evaluated": heard("evaluated"),
        "compared": heard("compared"),
        "observed": heard("observed"),
        "of a turn": heard("of-a-turn"),
        "of a person": heard("of-a-person"),
        "measured as a whole": heard("whole"),
        "marked at the gate": heard("marked"),
        "to be stored": heard("to-be-stored"),
        "of a swarm": heard("of-a-swarm"),
        "empty": make_channel("empty"),
    }
    ada = Agent.objects.get(slug="ada")
    say(kept["going on"], ada, "Still there?")
    run = EvaluationRun.objects.create(agent=ada, judge="m", status="completed", dimensions=["adherence"])
    for name, field in (("evaluated", "message"), ("compared", "compared_with")):
        EvaluationScore.objects.create(
            evaluation_run=run, dimension="adherence", proposition_id="dry", claim="c", status="scored", score=5,
            **{field: kept[name].messages.first()},
        )  # fmt: skip
    EvaluationRun.objects.create(channel=kept["measured as a whole"], judge="m", status="completed", dimensions=[])
    ObservedMessage.objects.create(message=kept["observed"].messages.first(), session=uuid.uuid4())
    Run.objects.create(agent=ada, channel=kept["of a turn"])
    BehaviorRequest.objects.create(agent=ada, message=kept["of a person"].messages.first())
    GatedReply.objects.create(user=superuser("eve"), call_id="c", message=kept["to be stored"].messages.first())
    SwarmTurn.objects.create(agent=ada, channel=kept["of a swarm"])
    log = attempt(ada, kept["marked at the gate"], OLD)
    mark_result(result=log.dimension_results.get(), mark="right", user=None)
    gone = [heard(f"gone-{n}") for n in range(3)]
    Reaction.objects.create(message=gone[0].messages.all()[0], agent=ada, emoji="+")

    shown = json.loads(prune("--dry-run", "--json"))["tables"]
    report = {row["table"]: row["rows"] for row in json.loads(prune("--json"))["tables"]}

    assert {row["table"]: row["rows"] for row in shown if row["table"] in ("channels", "messages")} == {
        "channels": 3, "messages": 6,
    }  # fmt: skip
    assert (report["channels"], report["messages"], report["reactions"]) == (3, 6, 1)
    assert set(Channel.objects.values_list("slug", flat=True)) == {channel.slug for channel in kept.values()}


def test_messages_are_kept_as_long_as_said_whatever_the_age_of_logs(db: None, settings: Settings) -> None:
    settings.MESSAGES_KEPT_DAYS = 365
    heard("old")
    prune()
    assert Message.objects.count() == 2


def test_a_conversation_that_goes_on_while_it_is_pruned_stays(db: None, settings: Settings) -> None:
    settings.MESSAGES_KEPT_DAYS = 30
    first, second = heard("first"), heard("second")
    (rule,) = (rule for rule in prunings() if rule.model is Channel)
    batches = retention.prune(rule, timezone.now() - timedelta(days=90), batch=3, rest=lambda _: say_more(second))
    assert sum(batch.rows.get("channels", 0) for batch in batches) == 1
    assert set(Channel.objects.all()) == {second}
    assert first.pk


def say_more(channel: Channel) -> None:
    say(channel, "Bob", "One more thing.")
