"""Check a reply while it grows: who speaks, what was said before, and the verdict on each new beginning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from django.db.models import Q
from pydantic import BaseModel

from agents.kit.refusals import Refused
from agents.models import Agent
from correction.config.settings import AgentEvaluationConfig, ResolvedConfig, merge, own_and_defaults
from correction.gate.actions import Action, persona_of
from correction.gate.check import check_actions
from correction.gate.plan import CheckPlan, plan_check
from correction.gate.quality_check import CHANNEL_NAME, UNNAMED
from correction.gate.results import GateResult
from correction.gate.sessions import load_attempts
from correction.litellm.contract import Parameters
from correction.litellm.replies import ReplySoFar, excerpt_of
from correction.models import GateSession
from evaluation.scorers.context import Event

ASSISTANT = "assistant"
SYSTEM = "system"
TOOL = "tool"
CHARACTERS_PER_TOTAL = 500  # of a reply: to read them takes longer than 12 seconds, the default total


class CallMessage(BaseModel):
    """A message of the call: who said it, by role and, where it has one, name."""

    role: str
    text: str
    name: str = ""


class CallContext(BaseModel):
    """What a call brought with it; stored with the row of its reply until that is over.

    Attributes:
        messages: What was said before, oldest first, without system prompts; what tools answered is for who writes again only.
        left_out: How many messages before these were left out.
        system: The system prompts, joined.
        speaker: Name of a speaker who is no agent.
    """

    messages: list[CallMessage] = []
    left_out: int = 0
    system: str = ""
    speaker: str = ""


@dataclass(frozen=True)
class Speaker:
    """Who speaks in a reply, and what the gate is set to for them.

    Attributes:
        agent: None where the system message of the call is the persona.
    """

    agent: Agent | None
    config: ResolvedConfig
    parameters: Parameters

    @property
    def name(self) -> str:
        if self.agent is not None:
            return self.agent.display_name
        return self.parameters.speaker or UNNAMED

    @cached_property
    def plan(self) -> CheckPlan:
        return plan_check(agent=self.agent, config=self.config)


def load_session(uuid: UUID, *, agent: Agent | None, speaker: str) -> GateSession:
    """Return the gate session of a reply with its attempts so far; where none is stored a new one, not saved yet.

    An agent's is one as of its own drafts, that of a speaker who is no agent an external one.

    Args:
        speaker: The name of a speaker who is no agent; empty for an agent.
    """
    source = GateSession.Source.EXTERNAL if speaker else GateSession.Source.GATE
    attempts = load_attempts(session=str(uuid), source=source)
    if not attempts:
        return GateSession(uuid=uuid, source=source, agent=agent, speaker=speaker)
    session = attempts[-1].session
    session.attempts = attempts
    return session


def find_speaker(parameters: Parameters, *, is_call: bool) -> Speaker:
    """Return who speaks, with their configuration; two queries at most.

    Where the gate is off an agent that sets nothing of its own is looked up once a call, so that a wrong slug is noticed.

    Args:
        is_call: Whether the call itself is checked, not its reply.

    Raises:
        Refused: There is no such agent.
    """
    rows = AgentEvaluationConfig.objects.filter(Q(is_defaults=True) | Q(agent__slug=parameters.agent))
    own, defaults = own_and_defaults(rows.select_related("agent"))
    config = merge(own=own, defaults=defaults)
    agent = own.agent if own is not None else None
    if parameters.agent and agent is None and (is_call or not config.gate_is_off):
        agent = Agent.objects.filter(slug=parameters.agent).first()
        if agent is None:
            sentence = f"there is no agent {parameters.agent!r}; allowed: the slug of an agent"
            raise Refused({"additional_provider_specific_params.agent": sentence}, names_nothing=True)
    return Speaker(agent, config, parameters)


@dataclass(frozen=True)
class Checker:
    """Checks beginnings of one reply.

    Attributes:
        ends_at: When the round is to be answered, on the clock of `time.monotonic`.
        is_sent_as_written: Whether LiteLLM sends a stream's words as the model writes them, and nothing can replace them.
    """

    speaker: Speaker
    context: CallContext
    session: UUID
    ends_at: float
    is_sent_as_written: bool = False

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the round is to be answered."""
        return self.ends_at - time.monotonic()

    @cached_property
    def _action(self) -> Action:
        """Return the reply with everything it is judged by, but its text."""
        agent = self.speaker.agent
        name = self.speaker.name
        persona = self.context.system or None
        if agent is not None:
            persona = persona_of(agent, None) if self.speaker.plan.propositions.show_persona else None
        events = []
        for message in self.context.messages:
            if message.role == TOOL:  # judges see none of other messages either
                continue
            if message.role == ASSISTANT:
                events.append(Event("action", name, message.text))
            else:
                events.append(Event("stimulus", name, message.text, speaker=message.name or message.role))
        return Action(
            text="",
            agent_name=name,
            agent_slug=agent.slug if agent is not None else "",
            seeded=agent is not None and agent.seeded,
            persona=persona,
            events=tuple(events),
            omitted=self.context.left_out,
            channel_name=CHANNEL_NAME,
        )

    def deadline(self, reply: ReplySoFar) -> float:
        """Return the seconds that a check may take: as configured for one, at most what is left of the reply's total and of the round.

        A long reply has many rounds, and LiteLLM waits in each: the total is granted again for every CHARACTERS_PER_TOTAL of it.
        """
        config = self.speaker.config
        total = float(config["gate_total_deadline_seconds"]) * (1 + len(reply.raw) // CHARACTERS_PER_TOTAL)
        left = total - reply.waited_ms / 1000
        return min(float(config["gate_deadline_seconds"]), left, self.seconds_left)

    def check(self, beginnings: Sequence[str], *, deadline: float, is_whole: bool = False) -> list[GateResult]:
        """Judge beginnings of the reply side by side, each as the text so far.

        Args:
            deadline: Seconds for all of them; 0 or less: they pass unjudged.
            is_whole: Whether the last one is the whole reply.
        """
        if not beginnings:
            return []
        actions = []
        for text in beginnings:
            actions.append(replace(self._action, text=text.strip(), excerpt=excerpt_of(text), growing=True))
        if is_whole:
            actions[-1] = replace(actions[-1], growing=False)
        work_id = f"gate_session:{self.session}"
        return check_actions(actions, self.speaker.plan, work_id=work_id, deadline=deadline, about=work_id)

    def breaks_rules(self, beginning: str) -> bool:
        """Return whether a beginning of the reply breaks a rule of the agent's; no judge is asked."""
        action = replace(self._action, text=beginning.strip(), growing=True)
        rules_alone = replace(self.speaker.plan, judged_dimensions=())
        [result] = check_actions([action], rules_alone, work_id=f"gate_session:{self.session}", deadline=0)
        return not result.passed
