"""Specification 001: every acceptance criterion has a test named after it, and those that had none of their own have it here."""

from __future__ import annotations

import ast
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.seed import loader
from evaluation.change.models import Baseline
from evaluation.propositions.files import PropositionError, load_all, propositions_for
from evaluation.runs.summary import RunSummary
from evaluation.windows import parse_window
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import converse, diverse
from tests.evaluation.judging import answers, prompt_of
from tests.evaluation.measuring import evaluate_agent, evaluate_channel
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

TESTS = Path(__file__).resolve().parent.parent
STORIES = {0: 18, 1: 9, 2: 8, 3: 9, 4: 10, 5: 9, 6: 7}  # criteria per story of specification 001
CRITERIA = [f"6_{story}_{n}" for story, count in STORIES.items() for n in range(1, count + 1)] + ["6_0_3a"]


@cache
def test_names() -> dict[str, list[str]]:
    """Every test function of the suite, by criterion in its name."""
    found: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for criterion in re.findall(r"ac_(\d+_\d+_\d+[a-z]?)(?=_|$)", node.name):
                    found.setdefault(criterion, []).append(f"{path.name}::{node.name}")
    return found


test_names.__test__ = False  # type: ignore[attr-defined]  # a look-up, no test


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_criterion_has_a_test_named_after_it(criterion: str) -> None:
    assert test_names().get(criterion), f"no test is named ac_{criterion}"


@pytest.mark.parametrize(
    ("part", "criteria"),
    [
        ("YAML loading", ["6_0_2"]),
        ("template variables", ["6_0_3"]),
        ("parsing of replies", ["6_0_6"]),
        ("batch grouping, check() vs score()", ["6_0_4"]),
        ("rubric", ["6_0_5"]),
        ("double check", ["6_0_11"]),
        ("trajectory", ["6_0_12", "6_0_13"]),
        ("preconditions", ["6_0_15"]),
        ("hard mode", ["6_0_16"]),
    ],
)
def test_each_part_of_the_engine_has_tests_of_its_own_ac_6_0_17(part: str, criteria: list[str]) -> None:
    for criterion in criteria:
        assert test_names().get(criterion), part


# -- S-6.0
def test_files_are_read_from_their_folder_and_validated_ac_6_0_2(propositions: PropositionFolder) -> None:
    propositions.write(
        "adherence/ada.yaml",
        """
        dimension: adherence
        agent_id: ada
        propositions:
          - {id: dry, claim: "{{agent_name}} is dry"}
          - {id: gushes, claim: "{{agent_name}} gushes", inverted: true}
        """,
    )

    (file,) = load_all()
    assert (file.agent_id, file.dimension) == ("ada", "adherence")
    assert {p.id: p.inverted for p in propositions_for(agent_slug="ada", dimension="adherence")} == {
        "dry": False,
        "gushes": True,
    }

    propositions.write(
        "adherence/bob.yaml", "dimension: adherence\npropositions:\n  - {id: x, claim: y, inverted: perhaps}\n"
    )
    with pytest.raises(PropositionError, match=r"bob\.yaml.*inverted"):
        propositions_for(agent_slug="bob", dimension="adherence")


# -- S-6.2, S-6.4, S-6.6: each scorer on the two sets of its demo, with a judge that sees what they differ in
def judged(server: LLMServer, well: str, badly: str) -> None:
    """A judge that scores 8 what holds the text `well`, and 2 what holds `badly`; the shipped claims."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        score = 2 if badly in prompt_of(body) else 8 if well in prompt_of(body) else 5
        return answers(lambda claim: score)(body)

    server.respond = respond


def test_deliberate_drift_scores_lower_than_steadiness_ac_6_2_7(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    """The demo of S-6.2: Jim as ever, then Jim with another's words."""
    propositions.claims("consistency/_default.yaml", "same", extra="include_personas: false")
    judged(llm_server, well="Sure, why not", badly="False. As Assistant Regional Manager")
    past = [f"Sure, why not. It is only number {n}." for n in range(10)]
    found = {}
    for slug, now in (
        ("steady", [f"Sure, why not. Number {n} it is." for n in range(10)]),
        ("drifted", [f"False. As Assistant Regional Manager I forbid number {n}." for n in range(10)]),
    ):
        jim = make_agent(slug)
        talk(jim, [*past, *now], channel=make_channel(slug))
        found[slug] = evaluate_agent(agent=jim, dimensions=("consistency",), window=parse_window("last:10"))

    assert (found["steady"].overall_score, found["drifted"].overall_score) == (8.0, 2.0)
    assert found["drifted"].dimensions["consistency"].scored == 10, "a breakdown of ten pairs"


