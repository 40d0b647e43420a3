"""``manage.py seed --remove``: the examples and what was made of them go, everything of the team's own stays."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from pytest_django.plugin import DjangoDbBlocker

from agents.debates.debate import add_message
from agents.debates.models import Debate
from agents.debates.starting import start_debate
from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message, Run
from agents.seed import loader
from agents.swarm.models import Swarm, SwarmTurn
from correction.demo import GATE_CHANNEL
from correction.demo import demonstration as scenes
from correction.models import AgentEvaluationConfig, CorrectionLog
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.console import superuser
from tests.correction.interventions.steering import row as intervention_row
from tests.factories import MONDAY, make_agent, make_channel, say, talk
from tests.once import rows_for_all

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def examples(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The seed, one of its agents measured, and a draft of the demonstration."""
    with rows_for_all(django_db_blocker, JUDGE_MODEL="offline:lexical-1", PROPOSITION_DIRS=[], WORKER_THREADS=1):
        loader.seed()
        michael = Agent.objects.get(slug="michael")
        capture([RunSpec(agent=michael, dimensions=("adherence", "fluency", "convergence"), is_baseline=True)])
        stage = scenes.Stage.set_up()
        stage.send_drafts("michael", [scenes.MESSAGE_IN_VOICE], scenes.gate_settings())
        yield


def remove(*options: str) -> tuple[int, str]:
    """Exit code, and what was said."""
    out = StringIO()
    try:
        call_command("seed", "--remove", *options, stdout=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def counts() -> dict[str, int]:
    models = (Agent, Channel, Message, Run, EvaluationRun, EvaluationScore, Baseline, AgentEvaluationConfig)
    return {model.__name__: model._default_manager.count() for model in (*models, CorrectionLog)}


def own_work() -> tuple[Agent, Channel]:
    agent = make_agent("harbour-guide")
    channel = make_channel("harbour")
    talk(agent, ["The ferry leaves at nine.", "Mind the gap."] * 4, channel=channel)
    capture([RunSpec(agent=agent, dimensions=("adherence", "fluency"), is_baseline=True)])
    return agent, channel


def test_removing_examples_restores_the_database_before_them() -> None:
    own_work()
    costs = LLMCall.objects.count()
    code, said = remove("--yes")

    left = counts()
    assert code == 0, said
    assert (left["Agent"], left["Channel"], left["Message"]) == (1, 1, 8)
    assert {run.agent.slug for run in EvaluationRun.objects.all() if run.agent} == {"harbour-guide"}
    assert (left["Run"], left["CorrectionLog"]) == (0, 0)
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"harbour-guide"}
    assert list(AgentEvaluationConfig.objects.values_list("is_defaults", flat=True)) == [True]
    assert LLMCall.objects.count() == costs
    assert "16 agents" in said


def test_debates_of_examples_go_and_examples_in_other_debates_stay() -> None:
    agent, _ = own_work()
    scenes.show_debate(StringIO())
    waits = start_debate(topic="Shall we?", mode="delphi", agents=["jim", "toby"])
    add_message(waits, text="Keep it short.", user=superuser("ann"))
    mixed = start_debate(topic="Shall we?", mode="delphi", agents=["kelly", agent])
    code, said = remove("--yes")

    assert code == 0, said
    assert list(Debate.objects.all()) == [mixed]
    assert set(Agent.objects.values_list("slug", flat=True)) == {"harbour-guide", "kelly"}
    assert f"agent kelly stays: it has a seat in debate {mixed.pk}" in said
    assert [message.text for message in Message.objects.filter(channel=waits.channel_id)] == ["Keep it short."]


def test_a_swarm_of_examples_stays_without_agents_and_counts_once() -> None:
    own_work()
    scenes.show_swarm(StringIO())
    swarm = Swarm.objects.get(name="personality")
    swarm.agents.set(Agent.objects.filter(slug="kevin"))
    turns = SwarmTurn.objects.count()
    code, said = remove("--yes")

    assert code == 0, said
    assert turns == 3
    assert f" {turns} swarm turns" in said
    assert not SwarmTurn.objects.exists()
    assert not swarm.agents.exists()


def test_nothing_goes_unless_it_is_confirmed() -> None:
    before = counts()
    ended, said = remove()

    assert (ended, counts()) == (0, before)
    assert "16 agents" in said
    assert f"{before['Message']} messages" in said


def test_what_a_teams_own_work_is_bound_up_with_stays_named() -> None:
    agent, channel = own_work()
    say(Channel.objects.get(slug="general"), agent, "Does anybody need a ferry?")
    say(channel, Agent.objects.get(slug="dwight"), "I will take the ferry.")
    Agent.objects.filter(slug="kelly").update(origin="")
    demo = Channel.objects.get(slug="demo-1")
    Message.objects.create(
        channel=demo, position=demo.next_position, user=superuser("ann"), text="Could you be shorter?"
    )
    code, said = remove("--yes")

    assert code == 0
    assert set(Channel.objects.values_list("slug", flat=True)) == {"harbour", "general", "demo-1"}
    assert set(Agent.objects.values_list("slug", flat=True)) == {"harbour-guide", "dwight", "kelly"}
    counted = {slug: Message.objects.filter(channel__slug=slug).count() for slug in ("harbour", "general", "demo-1")}
    assert counted == {"harbour": 9, "general": 1, "demo-1": 1}
    for stays in ("general stays", "demo-1 stays", "dwight stays"):
        assert stays in said


def test_an_example_that_spoke_with_a_teams_agent_in_the_demonstrations_channel_goes() -> None:
    agent, _ = own_work()
    channel = Channel.objects.create(slug=GATE_CHANNEL, name=GATE_CHANNEL, synthetic=True)
    say(channel, Agent.objects.get(slug="michael"), "I am the boss.")
    say(channel, agent, "I will take the ferry.")

    code, said = remove("--yes")

    assert code == 0, said
    assert not Agent.objects.filter(slug="michael").exists()
    assert [message.text for message in channel.messages.all()] == ["I will take the ferry."]


def test_what_would_mean_every_agent_without_the_examples_is_refused_and_named() -> None:
    michael = Agent.objects.get(slug="michael")
    EvaluationSchedule.objects.create(name="nightly", every_minutes=60, next_at=MONDAY).agents.add(michael)
    intervention_row("calm-down", textual_claim="they shout").agents.add(michael)
    before = counts()
    code, said = remove("--yes")

    assert (code, counts()) == (3, before)
    assert "nightly" in said
    assert "calm-down" in said


def test_the_examples_can_be_seeded_again() -> None:
    remove("--yes")
    assert remove()[1].startswith("Would be removed: nothing")
    loader.seed()

    assert Agent.objects.filter(origin="seed").count() == 16
    assert Message.objects.count() == 470


@pytest.mark.parametrize("options", [["--yes"], ["--remove", "--reset"]])
def test_options_that_make_no_sense_are_wrong_usage(options: list[str]) -> None:
    with pytest.raises(CommandError) as refused:
        call_command("seed", *options)

    assert refused.value.returncode == 2
