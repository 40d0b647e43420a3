"""Debates whose seats answer side by side, against the floor: what the models take one after the other, or our own CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

SEATS, ROUNDS, REPEATS = 6, 5, 3
TOPIC = "Should the office move to Stamford?"
ANSWER = {
    "text": "I would stay.",
    "position": "We should stay where we are.",
    "reasoning": "It is near.",
    "confidence": 0.6,
}
JUDGED = {"agreement": 0.5, "clusters": [], "common_ground": [], "disagreements": [], "summary": "They differ."}


def debating(url: str, server: Any, *, latency: float) -> Iterator[tuple[str, str, str]]:
    """Rows for the table: every mode in which all seats answer side by side. `server` answers after `latency` seconds."""
    from django.test import override_settings

    from agents.debates.modes import MODES
    from agents.models import Agent
    from agents.personas.persona import save_persona

    agents = []
    for number in range(SEATS):
        agent = Agent(slug=f"seat-{number}", display_name=f"Seat {number}", system_prompt="You are a clerk. " * 100)
        save_persona(agent=agent, note="bench")
        agents.append(agent)
    with override_settings(ACTOR_BASE_URL=url, JUDGE_BASE_URL=url, ACTOR_MODEL="claude-haiku-5-5"):
        for mode in (name for name, mode in MODES.items() if mode.order == "parallel"):
            runs = sorted(_played(agents, mode, server, latency) for _ in range(REPEATS))
            ratio, wall, cpu = runs[REPEATS // 2]
            waiting = 2 * ROUNDS * latency  # one wave of seats and one call of the judge a round
            yield (
                f"{mode}: {SEATS} seats x {ROUNDS} rounds at {latency * 1000:.0f} ms, each judged",
                f"{wall:.2f} s, {ratio:.2f} x the floor ({runs[0][0]:.2f} to {runs[-1][0]:.2f})",
                f"<= 1.4 x the larger of {waiting:.1f} s waiting and {cpu:.2f} s CPU",
            )


def _played(agents: Any, mode: str, server: Any, latency: float) -> tuple[float, float, float]:
    """Play one debate; returns its time over the floor, its time, and the CPU time of our process."""
    from agents.debates.debate import ask_rounds, play
    from agents.debates.starting import start_debate
    from agents.kit.models import owner_name

    never: dict[str, Any] = {"consensus": None, "confidence": None, "convergence_rounds": None}
    debate = start_debate(topic=TOPIC, mode=mode, agents=agents, rounds=ROUNDS, poll=False, **never)
    stance = {"stance": "yes"} if mode == "delphi" else {}
    call = ("send_message", {"channel": debate.channel.slug, **ANSWER, **stance})
    server.program({"latency": latency, "text": json.dumps(JUDGED), "tool_calls": [call]})
    ask_rounds(debate, None)
    wall, cpu = time.perf_counter(), time.process_time()
    play(debate, owner=owner_name())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    answered = debate.turns.filter(status="answered").count()
    assert (answered, debate.exit_reason) == (SEATS * ROUNDS, "max_rounds"), (answered, debate.error)
    return wall / max(2 * ROUNDS * latency, cpu), wall, cpu
