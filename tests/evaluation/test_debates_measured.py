"""What an agent says in a debate is measured when the debate is named, and never otherwise, unless the debate is real."""

from __future__ import annotations

import pytest

from agents.debates.models import Debate
from agents.debates.starting import start_debate
from agents.models import Agent, Message
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.planning import has_little_speech
from evaluation.runs.spec import RunSpec
from evaluation.scorers.selection import messages_of_agent, positions_of
from evaluation.windows import MessageWindow
from tests.agents.debates.seats import TOPIC, played, seated
from tests.factories import make_channel, talk

pytestmark = pytest.mark.django_db


def ordinary_and_debated(*, real: bool = False) -> tuple[Agent, Debate]:
    """An agent that spoke in an office, and then in a debate."""
    agents = seated(2)
    talk(agents[0], ["Good morning.", "The files are in order."], channel=make_channel())
    debate = played(start_debate(topic=TOPIC, mode="delphi", agents=agents, rounds=1, real=real))
    return agents[0], debate


def measured(agent: Agent, **fields: object) -> set[str]:
    """The channels whose messages an evaluation of the agent judges."""
    (result,) = capture([RunSpec(agent=agent, dimensions=("adherence", "consistency"), **fields)])  # type: ignore[arg-type]
    rows = EvaluationScore.objects.filter(evaluation_run=result.summary.run, message__isnull=False)
    return set(rows.values_list("message__channel__slug", flat=True))


def test_a_debate_enters_no_measurement_of_its_agents() -> None:
    agent, debate = ordinary_and_debated()

    assert Message.objects.filter(channel=debate.channel, synthetic=True, tags__debate=debate.channel.slug).count() == 4
    assert measured(agent) == {"office"}
    assert measured(agent, where={"debate": "another"}) == set()
    assert has_little_speech(RunSpec(agent=agent)), "what it said in the debate does not count"


def test_named_by_its_tag_a_debate_is_measured_and_nothing_else() -> None:
    agent, debate = ordinary_and_debated()
    where = {"debate": debate.channel.slug}

    assert measured(agent, where=where) == {debate.channel.slug}
    run = EvaluationRun.objects.get()
    assert (run.status, run.where, run.simulated) == ("completed", where, False)
    second = {**where, "round": "1"}
    (message,) = messages_of_agent(agent=agent, window=MessageWindow(), where=second)
    assert message.tags == {**second, "seat": "1"}


def test_positions_in_a_debate_are_counted_from_its_beginning() -> None:
    agent, debate = ordinary_and_debated()
    where = {"debate": debate.channel.slug}
    said = list(messages_of_agent(agent=agent, window=MessageWindow(), where=where).values_list("pk", flat=True))

    assert positions_of(said, agent=agent, where=where) == {pk: (debate.channel_id, n) for n, pk in enumerate(said, 1)}
    assert positions_of(said, agent=agent) == {}
    assert measured(agent, where=where, position_bins=((1, 1), (2, None))) == {debate.channel.slug}


def test_a_real_debate_is_ordinary_speech() -> None:
    agent, debate = ordinary_and_debated(real=True)

    assert measured(agent) == {"office", debate.channel.slug}
    assert measured(agent, where={"debate": debate.channel.slug}) == {debate.channel.slug}
