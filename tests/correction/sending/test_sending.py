"""Scores leave for real servers on loopback: each once where all goes well, and without a text of anybody."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from pytest_django import DjangoAssertNumQueries, Settings

from agents.kit.models.deliveries import MOST_TRIES
from agents.kit.ops.metrics import exposition
from agents.models import Agent, Message
from agents.transcripts.spans import ingest_spans
from correction.gate import observe
from correction.models import CorrectionLog, GateDimensionResult, GateSession
from correction.sending.delivery import send_again, work_one
from correction.sending.models import ScoreDelivery, ScoreReceiver
from correction.sending.otlp import parse_headers
from correction.sending.queueing import queue_attempt, queue_changes, queue_judgements
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.models import Change
from evaluation.change.stored import refresh_changes, store_changes
from evaluation.models import EvaluationRun, EvaluationScore
from tests.agents.transcripts.test_exports import batch, parts, span
from tests.console import list_of, signed_in, superuser
from tests.correction.gating import configure, gated, judge, send
from tests.correction.sending.receiving import (
    PUBLIC_KEY,
    SECRET_KEY,
    LangfuseServer,
    LogsServer,
    attributes_of,
    listening,
)
from tests.evaluation.change.measured import flattened
from tests.evaluation.conftest import PropositionFolder, propositions  # noqa: F401 (a fixture)
from tests.evaluation.judged import make_run
from tests.evaluation.judging import answers
from tests.evaluation.measuring import evaluate_agent
from tests.factories import make_agent, make_channel, speaking
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPANS = ("b7ad6b7169203331", "00f067aa0ba902b7")
SAID = ("Not before noon.", "Ask Tom.")


@pytest.fixture(autouse=True)
def _no_retries(settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    settings.SCORES_SECONDS = 5


@pytest.fixture
def logs(settings: Settings) -> Iterator[LogsServer]:
    with listening(LogsServer()) as server:
        settings.SCORES_OTLP_ENDPOINT = server.url
        yield server


@pytest.fixture
def langfuse(settings: Settings) -> Iterator[LangfuseServer]:
    with listening(LangfuseServer()) as server:
        settings.LANGFUSE_BASE_URL = server.url
        settings.LANGFUSE_PUBLIC_KEY = PUBLIC_KEY
        settings.LANGFUSE_SECRET_KEY = SECRET_KEY
        yield server


def work() -> int:
    """Do all that is due; return how much it was."""
    done = 0
    while work_one(owner="test"):
        done += 1
    return done


def later() -> None:
    """As if a day had gone by."""
    ScoreDelivery.objects.filter(status="pending").update(lease_expires_at=None)
    ScoreReceiver.objects.update(retry_at=None)


def only() -> ScoreDelivery:
    delivery: ScoreDelivery = ScoreDelivery.objects.get()
    return delivery


def traced() -> Agent:
    """An agent whose two answers came in spans of one trace."""
    ada = make_agent("ada")
    spans = []
    for number, (span_id, text) in enumerate(zip(SPANS, SAID, strict=True)):
        answer = span(
            number,
            gen_ai__operation__name="chat",
            gen_ai__conversation__id="desk",
            gen_ai__agent__name="ada",
            gen_ai__input__messages=parts(("user", f"Question {number}?")),
            gen_ai__output__messages=parts(("assistant", text)),
        )
        spans.append({**answer, "traceId": TRACE, "spanId": span_id})
    ingest_spans(batch(*spans))
    return ada


def by_name(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    named: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        named.setdefault(event["gen_ai.evaluation.name"], []).append(event)
    return named


# -- what leaves
def test_each_judgement_leaves_as_an_event_of_the_span_it_is_about(
    logs: LogsServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
) -> None:
    ada = traced()
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    llm_server.respond = answers(lambda claim: 7 if "voice" in claim else 3)

    run = evaluate_agent(agent=ada, dimensions=("adherence",)).run
    assert work() == 1

    assert len(logs.records) == len(set(logs.ids)) == EvaluationScore.objects.count() == 4
    spans_of = {record.span_id.hex() for record in logs.records}
    assert spans_of == set(SPANS)
    for record in logs.records:
        assert (record.event_name, record.trace_id.hex()) == ("gen_ai.evaluation.result", TRACE)
    events = by_name(logs.events)
    assert {event["gen_ai.evaluation.score.value"] for event in events["adherence/voice"]} == {7.0}
    event = events["adherence/mood"][0]
    assert event.pop("log.record.uid") in logs.ids
    assert event == {
        "gen_ai.evaluation.name": "adherence/mood",
        "gen_ai.evaluation.score.label": "scored",
        "gen_ai.evaluation.score.value": 3.0,
        "gen_ai.agent.id": "ada",
        "gen_ai.agent.name": ada.display_name,
        "gen_ai.conversation.id": "desk",
        "plumbline.kind": "judgement",
        "plumbline.dimension": "adherence",
        "plumbline.proposition": "mood",
        "plumbline.evaluation.id": run.pk,
        "plumbline.procedure": "plumbline",
        "plumbline.repeat": 1,
        "plumbline.judge": run.judge,
        "plumbline.heuristic": False,
    }
    assert (only().status, only().sent, only().rejected, only().answer_code) == ("completed", 4, 0, 200)


@pytest.mark.parametrize("explanations", [False, True])
def test_no_text_leaves_unless_a_setting_allows_explanations(
    logs: LogsServer,
    langfuse: LangfuseServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
    settings: Settings,
    explanations: bool,
) -> None:
    settings.SCORES_WITH_EXPLANATIONS = explanations
    ada = traced()
    propositions.claims("adherence/_default.yaml", "voice")
    quoting = {
        "evidence": "present",
        "reasoning": "She said “Ask Tom.”",
        "justification": "Ask Tom.",
        "value": 4,
        "confidence": 1,
    }
    llm_server.respond = answers(lambda claim: quoting)
    evaluate_agent(agent=ada, dimensions=("adherence",))
    work()

    sent = repr(logs.records) + repr(langfuse.scores)
    texts = [*SAID, *Message.objects.values_list("text", flat=True), ada.system_prompt, "claim voice of"]
    if explanations:
        assert {event["gen_ai.evaluation.explanation"] for event in logs.events} == {"She said “Ask Tom.”"}
        assert {score["comment"] for score in langfuse.scores.values()} == {"She said “Ask Tom.”"}
    else:
        assert not [text for text in texts if text in sent]
        assert "explanation" not in sent
        assert "comment" not in sent


def test_what_was_not_scored_leaves_without_a_number(
    logs: LogsServer,
    langfuse: LangfuseServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
) -> None:
    ada = traced()
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    llm_server.respond = lambda body: {"status": 529} if "varied" in str(body) else answers(lambda claim: 6)(body)
    evaluate_agent(agent=ada, dimensions=("adherence", "fluency"))
    work()

    unscored = by_name(logs.events)["fluency/varied"]
    assert unscored
    for event in unscored:
        assert event["gen_ai.evaluation.score.label"] == "unscored"
        assert "gen_ai.evaluation.score.value" not in event
        assert event["error.type"] == event["plumbline.cause"] == "rate_limited" or event["error.type"] == "unavailable"
    assert {score["name"] for score in langfuse.scores.values()} == {"adherence/voice"}
    assert len(logs.events) == EvaluationScore.objects.count()


def test_scores_of_an_offline_judge_say_that_they_are_heuristic(
    logs: LogsServer,
    langfuse: LangfuseServer,
    propositions: PropositionFolder,  # noqa: F811
    settings: Settings,
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "voice", extra="cues: {supports: [noon], contradicts: [hooray]}")
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 9}")
    evaluate_agent(agent=traced(), dimensions=("adherence",))
    work()

    events = by_name(logs.events)
    assert {event["plumbline.heuristic"] for event in events["adherence/voice"]} == {True}
    assert {event["plumbline.heuristic"] for event in events["adherence/brief"]} == {False}, "a rule is exact"
    heuristic = {score["name"]: score["metadata"]["heuristic"] for score in langfuse.scores.values()}
    assert heuristic == {"adherence/voice (heuristic)": True, "adherence/brief": False}, "no chart averages the two"


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_each_verdict_of_the_gate_leaves(
    logs: LogsServer, langfuse: LangfuseServer, llm_server: LLMServer, mode: str
) -> None:
    agent, channel = gated("adherence", "fluency", gate_mode=mode)
    llm_server.respond = judge({"adherence": 2, "fluency": 8})
    send(agent, channel, "Leverage the synergy!")
    if mode == "observe":
        assert observe.work_one(owner="test")
    work()

    events = by_name(logs.events)
    assert len(logs.events) == len(set(logs.ids)) == GateDimensionResult.objects.count()
    assert {event["gen_ai.evaluation.score.label"] for event in events["gate/adherence"]} == {"fail"}
    assert {event["gen_ai.evaluation.score.label"] for event in events["gate/fluency"]} == {"pass"}
    assert {event["plumbline.gate.source"] for event in logs.events} == {"gate" if mode == "enforce" else "observe"}
    assert {score["value"] for score in langfuse.scores.values()} == {2.0, 8.0}
    assert "synergy" not in repr(logs.records) + repr(langfuse.scores)


def test_what_stands_for_several_messages_leaves_with_its_weight(
    logs: LogsServer, langfuse: LangfuseServer, llm_server: LLMServer
) -> None:
    agent, channel = gated("adherence")
    llm_server.respond = judge({"adherence": 8})
    send(agent, channel, "Hello.")
    GateSession.objects.update(inclusion_weight=4.0)
    run = many(make_agent("bob"), 2)
    run.scores.filter(proposition_id="p1").update(inclusion_weight=2.5)
    work()

    weights = {event["gen_ai.evaluation.name"]: event.get("plumbline.inclusion_weight") for event in logs.events}
    assert weights == {"gate/adherence": 4.0, "adherence/p0": None, "adherence/p1": 2.5}
    in_langfuse = {score["name"]: score["metadata"].get("inclusion_weight") for score in langfuse.scores.values()}
    assert in_langfuse == weights


def test_a_message_of_a_span_that_is_observed_names_its_span(logs: LogsServer, llm_server: LLMServer) -> None:
    configure(make_agent("ada"), "adherence", gate_mode="observe")
    llm_server.respond = judge({"adherence": 7})
    answer = span(
        1,
        gen_ai__operation__name="chat",
        gen_ai__conversation__id="desk",
        gen_ai__agent__name="ada",
        gen_ai__output__messages=parts(("assistant", "No.")),
    )
    ingest_spans(batch({**answer, "traceId": TRACE, "spanId": SPANS[0]}))
    assert observe.work_one(owner="test")
    work()

    [record] = logs.records
    assert (record.trace_id.hex(), record.span_id.hex()) == (TRACE, SPANS[0])


def test_each_change_leaves_once_and_again_when_its_verdict_is_another(
    logs: LogsServer, langfuse: LangfuseServer
) -> None:
    ada = make_agent("ada")
    run = flattened(ada)
    way = JudgeAndProcedure(judge=run.judge, procedure=run.procedure)
    work()

    changes = list(Change.objects.filter(current=True))
    assert len(logs.events) == len(set(logs.ids)) == len(changes) == 3
    verdicts = {event["gen_ai.evaluation.name"]: event["gen_ai.evaluation.score.label"] for event in logs.events}
    assert verdicts["change/adherence/ada-dry-wit"] == "drifted"
    points = by_name(logs.events)["change/adherence/ada-dry-wit"][0]["gen_ai.evaluation.score.value"]
    assert points == next(change.points for change in changes if change.proposition == "ada-dry-wit")
    assert {score["name"]: score["value"] for score in langfuse.scores.values()} == verdicts
    assert {score["sessionId"] for score in langfuse.scores.values()} == {"plumbline-ada"}

    refresh_changes()
    store_changes(ada, way)
    assert work() == 0, "nothing new was said"

    run.scores.filter(proposition_id="ada-dry-wit").update(score=8)
    store_changes(ada, way)
    work()
    again = by_name(logs.events)["change/adherence/ada-dry-wit"]
    assert again[0]["gen_ai.evaluation.score.label"] == "drifted"
    assert len({event["log.record.uid"] for event in again}) == 1, "the same change"
    assert again[1]["gen_ai.evaluation.score.label"] != "drifted"
    latest = {score["name"]: score["value"] for score in langfuse.scores.values()}
    assert latest["change/adherence/ada-dry-wit"] == again[1]["gen_ai.evaluation.score.label"]
    assert len(langfuse.scores) == 3, "it replaced the first"


def test_scores_are_of_an_observation_in_langfuse_where_the_span_is_known(
    langfuse: LangfuseServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    llm_server.respond = answers(lambda claim: 7)
    bob = speaking("bob", ["No."], channel=make_channel("elsewhere"))
    for agent in (traced(), bob):
        evaluate_agent(agent=agent, dimensions=("adherence",))
    work()

    about = {
        (score.get("traceId"), score.get("observationId"), score.get("sessionId")) for score in langfuse.scores.values()
    }
    assert about == {(TRACE, SPANS[0], None), (TRACE, SPANS[1], None), (None, None, "elsewhere")}


def test_a_repeat_changes_nothing_in_langfuse(
    langfuse: LangfuseServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    llm_server.respond = answers(lambda claim: 7)
    evaluate_agent(agent=traced(), dimensions=("adherence",))
    work()
    before = dict(langfuse.scores)
    ScoreDelivery.objects.update(status="pending", sent_through=0)  # the worker died before it noted anything
    work()

    assert len(langfuse.ids) == 2 * len(before)
    assert langfuse.scores == before


def test_a_record_is_what_the_sdk_of_opentelemetry_would_send(logs: LogsServer) -> None:
    flattened(make_agent("ada"))
    work()
    ours = logs.records[0]
    provider = LoggerProvider(resource=Resource({}))
    exporter = OTLPLogExporter(endpoint=f"{logs.url}/v1/logs")
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))

    provider.get_logger("plumbline").emit(
        timestamp=ours.time_unix_nano,
        observed_timestamp=ours.observed_time_unix_nano,
        severity_number=SeverityNumber.INFO,
        event_name=ours.event_name,
        attributes=attributes_of(ours),
    )
    provider.shutdown()

    theirs = logs.records[-1]
    assert theirs is not ours
    theirs.ClearField("body")  # which is empty
    theirs.ClearField("flags")  # of a trace that the process is in: ours is in none
    ours_by_key, theirs_by_key = (sorted(record.attributes, key=lambda pair: pair.key) for record in (ours, theirs))
    assert ours_by_key == theirs_by_key
    for record in (ours, theirs):
        record.ClearField("attributes")
    assert ours == theirs


# -- what does not leave
def test_nothing_is_queued_where_no_receiver_is_configured(llm_server: LLMServer) -> None:
    flattened(make_agent("ada"))
    agent, channel = gated("fluency", slug="bob")
    send(agent, channel, "Hello.")

    assert not ScoreDelivery.objects.exists()
    assert not ScoreReceiver.objects.exists()


def test_nothing_is_read_where_no_receiver_is_configured(
    llm_server: LLMServer, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    flattened(make_agent("ada"))
    agent, channel = gated("fluency", slug="bob")
    send(agent, channel, "Hello.")
    run = EvaluationRun.objects.latest("pk")
    log = CorrectionLog.objects.get()
    changes = list(Change.objects.all())

    with django_assert_num_queries(0):
        queue_judgements(run)
        queue_attempt(log)
        queue_changes(changes)


def test_verdicts_on_a_made_up_agent_are_not_sent(logs: LogsServer, llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    Agent.objects.filter(pk=agent.pk).update(synthetic=True)
    send(Agent.objects.get(pk=agent.pk), channel, "Hello.")

    assert GateSession.objects.exists()
    assert not ScoreDelivery.objects.exists()


def test_what_tests_a_judge_or_is_synthetic_is_not_sent(
    logs: LogsServer,
    llm_server: LLMServer,
    propositions: PropositionFolder,  # noqa: F811
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    llm_server.respond = answers(lambda claim: 7)
    bob = speaking("bob", ["No."])
    Agent.objects.filter(pk=bob.pk).update(synthetic=True)
    bob.refresh_from_db()
    evaluate_agent(agent=bob, dimensions=("adherence",))
    agent, channel = gated("fluency", slug="cleo", channel=make_channel("play"))
    channel.synthetic = True
    channel.save()
    send(agent, channel, "Hello.")

    assert not ScoreDelivery.objects.exists()


def test_what_was_deleted_before_it_was_sent_is_not_sent(logs: LogsServer) -> None:
    flattened(make_agent("ada"))
    Change.objects.all().delete()
    work()

    assert logs.requests == []
    assert (only().status, only().sent) == ("completed", 0)


def test_what_waits_for_a_receiver_that_is_not_configured_any_more_is_cancelled(
    logs: LogsServer, settings: Settings
) -> None:
    flattened(make_agent("ada"))
    settings.SCORES_OTLP_ENDPOINT = ""
    work()

    assert (only().status, logs.requests) == ("cancelled", [])


# -- what goes wrong
def test_one_receiver_that_is_down_keeps_nothing_from_the_other(
    logs: LogsServer, langfuse: LangfuseServer, settings: Settings
) -> None:
    settings.SCORES_SECONDS = 2
    logs.holds = {1}
    for slug in ("ada", "bob", "cleo"):
        flattened(make_agent(slug))
    work()

    assert len(logs.requests) == 1, "one look at a receiver that is down is enough"
    assert len(langfuse.scores) == 9
    held = ScoreDelivery.objects.get(receiver__name="otlp", tries=1)
    assert (held.status, held.error) == ("pending", "no answer within 2 s")


@pytest.mark.parametrize("status", [503, 429])
def test_what_waits_a_week_for_a_receiver_that_is_down_is_given_up(
    logs: LogsServer, langfuse: LangfuseServer, status: int
) -> None:
    for slug in ("ada", "bob", "cleo"):
        flattened(make_agent(slug))
    of_logs = ScoreDelivery.objects.filter(receiver__name="otlp").order_by("pk")
    _, old, recent = of_logs
    ScoreDelivery.objects.exclude(pk=recent.pk).update(created_at=timezone.now() - timedelta(days=8))
    logs.status = status
    work()

    assert list(of_logs.values_list("status", flat=True)) == ["pending", "failed", "pending"]
    assert list(of_logs.values_list("tries", flat=True)) == [1, 0, 0]
    old.refresh_from_db()
    assert "7 days" in old.error
    assert old.finished_at is not None, "it is pruned with the others"
    assert set(ScoreDelivery.objects.filter(receiver__name="langfuse").values_list("status")) == {("completed",)}

    logs.status = 0
    assert send_again(ScoreDelivery.objects.all()) == 1
    later()
    work()
    assert set(of_logs.values_list("status")) == {("completed",)}


def test_a_receiver_that_was_down_long_is_tried_every_half_hour(logs: LogsServer) -> None:
    logs.status = 503
    flattened(make_agent("ada"))
    work()
    ScoreReceiver.objects.update(failures=50)
    later()
    work()

    retry_at = ScoreReceiver.objects.get().retry_at
    assert retry_at is not None
    assert timedelta(minutes=29) < retry_at - timezone.now() <= timedelta(minutes=30)


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [("2", 2), ("0", 0), ("86400", 1800), ("Fri, 31 Dec 2027 23:59:59 GMT", 60), ("", 60)]
)
def test_a_receiver_that_limits_its_rate_is_left_alone_as_long_as_it_asks(
    logs: LogsServer, retry_after: str, seconds: int
) -> None:
    flattened(make_agent("ada"))
    logs.status = 429
    logs.headers = {"retry-after": retry_after} if retry_after else {}
    before = timezone.now()
    work()

    receiver = ScoreReceiver.objects.get()
    assert receiver.retry_at is not None
    assert receiver.retry_at >= before + timedelta(seconds=seconds)
    assert receiver.retry_at <= timezone.now() + timedelta(seconds=seconds)
    assert receiver.failures == 0, "it is not down"
    assert only().status == "pending"


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_what_is_not_taken_is_given_up_after_some_tries_and_sent_again_on_request(
    logs: LogsServer, status: int
) -> None:
    logs.status = status
    flattened(make_agent("ada"))
    for tries in range(1, MOST_TRIES + 1):
        assert work() == 1
        assert (only().tries, only().answer_code) == (tries, status)
        assert work() == 0, "it waits"
        later()
    assert (only().status, only().error) == ("failed", f"it answered {status}")
    metrics = exposition().decode()
    assert 'plumbline_scores_given_up{receiver="otlp"} 1.0' in metrics

    logs.status = 0
    chosen = {"action": "send_again", "_selected_action": [only().pk], "confirmed": "1"}
    answer = signed_in(superuser()).post(list_of(ScoreDelivery), chosen)
    assert answer.status_code == 302
    work()
    assert (only().status, len(set(logs.ids))) == ("completed", 3)


def test_what_the_receiver_refuses_is_given_up_at_once_and_the_others_are_sent(logs: LogsServer) -> None:
    logs.status = 400
    flattened(make_agent("ada"))
    work()
    logs.status = 0
    flattened(make_agent("bob"))
    work()

    assert sorted(ScoreDelivery.objects.values_list("status", "answer_code")) == [("completed", 200), ("failed", 400)]


def test_results_that_a_receiver_rejects_are_counted_and_not_sent_again(logs: LogsServer) -> None:
    logs.rejects = 2
    flattened(make_agent("ada"))
    work()

    assert (only().status, only().sent, only().rejected) == ("completed", 1, 2)
    assert only().error == "2 results rejected by the receiver"
    assert send_again(ScoreDelivery.objects.all()) == 0


@pytest.mark.parametrize(("said", "rejected"), [(7, 3), (-2, 0)])
def test_a_receiver_that_counts_wrongly_is_believed_as_far_as_possible(
    logs: LogsServer, said: int, rejected: int
) -> None:
    logs.rejects = said
    flattened(make_agent("ada"))
    work()

    assert (only().status, only().sent, only().rejected) == ("completed", 3 - rejected, rejected)
    assert len(logs.requests) == 1


def test_results_that_are_refused_keep_none_of_the_others_from_leaving(logs: LogsServer) -> None:
    logs.refuses = "adherence/p130"
    many(make_agent("ada"), 250)
    work()

    assert (only().status, only().sent, only().rejected) == ("completed", 249, 1)
    assert len(logs.ids) == len(set(logs.ids)) == 249
    assert only().error == "1 result rejected by the receiver"


def test_a_receiver_that_refuses_everything_is_not_asked_for_each_result(logs: LogsServer) -> None:
    logs.refuses = "adherence/"
    many(make_agent("ada"), 250)
    work()

    assert (only().status, only().sent, only().rejected, only().answer_code) == ("failed", 0, 0, 400)
    assert len(logs.requests) <= 20
    logs.refuses = ""
    send_again(ScoreDelivery.objects.all())
    work()
    assert (only().status, only().sent, only().rejected) == ("completed", 250, 0)


def test_redirects_of_a_receiver_are_not_followed(logs: LogsServer) -> None:
    with listening(LogsServer()) as inside:
        logs.status = 307
        logs.headers = {"location": f"{inside.url}/v1/logs"}
        flattened(make_agent("ada"))
        work()

    assert only().error == "it answered 307; redirects are not followed"
    assert inside.requests == []


def test_a_delivery_goes_out_in_requests_of_bounded_size(logs: LogsServer) -> None:
    many(make_agent("ada"), 250)
    work()

    assert len(logs.requests) == 3
    assert len(set(logs.ids)) == only().sent == 250


def test_a_try_continues_after_what_was_taken(logs: LogsServer, settings: Settings) -> None:
    settings.SCORES_SECONDS = 0.5
    logs.holds = {2}
    many(make_agent("ada"), 250)
    work()
    assert (only().status, only().sent) == ("pending", 100)
    later()
    work()

    assert (only().status, only().sent) == ("completed", 250)
    assert len(logs.ids) == 350, "only what was in flight came twice"
    assert len(set(logs.ids)) == 250


def many(agent: Agent, number: int) -> EvaluationRun:
    """An evaluation with so many judgements, completed and queued."""
    run = make_run(agent)
    EvaluationScore.objects.bulk_create(
        EvaluationScore(
            evaluation_run=run, dimension="adherence", proposition_id=f"p{n}", claim="c", status="scored", score=n % 10
        )
        for n in range(number)
    )
    queue_judgements(run)
    return run


def test_what_was_judged_again_leaves_when_an_evaluation_is_completed_again(logs: LogsServer) -> None:
    many(make_agent("ada"), 5)
    work()
    score = EvaluationScore.objects.order_by("pk")[2]
    EvaluationScore.objects.filter(pk=score.pk).update(judged_at=timezone.now(), score=1)
    queue_judgements(score.evaluation_run)
    work()

    assert len(logs.ids) == 6
    assert logs.ids[5] == logs.ids[2], "the same id"


# -- settings
@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("authorization=Bearer%20abc, X-Tenant = 7 ,", {"authorization": "Bearer abc", "x-tenant": "7"}),
        ("api-key=a=b", {"api-key": "a=b"}),
    ],
)
def test_headers_are_written_as_those_of_opentelemetry(text: str, headers: dict[str, str], logs: LogsServer) -> None:
    assert parse_headers(text) == headers


def test_headers_of_the_setting_are_sent(logs: LogsServer, settings: Settings) -> None:
    settings.SCORES_OTLP_HEADERS = "authorization=Bearer%20abc"
    flattened(make_agent("ada"))
    work()

    [(headers, _)] = logs.requests
    assert headers["authorization"] == "Bearer abc"
    assert headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("text", ["no pair", "a b=c", "x=%0d%0aEvil: 1", "=v", "x=ü"])
def test_headers_that_are_none_are_told_of_without_their_values(
    text: str, settings: Settings, logs: LogsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.SCORES_OTLP_HEADERS = text
    with pytest.raises(Exception, match="percent-encoded") as told:
        call_command("check", "--tag", "plumbline")
    flattened(make_agent("ada"))
    work()

    assert "Evil" not in str(told.value) + only().error
    assert (only().status, logs.requests) == ("pending", [])


def test_no_secret_is_in_the_log_or_the_database(
    langfuse: LangfuseServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.LANGFUSE_SECRET_KEY = "sk-lf-wrong-s3cret"
    flattened(make_agent("ada"))
    work()

    stored = [str(value) for row in ScoreDelivery.objects.values() for value in row.values()]
    assert only().answer_code == 401
    assert "s3cret" not in caplog.text + json.dumps(stored)


ADDRESSES: list[Callable[[Settings], None]] = [
    lambda settings: setattr(settings, "SCORES_OTLP_ENDPOINT", "collector:4318"),
    lambda settings: setattr(settings, "LANGFUSE_BASE_URL", "cloud.langfuse.com"),
    lambda settings: setattr(settings, "SCORES_OTLP_ENDPOINT", "https://ann:s3cret@collector:4318"),
    lambda settings: setattr(settings, "SCORES_OTLP_ENDPOINT", "https://collector:4318/?token=s3cret"),
    lambda settings: setattr(settings, "SCORES_OTLP_ENDPOINT", "https://collector:4318/#s3cret"),
    lambda settings: setattr(settings, "LANGFUSE_BASE_URL", "https://ann:s3cret@cloud.langfuse.com"),
]


@pytest.mark.parametrize("wrong", ADDRESSES)
def test_an_address_that_is_none_is_told_of(wrong: Callable[[Settings], None], settings: Settings) -> None:
    wrong(settings)
    with pytest.raises(Exception, match="no http") as told:
        call_command("check", "--tag", "plumbline")
    assert "s3cret" not in str(told.value)
