"""Rows for every list of the console, as many as wanted: for the tests that count queries and the bench that takes the time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import (
    CharField,
    DateTimeField,
    DecimalField,
    FloatField,
    IntegerField,
    Model,
    SlugField,
    TextField,
    UUIDField,
)

from agents.alerts.models import Alert, Delivery, Receiver
from agents.debates.models import Debate
from agents.kit.models import ApiToken, LLMBatch, LLMCall, ModelPrice
from agents.models import Agent, Channel, Import, Message, PersonaVersion, Run
from agents.swarm.models import DialogState, Swarm, SwarmPhase
from correction.behavior.models import BehaviorRequest
from correction.interventions.models import Intervention, InterventionLog
from correction.litellm.models import GatedReply
from correction.models import AgentEvaluationConfig, CorrectionLog, GateDimensionResult, GateSession, ObservedMessage
from correction.sending.models import ScoreDelivery, ScoreReceiver
from evaluation.calibration.models import JudgeCalibration, LabelSet
from evaluation.change.models import Baseline, Change, DriftAlert, Evidence, JudgeSentinel
from evaluation.experiments.models import Experiment
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore

LLM = "claude-haiku-5-5"
AT_ONCE = 2000
SENTENCE = "Some words as people write them, a line or two of them, so that a page has something to show. "
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
ANYWAY = {"judge": LLM, "model": LLM, "procedure": "plumbline", "dimension": "adherence", "digest": "d" * 64}


@dataclass(frozen=True, slots=True)
class Cast:
    """Whom the rows are about; times go back from `now`, a minute apart."""

    agents: list[Agent]
    channels: list[Channel]
    now: datetime

    def agent(self, n: int) -> Agent:
        return self.agents[n % len(self.agents)]

    def channel(self, n: int) -> Channel:
        return self.channels[n % len(self.channels)]

    def at(self, n: int) -> datetime:
        return self.now - timedelta(minutes=n % 100_000)


def people(agents: int = 4, *, now: datetime | None = None) -> Cast:
    """Some agents, each with a persona version, and as many channels."""
    cast = Cast([], [], now or datetime.now(UTC))
    _agents(cast, -1000, agents)
    store(Channel, (Channel(slug=f"channel-{n}", name=f"channel {n}", kind="public") for n in range(agents)))
    return Cast(list(Agent.objects.order_by("pk")), list(Channel.objects.order_by("pk")), cast.now)


def store(model: type[Model], rows: Iterable[Any]) -> None:
    waiting = iter(rows)
    while batch := list(islice(waiting, AT_ONCE)):
        model._default_manager.bulk_create(batch)


Fields = Callable[[int], dict[str, Any]]
Maker = Callable[[Cast, int, int], None]


def make(model: type[Model], cast: Cast, numbers: Iterable[int], fields: Fields) -> None:
    """Store a row per number: `fields` says what is not the same in every table; agent, channel and times follow from the number.

    A message it must refer to is the newest, whichever that is.
    """

    def row(n: int) -> Model:
        given = fields(n)
        for field in model._meta.concrete_fields:
            if field.attname in given or field.name in given or field.primary_key or field.has_default() or field.null:
                continue
            if field.related_model in (Agent, Channel):
                given[field.name] = cast.agent(n) if field.related_model is Agent else cast.channel(n)
            elif field.related_model is Message:
                given[field.name] = _any_message(cast)
            elif field.name in ANYWAY:
                given[field.name] = ANYWAY[field.name]
            elif field.choices:
                given[field.name] = next(value for value, _ in field.choices if value)
            elif isinstance(field, SlugField):
                given[field.name] = f"{field.model._meta.model_name}-{n}"
            elif isinstance(field, CharField | TextField):
                given[field.name] = SENTENCE if isinstance(field, TextField) else f"{field.name} {n}"
            elif isinstance(field, IntegerField | FloatField | DecimalField):
                given[field.name] = n
            elif isinstance(field, UUIDField):
                given[field.name] = uuid.uuid4()
            elif isinstance(field, DateTimeField) and not getattr(field, "auto_now_add", False):
                given[field.name] = cast.at(n)
        return model(**given)

    store(model, (row(n) for n in numbers))


def maker(model: type[Model], fields: Callable[[Cast, int], dict[str, Any]] = lambda cast, n: {}) -> Maker:
    def made(cast: Cast, have: int, more: int) -> None:
        make(model, cast, range(have, have + more), lambda n: fields(cast, n))

    return made


def newest(model: type[Model], number: int, *fields: str) -> list[Any]:
    rows = model._default_manager.order_by("-pk")
    return list((rows.values_list(*fields) if fields else rows.values_list("pk", flat=True))[:number])


def _agents(cast: Cast, have: int, more: int) -> None:
    make(Agent, cast, range(have, have + more), lambda n: {"slug": f"agent-{1000 + n}", "display_name": f"Agent {n}"})
    fresh = Agent.objects.filter(persona_versions__isnull=True)
    store(PersonaVersion, (PersonaVersion(agent=agent, number=1, digest="d" * 64) for agent in list(fresh)))


def _api_tokens(cast: Cast, have: int, more: int) -> None:
    owner, _ = User.objects.get_or_create(username="programmer", defaults={"password": "!"})
    make(
        ApiToken,
        cast,
        range(have, have + more),
        lambda n: {"user": owner, "name": f"bot {n}", "digest": f"{n:064x}", "hint": "pl_a…z"},
    )


def _message(cast: Cast, n: int) -> dict[str, Any]:
    author = {"agent": cast.agent(n)} if n % 3 else {"outsider": "Visitor"}
    return {
        "position": 10_000_000 + n // len(cast.channels),  # one after the other in each channel
        "sent_at": cast.at(n),
        "tags": {"build": "41"},
        "external_id": f"m{n}",
        **author,
    }


def _import(cast: Cast, n: int) -> dict[str, Any]:
    wrong = {"status": "failed", "error": "it could not be read"} if n % 50 == 1 else {"status": "cancelled"}
    return {"name": f"talk {n}.jsonl", "stored": n, **wrong}


_messages = maker(Message, _message)


def _any_message(cast: Cast) -> Message:
    if not Message.objects.exists():
        _messages(cast, 0, 1)
    return Message.objects.latest("pk")


def _evaluations(cast: Cast, have: int, more: int) -> None:
    ended = {"dimensions": ["adherence"], "status": "completed", "overall_score": 5.5}
    times = ("started_at", "finished_at")
    maker(EvaluationRun, lambda cast, n: {"agent": cast.agent(n), **ended, **dict.fromkeys(times, cast.at(n))})(
        cast, have, more
    )
    agent_of = dict(newest(EvaluationRun, more, "pk", "agent_id"))
    make(Evidence, cast, agent_of, lambda pk: {
        "evaluation_run_id": pk, "agent_id": agent_of[pk], "newest_message_at": cast.now + timedelta(seconds=pk),
    })  # fmt: skip


def _scores(cast: Cast, have: int, more: int) -> None:
    if have == 0:
        _evaluations(cast, 10_000_000, max(2, more // 100))
        _messages(cast, 20_000_000, max(2, more // 100))
    of, about = newest(EvaluationRun, 1000), newest(Message, 1000)
    make(EvaluationScore, cast, range(have, have + more), lambda n: {
        "evaluation_run_id": of[n % len(of)], "proposition_id": f"p{n // len(of)}", "message_id": about[n % len(about)],
        "claim": "The agent is dry", "status": "scored", "score": n % 10, "raw_score": n % 10, "reasoning": SENTENCE,
        "context_snippet": SENTENCE, "judge": LLM,
    })  # fmt: skip


def _baselines(cast: Cast, have: int, more: int) -> None:
    """Each agent in all dimensions by the usual judge, then by others: one is current of an agent, a judge and a dimension."""
    if not EvaluationRun.objects.exists():
        _evaluations(cast, 0, 1)
    run, all_of_one = EvaluationRun.objects.earliest("pk"), len(cast.agents) * len(DIMENSIONS)
    make(Baseline, cast, range(have, have + more), lambda n: {
        "judge": f"model-{n // all_of_one}" if n >= all_of_one else LLM,
        "dimension": DIMENSIONS[n // len(cast.agents) % len(DIMENSIONS)], "evaluation_run": run, "score": 5,
    })  # fmt: skip


_schedules = maker(EvaluationSchedule, lambda cast, n: {"dimensions": ["adherence"], "is_active": False})


def _alerts(cast: Cast, have: int, more: int) -> None:
    if have == 0:
        _schedules(cast, 10_000_000, 2)
    schedule = EvaluationSchedule.objects.earliest("pk")
    _evaluations(cast, 30_000_000 + have, more)
    agent_of = dict(newest(EvaluationRun, more, "pk", "agent_id"))
    make(DriftAlert, cast, agent_of, lambda pk: {
        "schedule": schedule, "agent_id": agent_of[pk], "evaluation_run_id": pk, "before": 8.1, "after": 3.2,
    })  # fmt: skip


def _changes(cast: Cast, have: int, more: int) -> None:
    _evaluations(cast, 50_000_000 + have, more)
    agent_of = dict(newest(EvaluationRun, more, "pk", "agent_id"))
    current = {
        agent: pk for pk, agent in sorted(agent_of.items())
    }  # only the newest evaluation of an agent is compared now
    steady = {"baseline": 7.2, "candidate": 7.1, "verdict": "steady"}
    make(Change, cast, agent_of, lambda pk: {
        "agent_id": agent_of[pk], "evaluation_run_id": pk, "baseline_run_id": pk, "dimension": "adherence", "judge": LLM,
        "value": {"result": steady}, "current": current[agent_of[pk]] == pk, **steady,
    })  # fmt: skip


def _sent_alerts(cast: Cast, have: int, more: int) -> None:
    if Alert.objects.count() > have:  # three tables have their rows from here
        return
    make(Alert, cast, range(have, have + more), lambda n: {"agent": cast.agent(n)})
    make(Receiver, cast, range(have, have + more), lambda n: {"address": "ops@example.com"})
    alerts, receivers = newest(Alert, more), newest(Receiver, more)
    make(Delivery, cast, range(more), lambda n: {"alert_id": alerts[n], "receiver_id": receivers[n]})
    about = Receiver.agents.through
    store(about, (about(receiver_id=pk, agent=agent) for pk in receivers for agent in cast.agents[:2]))


def _sent_scores(cast: Cast, have: int, more: int) -> None:
    otlp, _ = ScoreReceiver.objects.get_or_create(name="otlp")
    make(ScoreDelivery, cast, range(more), lambda n: {"receiver": otlp, "kind": "attempt", "object_id": n + 1})


def _score_receivers(cast: Cast, have: int, more: int) -> None:  # there are no more than two
    for name in ScoreReceiver.Name.values:
        ScoreReceiver.objects.get_or_create(name=name)


def _requests(cast: Cast, have: int, more: int) -> None:
    _messages(cast, 40_000_000 + have, more)
    fresh, trait = newest(Message, more), {"name": "brief", "description": "Says little."}
    make(BehaviorRequest, cast, range(len(fresh)), lambda n: {
        "message_id": fresh[n], "agent": cast.agent(n), "whose": cast.agent(n).pk, "operation": "add", "judge": LLM,
        "status": "pending_review" if n % 5 else "rejected", "confidence": "high", "trait_name": "brief",
        "trait_after": {**trait, "sentiment": 0.0, "strength": 0.9},
    })  # fmt: skip


def _configurations(cast: Cast, have: int, more: int) -> None:
    _agents(cast, 50_000_000 + have, more)
    make(AgentEvaluationConfig, cast, newest(Agent, more), lambda pk: {"agent_id": pk, "gate_mode": "observe"})


def _logs(cast: Cast, have: int, more: int) -> None:
    def log(cast: Cast, n: int) -> dict[str, Any]:
        outcome = "corrected" if n % 20 == 0 else "timeout_passed" if n % 300 == 7 else "passed"
        return {"attempt": 1, "outcome": outcome, "score_sum": 18, "judge": LLM}

    def session(cast: Cast, n: int) -> dict[str, Any]:
        ended = {"outcome": "passed", "sent": 1} if n % 20 else {}
        return {"agent": cast.agent(n), "channel": cast.channel(n), "source": "gate", **ended}

    maker(GateSession, session)(cast, have, more)
    sessions = newest(GateSession, more)[::-1]
    make(CorrectionLog, cast, range(have, have + more), lambda n: {"session_id": sessions[n - have], **log(cast, n)})
    for dimension in ("adherence", "fluency"):
        made = {"dimension": dimension, "status": "scored", "threshold": Decimal(5), "passed": True, "judge": LLM}
        logs = newest(CorrectionLog, more)
        make(GateDimensionResult, cast, logs, lambda pk, made=made: {"log_id": pk, "score": 5 + pk % 5, **made})  # type: ignore[misc]


def _observed(cast: Cast, have: int, more: int) -> None:
    _messages(cast, 60_000_000 + have, more)
    fresh = newest(Message, more)
    make(ObservedMessage, cast, range(len(fresh)), lambda n: {
        "message_id": fresh[n], "whose": cast.agent(n).pk, "status": "pending" if n % 3 else "completed",
    })  # fmt: skip


def _gated_reply(cast: Cast, n: int) -> dict[str, Any]:
    gateway, _ = User.objects.get_or_create(username="gateway")
    ended = {"status": "failed", "error": SENTENCE} if n % 50 == 0 else {"status": "completed"}
    where = {"agent": cast.agent(n), "channel": cast.channel(n), "user": gateway}
    return {"call_id": f"call-{n}", "conversation": f"litellm-{n}", "rounds": 7, **where, **ended}


def _call(cast: Cast, n: int) -> dict[str, Any]:
    what = {"role": "judge", "purpose": "gate", "mechanism": "gate", "dimension": "adherence", "agent": cast.agent(n)}
    used = {"input_tokens": 900, "output_tokens": 80, "cost_usd": Decimal("0.00013"), "latency_ms": 900}
    return {**what, **used, "created_at": cast.at(n), "status": "timeout" if n % 97 == 0 else "ok"}


def _run(cast: Cast, n: int) -> dict[str, Any]:
    ended = {"status": "errored", "error": "it broke"} if n % 50 == 0 else {"status": "completed"}
    return {"channel": cast.channel(n), "prompt": "Say something.", **ended}


def _debates(cast: Cast, have: int, more: int) -> None:
    topic = "Should the office move to Stamford?"
    store(Channel, (Channel(slug=f"debate-{n}", name=topic, kind="debate") for n in range(have, have + more)))
    fresh = newest(Channel, more)
    make(Debate, cast, range(len(fresh)), lambda n: {
        "channel_id": fresh[n], "mode": "delphi", "topic": topic, "status": "completed", "exit_reason": "consensus",
    })  # fmt: skip


def _states(cast: Cast, have: int, more: int) -> None:
    store(Channel, (Channel(slug=f"talk-{n}", name="talk", kind="dm") for n in range(have, have + more)))
    fresh = newest(Channel, more)
    make(DialogState, cast, range(len(fresh)), lambda n: {"channel_id": fresh[n]})


def _swarms(cast: Cast, have: int, more: int) -> None:
    """Each with a phase, and with some agents."""
    store(Swarm, (Swarm(name=f"swarm-{n}", intents=["general"]) for n in range(have, have + more)))
    swarms, members = newest(Swarm, more), Swarm.agents.through
    store(members, (members(swarm_id=swarm, agent=agent) for swarm in swarms for agent in cast.agents[:5]))
    store(
        SwarmPhase, (SwarmPhase(swarm_id=pk, phase="post", name="brevity", order=1, prompt=SENTENCE) for pk in swarms)
    )


def _experiment(cast: Cast, n: int) -> dict[str, Any]:
    scenario: dict[str, Any] = {"name": "small", "cast": ["ada", "bob"], "environments": 1, "agents": 2}
    scenario |= {"title": "<script>alert('x')</script>", "steps": [{"says": "Well?"}]}
    scenario |= {"arms": [{"name": "north"}, {"name": "south"}], "dimensions": [{"id": "adherence"}]}
    return {"name": "small", "scenario": scenario, "judge": "offline:lexical-1", "paused": "agent-3: 3 of 2 dollars"}


def _batch(cast: Cast, n: int) -> dict[str, Any]:
    planned = {"agent": cast.agent(n), "planned_usd": Decimal("0.1"), "requests": 100, "answered": 100}
    return {"status": "completed", "role": "judge", "batch_id": f"batch_{n}", **planned}


def _price(cast: Cast, n: int) -> dict[str, Any]:
    usd = dict.fromkeys(("input_usd", "output_usd", "cache_write_usd", "cache_read_usd"), 1)
    return {"model": f"model-{n}", "effective_from": cast.now.date(), **usd}


def _intervention_log(cast: Cast, n: int) -> dict[str, Any]:
    where = {"agent": cast.agent(n), "channel": cast.channel(n), "channel_position": n}
    return {"name": "variety", "fired": bool(n % 2), "why": SENTENCE, "nudge": SENTENCE, "preconditions": [], **where}


# By the label of the model a list is about; tables that are not here get plain rows. Propositions have none: their page reads files.
MAKERS: dict[str, Maker] = {
    model._meta.label_lower: maker(model) for model in admin.site._registry if model._meta.managed
} | {
    "auth.user": maker(User, lambda cast, n: {"username": f"user{n}", "password": "!"}),
    "auth.group": maker(Group),
    "kit.apitoken": _api_tokens,
    "agents.agent": _agents,
    "alerts.alert": _sent_alerts,
    "alerts.receiver": _sent_alerts,
    "alerts.delivery": _sent_alerts,
    "agents.channel": maker(Channel, lambda cast, n: {"slug": f"room-{n}"}),
    "agents.message": _messages,
    "agents.run": maker(Run, _run),
    "debates.debate": _debates,
    "swarm.dialogstate": _states,
    "swarm.swarm": _swarms,
    "agents.import": maker(Import, _import),
    "kit.llmcall": maker(LLMCall, _call),
    "kit.llmbatch": maker(LLMBatch, _batch),
    "kit.modelprice": maker(ModelPrice, _price),
    "evaluation.evaluationrun": _evaluations,
    "evaluation.evaluationscore": _scores,
    "change.baseline": _baselines,
    "evaluation.evaluationschedule": _schedules,
    "change.change": _changes,
    "change.driftalert": _alerts,
    "calibration.judgecalibration": maker(JudgeCalibration, lambda cast, n: {"judge": f"judge-{n}"}),
    "change.judgesentinel": maker(JudgeSentinel, lambda cast, n: {"judge": f"model-{n}"}),
    "calibration.labelset": maker(
        LabelSet, lambda cast, n: {"population": {"runs": [], "until": cast.now.isoformat()}}
    ),
    "experiments.experiment": maker(Experiment, _experiment),
    "behavior.behaviorrequest": _requests,
    "correction.agentevaluationconfig": _configurations,
    "interventions.intervention": maker(
        Intervention, lambda cast, n: {"slug": f"quiet-{n}", "textual_claim": "They agree.", "nudge": "Be brief."}
    ),
    "interventions.interventionlog": maker(InterventionLog, _intervention_log),
    "correction.correctionlog": _logs,
    "correction.observedmessage": _observed,
    "sending.scoredelivery": _sent_scores,
    "sending.scorereceiver": _score_receivers,
    "litellm.gatedreply": maker(GatedReply, _gated_reply),
}
