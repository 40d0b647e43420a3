"""An experiment that begins with a real conversation leaves it, and the agents, byte for byte as they were."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from pytest_django import Settings

from agents.kit.capability import capabilities
from agents.models import Agent, Channel, ChannelMember, MemoryBlock, MemoryPassage, Message, Reaction
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import respond, scenario
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

APPS = {"auth", *(app.label for app in capabilities())}


@pytest.fixture
def office(settings: Settings, llm_server: LLMServer) -> Channel:
    """A real conversation of four agents and a user, with memory and reactions; a model that uses every tool it has."""
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "judge-model", 1
    llm_server.respond = busy
    channel, zed = make_channel("office"), User.objects.create_user("zed")
    cast = [make_agent(slug) for slug in ("ada", "bob", "eve", "joe")]
    for agent in cast:
        ChannelMember.objects.create(channel=channel, agent=agent)
        MemoryBlock.objects.create(agent=agent, label="notes", value="I like walls.")
        MemoryPassage.objects.create(agent=agent, text="Once there was a wall.")
    for number in range(12):
        message = say(channel, cast[number % 4], f"Line {number} of the office.")
        Reaction.objects.create(message=message, agent=cast[0], emoji="+")
    Message.objects.filter(channel=channel, position=3).update(agent=None, user=zed)
    return channel


def busy(body: dict[str, Any]) -> dict[str, Any] | None:
    """Speaks here and in the real channel, reacts, and writes into its memory."""
    text = json.dumps(body["messages"], ensure_ascii=False)
    if "tools" not in body or "tool_result" in text:
        return respond(body)
    here = re.search(r"talk-\d+-\d+", text)
    assert here is not None
    return {
        "tool_calls": [
            ("send_message", {"channel": here.group(), "text": "I would build a wall."}),
            ("send_message", {"channel": "office", "text": "I would build it in the office."}),
            ("react_to_message", {"message": 2, "emoji": "!"}),
            ("update_memory", {"label": "notes", "value": "I dislike walls."}),
            ("store_memory", {"text": "They asked me again."}),
        ]
    }


def rows() -> dict[str, dict[Any, dict[str, Any]]]:
    return {
        model._meta.label: {row[model._meta.pk.attname]: row for row in model._base_manager.values()}
        for model in apps.get_models()
        if model._meta.managed and model._meta.app_label in APPS
    }


@pytest.mark.slow
def test_the_real_conversation_and_the_agents_stay_byte_for_byte(office: Channel, llm_server: LLMServer) -> None:
    before = rows()
    experiment = start_experiment(
        scenario(population=None, cast=["ada", "bob", "eve", "joe"], start_from="office@8", repeats=2)
    )
    judge_here(play(experiment))
    experiment.refresh_from_db()

    assert report(experiment).unfinished == ""
    after = rows()
    changed = {
        (name, key) for name, known in before.items() for key, row in known.items() if after[name].get(key) != row
    }
    assert changed == set()
    for label, known in before.items():
        if label.partition(".")[2] in ("MemoryBlock", "MemoryPassage", "PersonaVersion", "Trait", "DialogState"):
            assert len(after[label]) == len(known)
    assert [row for row in after["agents.Message"].values() if row["channel_id"] == office.pk] == [
        row for row in before["agents.Message"].values() if row["channel_id"] == office.pk
    ]
    assert not [row for row in after["agents.Run"].values() if row["channel_id"] == office.pk]
    assert ChannelMember.objects.filter(channel=office).count() == 4


def test_an_environment_begins_with_what_was_said_up_to_there(office: Channel) -> None:
    experiment = play(
        start_experiment(scenario(population=None, cast=["ada", "bob", "eve", "joe"], start_from="office@8"))
    )

    for environment in experiment.environments.all():
        said = list(Message.objects.filter(channel=environment.channel).order_by("position"))
        assert [one.position for one in said] == list(range(1, len(said) + 1))
        assert [one.text for one in said[:8]] == [f"Line {number} of the office." for number in range(8)]
        assert said[8].text == "What should the street buy together?"
        assert all(one.synthetic for one in said)
    assert Agent.objects.filter(synthetic=True).count() == 0


def test_what_was_said_before_is_neither_measured_nor_counted(office: Channel) -> None:
    experiment = start_experiment(
        scenario(population=None, cast=["ada", "bob", "eve", "joe"], start_from="office@8", agents=4, environments=1)
    )
    judge_here(play(experiment))
    experiment.refresh_from_db()

    shown = report(experiment)
    assert [arm.messages for arm in shown.arms] == [8, 8]
    silence = next(row for row in shown.rows if row.measure == "silence")
    assert silence.treatment.mean == 0


def test_forgetting_a_person_erases_their_words_in_the_copies_too(office: Channel) -> None:
    said = "My boiler has leaked since the third of March."
    say(office, "Marla Quint", said)
    experiment = start_experiment(scenario(population=None, cast=["ada", "bob", "eve", "joe"], start_from="office@13"))
    judge_here(play(experiment))
    assert Message.objects.filter(text=said).count() == 1 + experiment.environments.count()

    call_command("forget", "--outsider", "Marla Quint", "--json", stdout=io.StringIO())

    remaining = json.dumps(rows(), default=str)
    assert said not in remaining
    assert "Marla Quint" not in remaining
    experiment.refresh_from_db()
    assert report(experiment).unfinished == ""
