"""A person is forgotten: what they said, quotes of it and their name are in no column of any table; numbers are what they were."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Sum
from pytest_django import Settings

from agents.debates.debate import start_debate
from agents.debates.models import DebateRound, DebateTurn
from agents.erasure import ERASED, find_outsider, forget
from agents.kit.models import ApiToken, IdempotentRequest, LLMCall, LLMPayload
from agents.models import Channel, MemoryBlock, MemoryPassage, Message, RunMessage
from agents.turn.receive import receive_message
from correction.gate.statistics import get_gate_statistics
from correction.interventions.models import Intervention, InterventionLog
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.calibration.models import ScoreLabel
from evaluation.models import EvaluationScore, Idea
from tests.agents.turn.playing import take_turn
from tests.correction.gating import gated
from tests.evaluation.measuring import evaluate_agent, evaluate_channel
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer, example_of
from tests.test_registry import text_columns

NAME = "Marla Quint"
SAID = "My boiler has leaked since the third of March, and nobody came."
SHORT = "PIN 4711-0815"
QUOTE = f"{NAME} wrote “{SAID}”, that is “MY BOILER HAS  LEAKED\nSINCE the third of march”."
OTHER = "The parcels are in the hall."


def run(*args: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("forget", *args, "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def everything_kept() -> Iterator[tuple[str, str]]:
    """Every text of every row of every table, with where it stands."""
    for model in apps.get_models():
        if not model._meta.managed:
            continue
        for field in text_columns(model):
            for pk, value in model._default_manager.values_list("pk", field.attname):
                kept = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder)
                yield f"{model._meta.label}.{field.name} {pk}", " ".join(kept.replace("\\n", " ").lower().split())


def kept_of(*parts: str) -> set[str]:
    """Where any of these texts stands."""
    return {place for place, kept in everything_kept() if any(part.lower() in kept for part in parts)}


def answering(server: LLMServer) -> None:
    """An actor that says the quote, twice as it is sent back, and judges that quote it in every text they give."""
    drafts = iter(range(2))

    def quoting(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: quoting(one) for key, one in value.items()}
        return [quoting(one) for one in value] if isinstance(value, list) else QUOTE if value == "word" else value

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if "tools" in body:
            said = next(drafts, None) is not None
            return (
                {"tool_calls": [("send_message", {"channel": "office", "text": f"Dear {NAME}: {SAID} Noted."})]}
                if said
                else {"text": "Done."}
            )
        return {"json": quoting(example_of(body["output_config"]["format"]["schema"]))}

    server.respond = respond


@pytest.fixture
def planted(db: None, settings: Settings, llm_server: LLMServer) -> Channel:
    """Marla's words, put through a turn, the gate, evaluations, labels and everything else that keeps texts."""
    settings.LLM_STORE_PAYLOADS = "all"
    answering(llm_server)
    ada, office = gated("adherence", max_correction_attempts=1)
    receive_message(channel=office, outsider="Otto", text=OTHER)
    said = receive_message(channel=office, outsider=NAME, text=SAID, tags={"caller": NAME})
    receive_message(channel=office, outsider=NAME, text=SHORT)
    Message.objects.filter(pk=said.pk).update(payload={"heard": SAID})
    turn = take_turn(ada, office, trigger=said, prompt=f"Answer {NAME}.")
    assert turn.status == "completed", turn.error
    evaluate_agent(agent=ada, dimensions=("adherence",))
    evaluate_channel(channel=office, dimensions=("ideas_quantity",))
    score = EvaluationScore.objects.exclude(reasoning="").first()
    assert score is not None
    ScoreLabel.objects.create(evaluation_score=score, annotator="rater", value=3, note=QUOTE)
    MemoryPassage.objects.create(agent=ada, text=f"Remember: {SAID}")
    MemoryBlock.objects.create(agent=ada, label="relationships", value=f"{NAME} is cross.")
    InterventionLog.objects.create(
        name="variety", agent=ada, channel=office, fired=True, why=f"{NAME} repeats herself", nudge=QUOTE,
        preconditions=[{"kind": "textual", "reasoning": QUOTE}],
    )  # fmt: skip
    eve = User.objects.create_user("eve")
    IdempotentRequest.objects.create(
        user=eve, key="k", method="POST", path="/", body_digest="", status=201, answer=json.dumps({"outsider": NAME})
    )
    LogEntry.objects.create(
        user=eve, content_type=ContentType.objects.get_for_model(Message), object_id=str(said.pk), action_flag=2,
        object_repr=str(said), change_message="[]",
    )  # fmt: skip
    return office


