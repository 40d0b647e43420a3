"""What is asked to be measured is refused with the same words, and explained with the same help, at every door."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.kit.models import ModelPrice
from evaluation.calibration.jobs import JudgeCheckRequest
from evaluation.drafting.jobs import SuggestionsRequest
from evaluation.models import EvaluationRun, Job
from evaluation.runs.control import MOST_OFFERED
from evaluation.runs.request import AgentsRequest
from tests.api_client import BASELINES, RUNS, program
from tests.console import superuser
from tests.doors import CommandDoor, Door, PageDoor, RouteDoor
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import OFFLINE
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db

YAML = "situations:\n  - {id: late, lines: [Where is my parcel?]}\n"
MANY_LINES = f"situations:\n  - {{id: a, lines: {['Hm.'] * 20}}}\n" + "".join(
    f"  - {{id: a{number}, lines: {['Hm.'] * 20}}}\n" for number in range(10)
)
FILE_OF_THE_SERVER = (
    "replay:/etc/passwd"  # refused where it is asked for from outside; a command may name its own files
)
Refusal = tuple[dict[str, Any], str, str]  # what is asked for, the field that is named, and a phrase of what is allowed

MEASURING: list[Refusal] = [
    ({"dimensions": ["charm"]}, "dimensions", "allowed: 'adherence', 'consistency'"),
    ({"dimensions": []}, "dimensions", "allowed: at least 1 item"),
    ({"window": "yesterday"}, "window", "allowed: all, last:N"),
    ({"history": "once"}, "history", "24h, 7d, 4w, before"),
    ({"where": {"9": "x"}}, "where", "allowed: keys of a letter"),
    ({"where": {f"k{number}": "x" for number in range(21)}}, "where", "allowed: at most 20 items"),
    ({"history_where": {"9": "x"}}, "history_where", "allowed: keys of a letter"),
    ({"samples": 0}, "samples", "allowed: greater than or equal to 1"),
    ({"samples": 2_001}, "samples", "allowed: less than or equal to 2000"),
    ({"samples": "many"}, "samples", "allowed: a valid integer"),
    ({"samples": 1_001, "repeats": 4}, "samples", "at most 1,000 with 4 repeats"),
    ({"repeats": 21}, "repeats", "allowed: less than or equal to 20"),
    ({"per_call": 11}, "per_call", "allowed: less than or equal to 10"),
    ({"seed": 2**63}, "seed", "allowed: less than or equal to 9223372036854775807"),
    ({"method": "magic"}, "method", "allowed: 'plumbline' or 'tinytroupe'"),
    ({"by": "day"}, "by", "allowed: 'position'"),
    ({"position_bins": "9-1"}, "position_bins", "allowed: up to 12 stretches of positions"),
    ({"position_bins": "1-2,3-4", "samples": 1}, "samples", "at least one for each of the 2 bins"),
    ({"additional_context": "winter"}, "additional_context", "expected a mapping"),
    ({"additional_context": "2026-01-01: winter"}, "additional_context", "names that are texts"),
    ({"additional_context": 'season: "\\0"'}, "additional_context", "NUL"),
    ({"additional_context": "season: .nan"}, "additional_context", "allowed: a JSON object"),
    ({"additional_context": f"season: {'[' * 950}{']' * 950}"}, "additional_context", "nested too deeply"),
    ({"judge": FILE_OF_THE_SERVER}, "judge", "allowed: offline:lexical-1"),
    ({"additional_context": {"a": "b" * 10_000}}, "additional_context", "allowed: a JSON object of at most 10,000"),
]
SIMULATING: list[Refusal] = [
    ({"simulate": "sometimes"}, "simulate", "allowed: 'never', 'auto' or 'always'"),
    ({"simulate": "always", "where": {"build": "41"}}, "simulate", "what was said before"),
    ({"situations": YAML, "where": {"build": "41"}}, "situations", "what was said before"),
    ({"situations": YAML, "window": "last:4"}, "situations", "what was said before"),
    ({"situations": "situations: 7\n"}, "situations", ":1: situations"),
    ({"situations": "situations: [{id: late}]\n"}, "situations", ":1: situations[0].lines"),
    ({"situations": MANY_LINES, "repeats": 20}, "situations", "at most 4,000"),
    ({"actor_model": "some-model"}, "actor_model", "is for simulations"),
    ({"situations": YAML, "actor_model": FILE_OF_THE_SERVER}, "actor_model", "allowed: the name of a model"),
]
CHECKING: list[Refusal] = [
    ({"dimensions": ["convergence"]}, "dimensions", "allowed: 'adherence'"),
    ({"samples": 2_001}, "samples", "allowed: less than or equal to 2000"),
    ({"agents": "nobody"}, "agents", "agents: ada"),
    ({"judge": FILE_OF_THE_SERVER}, "judge", "allowed: offline:lexical-1"),
]
SUGGESTING: list[Refusal] = [
    ({"max": 51}, "max", "allowed: less than or equal to 50"),
    ({"agents": "nobody"}, "agents", "agents: ada"),
    ({"model": FILE_OF_THE_SERVER}, "model", "allowed: offline:lexical-1"),
]
CAPTURING = [MEASURING[0], MEASURING[7], MEASURING[-2], SIMULATING[1], SIMULATING[4]]  # by the same model as measuring
USE_CASES = {
    "measure": [*MEASURING, *SIMULATING],
    "capture": CAPTURING,
    "check a judge": CHECKING,
    "suggest": SUGGESTING,
}


@pytest.fixture
def doors(root: Client, settings: Settings, propositions: PropositionFolder, tmp_path: Path) -> dict[str, list[Door]]:
    """The doors of each use case, to an agent with something to measure."""
    settings.JUDGE_MODEL = OFFLINE
    team = tmp_path / "team"
    team.mkdir()
    settings.PROPOSITION_DIRS = [team]
    propositions.claims("adherence/_default.yaml", "voice")
    ada, office = make_agent("ada", sample_lines=["Fine."]), make_channel("office")
    talk(ada, [f"Noted {number}." for number in range(12)], channel=office)
    api = program(superuser("eve"))

    def page(name: str, *args: object, **usual: Any) -> PageDoor:
        return PageDoor(root, reverse(f"admin:{name}", args=args), usual)

    measured = {"dimensions": ["adherence"], "judge": OFFLINE}
    return {
        "measure": [
            CommandDoor("evaluate", AgentsRequest, tmp_path),
            page("evaluation_agent_evaluate", ada.pk, **measured),
            RouteDoor(api, RUNS, {"agent": "ada"}),
        ],
        "capture": [
            CommandDoor("capture_baseline", AgentsRequest, tmp_path),
            page("evaluation_agent_capture", ada.pk, **measured),
            RouteDoor(api, BASELINES, {"agent": "ada"}),
        ],
        "check a judge": [
            CommandDoor("check_judge", JudgeCheckRequest, tmp_path),
            page("evaluation_job_check", **measured, agents="all"),
        ],
        "suggest": [
            CommandDoor("draft_propositions", SuggestionsRequest, tmp_path),
            page("evaluation_job_suggest", agents="all", model=OFFLINE),
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize("use_case", USE_CASES)
def test_every_door_refuses_by_field_with_what_is_allowed(doors: dict[str, list[Door]], use_case: str) -> None:
    fields = [(door, set(door.helps())) for door in doors[use_case]]
    for asked, field, allowed in USE_CASES[use_case]:
        is_local = FILE_OF_THE_SERVER in asked.values()
        having = [door for door, names in fields if set(asked) <= names]
        answers = [door.refusal(asked) for door in having if not (is_local and isinstance(door, CommandDoor))]
        assert answers, asked
        for named, sentence in answers:
            assert (named, allowed in sentence) == (field, True), (asked, sentence)

    assert not any(model.objects.exists() for model in (EvaluationRun, Job))


@pytest.mark.parametrize(
    ("use_cases", "least"), [(("measure", "capture"), 15), (("check a judge",), 4), (("suggest",), 3)]
)
def test_the_help_of_a_field_is_the_same_at_every_door(
    doors: dict[str, list[Door]], use_cases: tuple[str, ...], least: int
) -> None:
    helps = [door.helps() for use_case in use_cases for door in doors[use_case]]
    compared = 0
    for name in {name for known in helps for name in known}:
        texts = [known[name] for known in helps if name in known]
        compared += len(texts) > 1
        assert len(set(texts)) == 1, (name, texts)
        assert texts[0], name

    assert compared >= least


def test_of_many_judges_with_a_price_a_form_offers_the_first_and_takes_any(root: Client, doors: dict[str, Any]) -> None:
    price = {
        "effective_from": date(2026, 1, 1),
        "input_usd": 1,
        "output_usd": 1,
        "cache_write_usd": 1,
        "cache_read_usd": 1,
    }
    names = [f"model-{number:03}" for number in range(MOST_OFFERED + 1)]
    ModelPrice.objects.all().delete()
    ModelPrice.objects.bulk_create([ModelPrice(model=name, **price) for name in names])

    page = root.get(reverse("admin:evaluation_agent_evaluate", args=[make_agent("bob").pk])).content.decode()
    asked = AgentsRequest(agents="ada", judge=names[-1])

    assert (names[-2] in page, names[-1] in page, asked.judge) == (True, False, names[-1])
