"""Where a request holds: the whole persona, its channel alone, or towards the person who asked alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.chat import ask, begin_chat, delete_chat
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.personas.persona import TraitValue
from agents.turn.prompt import preview_prompt
from agents.turn.receive import receive_message
from correction.behavior.applying import BehaviorError, apply_request, revert_request
from correction.behavior.models import BehaviorRequest, DescriptionUpdate
from correction.behavior.scope import holds_in
from correction.behavior.work import work_one
from correction.gate.observe import judge_later
from correction.gate.observe import work_one as observe_one
from correction.models import AgentEvaluationConfig
from evaluation.runs.estimate import estimate
from evaluation.runs.spec import RunSpec
from tests.api_client import program
from tests.console import signed_in, superuser
from tests.correction.behavior.asking import CONCISE, dm_with, judge, traits_of, write
from tests.correction.gating import judge as gate_judge
from tests.correction.gating import send
from tests.evaluation.judging import answers, prompt_of, tail_of
from tests.evaluation.measuring import evaluate_agent
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
PIRATE = {**CONCISE, "name": "pirate talk", "description": "Talks like a pirate."}


def asked(server: LLMServer, channel: Channel, text: str = "Talk like a pirate", **by: Any) -> BehaviorRequest:
    """A request that a worker read, of Zed unless somebody else asks."""
    server.respond = judge(**({"map": PIRATE} | by.pop("answers", {})))
    message = write(channel, text, **by)
    assert work_one(owner="w")
    request: BehaviorRequest = BehaviorRequest.objects.get(message=message)
    return request


def another_channel(agent: Agent) -> Channel:
    channel = make_channel("elsewhere", kind="dm")
    ChannelMember.objects.create(channel=channel, agent=agent)
    return channel


def shown(agent: Agent, channel: Channel, *, to: Message | None = None) -> list[str]:
    """The traits asked for there that the agent is shown, by their lines."""
    prompt = preview_prompt(agent=agent, channel=channel, trigger=to)
    bodies = [section.body for section in prompt.sections if section.stage == "behavior"]
    return [line for body in bodies for line in body.splitlines() if line.startswith(("- ", "### "))]


def said(channel: Channel, *, outsider: str = "", user: User | None = None) -> Message:
    return receive_message(channel=channel, outsider=outsider, user=user, text="Hello!")


def in_group(name: str) -> User:
    """A user of the group, with its name."""
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=name.title()))
    return user


LINES = ["### Sometimes", "- pirate talk: Talks like a pirate."]


@pytest.mark.parametrize(
    ("who", "config", "held"),
    [
        ("editor", {}, "the whole persona"),
        ("operator", {}, "only towards operator"),
        ("outsider", {}, "only towards Zed in DM Zed Ada"),
        ("editor", {"behavior_scope": "person"}, "the whole persona"),
        ("operator", {"behavior_scope": "channel"}, "only in DM Zed Ada"),
        ("outsider", {"behavior_scope": "persona"}, "the whole persona"),
    ],
)
def test_only_editors_change_the_persona_unless_a_setting_widens_it(
    llm_server: LLMServer, who: str, config: dict[str, Any], held: str
) -> None:
    agent, channel = dm_with(behavior_scope=None)
    AgentEvaluationConfig.objects.update(**config)
    channel.name = "DM Zed Ada"
    channel.save()
    by: dict[str, Any] = {"outsider": "", "user": in_group(who)} if who != "outsider" else {}

    request = asked(llm_server, channel, **by)

    assert (request.status, holds_in(request)) == ("applied", held)
    assert traits_of(agent) == ({"pirate talk": 0.5} if held == "the whole persona" else {})
    stranger = said(channel, outsider="Zoe")
    assert shown(agent, channel, to=stranger) == (LINES if held.startswith("only in") else [])


@pytest.mark.parametrize(
    ("who", "body", "held"),
    [("editor", {}, "the whole persona"), ("editor", {"outsider": "Zed"}, "only towards Zed in")],
)
def test_over_the_api_the_author_counts_not_the_token(
    llm_server: LLMServer, who: str, body: dict[str, str], held: str
) -> None:
    agent, channel = dm_with(behavior_scope=None)
    llm_server.respond = judge(map=PIRATE)
    client = program(in_group(who))

    answer = client.post(
        "/api/messages/", {"channel": channel.slug, "text": "Talk like a pirate", **body}, format="json"
    )

    assert answer.status_code == 201, answer.content
    assert work_one(owner="w")
    request = BehaviorRequest.objects.get()
    assert holds_in(request).startswith(held)
    assert bool(traits_of(agent)) == (held == "the whole persona")


def test_a_former_editor_changes_it_for_nobody_else(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope=None)
    editor = in_group("editor")
    llm_server.respond = judge(map=PIRATE)
    write(channel, "Talk like a pirate", outsider="", user=editor)
    editor.groups.clear()

    assert work_one(owner="w")

    assert (BehaviorRequest.objects.get().scope_key, traits_of(agent)) == (f"user:{editor.pk}", {})


def test_in_a_channel_it_holds_for_all_there_only(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel")
    versions = agent.persona_versions.count()

    request = asked(llm_server, channel)

    assert (request.status, request.operation, request.trait_id) == ("applied", "add", None)
    assert (traits_of(agent), agent.persona_versions.count()) == ({}, versions)
    assert not DescriptionUpdate.objects.exists()
    elsewhere = another_channel(agent)
    assert [shown(agent, one) for one in (channel, elsewhere)] == [LINES, []]
    assert [shown(agent, channel, to=said(channel, outsider=name)) for name in ("Zed", "Zoe")] == [LINES, LINES]
    Message.objects.all().delete()
    assert shown(agent, channel) == LINES


def test_towards_a_user_it_holds_in_every_channel_and_for_nobody_else(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="person")
    zoe, eve = in_group("operator"), superuser("eve")
    elsewhere = another_channel(agent)

    asked(llm_server, channel, outsider="", user=zoe)

    assert traits_of(agent) == {}
    assert [shown(agent, where, to=said(where, user=zoe)) for where in (channel, elsewhere)] == [LINES, LINES]
    assert [shown(agent, channel, to=to) for to in (None, said(channel, user=eve), said(channel, outsider="operator"))] == [
        [], [], [],
    ]  # fmt: skip


def test_towards_an_outsider_it_holds_for_that_name_in_that_channel(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="person")
    elsewhere = another_channel(agent)

    request = asked(llm_server, channel)

    assert "Zed" not in request.scope_key
    assert shown(agent, channel, to=said(channel, outsider="Zed")) == LINES
    others = [said(channel, outsider="Zoe"), said(channel, outsider="zed"), said(elsewhere, outsider="Zed")]
    assert [shown(agent, to.channel, to=to) for to in others] == [[], [], []]


def test_a_second_request_there_changes_what_the_first_made(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel")
    asked(llm_server, channel)
    prompts: list[str] = []

    def stop(prompt: str) -> dict[str, Any]:
        prompts.append(prompt)
        return {**PIRATE, "strength": 0.0, "replaces_trait": "pirate talk"}

    second = asked(llm_server, channel, "Stop that", answers={"map": stop})

    assert '"name": "pirate talk", "strength": 0.5' in prompts[0]
    assert (second.operation, (second.trait_before or {})["strength"]) == ("stop", 0.5)
    assert shown(agent, channel) == ["### Never (stop doing this)", "- pirate talk: Talks like a pirate."]


def test_a_trait_of_the_persona_is_changed_there_and_nowhere_else(llm_server: LLMServer) -> None:
    agent, channel = dm_with(TraitValue("dry wit", "Is dry.", 0.2, 0.8), behavior_scope="channel")

    answers = {"map": {**CONCISE, "name": "dry wit", "description": "", "strength": 0.3, "replaces_trait": "dry wit"}}
    request = asked(llm_server, channel, "A bit less dry", answers=answers)

    assert (request.operation, traits_of(agent)) == ("update", {"dry wit": 0.8})
    assert shown(agent, channel) == ["### Sometimes", "- dry wit: Is dry."]


def test_what_is_reverted_is_not_shown_any_more_the_latest_change_first(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel")
    first = asked(llm_server, channel)
    answers = {"map": {**PIRATE, "strength": 0.9, "replaces_trait": "pirate talk"}}
    second = asked(llm_server, channel, "More of it", answers=answers)

    with pytest.raises(BehaviorError, match=f"behaviour request {second.pk} changed the same trait"):
        revert_request(request=first, user=None)
    revert_request(request=second, user=None)
    assert shown(agent, channel) == LINES
    revert_request(request=first, user=None)
    assert shown(agent, channel) == []


def test_a_proposal_keeps_its_scope_when_the_setting_changes(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel", behavior_auto_apply="never")
    request = asked(llm_server, channel)
    AgentEvaluationConfig.objects.update(behavior_scope="persona")

    apply_request(request=request)

    assert (request.status, traits_of(agent), shown(agent, channel)) == ("applied", {}, LINES)


def test_each_person_has_a_daily_limit_and_protected_traits_hold_for_all(llm_server: LLMServer) -> None:
    agent, channel = dm_with(
        TraitValue("safety", "Warns.", 0.5, 0.9),
        behavior_scope="person",
        behavior_daily_limit=1,
        behavior_protected_traits=["safety"],
    )
    answers = {"map": {**PIRATE, "touches": []}}
    second = {"map": {**CONCISE, "touches": []}}

    states = [
        asked(llm_server, channel, answers=answers).status,
        asked(llm_server, channel, answers=second).status,
        asked(llm_server, channel, answers=answers, outsider="Zoe").status,
        asked(llm_server, channel, answers={"map": {**CONCISE, "touches": ["safety"]}}, outsider="Eve").status,
    ]

    assert states == ["applied", "pending_review", "applied", "detected"]
    assert traits_of(agent) == {"safety": 0.9}


def test_the_gate_judges_by_what_was_asked_for_there_too(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel", gate_adherence_enabled=True, gate_mode="enforce")
    asked(llm_server, channel)
    from agents.turn.pipeline import pipeline
    from agents.turn.prompt import new_turn

    turn = new_turn(agent=agent, channel=channel)
    pipeline().prepare(turn)
    llm_server.respond = gate_judge({"adherence": 8})
    send(agent, channel, "Ahoy!", turn=turn)

    assert "- pirate talk: Talks like a pirate." in prompt_of(llm_server.bodies[-1])


def answer(agent: Agent, channel: Channel, text: str, *, to: Message) -> Message:
    """What the agent says in a turn that a message started."""
    run = Run.objects.create(agent=agent, channel=channel, trigger=to, status="completed")
    return say(channel, agent, text, run=run)


def prompts_about(server: LLMServer, texts: list[str]) -> dict[str, str]:
    """What the judge read about each of the messages."""
    return {text: prompt_of(body) for text in texts for body in server.bodies if text in tail_of(body)}


def test_an_evaluation_judges_a_message_by_what_its_person_had_asked_for_when_it_was_said(
    llm_server: LLMServer,
) -> None:
    agent, channel = dm_with(behavior_scope="person")
    answer(agent, channel, "Good day.", to=say(channel, "Zed", "Hello!"))
    request = asked(llm_server, channel)
    answer(agent, channel, "Ahoy, Zed!", to=say(channel, "Zed", "Hello!"))
    answer(agent, channel, "Good day, Zoe.", to=say(channel, "Zoe", "Hello!"))
    say(channel, agent, "Good day to all.")
    revert_request(request=request, user=None)
    answer(agent, channel, "Good evening.", to=say(channel, "Zed", "Hello!"))

    llm_server.bodies.clear()
    llm_server.respond = answers(lambda claim: 7)
    evaluate_agent(agent=agent, dimensions=("adherence",))

    prompts = prompts_about(llm_server, ["Good day.", "Ahoy, Zed!", "Zoe.", "to all.", "Good evening."])
    shown_to_judge = [text for text, prompt in prompts.items() if "- pirate talk: Talks like a pirate." in prompt]
    assert (len(prompts), shown_to_judge) == (5, ["Ahoy, Zed!"])


def test_many_messages_are_judged_by_what_was_asked_for_with_as_many_queries_as_one(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="person")
    asked(llm_server, channel)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            estimate(RunSpec(agent=agent, dimensions=("adherence",), samples=100))
        return len(captured)

    def talk(times: int) -> None:
        for _ in range(times):
            answer(agent, channel, "Ahoy, Zed!", to=say(channel, "Zed", "Hello!"))

    talk(2)
    of_few = queries()
    talk(10)

    assert queries() == of_few


def test_a_message_without_a_time_is_judged_by_what_held_at_that_of_the_message_beside_it(
    llm_server: LLMServer,
) -> None:
    agent, channel = dm_with(behavior_scope="channel")
    asked(llm_server, channel)
    last_year = timezone.now() - timedelta(days=365)
    say(channel, agent, "Good day.", said_at=last_year)
    say(channel, agent, "Ahoy!")

    llm_server.bodies.clear()
    llm_server.respond = answers(lambda claim: 7)
    evaluate_agent(agent=agent, dimensions=("adherence",))

    prompts = prompts_about(llm_server, ["Good day.", "Ahoy!"])
    shown_to_judge = [text for text, prompt in prompts.items() if "- pirate talk: Talks like a pirate." in prompt]
    assert (len(prompts), shown_to_judge) == (2, ["Ahoy!"])


def test_an_observed_message_is_judged_by_what_was_asked_for_there_too(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_scope="channel", gate_adherence_enabled=True, gate_mode="observe")
    asked(llm_server, channel)
    message = answer(agent, channel, "Ahoy!", to=say(channel, "Zed", "Hello!"))
    llm_server.respond = gate_judge({"adherence": 8})

    judge_later(messages=[message], dimensions=["adherence"])
    assert observe_one(owner="w")

    assert "- pirate talk: Talks like a pirate." in prompt_of(llm_server.bodies[-1])


def test_people_see_where_it_holds(llm_server: LLMServer) -> None:
    _, channel = dm_with(behavior_scope="person")
    request = asked(llm_server, channel)
    eve = superuser("eve")

    row = program(eve).get(f"/api/behavior-requests/{request.pk}/").json()
    assert row["holds"] == f"only towards Zed in {channel}"
    page = signed_in(eve).get(f"/admin/behavior/behaviorrequest/{request.pk}/change/")
    assert "only towards Zed" in page.content.decode()
    assert "only towards Zed" in signed_in(eve).get("/admin/behavior/behaviorrequest/").content.decode()


@pytest.mark.parametrize("who", ["editor", "outsider"])
def test_a_request_in_a_chat_holds_there_and_is_deleted_with_it(
    llm_server: LLMServer, who: str, django_capture_on_commit_callbacks: Any
) -> None:
    agent = make_agent("ada")
    user = in_group(who) if who == "editor" else None
    chat = begin_chat(agent, user=user)
    llm_server.respond = judge(map=PIRATE)

    with django_capture_on_commit_callbacks(execute=True):
        ask(agent, chat, "Talk like a pirate", user=user)
    assert work_one(owner="w")

    request = BehaviorRequest.objects.get()
    assert (request.status, request.scope_key, traits_of(agent)) == ("applied", f"channel:{chat.pk}", {})
    assert shown(agent, chat) == LINES
    other = begin_chat(agent, user=user)
    assert [shown(agent, where) for where in (other, another_channel(agent))] == [[], []]

    Run.objects.update(status="completed")
    delete_chat(chat)
    assert not BehaviorRequest.objects.exists()
