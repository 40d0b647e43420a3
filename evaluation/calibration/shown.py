"""What a person who labels is shown: the claim and what the judge was shown around it, never the judge's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from agents.models import Message, PersonaVersion
from agents.personas.persona import TraitValue, render_persona
from evaluation.dimensions import Dimension
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.propositions.files import PropositionError
from evaluation.propositions.schema import Proposition
from evaluation.runs.planning import propositions_asked, subject_of
from evaluation.scorers import SCORERS
from evaluation.scorers.subjects import ChannelSubject, Context, Subject, Window, in_window
from evaluation.windows import MessageWindow

SAID_BEFORE, SAID_AFTER = 5, 2
JUDGED = "→"  # marks in a file what the claim is about


@dataclass(frozen=True, slots=True)
class Section:
    """Events under a heading; `marked`: the last of them is what the claim is about."""

    title: str
    window: Window
    folded: bool = False
    marked: bool = False

    @property
    def count(self) -> int:
        """Events that are shown."""
        return len(self.window.first) + len(self.window.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One judgement without its judge.

    Attributes:
        about: The agent's name; the channel's where a conversation is judged.
        where: The channel the message was said in; empty where a window is judged.
        claim: As it is written: true is 9, also for an anti-pattern.
        persona: As the judge was shown it; None where it was withheld.
        message: The message the claim is about; empty where it is about a window or a pair.
        sections: What was said around it.
    """

    about: str
    where: str
    claim: str
    persona: str | None
    message: str
    sections: tuple[Section, ...]
    statistics: Mapping[str, Any]
    additional: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def shown(score: EvaluationScore) -> Shown:
    """What the judge was shown for a judgement, from the messages stored by then.

    Args:
        score: With its run, the run's agent and channel, message and compared message.
    """
    run = score.evaluation_run
    subject, notes = _subject(score)
    proposition = _proposition(run, score)
    try:
        context = SCORERS[score.dimension].context(subject, proposition, score.message, score.compared_with)
    except ValueError:
        return _only_snippet(score, subject)
    return Shown(
        about=context.agent_name,
        where=str(score.message.channel) if score.message else "",
        claim=score.claim,
        persona=context.persona,
        message=context.message.text if context.message else "",
        sections=tuple(_sections(score, subject, context)),
        statistics=context.statistics or {},
        additional=run.additional_context,
        notes=notes,
    )


def blind_text(score: EvaluationScore) -> str:
    """What is judged as plain text, for a file: the message after what was said before it, or the lines of the pair or window."""
    message = score.message
    if message is not None and score.compared_with is None:
        before = _near(message, score.judged_at).filter(position__lt=message.position).order_by("-position")
        lines = [f"{said.author_name}: {said.text}" for said in reversed(before[:SAID_BEFORE])]
        return "\n".join([*lines, f"{JUDGED} {message.author_name}: {message.text}"])
    judgement = shown(score)
    return "\n\n".join(_section_text(section) for section in judgement.sections) or judgement.message


def _section_text(section: Section) -> str:
    window = section.window
    first, last = (
        [f"{event.speaker or event.name}: {event.text}" for event in part] for part in (window.first, window.last)
    )
    if section.marked and (last or first):
        (last or first)[-1] = f"{JUDGED} {(last or first)[-1]}"
    omitted = [f"[… {window.omitted} left out …]"] if window.omitted else []
    return "\n".join([f"# {section.title}", *first, *omitted, *last])


def _subject(score: EvaluationScore) -> tuple[Subject | ChannelSubject, tuple[str, ...]]:
    """Agent or channel as the run looked at it, with the persona of then where it is still known."""
    run = score.evaluation_run
    subject = subject_of(run)
    subject.window = replace(subject.window, stored_by=score.judged_at)
    if isinstance(subject, ChannelSubject):
        return subject, ()
    version = PersonaVersion.objects.filter(agent=subject.agent, digest=run.persona_digest).first()
    if version is not None:
        traits = [TraitValue(**values) for values in version.traits]
        subject.persona = render_persona(system_prompt=version.system_prompt, traits=traits)
        return subject, ()
    return subject, ("The persona is shown as it is now: the one the judge was shown is not stored.",)


def _proposition(run: EvaluationRun, score: EvaluationScore) -> Proposition:
    """The proposition as its file says it now (how much is shown, whether with the persona); a plain one when it is gone."""
    plain = Proposition(
        dimension=score.dimension,
        id=score.proposition_id,
        claim=score.claim,
        include_personas=Dimension(score.dimension).kind.shows_persona,
    )
    target = run.agent or run.channel
    try:
        claims = propositions_asked(target, score.dimension, hard=run.hard) if target else []
    except PropositionError:
        return plain
    return next((claim for claim in claims if claim.id == score.proposition_id), plain)


def _sections(score: EvaluationScore, subject: Subject | ChannelSubject, context: Context) -> list[Section]:
    if context.pair is not None:
        titles = (
            "The earlier message, after what was said before it",
            "The later message, after what was said before it",
        )
        return [Section(title, window, marked=True) for title, window in zip(titles, context.pair, strict=True)]
    if score.message is None or not isinstance(subject, Subject):
        title = "The conversation" if context.environment else f"What {context.agent_name} said"
        return [Section(title, context.window)]
    near = _near(score.message, subject.window.stored_by)
    before = near.filter(position__lt=score.message.position).order_by("-position")[:SAID_BEFORE]
    after = near.filter(position__gt=score.message.position).order_by("position")[:SAID_AFTER]
    sections = [
        Section("Just before", Window(tuple(subject.event(said) for said in reversed(before)), 0, ())),
        Section("Just after", Window(tuple(subject.event(said) for said in after), 0, ())),
        Section("Everything around it that the judge was shown", context.window, folded=True),
    ]
    return [section for section in sections if section.window.events]


def _near(message: Message, stored_by: datetime | None) -> QuerySet[Message]:
    """What was said in the channel of a message, as far as it was stored by then."""
    said = Message.objects.filter(channel=message.channel_id, synthetic=message.synthetic)
    return in_window(said, MessageWindow(stored_by=stored_by)).select_related("agent", "user")


def _only_snippet(score: EvaluationScore, subject: Subject | ChannelSubject) -> Shown:
    """A judgement whose message was deleted: the start of what was judged is all there is."""
    return Shown(
        about=subject.agent.display_name if isinstance(subject, Subject) else subject.name,
        where="",
        claim=score.claim,
        persona=None,
        message=score.context_snippet,
        sections=(),
        statistics={},
        additional=score.evaluation_run.additional_context,
        notes=("The message was deleted since; this is the start of what was judged.",),
    )