def numbers() -> Any:
    return (
        list(EvaluationScore.objects.order_by("pk").values_list("status", "score", "raw_score", "count", "weight")),
        list(GateDimensionResult.objects.order_by("pk").values_list("status", "score", "passed")),
        list(
            CorrectionLog.objects.order_by("pk").values_list(
                "outcome", "score_sum", "session__outcome", "session__sent"
            )
        ),
        LLMCall.objects.aggregate(Sum("input_tokens"), Sum("output_tokens"), Sum("cost_usd")),
        get_gate_statistics(),
        [model._default_manager.count() for model in (Message, RunMessage, ScoreLabel, Idea, MemoryPassage, LLMCall)],
    )


def test_a_planted_person_is_nowhere_afterwards_and_the_numbers_are_what_they_were(planted: Channel) -> None:
    before, numbered = kept_of(NAME, SAID, SHORT), numbers()
    tables = {place.split(".")[1] for place in before}
    assert {
        "Message",
        "Run",
        "RunMessage",
        "LLMPayload",
        "CorrectionLog",
        "GateDimensionResult",
        "EvaluationScore",
    } <= tables
    assert {
        "Idea",
        "ScoreLabel",
        "MemoryPassage",
        "InterventionLog",
        "IdempotentRequest",
        "LogEntry",
    } <= tables

    would = run("--outsider", NAME, "--dry-run")
    assert kept_of(NAME, SAID, SHORT) == before
    done = run("--outsider", NAME)

    assert kept_of(NAME, SAID, SHORT, "boiler has leaked", "4711-0815") == set()
    assert numbers() == numbered
    assert done["tables"] == would["tables"]
    assert not LLMPayload.objects.filter(call__run__channel=planted).exists()
    theirs = Message.objects.filter(outsider__startswith="erased-")
    assert list(theirs.values_list("text", "payload")) == [(ERASED, {})] * 2
    assert Message.objects.get(outsider="Otto").text == OTHER
    assert not any(run("--outsider", NAME)["tables"].values())  # a second time finds nothing


@pytest.mark.django_db
def test_what_was_stopped_midway_is_finished_by_the_next() -> None:
    ada, office = make_agent(), make_channel()
    say(office, NAME, SAID)
    say(office, ada, f"You said: {SAID}")
    MemoryPassage.objects.create(agent=ada, text=SAID)

    for erased in forget(find_outsider(NAME)):
        if erased.rule.of is Message:
            break  # killed before the person's own messages
    assert {place.split()[0] for place in kept_of(SAID)} == {"agents.Message.text"}
    run("--outsider", NAME)

    assert kept_of(NAME, SAID) == set()


@pytest.mark.django_db
def test_a_user_s_words_and_name_go_and_the_account_stays_unless_it_is_to_be_closed() -> None:
    ada, office = make_agent(), make_channel()
    user = User.objects.create_user("marla", email="m@example.org", password="x", first_name="Marla", last_name="Quint")
    ApiToken.make(user=user, name="phone", expires_at=None)
    Message.objects.create(channel=office, position=99, user=user, text=SAID)
    say(office, ada, f"Dear {NAME}, noted.")
    measured = EvaluationScore.objects.create(
        evaluation_run=ada.evaluation_runs.create(dimensions=["adherence"], judge="m"),
        dimension="adherence", proposition_id="p", claim="c",
    )  # fmt: skip
    ScoreLabel.objects.create(evaluation_score=measured, annotator="marla", user=user, value=4, note="I think so.")
    IdempotentRequest.objects.create(
        user=user, key="k", method="POST", path="/", body_digest="", status=201, answer="x"
    )

    run("--user", "marla")

    assert kept_of(NAME, SAID, "I think so") == set()
    user.refresh_from_db()
    assert (user.username, user.get_full_name(), user.is_active) == ("marla", "", True)
    assert (ScoreLabel.objects.get().value, IdempotentRequest.objects.count()) == (4, 0)

    run("--user", str(user.pk), "--deactivate")

    assert kept_of("marla", "m@example.org") == set()
    user.refresh_from_db()
    assert (user.is_active, user.has_usable_password(), ApiToken.objects.count()) == (False, False, 0)
    assert ScoreLabel.objects.get().annotator == user.username
    assert Message.objects.get(position=99).user == user


