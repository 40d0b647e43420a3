"""``manage.py demo`` tells one story on a screen; with its scenes no page of the console is empty, and all of it can be removed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import StringIO
from typing import NamedTuple

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, get_commands
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker

from agents.kit.registry import table_of
from agents.kit.text.wording import day_text
from agents.models import Agent, Channel, Message
from agents.seed import Demo
from correction.behavior.models import BehaviorRequest
from correction.demo import GATE_CHANNEL
from correction.interventions.models import InterventionLog
from correction.models import CorrectionLog, GateSession, ObservedMessage
from evaluation.calibration.models import ScoreLabel
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun
from tests.console import list_of, plain, read, signed_in, superuser
from tests.factories import make_agent
from tests.once import rows_for_all

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

# Empty at the start, and why.
EMPTY = {
    "evaluation.proposition": "its page reads files",
    "kit.llmbatch": "batches need a model",
    "alerts.receiver": "a person says where alerts are to be sent",
    "alerts.delivery": "nothing is sent without a receiver",
    "sending.scoredelivery": "nothing is sent where the settings name no receiver",
    "sending.scorereceiver": "the settings name them",
    "agents.import": "an import belongs to the account that uploads it",
    "kit.workerheartbeat": "`make run` starts a worker",
    "kit.apitoken": "a token belongs to an account",
    "litellm.gatedreply": "nothing comes through LiteLLM",
    "change.judgesentinel": "an offline judge cannot change behind its name",
}


SCENES_SHOW = ("debates.debate", "swarm.swarmturn", "experiments.experiment")  # tables that the story leaves empty


class Told(NamedTuple):
    story: str
    rows: dict[str, int]  # after the story, before the scenes


@pytest.fixture(scope="module", autouse=True)
def demo(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Told]:
    """The demo's story, then all its scenes."""
    with rows_for_all(django_db_blocker, JUDGE_MODEL="offline:lexical-1", WORKER_THREADS=1):
        told = Told(printed("demo"), counts())
        printed("demo", "--scene", "all")
        yield told


def printed(*words: str) -> str:
    """What a command prints on a terminal of 100 columns."""
    out = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        call_command(*words, stdout=out)
    return out.getvalue()


def counts() -> dict[str, int]:
    """Rows by table, of all that have a list in the console."""
    return {model._meta.label_lower: model._default_manager.count() for model in admin.site._registry}


def test_the_story_fits_on_a_screen_and_names_who_drifted_with_the_message_that_shows_it(demo: Told) -> None:
    lines = demo.story.strip().splitlines()
    text = " ".join(demo.story.split())

    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    for slug in ("michael", "jim", "stanley", "kevin", "dwight", "angela"):
        assert Agent.objects.get(slug=slug).display_name in text
    began = Message.objects.filter(agent__slug="michael", tags__build="41").earliest("sent_at")
    assert began.sent_at is not None
    assert f"since build 41, {day_text(began.sent_at)}" in text
    quoted = re.findall(r"now, scored \d “(.*?)”", text)
    assert Message.objects.filter(agent__slug="michael", tags__build="41", text=quoted[0]).exists()
    assert "heuristic" in text


def test_the_story_shows_one_message_at_the_gate_and_commands_that_exist(demo: Told) -> None:
    text = " ".join(demo.story.split())
    session = GateSession.objects.get(channel__slug=GATE_CHANNEL)

    assert list(session.logs.order_by("attempt").values_list("outcome", flat=True)) == [
        "corrected",
        "passed_after_retry",
    ]
    assert session.message is not None
    assert session.message.text in text
    commands = re.findall(r"manage\.py ([a-z_]+) ", text.partition("Next")[2])
    assert len(commands) >= 3
    assert set(commands) - {"stands"} <= set(get_commands())


def test_the_story_plays_no_scene(demo: Told) -> None:
    assert {label: demo.rows[label] for label in SCENES_SHOW} == dict.fromkeys(SCENES_SHOW, 0)
    assert all(counts()[label] for label in SCENES_SHOW)


