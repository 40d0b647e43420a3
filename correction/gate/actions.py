"""Read what a draft, or a message that was sent, is judged by: its conversation so far and the persona."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agents.models import Agent, Channel, Message, PersonaVersion
from agents.personas.persona import TraitValue, render_persona
from agents.turn.pipeline import Draft, Turn
from correction.gate.plan import DraftPropositions
from evaluation.judge.verdicts import Verdict, verdict_by_precondition
from evaluation.propositions.preconditions import Target
from evaluation.propositions.schema import Proposition
from evaluation.scorers.context import Context, Event, Window, cut_window
from evaluation.scorers.reading import read_ends
from evaluation.scorers.subjects import event_of, manners_of

REQUESTS_STAGE = "behavior"  # its sections say what people asked for in this channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A draft with everything it is judged by.

    Attributes:
        excerpt: What the judge is shown in place of `text`, where that is too long to show; rules are checked on all of it.
        agent_name: Who is about to say it, as the judge reads it.
        agent_slug: Whose propositions hold for it; those of every agent always do.
        seeded: Whether the agent is one of the examples, so that their propositions hold.
        persona: The rendered persona; None when there is none to show.
        events: What happened before, oldest first, without the draft. Where the conversation is long, the first `events_at_start`
            of them are its first events, `omitted` ones are left out after those, and the rest are its last events.
        channel_name, channel_kind: Where it is about to be said.
        is_reply: Whether it answers a message in a thread.
        growing: Whether `text` is the beginning of a message that is still being written: what only the whole can meet is not checked.
    """

    text: str
    agent_name: str
    agent_slug: str = ""
    seeded: bool = False
    persona: str | None = None
    events: tuple[Event, ...] = ()
    events_at_start: int = 0
    omitted: int = 0
    channel_name: str = ""
    channel_kind: str = ""
    is_reply: bool = False
    growing: bool = False
    excerpt: str = ""
    _by_precondition: dict[tuple[str, str], Verdict | None] = field(  # by dimension and id of the proposition
        default_factory=dict, init=False, repr=False, compare=False
    )

    def context(self, first_n: int, last_n: int) -> Context:
        """Return what the judge is shown, with that many events from the start and the end."""
        return Context(
            agent_name=self.agent_name,
            persona=self.persona,
            window=self._window(first_n, last_n),
            action=self.excerpt or self.text,
            growing=self.growing,
            channel_name=self.channel_name,
        )

    def without_judge(self, proposition: Proposition) -> Verdict | None:
        """Return the verdict where the proposition's precondition decides; None where the judge is to be asked.

        A precondition is called once: what is asked and what is made of the replies go by the same answer of it.
        """
        key = (proposition.dimension, proposition.id)
        if key not in self._by_precondition:
            target = Target(text=self.text, channel_kind=self.channel_kind, is_reply=self.is_reply)
            verdict = verdict_by_precondition(proposition, target, variables=self.context(0, 0).variables())
            self._by_precondition[key] = verdict
        return self._by_precondition[key]

    def _window(self, first_n: int, last_n: int) -> Window:
        """Return the events that the judge is shown, and how many are left out between them."""
        if not self.omitted:  # `events` are all there were
            return cut_window(self.events, first_n=first_n, last_n=last_n)
        at_start = self.events[: self.events_at_start]
        at_end = self.events[self.events_at_start :]
        first = at_start[:first_n]
        last = at_end[max(0, len(at_end) - last_n) :]  # not [-last_n:], which is all for 0
        omitted = self.omitted + len(at_start) - len(first) + len(at_end) - len(last)
        return Window(first, omitted, last)


def action_of_draft(turn: Turn, draft: Draft, propositions: DraftPropositions) -> Action:
    """Read a draft of a turn with the start and the end of its channel as they are now.

    The persona, where one is shown, is followed by what people of this channel asked for, as the agent itself was prompted.
    """
    trigger = turn.trigger  # the message that the turn answers
    action = _read_action(
        text=draft.text,
        agent=turn.agent,
        channel=turn.channel,
        persona_version_id=turn.persona_version_id,
        is_reply=trigger is not None and trigger.channel_id == turn.channel.pk and trigger.parent_id is not None,
        propositions=propositions,
    )
    requests = [section.body for section in turn.sections if section.stage == REQUESTS_STAGE]
    if action.persona is None or not requests:
        return action
    return replace(action, persona="\n\n".join((action.persona, *requests)))


def action_of_message(message: Message, agent: Agent, propositions: DraftPropositions) -> Action:
    """Read a message that was sent already, with what stood before it and the persona version it was spoken with.

    The persona, where one is shown, is followed by what people had asked for there.
    """
    action = _read_action(
        text=message.text,
        agent=agent,
        channel=message.channel,
        persona_version_id=message.persona_version_id,
        is_reply=message.parent_id is not None,
        propositions=propositions,
        before_position=message.position,
    )
    manner = manners_of(agent, [message]).get(message.pk) if action.persona is not None else None
    return replace(action, persona=f"{action.persona}\n\n{manner}") if manner else action


def _read_action(
    *,
    text: str,
    agent: Agent,
    channel: Channel,
    persona_version_id: int | None,
    is_reply: bool,
    propositions: DraftPropositions,
    before_position: int | None = None,
) -> Action:
    """Read what the propositions want to see of persona and channel; a short channel costs one query, a long one three.

    Args:
        persona_version_id: None: the agent's present persona.
        before_position: Only messages before this position; None: all there are.
    """
    action = Action(
        text=text,
        agent_name=agent.display_name,
        agent_slug=agent.slug,
        seeded=agent.seeded,
        channel_name=str(channel),
        channel_kind=channel.kind,
        is_reply=is_reply,
    )
    if propositions.show_persona:
        action = replace(action, persona=persona_of(agent, persona_version_id))
    if not propositions.all_judged:
        return action
    messages = Message.objects.filter(channel=channel)
    if not channel.synthetic:  # a simulation is no part of a real conversation
        messages = messages.filter(synthetic=False)
    if before_position is not None:
        messages = messages.filter(position__lt=before_position)
    ends = read_ends(messages, propositions.first_n, propositions.last_n)
    return replace(
        action,
        events=tuple(event_of(agent, row) for row in (*ends.first, *ends.last)),
        events_at_start=len(ends.first),
        omitted=ends.omitted,
    )


def persona_of(agent: Agent, version_id: int | None) -> str:
    """Return the persona an agent speaks under: that of the version, or its present one where there is no version."""
    if version_id is not None:
        versions = PersonaVersion.objects.filter(pk=version_id).order_by()
        version = versions.values_list("system_prompt", "traits").first()
        if version is not None:
            system_prompt, traits = version
            return render_persona(system_prompt=system_prompt, traits=[TraitValue(**trait) for trait in traits])
    return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
