"""What a swarm adds to a reply: in health over its two calls, and over the deadline where a call goes wrong in each of several ways."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

TIMES, DEADLINE = 20, 0.3

BROKEN: dict[str, dict[str, Any]] = {  # what a call of a swarm may get in place of an answer
    "hangs": {"hang": True},
    "trickles": {"trickle": True},
    "refuses": {"text": "No.", "stop_reason": "refusal"},
    "is cut": {"text": '{"te', "stop_reason": "max_tokens"},
    "is no JSON": {"text": "Sure, here you go!"},
    "is of another shape": {"json": {"answer": 42}},
    "fails": {"status": 500},
    "is rejected": {"status": 400},
    "is limited": {"status": 429},
    "drops": {"drop": True},
    "is no message": {"raw": "<html>", "content_type": "text/html"},
}


def swarming() -> Iterator[tuple[str, str, str]]:
    """Rows for the table: milliseconds of both stages together in health, and of the slower one where calls go wrong."""
    from django.test import override_settings

    from agents.kit.llm.endpoints import forget
    from agents.kit.models import LLMCall
    from tests.agents.swarm.speaking import Mind, asks, milliseconds, with_swarm
    from tests.llm_server import LLMServer

    logging.getLogger("swarm.swarm").setLevel(logging.ERROR)  # each failed call is a warning
    stages = ["agents.swarm.stages.Calibration", "agents.swarm.stages.Polish"]
    with LLMServer() as server, override_settings(ACTOR_BASE_URL=server.url, TURN_PIPELINE=stages):
        agent, over = with_swarm("swarm-bench"), []
        for n in range(TIMES + 3):
            Mind(server)
            run, _ = asks(agent, f"Which of the {n + 2} lamps should I buy for the office?")
            calls = LLMCall.objects.filter(run=run, purpose="swarm").values_list("latency_ms", flat=True)
            over.append(sum(milliseconds(run).values()) - sum(calls))
        yield "a swarm in health, beside its 2 calls", _shown(over[3:]), "<= 50 ms"
        with override_settings(TURN_SWARM_PRE_DEADLINE=DEADLINE, TURN_SWARM_POST_DEADLINE=DEADLINE):
            for fault, reply in BROKEN.items():
                took = []
                for n in range(TIMES):
                    forget()
                    mind = Mind(server)
                    mind.fails_reading, mind.polishes = reply, partial(_always, reply)
                    run, _ = asks(agent, f"Is lamp {n} any good?")
                    took.append(max(milliseconds(run).values()))
                yield f"   a call that {fault}, deadline {DEADLINE * 1000:.0f} ms", _shown(took), "<= 350 ms"


def _shown(times: list[Any]) -> str:
    return f"{median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"


def _always(reply: dict[str, Any], draft: str) -> dict[str, Any]:
    return reply
