"""``evaluate --by position``: fading within long conversations fails a build."""

from __future__ import annotations

import pytest

from agents.models import Agent
from tests.evaluation.ci.building import report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, tail_of
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
TURNS = 30
ASKED = ("--by", "position", "--bins", "1-10,11-20,21+", "--samples", "300")


@pytest.fixture
def talker(propositions: PropositionFolder) -> Agent:
    """An agent in eight conversations of thirty turns."""
    propositions.claims("adherence/_default.yaml", "voice")
    agent = make_agent("ada")
    for number in range(8):
        talk(agent, [f"turn {n + 1} said" for n in range(TURNS)], channel=make_channel(f"talk-{number}"))
    return agent


def fading_judge(server: LLMServer, *, late: int) -> None:
    def respond(body: dict[str, object]) -> dict[str, object]:
        said = tail_of(body).split("turn ")
        turn = int(said[-1].split(" said")[0]) if " said" in said[-1] else int(said[1].split(" ")[0])
        return answers(lambda claim: late if turn > 20 else 8 - turn % 2)(body)

    server.respond = respond


def test_an_agent_that_fades_exits_1_and_says_from_when(talker: Agent, llm_server: LLMServer) -> None:
    fading_judge(llm_server, late=3)

    found = report(*ASKED)
    code, out, said = run(*ASKED)

    assert code == 1
    (fading,) = found["fading"]
    assert (fading["agent"], fading["dimension"], fading["first"], fading["last"]) == (
        "ada",
        "adherence",
        "1-10",
        "21+",
    )
    assert fading["delta"] == pytest.approx(-4.5, abs=0.3)
    assert [row["positions"] for row in found["runs"][0]["by_position"]["dimensions"]["adherence"]["bins"]] == [
        "1-10",
        "11-20",
        "21+",
    ]
    assert "fades" in out
    assert said.startswith("regression: 1 score fades within conversations")


def test_an_agent_that_holds_passes_and_nothing_is_said_of_baselines(talker: Agent, llm_server: LLMServer) -> None:
    fading_judge(llm_server, late=8)

    code, out, said = run(*ASKED, "--strict")

    assert (code, said) == (0, "")
    assert "baseline" not in out