@pytest.mark.django_db
def test_a_debate_that_a_user_started_loses_its_question_and_what_quotes_it_and_keeps_its_rounds() -> None:
    topic = "Should the landlord of Elm Street pay for the boiler?"
    ada, user = make_agent(), User.objects.create_user("marla", last_name="Quint")
    debate = start_debate(topic=topic, mode="delphi", agents=[ada, make_agent("bob")], user=user)
    room, seat = debate.channel, debate.seats.earliest("number")
    DebateTurn.objects.create(debate=debate, round=1, seat=seat, violation=f"asked {SHORT} back", error=QUOTE)
    agreed = {"agreement": 0.5, "summary": f"{topic} Quint says: {SAID}"}
    DebateRound.objects.create(debate=debate, number=1, consensus=agreed, statistics={"answers": 1})
    Message.objects.create(channel=room, position=99, user=user, text=SAID)
    Message.objects.create(channel=room, position=100, user=user, text=SHORT)
    say(room, ada, f"“{topic}” is what Quint asks.")

    run("--user", "marla", "--dry-run")
    assert kept_of(topic, SAID)
    run("--user", "marla")

    assert kept_of(topic, SAID, "Quint", "landlord") == set()
    debate.refresh_from_db()
    assert (debate.topic, debate.settings["poll"], debate.created_by) == (ERASED, True, user)
    played = DebateRound.objects.get()
    assert (played.consensus["agreement"], played.statistics) == (0.5, {"answers": 1})
    assert not any(run("--user", "marla")["tables"].values())


@pytest.mark.django_db
def test_a_namesake_elsewhere_keeps_words_and_name() -> None:
    ada, office, hall = make_agent(), make_channel(), make_channel("hall")
    say(office, "Marla", SAID)
    say(office, ada, "Yes, Marla.")
    say(hall, "Marla", OTHER)
    say(hall, "Otto", "Marla is right.")

    told = run("--outsider", "Marla", "--channel", "office")

    assert list(Message.objects.filter(channel=hall).values_list("outsider", "text")) == [
        ("Marla", OTHER),
        ("Otto", "Marla is right."),
    ]
    assert "Marla" not in Message.objects.get(agent=ada).text
    assert told["named_elsewhere"] == 1
    run("--outsider", "Marla", "--name-everywhere")
    assert kept_of("Marla") == set()


@pytest.mark.django_db
def test_configuration_that_quotes_somebody_is_told_and_not_changed() -> None:
    say(make_channel(), NAME, SAID)
    Intervention.objects.create(slug="calm", function="turn", nudge=f"When they say “{SAID}”, be kind.")

    told = run("--outsider", NAME)

    assert told["quoted_in_configuration"] == {"interventions": 1}
    assert SAID in Intervention.objects.get().nudge
    assert "backups" in told["out_of_reach"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--outsider", "marla q"], "outsider 'marla q' said nothing here; .*'Marla Quint'"),
        (["--outsider", NAME, "--channel", "attic"], "channel attic: there is none"),
        (["--user", "nobody"], "user 'nobody': there is none; allowed: an id or a username"),
        (["--outsider", NAME, "--deactivate"], "--deactivate: allowed with --user only"),
    ],
)
def test_what_is_not_there_is_named_with_what_is_allowed(arguments: list[str], told: str) -> None:
    say(make_channel(), NAME, SAID)
    with pytest.raises(CommandError, match=told) as refused:
        call_command("forget", *arguments)
    assert refused.value.returncode in (2, 3)
    assert kept_of(SAID)
