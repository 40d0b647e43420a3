"""What playing an agent and judging what it says would need, before anything is said: nobody is asked, and nothing stays stored.

Stand-ins are said in channels of a transaction that is rolled back, so that prompts and questions are those of a real play.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from uuid import uuid4

from django.db import transaction

from agents.llm import Label, LLMRequest, estimate_tokens, ledger
from agents.models import Agent, Channel, ChannelMember, Message
from agents.turn.prompt import build_prompt, new_turn
from agents.turn.tools import tool_definitions
from evaluation.estimate import Estimate, estimate
from evaluation.rehearsal.situations import Situation
from evaluation.rehearsal.specs import play_spec
from evaluation.rehearsal.stage import REPEAT, SITUATION, TURN, actor_of
from evaluation.rehearsal.values import Play
from evaluation.run_spec import PLAY, RunSpec

CALLS_PER_LINE = 2  # one says something, the next ends the turn: an assumption, for an agent may use other tools, too
REPLY_TOKENS = 80  # of what it says to a line: an assumption, too
STAND_IN = ("word " * REPLY_TOKENS)[: REPLY_TOKENS * 4].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayEstimate:
    """Before a play; tokens are characters / 4 for the prompts and assumptions for the answers, `cost_usd` is None when unpriced."""

    agent: str
    actor_model: str
    lines: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


def estimate_play(
    spec: RunSpec, *, situations: Sequence[Situation], actor_model: str = "", repeats: int = 1
) -> tuple[PlayEstimate, Estimate]:
    """What the actor would need, and the judge of what it says, if every line is answered once.

    Args:
        spec: What is to be measured, of an agent.
        situations: What would be said to it.
        actor_model: Who plays it; default the agent's own model, else `ACTOR_MODEL`.
        repeats: How often each situation is played.

    Raises:
        ValueError: `spec` is of a channel.
        PropositionError: Proposition files cannot be used.
    """
    if spec.agent is None:
        raise ValueError(f"{spec.target} is a channel; allowed: an agent")
    model = actor_of(spec.agent, actor_model)
    with _rolled_back():
        play, asked = _stand_in(spec.agent, situations, model, repeats)
        judging = estimate(play_spec(spec, play))
    lines, said = len(asked) * repeats, REPLY_TOKENS * len(asked) * repeats
    sent = CALLS_PER_LINE * repeats * sum(asked) + said
    acting = PlayEstimate(
        agent=spec.agent.slug,
        actor_model=model,
        lines=lines,
        calls=CALLS_PER_LINE * lines,
        input_tokens=sent,
        output_tokens=said,
        cost_usd=ledger.estimate_cost(model, sent, said),
    )
    return acting, judging


@contextmanager
def _rolled_back() -> Iterator[None]:
    """Inside, what is stored is seen by nobody else, and gone afterwards."""
    with transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)


def _stand_in(agent: Agent, situations: Sequence[Situation], model: str, repeats: int) -> tuple[Play, list[int]]:
    """A play with a stand-in for each answer; and per line of its first repeat the tokens of the prompt it would be answered by."""
    name = f"estimate-{uuid4().hex[:12]}"
    asked: list[int] = []
    for repeat in range(1, repeats + 1):
        for number, situation in enumerate(situations, 1):
            tags = {PLAY: name, SITUATION: situation.id, REPEAT: str(repeat)}
            slug = f"{name}-{number:02}-{repeat}"
            channel = Channel.objects.create(slug=slug, name=slug, kind="private", synthetic=True, tags=tags)
            ChannelMember.objects.create(channel=channel, agent=agent)
            asked += _talk(agent, situation, channel, tags, count=repeat == 1)
    play = Play(
        id=name,
        agent=agent,
        actor_model=model,
        persona_digest="",
        conversations=(),
        messages=repeats * sum(len(situation.lines) for situation in situations),
    )
    return play, asked


def _talk(agent: Agent, situation: Situation, channel: Channel, tags: dict[str, str], *, count: bool) -> Iterator[int]:
    """Say the lines and the stand-ins; with `count` yields the tokens of each line's prompt."""
    for turn, line in enumerate(situation.lines, 1):
        common = {"channel": channel, "synthetic": True, "tags": {**tags, TURN: str(turn)}}
        said = Message.objects.create(position=2 * turn - 1, outsider=situation.speaker, text=line, **common)
        if count:
            yield _prompt_tokens(agent, said)
        Message.objects.create(position=2 * turn, agent=agent, text=STAND_IN, **common)


def _prompt_tokens(agent: Agent, line: Message) -> int:
    """Of the prompt with which the agent's turn would begin after this line."""
    turn = new_turn(agent=agent, channel=line.channel, trigger=line, overrides={"stages": []}, preview=True)
    prompt = build_prompt(turn)
    request = LLMRequest(
        role="actor",
        task="turn",
        system=prompt.system,
        turns=(prompt.user,),
        tools=tool_definitions(),
        label=Label(purpose="estimate"),
    )
    return estimate_tokens(request)
