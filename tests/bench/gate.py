"""What the gate adds to saying a message: three dimensions judged at once, and a judge that never answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

VERDICT = {"evidence": "present", "reasoning": "r", "justification": "j", "value": 8, "confidence": 0.8}
HISTORY = 40


def gating(url: str, server: Any, *, latency: float, repeats: int = 15) -> Iterator[tuple[str, str, str]]:
    """Rows for the table; `server` answers every question after `latency` seconds."""
    from django.db import connection
    from django.test import override_settings
    from django.test.utils import CaptureQueriesContext

    from correction.models import AgentEvaluationConfig

    agent, channel = _cast()
    config = AgentEvaluationConfig.objects.create(agent=agent)

    def send() -> Any:
        from agents.turn.send_message import send_message

        return send_message(agent=agent, channel=channel, text="I filed it this morning, where it belongs. Next.")

    def seconds(times: int) -> list[float]:
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            send()
            found.append(time.perf_counter() - begun)
        return sorted(found)

    def configure(**fields: Any) -> None:
        AgentEvaluationConfig.objects.filter(pk=config.pk).update(**fields)

    every = {f"gate_{name}_enabled": True for name in ("adherence", "consistency", "fluency")}
    with override_settings(JUDGE_BASE_URL=url):
        send()
        off = seconds(repeats)
        configure(**every)
        server.program({"latency": latency, "json": VERDICT})
        send()  # imports the SDK, opens the connections
        gated = seconds(repeats)
        added = gated[repeats // 2] - off[repeats // 2]
        with CaptureQueriesContext(connection) as queries:
            send()
        control = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")
        count = sum(not query["sql"].startswith(control) for query in queries.captured_queries)
        yield (
            f"send_message, gate with 3 dimensions at {latency * 1000:.0f} ms",
            f"adds {added * 1000:.0f} ms ({(gated[0] - off[repeats // 2]) * 1000:.0f} to "
            f"{(gated[-1] - off[repeats // 2]) * 1000:.0f}) to {off[repeats // 2] * 1000:.0f} ms, {count} statements",
            "<= 230 ms, <= 12 statements",
        )
        configure(gate_deadline_seconds=1)
        server.program({"hang": True})
        hung = seconds(3)
        yield "send_message, every dimension hangs (deadline 1 s)", f"said after {hung[-1]:.2f} s", "<= 1.3 s"


def _cast() -> tuple[Any, Any]:
    from agents.models import Agent, Channel, ChannelMember, Message
    from agents.personas.persona import save_persona

    agent = Agent(slug="ada", display_name="Ada", system_prompt="You are Ada, a dry and careful clerk. " * 50)
    save_persona(agent=agent, note="bench")
    channel = Channel.objects.create(slug="bench-gate", name="bench", next_position=HISTORY + 1)
    ChannelMember.objects.create(channel=channel, agent=agent)
    Message.objects.bulk_create(
        Message(
            channel=channel,
            position=n + 1,
            agent=agent if n % 2 else None,
            outsider="" if n % 2 else "Bob",
            text=f"Message number {n}, some words long, as people write them in an office.",
        )
        for n in range(HISTORY)
    )
    return agent, channel
