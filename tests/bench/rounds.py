"""Rounds of LiteLLM: what the gate adds to one of a growing reply, beside a round that finds it off and the time of its judge."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from django.test import Client, override_settings

from tests.bench.gate import VERDICT

REPLIES = 15
SENTENCES = [f"Your file number {number} is in the second cabinet, where it belongs." for number in range(4)]
PATH = "/api/litellm/beta/litellm_basic_guardrail_api"
_calls = itertools.count(1)


def rounding(url: str, server: Any, *, latency: float) -> Iterator[tuple[str, str, str]]:
    """Yield rows for the table; the judge answers after `latency` seconds, and at once."""
    from agents.kit.models import ApiToken
    from correction.config.configure import configure
    from tests.console import superuser
    from tests.factories import make_agent

    key = ApiToken.make(user=superuser("rounds"), name="rounds", expires_at=None)[1]
    client = Client(headers={"x-api-key": key, "host": "localhost"})
    agent = make_agent("rounds")
    with override_settings(JUDGE_BASE_URL=url, JUDGE_MODEL="claude-haiku-5-5"):
        floor = statistics.median(_seconds(client, agent.slug)["new"])
        yield "a round of LiteLLM while the gate is off", f"{floor * 1000:.1f} ms", "- (the floor of what follows)"
        configure(agent=agent, changes={"gate_mode": "enforce", "gate_adherence_enabled": True})
        for judge in (0.0, latency):
            server.program({"latency": judge, "json": VERDICT})
            _seconds(client, agent.slug)  # opens the connections
            taken = _seconds(client, agent.slug)
            added = statistics.median(taken["new"]) - floor - judge
            yield (
                f"   with a new sentence and the beginning of another, judge {judge * 1000:.0f} ms",
                f"adds {added * 1000:.0f} ms to floor and judge",
                "judge + 300 ms",
            )
        again = statistics.median(taken["again"]) - floor
        yield "   with nothing new", f"adds {again * 1000:.1f} ms", "-"


def _seconds(client: Client, agent: str) -> dict[str, list[float]]:
    """Post the rounds of some replies; return the seconds of those with a new sentence and of those that are posted again."""
    seconds: dict[str, list[float]] = {"new": [], "again": []}
    for _ in range(REPLIES):
        call = f"call-{next(_calls)}"
        messages = [{"role": "user", "content": "Where is my file?"}]
        _post(client, agent, {"input_type": "request", "litellm_call_id": call, "structured_messages": messages})
        for number in range(1, len(SENTENCES)):
            text = " ".join(SENTENCES[:number]) + " And then"
            body = {"input_type": "response", "litellm_call_id": call, "texts": [text]}
            for kind in seconds:
                begun = time.perf_counter()
                _post(client, agent, body)
                seconds[kind].append(time.perf_counter() - begun)
    return seconds


def _post(client: Client, agent: str, body: dict[str, Any]) -> None:
    body |= {"request_data": {}, "additional_provider_specific_params": {"agent": agent}}
    answer = client.post(PATH, json.dumps(body), content_type="application/json", secure=True)
    if answer.status_code != 200:
        raise RuntimeError(answer.content[:300])
