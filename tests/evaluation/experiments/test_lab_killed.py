"""A laboratory whose process is killed again and again ends with the report that it would have had; its conversation stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.experiments import drifting
from tests.evaluation.experiments.playing import scored
from tests.evaluation.experiments.test_killed import (
    DEATHS,
    Installation,
    differing,
    killed_again_and_again,
    moments,
    played_in_peace,
    question,
)
from tests.llm_server import LLMServer, example_of

TALK = """
import json, django; django.setup()
from agents.models import ChannelMember
from tests.factories import make_agent, make_channel, say
channel, ada = make_channel("street"), make_agent("ada")
ChannelMember.objects.create(channel=channel, agent=ada)
for turn in range(1, 9):
    say(channel, "Kim", f"Question {turn}: what now?")
    say(channel, ada, f"I would build a wall there ({turn}).")
print(json.dumps(channel.pk))
"""
MAKE = """
import json, django; django.setup()
from evaluation.experiments.lab import LabRequest, request_lab
asked = {"channel": "street", "at": 12, "arms": "reminder", "turns": 3, "repeats": 2, "asks": 2}
asked["questions"] = "questions: [{id: name, text: What is your name?}, {id: rules, about: rule, text: Which rules do you follow?}]"
print(json.dumps(request_lab(LabRequest.model_validate(asked)).pk))
"""
LOOK = """
import hashlib, json, re, sys, django; django.setup()
from agents.models import Channel, Message, Run
from evaluation.experiments.measuring import evaluations
from evaluation.experiments.models import Experiment
from evaluation.models import EvaluationScore
experiment = Experiment.objects.get(pk=int(sys.argv[1]))
environments = list(experiment.environments.select_related("channel").order_by("pk"))
slugs = [slug for one in environments for slug in (one.channel.slug, f"{one.channel.slug}-questions")]
street = Channel.objects.get(slug="street")
print(json.dumps({
    "said": [list(Message.objects.filter(channel__slug=slug).order_by("position").values_list("text", flat=True)) for slug in slugs],
    "answers": [one.answers for one in environments],
    "turns": Run.objects.filter(channel__slug__in=slugs).count(),
    "judgements": EvaluationScore.objects.filter(evaluation_run__in=evaluations(experiment)).count(),
    "state": experiment.state,
    "report": re.sub("talk-[0-9]+-", "talk-", json.dumps(dict(experiment.report, id=0))),
    "street": hashlib.sha256(repr([list(Channel.objects.filter(pk=street.pk).values()), list(street.messages.order_by("pk").values())]).encode()).hexdigest(),
}))
"""  # noqa: E501


@pytest.fixture
def installation(tmp_path: Path, database_url: str, llm_server: LLMServer) -> Iterator[Installation]:
    models = {"ACTOR_MODEL": "plain-model", "JUDGE_MODEL": "judge-model"}
    installed = Installation(tmp_path, database_url, llm_server, LLM_MAX_CONCURRENCY="4", **models)
    yield installed
    installed.plumbline.stop()


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """The drifting actor, and a judge whose scores follow from what it is asked."""
    if body["model"] != "judge-model":
        return drifting.actor(works_for=2)(body)
    answer = example_of(body["output_config"]["format"]["schema"])
    if isinstance(answer.get("value"), bool):
        return drifting.judge(body)
    prompt = question(body)
    return {"json": scored(answer, prompt, len(prompt))}


@pytest.mark.slow
def test_a_laboratory_that_is_killed_again_and_again_has_the_same_report(
    installation: Installation, llm_server: LLMServer
) -> None:
    llm_server.respond = respond
    installation.asks(TALK)
    calm = installation.asks(MAKE)
    killed = installation.asks(MAKE)
    untouched = json.loads(json.dumps(installation.asks(LOOK, calm)))["street"]
    writes = played_in_peace(installation, calm)

    killed_again_and_again(installation, killed, moments(DEATHS, writes))

    expected, result = installation.asks(LOOK, calm), installation.asks(LOOK, killed)
    assert expected["state"] == "reported"
    assert json.loads(expected["report"])["lab"]["arms"][0]["answers"]["pairs"] == 4
    assert differing(expected, result) == {}
    assert result["street"] == untouched
