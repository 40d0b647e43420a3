"""What a request for a check of a draft may not say: each refusal names the place and what is allowed, and nobody is asked."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from correction.models import CorrectionLog
from tests.api_client import Program, program
from tests.console import superuser
from tests.correction.checking import ASKED, CHECKS, TRAJECTORY, refused
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(db: None) -> Program:
    return program(superuser())


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"agent": "ada"}, "persona", "exactly one of them; both"),
        ({"persona": None}, "persona", "exactly one of them; none"),
        ({"persona": None, "agent": "nobody"}, "agent", "no agents yet"),
        ({"persona": 7}, "persona", "a text, or an object"),
        ({"persona": {"name": "Ada"}}, "persona", "persona.system_prompt is missing"),
        ({"persona": {"system_prompt": "x", "age": 7}}, "persona", "there is no field 'age'"),
        ({"persona": {"system_prompt": "x", "traits": [{"name": "dry", "strength": 3}]}}, "persona", "from 0 to 1"),
        ({"persona": "x" * 60_001}, "persona", "60000"),
        ({"draft": "  "}, "draft", "not only white space"),
        ({"draft": "a\x00b"}, "draft", "NUL"),
        ({"draft": "x" * 100_001}, "draft", "100,000"),
        ({"trajectory": [{"name": "Bob", "text": "Hi"}]}, "trajectory", "trajectory[0]"),
        ({"trajectory": [{"name": "Bob", "text": "Hi", "kind": "shout"}]}, "trajectory", "action or stimulus"),
        ({"trajectory": [{"name": "Bob", "text": "a\x00", "kind": "action"}]}, "trajectory", "NUL"),
        ({"trajectory": [TRAJECTORY[0]] * 501}, "trajectory", "at most 500"),
        ({"dimensions": ["convergence"]}, "dimensions", "adherence, consistency, fluency"),
        ({"thresholds": {"fluency": 9.5}}, "thresholds", "0 to 9"),
        ({"thresholds": {"fluency": True}}, "thresholds", "numbers"),
        ({"thresholds": {"charm": 5}}, "thresholds", "adherence, consistency, fluency"),
        ({"deadline_seconds": 0}, "deadline_seconds", "from 0.1 to 60"),
        ({"session": "7"}, "session", "not known"),
        ({"session": str(uuid.uuid4())}, "session", "not known"),
        ({"session": str(uuid.uuid4()), "attempt": 2}, "attempt", "which counts the attempts"),
        ({"attempt": 21}, "attempt", "1 to 20"),
        ({"tags": {"1": "x"}}, "tags", "keys of a letter"),
        ({"colour": "red"}, "colour", "there is no field"),
    ],
)
def test_what_is_not_understood_is_a_400_that_says_what_is_allowed(
    client: Program, llm_server: LLMServer, changes: dict[str, Any], field: str, told: str
) -> None:
    assert told in refused(client, **changes)[field][0]
    assert llm_server.calls == CorrectionLog.objects.count() == 0


def file_of(**fields: Any) -> list[dict[str, Any]]:
    return [{"dimension": "adherence", "propositions": [{"id": "own", "claim": "c", **fields}]}]


@pytest.mark.parametrize(
    ("propositions", "told"),
    [
        ([7], "[0]: allowed: an object"),
        ([{"dimension": "adherence"}], "[0].propositions: is required"),
        ([{"dimension": "convergence", "target_type": "environment",
           "propositions": [{"id": "a", "claim": "c"}]}], "allowed of a draft"),
        ([{"agent_id": "ada", **file_of()[0]}], "leave it out"),
        (file_of(weigth=2), "unknown field; allowed: id, claim, weight"),
        (file_of(weight=9), "weight"),
        (file_of(rule={"matches": "(a+)+$"}), "regular expressions stand in files only"),
        (file_of(rule={"contains_any": ["/(a+)+$/"]}), "regular expressions stand in files only"),
        (file_of(cues={"supports": ["/(a+)+$/"]}), "regular expressions stand in files only"),
        (file_of(rule={"contains_any": ["x"] * 201}), "at most 200"),
        ([{"dimension": "adherence", "propositions": [{"id": f"p{n}", "claim": "c"} for n in range(21)]}], "at most 20"),
        ([{"dimension": "fluency", "propositions": [{"id": "a", "claim": "c"}]}], "not among the dimensions"),
    ],
)  # fmt: skip
def test_propositions_are_read_like_files_and_within_bounds(
    client: Program, llm_server: LLMServer, propositions: list[Any], told: str
) -> None:
    assert told in refused(client, propositions=propositions)["propositions"][0]
    assert llm_server.calls == 0


def test_a_body_that_would_cost_much_is_refused_before_it_is_read(client: Program) -> None:
    answer = client.post(CHECKS, {**ASKED, "trajectory": [{**TRAJECTORY[0], "text": "x" * 90_000}] * 6})

    assert answer.status_code == 413
