"""Did the behaviour change? A request's trait on the messages before it and on the next ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.models import LLMCall, Message
from agents.persona import TraitValue, save_persona
from correction.behavior.applying import BehaviorError, apply_request, revert_request
from correction.behavior.effects import judge_request, outcome_as_json, plan_as_json, plan_request
from evaluation.change.before_after import judge_before_after
from tests.correction.behavior.measured import ask_for, clerk, reads, speak
from tests.correction.behavior.proposals import proposed
from tests.evaluation.judging import prompt_of
from tests.factories import say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_a_request_that_was_followed_shows_more_of_its_trait(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True)
    llm_server.respond = reads
    asked = len(llm_server.bodies)

    plan = plan_as_json(plan_request(request=request))
    assert len(llm_server.bodies) == asked, "an estimate asks nobody"
    outcome = judge_request(request=request)

    shown = outcome_as_json(outcome)
    assert (plan["waits"], plan["before"], plan["after"], plan["estimate"]["calls"]) == ("", 10, 10, 20)
    assert (shown["expected"], shown["verdict"], shown["as_requested"]) == ("more", "more", True)
    assert (shown["mean_before"], shown["mean_after"], shown["difference"]) == (0.0, 9.0, 9.0)
    assert shown["interval"][0] > 0
    assert shown["actual_calls"] == 20
    calls = LLMCall.objects.filter(purpose="before_after")
    assert {(c.work_id.partition("/")[0], c.agent_id) for c in calls} == {(request.work_id, agent.pk)}
    prompts = [prompt_of(body) for body in llm_server.bodies[asked:]]
    assert not any("<<<PERSONA" in prompt for prompt in prompts), "the same question on both sides"
    assert not any("Please use emoji" in prompt for prompt in prompts), "nobody tells the judge what to expect"
    assert [row["sample"] for row in shown["messages"]] == ["before"] * 10 + ["after"] * 10


def test_a_request_that_was_not_followed_shows_no_change(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.95)
    speak(agent, channel, "1", emoji=True)
    request = ask_for(llm_server, channel, "Stop using emoji.", 0.0)
    speak(agent, channel, "2", emoji=True)
    llm_server.respond = reads

    outcome = judge_request(request=request, n=5)

    assert (outcome.change.expected, outcome.found.verdict, outcome.as_requested) == ("less", "no change shown", False)


def test_too_few_messages_since_say_so_and_can_be_judged_all_the_same(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    assert plan_request(request=request).plan.waits == "not yet: 0 of 10 messages since"
    assert judge_request(request=request).found.reason == "not yet: 0 of 10 messages since"
    speak(agent, channel, "2", emoji=True, n=3)
    llm_server.respond = reads

    outcome = judge_request(request=request)

    assert outcome.change.plan.waits == "not yet: 3 of 10 messages since"
    assert (len(outcome.found.before), len(outcome.found.after), outcome.found.verdict) == (10, 3, "more")


def test_what_cannot_be_scored_is_seen_and_in_no_mean(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False, n=4)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=4)
    plan = plan_request(request=request, n=4).plan
    llm_server.respond = lambda body: {"status": 400}

    shown = outcome_as_json(judge_request(request=request, n=4))

    assert (shown["verdict"], shown["mean_before"], shown["mean_after"], shown["as_requested"]) == (
        "not enough data",
        None,
        None,
        None,
    )
    assert (shown["before_unscored"], shown["after_unscored"], shown["after_scored"]) == (4, 4, 0)
    assert all("rejected" in row["reason"] for row in shown["messages"])
    assert judge_before_after(plan).difference.reason


def test_offline_nothing_is_invented(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False, n=3)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=3)
    settings.JUDGE_MODEL = "offline:lexical-1"

    shown = outcome_as_json(judge_request(request=request, n=3))

    assert (shown["estimate"]["calls"], shown["before_unscored"], shown["after_unscored"]) == (0, 3, 3)
    assert "needs an LLM judge" in shown["messages"][0]["reason"]


def test_after_a_revert_only_the_messages_until_then_count(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=2)
    revert_request(request=request, user=None)
    speak(agent, channel, "3", emoji=False)

    found = plan_request(request=request)
    assert [m.tags["build"] for m in found.plan.after] == ["2", "2"]
    assert found.waits == "2 of 10 messages until it was reverted: there will be no more"


def test_the_messages_end_where_the_same_trait_is_changed_again_and_begin_there_for_the_next(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    first = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=4)
    other = proposed(agent)  # of another trait: nothing ends with it
    apply_request(request=other)
    speak(agent, channel, "3", emoji=True, n=2)
    second = ask_for(llm_server, channel, "Stop using emoji.", 0.0)
    speak(agent, channel, "4", emoji=False)

    found, next_one = plan_request(request=first), plan_request(request=second)

    assert [m.tags["build"] for m in found.plan.after] == ["2"] * 4 + ["3"] * 2
    assert found.waits == "6 of 10 messages until its trait was changed again: there will be no more"
    assert [m.tags["build"] for m in next_one.plan.before] == ["2"] * 4 + ["3"] * 2
    assert len(next_one.plan.after) == 10
    llm_server.respond = reads
    assert [judge_request(request=row).as_requested for row in (first, second)] == [True, True]


def test_a_person_s_edit_of_the_trait_ends_it_too(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=3)
    save_persona(agent=agent, traits=[TraitValue("emoji use", "Rarely.", 0.2, 0.1)], note="edited")
    speak(agent, channel, "3", emoji=False)

    assert [m.tags["build"] for m in plan_request(request=request).plan.after] == ["2"] * 3


def test_an_answer_belongs_to_the_persona_its_turn_began_with(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False, n=2)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    (reply,) = speak(agent, channel, "reply", emoji=False, n=1)  # its turn began before a worker had looked
    Message.objects.filter(pk=reply.pk).update(persona_version=request.persona_version_before)
    (late,) = speak(agent, channel, "2", emoji=True, n=1)
    Message.objects.filter(pk=late.pk).update(persona_version=request.persona_version)

    plan = plan_request(request=request).plan

    assert [m.tags["build"] for m in plan.before] == ["1", "1", "reply"]
    assert [m.tags["build"] for m in plan.after] == ["2"]


def test_blank_messages_and_those_without_a_time_are_on_neither_side(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    say(channel, agent, "When?")
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    say(channel, agent, " \n", sent_at=timezone.now())

    plan = plan_request(request=request).plan

    assert (plan.before, plan.after) == ((), ())


def test_what_was_never_applied_is_refused(settings: Settings, tmp_path: Path) -> None:
    agent, _ = clerk(settings, tmp_path / "p", 0.0)

    with pytest.raises(BehaviorError, match="nothing was changed"):
        plan_request(request=proposed(agent))


def test_the_number_of_messages_has_bounds(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    _, channel = clerk(settings, tmp_path / "p", 0.0)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)

    with pytest.raises(ValueError, match="n 0: allowed: 1 to 100"):
        plan_request(request=request, n=0)