def test_a_conversation_is_scored_from_what_the_judge_answers_ac_6_4_9(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    text = "dimension: convergence\ntarget_type: environment\ninclude_personas: false\npropositions:\n"
    propositions.write("convergence/_default.yaml", text + "  - {id: apart, claim: 'voices of {{channel_name}}'}\n")
    judged(llm_server, well="aluminium", badly="circle back")
    alike = converse(make_channel("alike"), [(name, "Great, let's circle back.") for name in ("ada", "bea", "cyd")])

    apart: RunSummary = evaluate_channel(channel=diverse(), dimensions=("convergence",))
    together = evaluate_channel(channel=alike, dimensions=("convergence",))

    assert (apart.overall_score, together.overall_score) == (8.0, 2.0)
    pairs = [
        {frozenset(pair[:2]): pair[2] for pair in s.run.figures["convergence"]["pairs"]} for s in (apart, together)
    ]
    assert set(pairs[0]) == set(pairs[1]) == {frozenset(p) for p in (("ada", "bea"), ("ada", "cyd"), ("bea", "cyd"))}
    assert all(pairs[0][names] < pairs[1][names] for names in pairs[0])


def test_what_the_judge_lists_counts_and_what_it_cannot_list_does_not_ac_6_6_6(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    """The demo of S-6.6: ten messages, four ideas, two of them said twice; then a reply that is none."""
    text = "dimension: ideas_quantity\ntarget_type: environment\ninclude_personas: false\npropositions:\n"
    propositions.write("ideas_quantity/_default.yaml", text + "  - {id: ideas, claim: 'ideas of {{channel_name}}'}\n")
    room = converse(make_channel("storm"), [(("ada", "bea")[n % 2], f"What about plan {n % 8}?") for n in range(10)])
    named = ["A pond", "A boat", "A fair", "A choir", "a pond", "A boat on the pond"]

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if "<<<IDEAS" in prompt_of(body):
            return {"json": {"same": [{"idea": 5, "same_as": 2}]}}  # what is said twice in the same words stands once
        return {
            "json": {"ideas": [{"idea": idea, "description": "", "entries": [n]} for n, idea in enumerate(named, 1)]}
        }

    llm_server.respond = respond
    counted = evaluate_channel(channel=room, dimensions=("ideas_quantity",))
    llm_server.respond = lambda body: {"text": "So many ideas!"}
    uncounted = evaluate_channel(channel=room, dimensions=("ideas_quantity",), seed=1)

    assert counted.dimensions["ideas_quantity"].count == 4
    assert (uncounted.dimensions["ideas_quantity"].count, uncounted.overall_score) == (None, None)


@pytest.mark.slow
def test_all_seeded_agents_are_captured_or_those_named_ac_6_5_6(settings: Settings) -> None:
    """`npm run eval:baseline` of the specification is `manage.py capture_baseline` here."""
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()

    call_command("capture_baseline", "--dimensions", "fluency", "--json", stdout=StringIO())
    assert Baseline.objects.filter(dimension="fluency").count() == 16
    Baseline.objects.all().delete()
    call_command(
        "capture_baseline", "--agents", "michael,dwight", "--dimensions", "fluency", "--json", stdout=StringIO()
    )
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"michael", "dwight"}
