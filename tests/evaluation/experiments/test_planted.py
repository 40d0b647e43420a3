"""A planted gain and a planted harm, with an actor and a judge behind a loopback server that read nothing but text."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from pytest_django import Settings

from evaluation.experiments.measuring import judge_here
from evaluation.experiments.play import play
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.test_play import scenario
from tests.llm_server import LLMServer, example_of

pytestmark = pytest.mark.django_db

OWN_WORDS = "As I always say, a good wall needs a good neighbour."  # what the judge of adherence looks for
STUMBLE = "Well, er, um, you know, sort of."  # what the judge of fluency looks for


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "plain-model", "judge-model"
    settings.WORKER_THREADS = 1
    llm_server.respond = respond


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """An actor whose second model keeps to its own words but stumbles, and a judge who sees both in the text."""
    text = json.dumps(body["messages"], ensure_ascii=False)
    same = re.sub(r"[0-9a-f]{12}|talk-\d+-\d+|\d{4}-\d\d-\d\d \d\d:\d\d", "", text)  # whenever and wherever it is asked
    draw = int(hashlib.sha256(same.encode()).hexdigest(), 16)
    if body["model"] == "judge-model":
        return {"json": scored(example_of(body["output_config"]["format"]["schema"]), text, draw)}
    if "tools" not in body:
        return {"json": {"persona": f"You are one of the street, number {draw % 97}, and build walls."}}
    if "tool_result" in text:
        return {"text": "done"}
    said = f"Number {draw % 1000}: I would think about it once more."
    if body["model"] == "other-model":
        said = f"{said} {OWN_WORDS} {STUMBLE}"
    channel = re.search(r"talk-\d+-\d+", text)
    assert channel is not None
    return {"tool_calls": [("send_message", {"channel": channel.group(), "text": said})]}


def scored(answer: Any, text: str, draw: int) -> Any:
    """The answer with each value that the text deserves."""
    if isinstance(answer, list):
        return [scored(one, text, draw) for one in answer]
    if not isinstance(answer, dict):
        return answer
    of_fluency = "do not repeat the same" in text or "sound natural" in text
    value = (3 if STUMBLE in text else 7) if of_fluency else (7 if OWN_WORDS in text else 3)
    return {name: value + draw % 2 if name == "value" else scored(one, text, draw) for name, one in answer.items()}


def reported(*arms: dict[str, Any]) -> ExperimentReport:
    fields = {
        "population": {"size": 20, "about": "people of one street"},
        "environments": 10,
        "agents": 2,
        "steps": [{"says": "What should the street buy together?"}, {"says": "And what not?"}],
        "dimensions": [{"id": "adherence"}, {"id": "fluency"}],
    }
    experiment = play(start_experiment(scenario(arms=list(arms), **fields)))
    judge_here(experiment)
    experiment.refresh_from_db()
    return report(experiment)


def verdicts(shown: ExperimentReport) -> dict[str, str]:
    return {row.measure: row.verdict for row in shown.rows if row.measure in ("adherence", "fluency")}


OTHER = {"overrides": {"model": "other-model"}}


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (({"name": "north"}, {"name": "south", **OTHER}), {"adherence": "gain", "fluency": "harm"}),
        (({"name": "south", **OTHER}, {"name": "north"}), {"adherence": "harm", "fluency": "gain"}),
        (({"name": "north"}, {"name": "south"}), {"adherence": "no difference seen", "fluency": "no difference seen"}),
    ],
    ids=["treated", "arms swapped", "equal"],
)
def test_gain_and_harm_are_seen_with_their_signs_and_no_prompt_names_an_arm(
    arms: tuple[dict[str, Any], ...], said: dict[str, str], llm_server: LLMServer
) -> None:
    shown = reported(*arms)

    assert verdicts(shown) == said
    prompts = json.dumps([[body["system"], body["messages"]] for body in llm_server.bodies])
    assert not [name for name in ("north", "south", "treatment", "experiment") if name in prompts]