def test_a_scene_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(CommandError, match=r"correction.*debate.*swarm.*experiment"):
        call_command("demo", "--scene", "opera")


def test_every_list_but_those_named_has_rows_and_says_what_fills_it() -> None:
    assert {label for label, rows in counts().items() if not rows} == set(EMPTY)

    client = signed_in(superuser())
    for label in EMPTY.keys() - {"evaluation.proposition"}:
        model = apps.get_model(label)
        assert table_of(model).empty.split(".")[0] in plain(read(client, list_of(model))), label
    assert all(table_of(model).empty for model in admin.site._registry)


def test_a_schedule_measured_twelve_times_and_saw_michael_lose_his_voice() -> None:
    runs = EvaluationRun.objects.filter(schedule__name=Demo.SCHEDULE, agent__slug="michael").order_by("window_end")
    scores = [run.overall_score for run in runs if run.overall_score is not None]

    assert len(runs) == 12
    assert len({run.window_end for run in runs}) == 12
    assert min(scores[:5]) > 7 > 3 > max(scores[-4:])


def test_each_planted_fall_raised_one_alert_where_build_41_began() -> None:
    alerts = list(DriftAlert.objects.order_by("agent__slug"))

    assert [(alert.agent.slug, alert.dimension) for alert in alerts] == [
        *((slug, "adherence") for slug in ("angela", "dwight")),
        ("jim", "fluency"),
        *((slug, "adherence") for slug in ("kevin", "michael", "stanley")),
    ]
    for alert in alerts:
        first = alert.agent.messages.filter(tags__build="41").earliest("sent_at")
        assert alert.since == first.sent_at


def test_an_ordinary_channel_has_checked_and_observed_messages_and_a_waiting_request() -> None:
    channel = Channel.objects.get(slug=Demo.CHANNEL)
    logs = CorrectionLog.objects.filter(session__channel=channel)

    assert not channel.synthetic
    assert not channel.messages.filter(tags__has_key="build").exists(), "builds are measured without it"
    assert list(logs.order_by("pk").values_list("outcome", flat=True)) == [
        *("passed", "corrected", "passed_after_retry", "observed", "observed")
    ]
    assert set(ObservedMessage.objects.values_list("status", flat=True)) == {"completed"}
    assert BehaviorRequest.objects.get().status == "pending_review"
    assert InterventionLog.objects.filter(fired=True, channel=channel).count() == 1


def test_fewer_labels_are_given_than_an_agreement_is_shown_of() -> None:
    assert 0 < ScoreLabel.objects.count() < 20


def test_running_it_again_tells_the_same_and_adds_nothing_also_beside_an_agent_of_your_own(demo: Told) -> None:
    make_agent("hugo")
    before = counts()

    assert printed("demo") == demo.story
    assert printed("demo", "--scene", "all").count("Shown before") == 4
    assert counts() == before


def test_the_examples_go_with_all_the_demo_made_only_when_sure() -> None:
    before = counts()
    call_command("seed", "--remove", stdout=StringIO())
    assert counts() == before

    call_command("seed", "--remove", "--yes", stdout=StringIO())

    left = {label for label, rows in counts().items() if rows}
    kept = "kit.llmcall kit.modelprice swarm.swarm auth.group auth.user correction.agentevaluationconfig calibration.judgecalibration"
    assert left == set(kept.split())
    assert not Agent.objects.exists()


def test_a_token_for_admin_can_be_made_at_once() -> None:
    out = StringIO()

    call_command("make_token", "admin", "--quiet", stdout=out)

    headers = {"Authorization": f"Token {out.getvalue().strip()}"}
    assert Client().get("/api/agents/", headers=headers, secure=True).status_code == 200
    assert not User.objects.get(username="admin").has_usable_password()


def test_the_labels_disagree_with_the_judge_now_and_then() -> None:
    out = StringIO()

    call_command("calibrate_judge", "--json", stdout=out)

    (calibration,) = json.loads(out.getvalue())["calibrations"]
    assert calibration["annotators"] == 2
    assert 0.3 < calibration["kappa"]["value"] < 1
    assert 0.3 < calibration["people_alpha"]["value"] < 1
