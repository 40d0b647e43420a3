"""A person is forgotten: what they said, quotes of it and their name are in no column of any table; numbers are what they were."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import (
    BinaryField,
    CharField,
    DateTimeField,
    JSONField,
    Model,
    Sum,
    TextField,
    UUIDField,
)
from django.utils import timezone
from pytest_django import Settings

from agents.debates.models import DebateRound, DebateTurn
from agents.debates.starting import start_debate
from agents.erasure import ERASED, find_outsider, forget
from agents.kit.models import ApiToken, IdempotentRequest, LLMCall, LLMPayload, SavedView
from agents.kit.registry import erasures, table_of, tables
from agents.models import (
    Agent,
    Channel,
    ImportChunk,
    MemoryBlock,
    MemoryPassage,
    Message,
    PersonaVersion,
    Run,
    RunMessage,
)
from agents.swarm.models import UserPreferences
from agents.turn.receive import receive_message
from correction.gate.statistics import get_gate_statistics
from correction.interventions.models import Intervention, InterventionLog
from correction.litellm.models import GatedReply
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.calibration.models import ScoreLabel
from evaluation.models import EvaluationRun, EvaluationScore, Idea
from evaluation.scorers.selection import messages_of_agent
from evaluation.windows import MessageWindow
from tests.agents.turn.playing import take_turn
from tests.console import page_of, signed_in, superuser
from tests.correction.gating import gated
from tests.correction.judged_drafts import make_log, verdict
from tests.evaluation.measuring import evaluate_agent, evaluate_channel
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer, example_of
from tests.test_registry import never_speech, text_columns

NAME = "Marla Quint"
SAID = "My boiler has leaked since the third of March, and nobody came."
SHORT = "PIN 4711-0815"
QUOTE = f"{NAME} wrote “{SAID}”, that is “MY BOILER HAS  LEAKED\nSINCE the third of march”."
OTHER = "The parcels are in the hall."


def run(*args: str) -> Any:
    out = io.StringIO()
    call_command("forget", *args, "--json", stdout=out)
    return json.loads(out.getvalue())


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
    MemoryPassage.objects.create(agent=ada, run=turn, text=f"Remember: {SAID}")
    MemoryBlock.objects.create(agent=ada, run=turn, label="relationships", value=f"{NAME} is cross.")
    InterventionLog.objects.create(
        name="variety", agent=ada, channel=office, fired=True, why=f"{NAME} repeats herself", nudge=QUOTE,
        preconditions=[{"kind": "textual", "reasoning": QUOTE}],
    )  # fmt: skip
    eve = User.objects.create_user("eve")
    IdempotentRequest.objects.create(
        user=eve, key="k", method="POST", path="/", body_digest="", status=201, answer=json.dumps({"outsider": NAME})
    )
    GatedReply.objects.create(  # it crashed before it was stored
        user=eve, call_id="1", agent=ada, status="errored", finished_at=timezone.now(), error=QUOTE,
        context={"messages": [{"role": "user", "name": NAME, "text": SAID}]}, replies=[{"raw": QUOTE}],
    )  # fmt: skip
    GatedReply.objects.create(  # it is under way
        user=eve, call_id="2", agent=ada, context={"messages": [{"role": "user", "name": NAME, "text": SAID}]},
    )  # fmt: skip
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


def test_a_planted_person_is_nowhere_afterwards_and_the_numbers_stay_the_same(planted: Channel) -> None:
    before, numbered = kept_of(NAME, SAID, SHORT), numbers()
    tables = {place.split(".")[1] for place in before}
    planted_in = "Message Run RunMessage LLMPayload CorrectionLog GateDimensionResult EvaluationScore Idea ScoreLabel"
    planted_in += " MemoryPassage InterventionLog IdempotentRequest LogEntry GatedReply"
    assert set(planted_in.split()) <= tables

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

    client = signed_in(superuser())
    for model in (Message, Run, CorrectionLog, EvaluationScore, EvaluationRun, InterventionLog, LLMCall):
        row = model._default_manager.latest("pk")
        assert client.get(page_of(row)).status_code == 200, row
    assert client.get(page_of(planted, "transcript")).status_code == 200


def plain_row(model: type[Model], known: dict[type[Model], Model]) -> Model:
    """A row of this table with the words in each text, that refers to the rows which are known; what else it needs is made first.

    What can end has ended: work under way is left.
    """
    if model in known:
        return known[model]
    number = len(known)
    values: dict[str, Any] = {}
    silent = table_of(model).no_speech.split()
    for field in model._meta.concrete_fields:
        if field.primary_key or field.name in NOT_TOGETHER.get(model._meta.label, ()):
            continue
        if field.is_relation:
            if field.related_model not in (model, User, ContentType):
                values[field.name] = plain_row(field.related_model, known)  # type: ignore[arg-type]
            elif field.related_model is User and not field.null:
                values[field.name] = User.objects.get(username="eve")
        elif field.choices:
            allowed = [value for value, _ in field.flatchoices if value]
            values[field.name] = "completed" if "completed" in allowed else allowed[0]
        elif isinstance(field, CharField | TextField) and (never_speech(field) or field.name in silent):
            values[field.name] = f"x{number}"
        elif isinstance(field, JSONField) and field.name not in silent:
            values[field.name] = {"text": QUOTE, "list": [SAID, {"who": NAME, "n": 3}]}
        elif isinstance(field, CharField | TextField):
            values[field.name] = QUOTE[: field.max_length or None]
        elif isinstance(field, DateTimeField):
            values[field.name] = timezone.now()
        elif isinstance(field, UUIDField):
            values[field.name] = uuid4()
        elif isinstance(field, BinaryField):
            values[field.name] = SAID.encode()
        elif not field.null and not field.has_default():
            values[field.name] = 1  # a number, or a yes
    known[model] = model._default_manager.create(**{**values, **AS_IT_IS.get(model._meta.label, {})})
    return known[model]


# Columns that a row of a table must leave empty, and values that it must have.
NOT_TOGETHER: dict[str, tuple[str, ...]] = {
    "evaluation.EvaluationScore": ("count",),
    "evaluation.EvaluationRun": ("agent", "schedule", "swap_test"),
}
AS_IT_IS: dict[str, dict[str, Any]] = {
    "kit.IdempotentRequest": {"status": 201},
    "evaluation.EvaluationScore": {"status": "unscored"},
    "correction.GateSession": {"outcome": "passed"},
    "correction.GateDimensionResult": {"status": "trivial", "score": None, "mark": "", "passed": True},
}


@pytest.mark.django_db
def test_nothing_that_derives_from_their_messages_has_their_words_in_any_table() -> None:
    """One row of every table with rules, all its texts quoting the person: what is left are the columns that people type."""
    ada, office, eve = make_agent(), make_channel(), User.objects.create_user("eve")
    said = say(office, NAME, SAID)
    turn = Run.objects.create(agent=ada, channel=office, trigger=said, status="completed", finished_at=timezone.now())
    known: dict[type[Model], Model] = {Agent: ada, Channel: office, Message: said, Run: turn}
    known[PersonaVersion] = ada.persona_versions.get()
    ruled = {rule.of for rule in erasures()}
    for model in ruled - {Message, Run, LogEntry, UserPreferences}:  # the last are told by a user alone
        plain_row(model, known)
    Channel.objects.update(topic=QUOTE)
    Run.objects.update(prompt=QUOTE, error=QUOTE, trace=[{"stage": "gate", "why": QUOTE}])
    say(office, ada, QUOTE, run=turn)
    say(office, ada, QUOTE, parent=said)
    LogEntry.objects.create(
        user=eve, content_type=ContentType.objects.get_for_model(Message), object_id=str(said.pk), action_flag=2,
        object_repr=QUOTE, change_message=QUOTE,
    )  # fmt: skip
    typed = {f"{table.model._meta.label}.{name}" for table in tables().values() for name in table.typed.split()}
    words = (NAME, SAID, "boiler has leaked")
    with_texts = {rule.of._meta.label for rule in erasures() if rule.of not in (ImportChunk, UserPreferences)}
    assert with_texts <= {where.rpartition(".")[0] for where in kept_of(*words)}

    run("--outsider", NAME)

    assert {where.split()[0] for where in kept_of(*words)} <= typed
    assert not ImportChunk.objects.exists()
    assert not any(run("--outsider", NAME)["tables"].values())


@pytest.mark.django_db
def test_what_was_stopped_midway_is_finished_by_the_next() -> None:
    ada, office = make_agent(), make_channel()
    said = say(office, NAME, SAID)
    say(office, ada, f"You said: {SAID}", parent=said)
    turn = Run.objects.create(agent=ada, channel=office, status="completed", finished_at=timezone.now(), prompt=QUOTE)
    MemoryPassage.objects.create(agent=ada, run=turn, text=SAID)

    for erased in forget(find_outsider(NAME)):
        if erased.rule.of is Message:
            break  # killed
    assert {place.split()[0] for place in kept_of(SAID)}
    run("--outsider", NAME)

    assert kept_of(NAME, SAID) == set()


@pytest.mark.django_db
def test_words_and_name_of_users_go_and_accounts_close_only_if_asked() -> None:
    ada, office = make_agent(), make_channel()
    user = User.objects.create_user("marla", email="m@example.org", password="x", first_name="Marla", last_name="Quint")
    ApiToken.make(user=user, name="phone", expires_at=None)
    theirs = Message.objects.create(channel=office, position=99, user=user, text=SAID)
    say(office, ada, f"Dear {NAME}, noted.", parent=theirs)
    measured = EvaluationScore.objects.create(
        evaluation_run=ada.evaluation_runs.create(dimensions=["adherence"], judge="m"),
        dimension="adherence", proposition_id="p", claim="c",
    )  # fmt: skip
    ScoreLabel.objects.create(evaluation_score=measured, annotator="marla", user=user, value=4, note="I think so.")
    IdempotentRequest.objects.create(
        user=user, key="k", method="POST", path="/", body_digest="", status=201, answer="x"
    )
    SavedView.objects.create(owner=user, table="agents.agent", name=NAME, query="q=x", is_shared=True)

    run("--user", "marla")

    assert kept_of(NAME, SAID, "I think so") == set()
    user.refresh_from_db()
    assert (user.username, user.get_full_name(), user.is_active) == ("marla", "", True)
    assert (ScoreLabel.objects.get().value, IdempotentRequest.objects.count()) == (4, 0)
    assert not SavedView.objects.exists()

    run("--user", str(user.pk), "--deactivate")

    assert kept_of("marla", "m@example.org") == set()
    user.refresh_from_db()
    assert (user.is_active, user.has_usable_password(), ApiToken.objects.count()) == (False, False, 0)
    assert ScoreLabel.objects.get().annotator == user.username
    assert Message.objects.get(position=99).user == user


@pytest.mark.django_db
def test_a_users_debate_loses_its_question_and_quotes_and_keeps_its_rounds() -> None:
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
def test_a_namesake_elsewhere_keeps_words_and_answers_to_them_are_not_measured() -> None:
    ada, office, hall = make_agent(), make_channel(), make_channel("hall")
    said = say(office, "Marla", SAID)
    say(office, ada, "Yes, Marla.", parent=said)
    kept = say(office, ada, OTHER)
    say(hall, "Marla", OTHER)
    say(hall, "Otto", "Marla is right.")

    run("--outsider", "Marla", "--channel", "office")

    assert list(Message.objects.filter(channel=hall).values_list("outsider", "text")) == [
        ("Marla", OTHER),
        ("Otto", "Marla is right."),
    ]
    assert "Marla" not in Message.objects.get(parent=said).text
    assert [*messages_of_agent(agent=ada, window=MessageWindow())] == [kept]


@pytest.mark.django_db
def test_other_peoples_words_stay_and_a_search_for_the_name_shows_where() -> None:
    office = make_channel()
    said = say(office, NAME, SAID)
    other = say(office, "Otto", f"I know {NAME.upper()}, and her boiler.")
    answer = say(office, "Otto", f"{NAME}, be patient.", parent=said)
    calm = Intervention.objects.create(slug="calm", function="turn", nudge=f"When {NAME} writes, be kind.")
    run("--outsider", NAME)

    found = run("--outsider", NAME, "--search")

    places = {f"{place['table']}.{place['column']}": place["keys"] for place in found}
    assert places == {"messages.text": [answer.pk, other.pk], "interventions.nudge": [calm.pk]}
    assert SAID not in Message.objects.get(pk=said.pk).text


@pytest.mark.django_db
def test_what_was_written_before_they_came_or_elsewhere_stays() -> None:
    ada, office, hall = make_agent(), make_channel(), make_channel("hall")
    before = make_log(ada, {"adherence": 2.0}, text="Before.", channel=office, outcome="corrected")
    GateDimensionResult.objects.update(reasoning="It was too long.")
    said = say(office, NAME, SAID)
    after = make_log(ada, {"adherence": 2.0}, text=QUOTE, channel=office, outcome="corrected", feedback=QUOTE)
    elsewhere = make_log(ada, {"adherence": 2.0}, text="Elsewhere.", channel=hall)
    say(office, ada, "Not to them.", run=None)
    CorrectionLog.objects.filter(pk=before.pk).update(created_at=said.created_at - timedelta(hours=1))

    run("--outsider", NAME)

    texts = dict(CorrectionLog.objects.values_list("pk", "judged_text"))
    assert texts == {before.pk: "Before.", after.pk: ERASED, elsewhere.pk: "Elsewhere."}
    assert verdict(before).reasoning == "It was too long."
    assert Message.objects.get(agent=ada).text == "Not to them."


@pytest.mark.django_db
def test_a_turn_under_way_goes_on_and_is_erased_when_it_ends() -> None:
    ada, office = make_agent(), make_channel()
    said = say(office, NAME, SAID)
    turn = Run.objects.create(agent=ada, channel=office, trigger=said, status="running", prompt=QUOTE)
    prompt = RunMessage.objects.create(run=turn, number=1, role="user", content={"text": QUOTE})

    run("--outsider", NAME)
    prompt.refresh_from_db()
    assert prompt.content == {"text": QUOTE}

    Run.objects.update(status="completed", finished_at=timezone.now())
    run("--outsider", NAME)
    assert kept_of(NAME, SAID) == set()


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
