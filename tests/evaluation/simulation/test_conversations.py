"""Simulating an agent through situations, over the real SDK and with the offline actor (AC-6.5.2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, MemoryBlock, MemoryPassage, Message, Run
from agents.personas.persona import save_persona
from agents.turn.orchestrator import start_turn
from agents.turn.pipeline import Revise
from correction.models import AgentEvaluationConfig
from evaluation.simulation.conversations import simulate
from tests.agents.turn.playing import join, shown
from tests.evaluation.judged import make_run
from tests.evaluation.simulation.acting import HELLO, QUARREL, acts, place, said, simulated, situation
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)


class Refusing:
    """A stage that lets nothing pass."""

    name = "refusing"

    def review(self, turn: Any, draft: Any) -> Revise:
        return Revise("Never.")


class Required(Refusing):
    required = True


@pytest.fixture
def scripted(settings: Settings) -> Agent:
    settings.ACTOR_MODEL = "offline:scripted-1"
    return make_agent("ada", sample_lines=[f"Line {n}." for n in range(6)])


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def test_every_line_is_said_and_answered_in_its_own_synthetic_channel_ac_6_5_2(
    llm_server: LLMServer, ada: Agent
) -> None:
    llm_server.respond = acts(lambda body: f"I heard {llm_server.calls}")

    result = simulated(ada, repeats=2)

    assert result.complete
    assert not result.problem
    assert [(c.situation, c.repeat, c.lines, c.done) for c in result.conversations] == [
        ("hello", 1, 2, 2), ("quarrel", 1, 1, 1), ("hello", 2, 2, 2), ("quarrel", 2, 1, 1),
    ]  # fmt: skip
    channels = Channel.objects.filter(slug__in=[c.channel for c in result.conversations])
    assert [channel.synthetic for channel in channels] == [True] * 4
    messages = Message.objects.filter(channel__in=channels)
    assert set(messages.values_list("synthetic", flat=True)) == {True}
    assert messages.count() == 12
    assert result.messages == 6
    first = messages.filter(channel__slug=result.conversations[0].channel).order_by("position")
    assert [(m.author_name, m.tags) for m in first] == [
        (who, {"simulation": result.id, "situation": "hello", "repeat": "1", "turn": turn})
        for turn in "12"
        for who in ("Robin", "Ada")
    ]


def test_no_conversation_knows_of_another(llm_server: LLMServer, ada: Agent) -> None:
    office = make_channel("office")
    join(office, ada)
    say(office, "Bob", "The real office talk.")
    llm_server.respond = acts(lambda body: f"Answer in {place(body)[-4:]}.")

    result = simulated(ada)

    hello, quarrel = (c.channel for c in result.conversations)
    last = shown(llm_server.bodies[-1])
    assert quarrel in last
    assert hello not in last
    assert "Good morning." not in last
    assert "office" not in last


def test_nothing_simulated_reaches_a_real_channel_or_a_memory(llm_server: LLMServer, ada: Agent) -> None:
    office = make_channel("office")
    join(office, ada)
    steps = iter(
        [
            ("send_message", {"channel": "office", "text": "Out of the simulation!"}),
            ("update_memory", {"label": "mood", "value": "cross"}),
            ("store_memory", {"text": "Zed is rude."}),
            ("do_nothing", {"reason": "enough"}),
        ]
    )
    llm_server.respond = lambda body: {"tool_calls": [next(steps)]}

    result = simulated(ada, QUARREL)

    assert not Message.objects.filter(channel=office).exists()
    assert not MemoryBlock.objects.exists()
    assert not MemoryPassage.objects.exists()
    assert (result.messages, result.conversations[0].silent) == (0, 1)
    assert "the agent said nothing in any of 1 conversations" in result.problem


def test_every_mechanism_is_off(llm_server: LLMServer, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Refusing"]
    llm_server.respond = acts(lambda body: "Said as it is.")

    result = simulated(ada, QUARREL)

    assert said(result) == [("quarrel", "1", "Zed", "You are wrong."), ("quarrel", "1", "Ada", "Said as it is.")]
    assert [run.trace for run in Run.objects.all()] == [[]]


def test_a_required_stage_is_never_off(llm_server: LLMServer, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE, settings.TURN_MAX_REVISIONS = [f"{__name__}.Required"], 1
    llm_server.respond = acts(lambda body: "Said.")

    simulated(ada, QUARREL)

    assert [entry["stage"] for run in Run.objects.all() for entry in run.trace] == ["refusing"]


def test_the_actor_model_is_chosen_for_the_simulation_alone(llm_server: LLMServer) -> None:
    own = make_agent("ada", model_id="her-own-model")
    llm_server.respond = acts(lambda body: "Yes.")

    result = simulated(own, QUARREL, actor_model="next-model")
    plain = simulated(own, QUARREL)

    assert {body["model"] for body in llm_server.bodies[:2]} == {"next-model"}
    assert {body["model"] for body in llm_server.bodies[2:]} == {"her-own-model"}
    assert (result.actor_model, plain.actor_model) == ("next-model", "her-own-model")
    assert result.id != plain.id
    own.refresh_from_db()
    assert own.model_id == "her-own-model"


def test_without_a_key_the_scripted_actor_goes_through_its_lines(scripted: Agent) -> None:
    result = simulated(scripted, HELLO, QUARREL, situation("third", "Go on.", "And?", "So?"))

    own = [text for _, _, who, text in said(result) if who == "Ada"]
    assert sorted(own) == [f"Line {n}." for n in range(6)], "every line once"


def test_a_measured_simulation_is_made_again_unless_reused(scripted: Agent) -> None:
    first = simulated(scripted)
    unmeasured = simulated(scripted)
    make_run(scripted, simulated=True, where={"simulation": first.id})

    again = simulated(scripted, reuse=True)
    second = simulated(scripted)

    assert first.id == unmeasured.id == again.id
    assert not first.resumed
    assert unmeasured.resumed
    assert second.id == first.id.replace("-1", "-2")
    assert Run.objects.count() == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats 0: 1 to 20"),
        ({"situations": ()}, "no situation to simulate"),
    ],
)
def test_what_makes_no_sense_is_refused(scripted: Agent, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(**{"agent": scripted, "situations": [HELLO], **options})


# -- something comes in the way
def test_a_persona_that_changes_on_the_way_stops_the_simulation(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.respond = acts(lambda body: "Yes.")

    def change(done: int, total: int) -> None:
        ada.system_prompt = "You shout."
        save_persona(agent=ada, note="louder")

    result = simulated(ada, progress=change)

    assert [c.done for c in result.conversations] == [1, 0]
    assert "persona was" in result.problem


def test_an_actor_that_is_down_is_said_and_nothing_is_invented(llm_server: LLMServer, ada: Agent) -> None:
    many = [situation(f"s{n}", "Hello?", "Hello again?") for n in range(6)]
    llm_server.always(status=401)

    result = simulated(ada, *many)

    assert not result.complete
    assert not result.usable
    assert result.messages == 0
    assert [c.tried for c in result.conversations] == [True] * 3 + [False] * 3
    assert "rejected" in result.conversations[0].reason
    assert "not tried" in result.conversations[5].reason
    assert all(name in result.problem for name in ("s0", "s4"))
    assert "s5" not in result.problem, "five are named, the others counted"
    assert llm_server.calls == 3
    assert not Message.objects.filter(agent=ada).exists()


def test_what_failed_is_tried_again_and_what_was_simulated_is_not(llm_server: LLMServer, ada: Agent) -> None:
    answering = acts(lambda body: "Yes.")
    llm_server.respond = lambda body: {"status": 401} if "You are wrong." in shown(body) else answering(body)
    broken = simulated(ada)
    calls = llm_server.calls
    llm_server.respond = acts(lambda body: "No, I am not.")

    mended = simulated(ada)

    assert [c.complete for c in broken.conversations] == [True, False]
    assert broken.usable
    assert mended.id == broken.id
    assert mended.complete
    assert llm_server.calls == calls + 2, "one turn"
    assert said(mended)[-2:] == [("quarrel", "1", "Zed", "You are wrong."), ("quarrel", "1", "Ada", "No, I am not.")]


def test_what_another_process_simulates_meanwhile_is_not_simulated_twice(scripted: Agent) -> None:
    """The other process simulations everything while this one is between its first and its second line."""
    met: list[int] = []

    def meet(done: int, total: int) -> None:
        if not met:
            met.append(done)
            simulated(scripted)

    result = simulated(scripted, progress=meet)

    assert result.complete
    assert (Run.objects.count(), result.messages, len(said(result))) == (3, 3, 6)


def test_a_used_up_budget_stops_a_simulation_of_a_paid_model(llm_server: LLMServer, ada: Agent) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, budget_enabled=True, daily_budget_usd=0)

    result = simulated(ada)

    assert "budget of Ada" in result.problem
    assert llm_server.calls == 0


def test_a_turn_that_was_left_unfinished_is_named_and_not_waited_for(scripted: Agent) -> None:
    """Its process is gone, on another machine, and no worker runs."""
    office = make_channel("office")
    join(office, scripted)
    lost = start_turn(agent=scripted, channel=office)
    assert lost.acquire(owner="elsewhere:1:x", lease=timedelta(hours=-1))

    result = simulated(scripted)

    assert f"turn {lost.pk} of Ada was left unfinished; manage.py work ends it" in result.problem
    assert not result.messages
    assert lost.finish(owner="elsewhere:1:x", status=Run.Status.ERRORED)
    assert simulated(scripted).complete
