"""What judging costs at 10,000 agents × 100 messages a day, by how much of it is judged: tokens of the example agents' own prompts.

Prompts are measured (characters / 4, no prompt cache); answers are the assumption of the estimate, 160 tokens a claim; prices are those
of prices.yaml.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

AGENTS, MESSAGES = 10_000, 100
MODELS = ("claude-haiku-5-5", "claude-haiku-4-5")
GATED = ("adherence", "consistency", "fluency")


def sampling() -> Iterator[tuple[str, str, str]]:
    """Rows for the table: calls a day, and dollars a day per model."""
    from django.core.management import call_command

    call_command("seed", stdout=io.StringIO())
    gate, claims = _gate_tokens()
    yield (
        "gate, tokens per message in three dimensions",
        f"{gate:,.0f} in (mean of the example agents), {claims:.1f} claims",
        "-",
    )
    day = AGENTS * MESSAGES
    for share in (1.0, 0.2, 0.05, 0.01):
        calls = day * share * len(GATED)
        yield _row(f"gate or observe {share:.0%} of messages", calls, gate * day * share, claims * day * share)
    for samples, days in ((25, 7), (10, 7), (10, 1)):
        calls, sent, answered = _capture(samples)
        scale = Decimal(AGENTS) / days
        yield _row(
            f"evaluate adherence and consistency, {samples} messages each, every {days} day{'s' * (days > 1)}",
            calls * float(scale), sent * float(scale), answered * float(scale),
        )  # fmt: skip


def _row(name: str, calls: float, sent: float, claims: float) -> tuple[str, str, str]:
    from agents.kit.llm.ledger import estimate_cost
    from evaluation.runs.planning import OUTPUT_TOKENS_PER_CLAIM

    per_call = (round(sent / calls), round(claims * OUTPUT_TOKENS_PER_CLAIM / calls))
    dollars = [(estimate_cost(model, *per_call) or Decimal(0)) * round(calls) for model in MODELS]
    costs = ", ".join(f"${cost:,.0f} {model}" for cost, model in zip(dollars, MODELS, strict=True))
    return name, f"{calls:,.0f} calls a day ({calls / 86_400:,.1f} a second), {costs}", "-"


def _gate_tokens() -> tuple[float, float]:
    """Mean input tokens and claims of judging a message of an example agent in all gate dimensions."""
    import json

    from django.test import override_settings

    from agents.models import ChannelMember, Message
    from agents.turn.send_message import send_message
    from correction.config.configure import configure
    from tests.bench.gate import VERDICT
    from tests.llm_server import LLMServer
    from tests.prompt_cache import PromptCache

    configure(agent=None, changes={f"gate_{name}_enabled": True for name in GATED})
    said: dict[int, Message] = {}
    for message in (
        Message.objects.filter(agent__isnull=False, synthetic=False).select_related("agent", "channel").order_by("pk")
    ):
        said[message.agent_id or 0] = message
    count, claims, sent = PromptCache(minimum=10**9), 0, 0
    with LLMServer() as server, override_settings(JUDGE_BASE_URL=server.url):
        server.always(text=json.dumps(VERDICT))
        for message in said.values():
            if message.agent is not None:
                ChannelMember.objects.get_or_create(channel=message.channel, agent=message.agent)
                send_message(agent=message.agent, channel=message.channel, text=message.text + " Again.")
        bodies: list[dict[str, Any]] = list(server.bodies)
    for body in bodies:
        sent += count.usage(body)["input_tokens"]
        claims += 1
    return sent / len(said), claims / len(said)


def _capture(samples: int) -> tuple[float, float, float]:
    """Mean calls, input tokens and claims of evaluating an example agent by `samples` of its messages."""
    from agents.models import Agent
    from evaluation.runs.estimate import estimate
    from evaluation.runs.planning import OUTPUT_TOKENS_PER_CLAIM
    from evaluation.runs.spec import RunSpec

    agents = list(Agent.objects.filter(is_active=True))
    found = [
        estimate(RunSpec(agent=agent, dimensions=("adherence", "consistency"), samples=samples)) for agent in agents
    ]
    calls, sent, answered = (
        sum(getattr(one, name) for one in found) / len(agents) for name in ("calls", "input_tokens", "output_tokens")
    )
    return calls, sent, answered / OUTPUT_TOKENS_PER_CLAIM
