"""What talking changed, in debates that were really played: seats that follow the majority, and seats that bring an argument."""

from __future__ import annotations

from typing import Any

import pytest

from agents.debates.debate import start_debate
from agents.debates.measures import Changes
from agents.debates.models import Debate
from tests.agents.debates.minds_changed import DEBATES
from tests.agents.debates.minds_changed import Debate as Scripted
from tests.agents.debates.seats import played
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def scripted(debate: Scripted, second: tuple[str, ...], prefix: str) -> Debate:
    """A poll and a round of it, in which the seats of the minority say `second`."""
    names = [name.strip() for name in debate.seats.replace(" and ", ",").split(",")]
    polled = [("yes", text) for text in debate.yes] + [("no", text) for text in debate.no]
    agents = [make_agent(f"{prefix}-{n}", display_name=names[n % len(names)]) for n in range(len(polled))]

    def says(stance: str, text: str) -> dict[str, Any]:
        return {"text": text, "position": text, "reasoning": text, "stance": stance, "confidence": 0.7}

    script = {
        seat: [says(stance, text), says("yes", last)]
        for seat, ((stance, text), last) in enumerate(zip(polled, debate.yes + second, strict=True), 1)
    }
    return played(start_debate(topic=debate.question, mode="delphi", agents=agents, rounds=2, script=script))


@pytest.mark.slow
def test_in_played_debates_followers_conform_and_arguers_do_not() -> None:
    conformity: dict[str, float] = {}
    outcomes: dict[str, list[Any]] = {"copied": [], "argued": []}
    for how, outcome in outcomes.items():
        conform = towards = 0
        for number, debate in enumerate(DEBATES):
            row = scripted(debate, getattr(debate, how), f"{how}-{number}")
            poll, first = row.rounds.order_by("number")
            changed = Changes.model_validate(first.statistics["changes"])
            conform += sum(move.conform for move in changed.moves)
            towards += changed.to_majority
            outcome.append((poll.statistics["stances"], first.statistics["stances"], row.exit_reason, first.groupthink))
        conformity[how] = conform / towards

    assert conformity["copied"] >= 0.9
    assert conformity["argued"] <= 0.1
    assert [one[:3] for one in outcomes["copied"]] == [one[:3] for one in outcomes["argued"]]
    assert {one[2] for one in outcomes["copied"]} == {"consensus"}
