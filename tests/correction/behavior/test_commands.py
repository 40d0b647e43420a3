"""``detect_behavior``: what a message would change."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent, PersonaVersion
from agents.personas.persona import TraitValue
from correction.behavior.models import BehaviorRequest
from correction.models import AgentEvaluationConfig
from tests.correction.behavior.asking import CONCISE, SHORTER, YES, judge, traits_of
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
KNOWN = TraitValue("long answers", "Leaves nothing out.", 0.4, 0.7)


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", traits=[KNOWN])


def shown(*arguments: str, code: int = 0) -> str:
    out = io.StringIO()
    if not code:
        call_command("detect_behavior", *arguments, "--agent", "ada", stdout=out)
        return out.getvalue()
    with pytest.raises(SystemExit) as ended:
        call_command("detect_behavior", *arguments, "--agent", "ada", stdout=out)
    assert ended.value.code == code
    return out.getvalue()


def data(*arguments: str, code: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(shown(*arguments, "--json", code=code))
    return result


def test_tiers_decision_and_persona_are_shown_and_nothing_is_changed(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()

    text = shown("Be more concise")

    for part in (
        "A message to Ada", "yes, confidence high. It asks for something.", "behavior_name: long answers", "name: concise answers",
        "It would be applied automatically.", "After: concise answers, strength 0.5: Says it in as few words as will do.",
        "Judge: test-model; 3 calls, unpriced. Nothing was changed.",
    ):  # fmt: skip
        assert part in text
    assert traits_of(ada) == {"long answers": 0.7}
    assert (BehaviorRequest.objects.count(), PersonaVersion.objects.count()) == (0, 1)


ESCAPES = "\x1b]0;owned\x07 \x1b[2J\u202e\x9b1m"


def test_text_of_models_and_personas_has_no_effect_in_the_terminal(llm_server: LLMServer) -> None:
    make_agent("ada", display_name=f"Ada{ESCAPES}", traits=[TraitValue(f"long answers {ESCAPES}", ESCAPES, 0.4, 0.7)])
    llm_server.respond = judge(
        gate={**YES, "reason": f"[bold red]It says[/] {{{{ 1 }}}} {ESCAPES}"},
        extract={**SHORTER, "requested_change": ESCAPES},
        map={**CONCISE, "contradicts_persona": True, "contradiction": ESCAPES},
    )

    text = shown("Be more concise")

    assert not set(text) & set("\x1b\x07\u202e\x9b")
    assert "<U+001B>" in text
    assert "[bold red]It says[/] {{ 1 }}" in text


def test_it_says_what_was_not_read(ada: Agent, llm_server: LLMServer) -> None:
    result = data("> always shout")

    assert (result["judge"], result["has_request"], llm_server.calls) == ("rule", False, 0)
    assert result["warnings"] == ["14 characters of quoted text ask for nothing: another author wrote them"]
    assert "No change is asked for." in shown("> always shout")
    assert "88,000 characters in the middle of the message were not read" in data("x" * 100_000)["warnings"]


def test_who_writes_decides(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    AgentEvaluationConfig.objects.create(agent=ada, behavior_requesters="named", behavior_named_requesters=["zed"])

    assert data("Be brief", "--user", "zed")["decision"]["verdict"] == "apply"
    assert data("Be brief", "--user", "yan")["decision"]["verdict"] == "drop"
    AgentEvaluationConfig.objects.update(behavior_requesters="members")
    assert data("Be brief")["decision"]["verdict"] == "apply"
    assert "only members may ask" in data("Be brief", "--outsider")["decision"]["reasons"][0]


def test_what_it_says_of_where_a_request_would_hold_fits_who_writes(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    AgentEvaluationConfig.objects.create(agent=ada, behavior_requesters="anyone")
    User.objects.create_superuser("edi")
    assert data("Be brief", "--user", "edi")["scope"] == "persona"
    assert data("Be brief", "--user", "edi", "--outsider")["scope"] == "person"
    assert "towards this person only" in shown("Be brief", "--user", "edi", "--outsider")

    AgentEvaluationConfig.objects.update(behavior_requesters="members")
    refused = shown("Be brief", "--outsider")

    assert "Nothing would come of it" in refused
    assert "It would hold" not in refused


def test_the_limit_of_a_day_is_that_of_where_a_request_would_hold(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    AgentEvaluationConfig.objects.create(agent=ada, behavior_requesters="anyone", behavior_daily_limit=1)
    User.objects.create_superuser("edi")
    amy = User.objects.create_user("amy")
    trait = {"name": "puns", "description": "", "sentiment": 0.0, "strength": 0.5}
    made = {"agent": ada, "status": "applied", "automatic": True, "applied_at": timezone.now()}
    office = make_channel()
    made |= {"operation": "add", "trait_name": "puns", "trait_after": trait}

    BehaviorRequest.objects.create(message=say(office, ada, "Hello."), scope_key="", **made)
    assert data("Be brief", "--user", "edi")["decision"]["verdict"] == "review"
    assert data("Be brief", "--user", "amy")["decision"]["verdict"] == "apply"
    assert data("Be brief")["decision"]["verdict"] == "apply"

    BehaviorRequest.objects.create(message=say(office, ada, "Yes?"), scope_key=f"user:{amy.pk}", **made)
    assert "behavior_daily_limit" in data("Be brief", "--user", "amy")["decision"]["reasons"][0]


def test_a_model_that_does_not_answer_is_an_exit_code(ada: Agent, llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    llm_server.always(status=529)

    result = data("Be brief", code=2)

    assert result["failure"].startswith("gate: unavailable: ")
    assert (result["has_request"], result["calls"]) == (False, 1)
    assert "No answer. gate: unavailable" in shown("Be brief", code=2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["Be brief", "--agent", "adda"], "there is no agent 'adda'; did you mean ada?"),
        (["  ", "--agent", "ada"], "the text is empty"),
        (["x" * 100_001, "--agent", "ada"], "the text has 100,001 characters"),
        (["a\x00b", "--agent", "ada"], "NUL character"),
    ],
)
def test_wrong_input_is_refused_in_words(ada: Agent, arguments: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        call_command("detect_behavior", *arguments)

    assert refused.value.returncode in (2, 3)


def test_a_text_comes_from_standard_input(ada: Agent, llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    llm_server.respond = judge()
    monkeypatch.setattr("sys.stdin", io.StringIO("Be more concise\n"))

    assert data("-")["has_request"] is True
    assert "Be more concise\n<<<END" in llm_server.bodies[0]["messages"][0]["content"][0]["text"]
