"""Show a judgement to a person who labels: the claim and what the judge was shown around it, never the judge's answer."""

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
from evaluation.scorers.context import Context, Window
from evaluation.scorers.selection import in_window
from evaluation.scorers.subjects import ChannelSubject, Subject
from evaluation.windows import MessageWindow

MESSAGES_BEFORE = 5
MESSAGES_AFTER = 2
JUDGED_MARK = "→"  # in a file, before what the claim is about


@dataclass(frozen=True, slots=True)
class Section:
    """Events under a heading; `marked`: the last of them is what the claim is about."""

    title: str
    window: Window
    folded: bool = False
    marked: bool = False

    @property
    def count(self) -> int:
        """Return the number of events that are shown."""
        return len(self.window.first) + len(self.window.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindJudgement:
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


def blind_judgement(score: EvaluationScore) -> BlindJudgement:
    """Return what the judge was shown for a judgement, from the messages stored by then.

    Where its message was deleted since, only the start of what was judged.

    Args:
        score: With its run, the run's agent and channel, message and compared message.
    """
    run = score.evaluation_run
    judged_subject = _judged_subject(score)
    try:
        context = _context(score, judged_subject.subject, _proposition(run, score))
    except ValueError:  # its message was deleted
        return _only_snippet(score, judged_subject.subject)
    return BlindJudgement(
        about=context.agent_name,
        where=str(score.message.channel) if score.message else "",
        claim=score.claim,
        persona=context.persona,
        message=context.message.text if context.message else "",
        sections=tuple(_sections(score, judged_subject.subject, context)),
        statistics=context.statistics or {},
        additional=run.additional_context,
        notes=judged_subject.notes,
    )


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """What the judge is to be asked once more about a judgement: the proposition, and the context of then."""

    proposition: Proposition
    context: Context


def asked_again(score: EvaluationScore) -> AskedAgain:
    """Return what to ask about a judgement as it was judged: the claim of then, with the persona and the messages of then.

    Args:
        score: As for `blind_judgement`.

    Raises:
        ValueError: Its message was deleted.
    """
    run = score.evaluation_run
    proposition = replace(_proposition(run, score), claim=score.claim)
    context = _context(score, _judged_subject(score).subject, proposition)
    return AskedAgain(proposition, replace(context, additional=run.additional_context or None))


def _context(score: EvaluationScore, subject: Subject | ChannelSubject, proposition: Proposition) -> Context:
    return SCORERS[score.dimension].context(subject, proposition, score.message, score.compared_with)


def blind_text(score: EvaluationScore) -> str:
    """Return what is judged as plain text, for a file: the message after what was said before it, or the lines of the pair or window.

    The message that is judged has the mark ``→``.
    """
    message = score.message
    if message is not None and score.compared_with is None:
        newest_first = _near(message, score.judged_at).filter(position__lt=message.position).order_by("-position")
        before = list(newest_first[:MESSAGES_BEFORE])[::-1]
        lines = [f"{earlier.author_name}: {earlier.text}" for earlier in before]
        return "\n".join([*lines, f"{JUDGED_MARK} {message.author_name}: {message.text}"])
    judgement = blind_judgement(score)
    sections = [_section_text(section) for section in judgement.sections]
    return "\n\n".join(sections) or judgement.message


def _section_text(section: Section) -> str:
    """Return a section as lines: its title after ``#``, a line for each event, and how many were left out between them.

    In a marked section the last event has the mark ``→``.
    """
    window = section.window
    first = [f"{event.speaker or event.name}: {event.text}" for event in window.first]
    last = [f"{event.speaker or event.name}: {event.text}" for event in window.last]
    lines = [f"# {section.title}", *first]
    if window.omitted:
        lines.append(f"[… {window.omitted} left out …]")
    lines += last
    if section.marked and section.count:
        # The last event: of the last ones, or of the first ones (after the title), which a line on what is left out may follow.
        index = len(lines) - 1 if last else len(first)
        lines[index] = f"{JUDGED_MARK} {lines[index]}"
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _JudgedSubject:
    """Agent or channel as an evaluation looked at it, and what a reader must know of it."""

    subject: Subject | ChannelSubject
    notes: tuple[str, ...] = ()


def _judged_subject(score: EvaluationScore) -> _JudgedSubject:
    """Return agent or channel as the evaluation looked at it: messages stored by then, and the persona of then.

    Where that persona is not stored any more, an agent has its present one, and a note says so.
    """
    run = score.evaluation_run
    subject = subject_of(run)
    subject.window = replace(subject.window, stored_by=score.judged_at)
    if isinstance(subject, ChannelSubject):
        return _JudgedSubject(subject)
    version = PersonaVersion.objects.filter(agent=subject.agent, digest=run.persona_digest).first()
    if version is None:
        note = "The persona is shown as it is now: the one the judge was shown is not stored."
        return _JudgedSubject(subject, (note,))
    traits = [TraitValue(**values) for values in version.traits]
    subject.persona = render_persona(system_prompt=version.system_prompt, traits=traits)
    return _JudgedSubject(subject)


def _proposition(run: EvaluationRun, score: EvaluationScore) -> Proposition:
    """Return the proposition as its file says it now (how much is shown, whether with the persona).

    A plain one, with the claim that was judged, when agent or channel were deleted, the files cannot be read, or it is in none of them.
    """
    plain = Proposition(
        dimension=score.dimension,
        id=score.proposition_id,
        claim=score.claim,
        include_personas=Dimension(score.dimension).kind.shows_persona,
    )
    target = run.agent or run.channel
    if target is None:
        return plain
    try:
        propositions = propositions_asked(target, score.dimension, hard=run.hard)
    except PropositionError:
        return plain
    return next((proposition for proposition in propositions if proposition.id == score.proposition_id), plain)


def _sections(score: EvaluationScore, subject: Subject | ChannelSubject, context: Context) -> list[Section]:
    """Return what was said around what is judged: of a pair, of a window, or of a message; there without empty sections.

    Args:
        context: What the judge was shown.
    """
    if context.pair is not None:
        earlier, later = context.pair
        return [
            Section("The earlier message, after what was said before it", earlier, marked=True),
            Section("The later message, after what was said before it", later, marked=True),
        ]
    if score.message is None or not isinstance(subject, Subject):
        title = "The conversation" if context.environment else f"What {context.agent_name} said"
        return [Section(title, context.window)]
    near = _near(score.message, subject.window.stored_by)
    newest_first = near.filter(position__lt=score.message.position).order_by("-position")
    before = list(newest_first[:MESSAGES_BEFORE])[::-1]
    after = near.filter(position__gt=score.message.position).order_by("position")[:MESSAGES_AFTER]
    sections = [
        Section("Just before", Window(tuple(map(subject.event, before)), 0, ())),
        Section("Just after", Window(tuple(map(subject.event, after)), 0, ())),
        Section("Everything around it that the judge was shown", context.window, folded=True),
    ]
    return [section for section in sections if section.window.events]


def _near(message: Message, stored_by: datetime | None) -> QuerySet[Message]:
    """Return what was said in the channel of a message, as far as it was stored by then."""
    messages = Message.objects.filter(channel=message.channel_id, synthetic=message.synthetic)
    return in_window(messages, MessageWindow(stored_by=stored_by)).select_related("agent", "user")


def _only_snippet(score: EvaluationScore, subject: Subject | ChannelSubject) -> BlindJudgement:
    """Return a judgement whose message was deleted: the start of what was judged is all there is."""
    return BlindJudgement(
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
