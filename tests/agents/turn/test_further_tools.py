"""What a stage sets for a turn in `prepare`: further tools, a temperature; and what tools did, for the stages after them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pytest_django import Settings

from agents.kit.capability import declared
from agents.kit.llm import ToolCall
from agents.kit.models import owner_name
from agents.models import Agent, Channel, Run, RunMessage
from agents.turn.orchestrator import run_turn, start_turn
from agents.turn.pipeline import Accept, Draft, ToolOutcome, Turn
from agents.turn.tools import TOOLS, Performed, Tool, ToolFault
from tests.agents.turn import stages
from tests.agents.turn.playing import answer_text, answers, plays, take_turn, texts
from tests.declaring import declare
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


class Weigh(Tool):
    """Weigh a thing."""

    thing: str

    def perform(self, turn: Turn, call: ToolCall) -> Performed:
        if self.thing == "nothing":
            raise ToolFault("The field thing is 'nothing'; allowed: a thing.")
        return Performed(f"The {self.thing} weighs 3 kg.")


class Stumble(Tool):
    """Ctrl-C while it works, the first time."""

    times: ClassVar[list[int]] = []

    def perform(self, turn: Turn, call: ToolCall) -> Performed:
        if not self.times:
            self.times.append(1)
            raise KeyboardInterrupt
        return Performed("Up again.")


class Offering:
    """Offers both, wishes for a temperature, and notes what was performed before a draft is said."""

    name = "offering"
    performed: ClassVar[list[list[ToolOutcome]]] = []

    def prepare(self, turn: Turn) -> None:
        turn.tools, turn.temperature = ["weigh", "stumble"], 0.4
        stages.heard.append(("prepare", ""))

    def review(self, turn: Turn, draft: Draft) -> Accept:
        self.performed.append(list(turn.performed))
        return Accept(draft)


@pytest.fixture(autouse=True)
def _offered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "turn_tools", {name.lower(): f"{__name__}.{name}" for name in ("Weigh", "Stumble")})
    settings.TURN_PIPELINE = [f"{__name__}.Offering"]
    settings.ACTOR_MODEL = "llama3.2"
    Stumble.times.clear()
    Offering.performed.clear()


def offered(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


def test_tools_of_a_stage_are_offered_beside_the_others_and_carried_out(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("weigh", {"thing": "parcel"}), ("weigh", {"thing": "nothing"}), ("weigh", {}), "done")

    take_turn(ada, office)

    assert offered(llm_server.bodies[0]) == [*TOOLS, "weigh", "stumble"]
    assert [(answer_text(part), part.get("is_error", False)) for part in answers(llm_server.bodies[-1])] == [
        ("The parcel weighs 3 kg.", False),
        ("The field thing is 'nothing'; allowed: a thing.", True),
        ("The field thing is missing; allowed: thing.", True),
    ]


def test_without_a_stage_that_offers_it_a_further_tool_does_not_exist(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = []
    plays(llm_server, ("weigh", {"thing": "parcel"}), "done")

    run = take_turn(ada, office)

    assert offered(llm_server.bodies[0]) == list(TOOLS)
    assert answer_text(answers(llm_server.bodies[1])[0]).startswith("There is no tool 'weigh'")
    system = RunMessage.objects.get(run=run, role="system").content
    assert {"tools", "temperature"} & set(system) == set()
    assert "temperature" not in llm_server.bodies[0]


def test_a_turn_resumed_elsewhere_keeps_its_tools_their_outcomes_and_its_temperature(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("weigh", {"thing": "parcel"}), ("stumble", {}))
    run = start_turn(agent=ada, channel=office)
    with pytest.raises(KeyboardInterrupt):
        run_turn(run, owner=owner_name())
    plays(llm_server, ("send_message", {"channel": "office", "text": "3 kg."}), "done")

    run = run_turn(Run.objects.get(pk=run.pk), owner=owner_name())

    assert (run.status, texts(office)) == ("completed", ["3 kg."])
    assert stages.heard == [("prepare", "")], "it was prepared once, before the restart"
    assert [offered(body) for body in llm_server.bodies] == [[*TOOLS, "weigh", "stumble"]] * 4
    assert [body["temperature"] for body in llm_server.bodies] == [0.4] * 4
    assert Offering.performed == [
        [ToolOutcome("weigh", True, "The parcel weighs 3 kg."), ToolOutcome("stumble", True, "Up again.")]
    ]


def test_a_turn_goes_on_without_a_tool_removed_from_the_settings_meanwhile(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays(llm_server, ("stumble", {}))
    run = start_turn(agent=ada, channel=office)
    with pytest.raises(KeyboardInterrupt):
        run_turn(run, owner=owner_name())
    declare(monkeypatch, "turn_tools", {"weigh": declared("turn_tools")["weigh"]})
    plays(llm_server, ("send_message", {"channel": "office", "text": "3 kg."}), "done")

    run = run_turn(Run.objects.get(pk=run.pk), owner=owner_name())

    assert (run.status, texts(office)) == ("completed", ["3 kg."])
    assert offered(llm_server.bodies[-1]) == [*TOOLS, "weigh"]
