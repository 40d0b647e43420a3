"""How fast judging is: messages against claims, one by one and grouped, and with faults among the answers."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

LATENCY = 0.2  # seconds per call of the model server
MESSAGES, CLAIMS = 20, 4
REPEATS = 5
LONG_CHANNEL, SPEAKERS = 400, 4  # messages, agents that take turns
TOKENS_BEFORE = (
    129_323  # input tokens of the same when every message of a channel was shown the channel's last 100 events
)


def propositions() -> list[Any]:
    from evaluation.propositions.schema import Proposition

    return [
        Proposition(dimension="adherence", id=f"claim-{n}", claim="{{agent_name}} keeps to character")
        for n in range(CLAIMS)
    ]


def questions(per_call: int) -> Iterator[Any]:
    from agents.kit.llm import Label
    from agents.kit.text.fences import new_nonce
    from evaluation.judge.questions import Question
    from evaluation.scorers.context import Context, Event, Window

    events = tuple(
        Event("action", "Ada", f"Message number {n} with a few more words in it, as people write.") for n in range(30)
    )
    window, nonce, claims = Window(events, 0, ()), new_nonce(), propositions()
    for event in events[:MESSAGES]:
        context = Context(agent_name="Ada", persona="You are Ada. " * 100, window=window, message=event)
        for start in range(0, CLAIMS, per_call):
            chosen = tuple(claims[start : start + per_call])
            yield Question(
                propositions=chosen, context=context, label=Label(purpose="bench", work_id="bench"), nonce=nonce
            )


def judge(per_call: int) -> tuple[float, float, list[Any]]:
    """Wall seconds, CPU seconds and verdicts of judging all messages."""
    from evaluation.judge.asking import ask_all

    wall, cpu = time.perf_counter(), time.process_time()
    verdicts = [v for answer in ask_all(questions(per_call), deadline=3) for v in answer.verdicts]
    return time.perf_counter() - wall, time.process_time() - cpu, verdicts


def cpu_of(runs: list[tuple[float, float, list[Any]]]) -> float:
    """The median CPU seconds."""
    return sorted(cpu for _, cpu, _ in runs)[len(runs) // 2]


def judging(url: str, server: Any) -> Iterator[tuple[str, str, str]]:
    from django.test import override_settings

    total = MESSAGES * CLAIMS
    with override_settings(JUDGE_BASE_URL=url):
        for per_call, floor in ((1, "<= 1.1 s"), (CLAIMS, "<= 0.5 s, 20 calls")):
            runs, seen = [], {"calls": total // per_call, "peak_inflight": 0}
            for _ in range(REPEATS):
                if server:
                    server.program({"latency": LATENCY})
                runs.append(judge(per_call))
                seen = server.stats() if server else seen
            walls = sorted(wall for wall, _, _ in runs)
            scored = min(sum(v.status == "scored" for v in verdicts) for _, _, verdicts in runs)
            yield (
                f"{MESSAGES} messages x {CLAIMS} claims, {per_call} per call",
                f"{walls[REPEATS // 2]:.2f} s ({walls[0]:.2f} to {walls[-1]:.2f}), {seen['calls']} calls, "
                f"at most {seen['peak_inflight']} in flight, {scored} of {total} scored",
                floor,
            )
            if server:
                yield input_tokens(server, per_call)
            yield "   CPU per judgement, ledger rows included", f"{cpu_of(runs) / total * 1000:.2f} ms", "-"
            with mock.patch("agents.kit.llm.ledger.record_all", lambda calls: [None] * len(calls)):
                judge(per_call)
                bare = [judge(per_call) for _ in range(REPEATS)]
            yield "   CPU per judgement before the database", f"{cpu_of(bare) / total * 1000:.2f} ms", "<= 2 ms"
        if server:
            yield faults(server, total)
            yield long_channel(server)


def input_tokens(server: Any, per_call: int) -> tuple[str, str, str]:
    """Of a judgement with a persona of 1,300 characters and a window of 30 messages; four characters count as a token, cached or not."""
    from django.db.models import Max, Sum

    from agents.kit.models import LLMCall

    newest = LLMCall.objects.aggregate(pk=Max("pk", default=0))["pk"]
    server.program({"latency": LATENCY}, cache={"minimum": 10**9, "delay": LATENCY})
    judge(per_call)
    tokens = LLMCall.objects.filter(pk__gt=newest).aggregate(n=Sum("input_tokens"))["n"]
    return "   input tokens per judgement", f"{tokens / (MESSAGES * CLAIMS):.0f}", "-"


def long_channel(server: Any) -> tuple[str, str, str]:
    """Input tokens of judging 20 sampled messages of an agent in a long channel, each shown what was said around it."""
    from agents.models import Agent, Channel, Message
    from agents.personas.persona import save_persona
    from evaluation.runs.execute import capture
    from evaluation.runs.spec import RunSpec
    from evaluation.runs.summary import spent_on

    agents = [Agent(slug=f"long-{n}", display_name=f"Long {n}") for n in range(SPEAKERS)]
    for agent in agents:
        agent.system_prompt = (
            f"You are {agent.display_name}. " + "You never hurry, and you answer what you were asked. " * 40
        )
        save_persona(agent=agent, traits=[], note="bench")
    channel = Channel.objects.create(slug="long", name="long", next_position=LONG_CHANNEL + 1)
    Message.objects.bulk_create(
        Message(
            channel=channel,
            position=n,
            agent=agents[n % SPEAKERS],
            text=f"Message number {n}, {'a few more words as people write them, ' * (1 + n % 5)}and its end.",
        )
        for n in range(1, LONG_CHANNEL + 1)
    )
    server.program({"latency": LATENCY}, cache={"minimum": 4096, "delay": LATENCY})
    used = spent_on(one.summary for one in capture([RunSpec(agent=agents[0], dimensions=("adherence",), seed=1)]))
    return (
        f"{MESSAGES} sampled messages of an agent in a channel of {LONG_CHANNEL}",
        f"{used.calls} calls, {used.input_tokens:,} input tokens ({used.input_tokens / max(TOKENS_BEFORE, 1):.2f} x {TOKENS_BEFORE:,}), "
        f"{used.cache_read_share or 0:.0%} read from the prompt cache (imitated, 4,096 at least)",
        "<= 1.3 x",
    )


def faults(server: Any, total: int) -> tuple[str, str, str]:
    """10 % 429, 10 % malformed and 2 hung calls, mixed at random (seeded) among 80."""
    trouble = [{"status": 429}] * 8 + [{"text": "seven, I would say"}] * 8 + [{"hang": True}] * 2
    mixed = trouble + [{"latency": LATENCY}] * (total - len(trouble))
    random.Random(7).shuffle(mixed)
    server.program({"latency": LATENCY}, mixed)
    wall, _, verdicts = judge(1)
    scored = sum(v.status == "scored" for v in verdicts)
    reasons = sorted({v.reason.split(":")[0] for v in verdicts if v.status == "unscored"})
    return (
        "80 calls with 8 x 429, 8 malformed, 2 hung (deadline 3 s)",
        f"{scored} scored, {total - scored} unscored ({', '.join(reasons)}), {server.stats()['calls']} calls, {wall:.1f} s",
        "all but the hung ones scored",
    )
