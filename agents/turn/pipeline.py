"""The stages a turn passes, as `TURN_PIPELINE` lists them, and the values that pass between a turn and its stages.

Fail-open: a stage that raises is noted and passed over. Why settings list the stages is in docs/adr/0001-layers.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.db.models import Exists
from django.utils.module_loading import import_string
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from agents.kit.capability import declared
from agents.kit.text.fences import new_nonce
from agents.kit.text.tags import TAG_KEY
from agents.models import Agent, Channel, Message, Run


class Overrides(BaseModel):
    """The part of `Run.overrides` that is for the turn itself; the rest is for the stages.

    A value of another type is ignored: a turn must not die of it.

    Attributes:
        stages: Only these take part, and those that are `required`; None = all.
        model: Acts instead of the agent's own.
        tags: Of every message of the turn.
        scene: Where in its lines the scripted actor begins; None = it decides.
        lines: What the scripted actor says in this turn, the first that was not sent back; None = the agent's sample lines.
        until: Position of the last message that the agent is shown; None = the newest.
        apart: The agent is shown nothing that other agents say.
        system_prompt: It speaks under this one instead of its own.
    """

    model_config = ConfigDict(frozen=True)

    stages: Sequence[StrictStr] | None = None
    model: StrictStr = ""
    tags: dict[Annotated[StrictStr, Field(pattern=f"^{TAG_KEY.pattern}$")], StrictStr] = {}
    scene: Annotated[StrictInt, Field(ge=0)] | None = None
    lines: Sequence[StrictStr] | None = None
    until: Annotated[StrictInt, Field(ge=0)] | None = None
    apart: StrictBool = False
    system_prompt: Annotated[StrictStr, Field(pattern=r"\S")] = ""

    @field_validator("*", mode="wrap")
    @classmethod
    def ignore_other_types(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Return the value; the default of its field where it has another type or is not allowed."""
        try:
            return handler(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].default

    @classmethod
    def of(cls, overrides: Mapping[str, Any]) -> Overrides:
        """Read the fields of this model from the overrides of a run."""
        return cls.model_validate({name: overrides[name] for name in cls.model_fields if name in overrides})


def speaker_of(agent: Agent, overrides: Mapping[str, Any]) -> Agent:
    """Return the agent as it speaks in a turn: itself, or a copy with the system prompt of the overrides, which is not to be saved."""
    system_prompt = Overrides.of(overrides).system_prompt
    if not system_prompt:
        return agent
    speaker = copy(agent)
    speaker.system_prompt = system_prompt
    return speaker


Phase = Literal["received", "ingested", "prepare", "review", "committed", "finish"]
StageStatus = Literal["running", "ran", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is not sent yet: text, and typed data beside it."""

    text: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A typed answer that the agent is to give: `send_message` takes the fields of a shape besides, and ends the turn.

    Attributes:
        name: Of the shape, a pydantic model in `turn_answers` of an app.
        values: What the scripted actor says, by field; also `text`.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool that was used: its name, whether it worked, and its answer to the model."""

    name: str
    ok: bool
    answer: str


@dataclass(frozen=True, slots=True)
class Accept:
    """A stage lets a draft pass, perhaps another one than it got.

    `outcome` is the stage's word for it (the gate's ``passed``, ``forced_through`` …); empty when it has nothing to say.
    """

    draft: Draft
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Revise:
    """A stage sends a draft back. `feedback` is for the agent; `session` continues this message with its next attempt."""

    feedback: str
    session: str = ""
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the prompt, under its own heading. `stage` names who added it (for the preview)."""

    heading: str
    body: str
    stage: str = ""


@dataclass(slots=True)
class TraceEntry:
    """An entry of the trace for one stage in one phase: running, ran, skipped (why), failed (error), milliseconds, and its counters."""

    stage: str
    phase: Phase
    status: StageStatus = "ran"
    why: str = ""
    ms: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as it is stored in `Run.trace`; without `why` and `counters` where they are empty."""
        entry: dict[str, Any] = {
            "stage": self.stage,
            "phase": self.phase,
            "status": self.status,
            "ms": round(self.ms, 1),
        }
        if self.why:
            entry["why"] = self.why
        if self.counters:
            entry["counters"] = self.counters
        return entry


@dataclass(slots=True, kw_only=True)
class Turn:
    """An agent's turn, or one message sent outside of a turn, as the stages see it.

    Attributes:
        agent: Who speaks. `channel`: where, at this moment.
        run: The run it belongs to; None for a draft given from outside (``manage.py say``, the API).
        trigger: The message it answers.
        persona_version_id: The version of the persona it speaks under.
        overrides: Settings for this turn only, opaque to this layer (`Run.overrides`).
        transcript: The recent conversation the agent is shown, oldest first; `prepare` may reshape it.
        sections: Prompt sections added by stages, in their order.
        wanted_answer: A typed answer that is asked for, set in `prepare`; the agent is then offered `send_message` alone. None = it may
            say what it likes, and use all tools.
        tools: Names in the apps' `turn_tools` of further tools, set in `prepare`.
        performed: What tools did in this turn, in order.
        facts: What is known of the agent, by the names that apps declare (`agent_facts`).
        temperature: Wished for from the actor's model, set in `prepare`; None = the server's own.
        nonce: The random text in the fences of this turn's prompt, for every stage.
        mask: Hides what the agent must not learn (names in an anonymous debate) in the sections and feedback of later stages.
        sessions: Channel id to the session of the message being attempted there; set from `Revise.session`, cleared by a commit.
        revisions: Channel id to how often the message being attempted there was sent back; cleared by a commit.
        draft_key: Idempotency key of the draft under review; empty when the caller gave none.
        original: The draft under review as the agent wrote it, before any stage rewrote it.
        preview: The prompt is only shown to a person: no model calls, no log rows.
        abandoned: The agent chose to say nothing after a draft was sent back.
        reports: Stage name to what callers above may want to show (the gate's scores); opaque to this layer.
        kept: Stage name to what it keeps from `prepare` for `review`. A turn that another process resumes has none.
        trace: What the stages did, in order. `running`: the entries of the stages at work now, innermost last.
        stage_begins: Called before each stage of `prepare` and `review`, e.g. to store the trace for a person who watches.
    """

    agent: Agent
    channel: Channel
    run: Run | None = None
    trigger: Message | None = None
    persona_version_id: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    transcript: list[Message] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    wanted_answer: Answer | None = None
    tools: list[str] = field(default_factory=list)
    performed: list[ToolOutcome] = field(default_factory=list)
    facts: Mapping[str, bool] = field(default_factory=dict)
    temperature: float | None = None
    nonce: str = field(default_factory=new_nonce)
    mask: Callable[[str], str] = str
    sessions: dict[int, str] = field(default_factory=dict)
    revisions: dict[int, int] = field(default_factory=dict)
    draft_key: str = ""
    original: Draft | None = None
    preview: bool = False
    abandoned: bool = False
    reports: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    trace: list[TraceEntry] = field(default_factory=list)
    running: list[TraceEntry] = field(default_factory=list)
    stage_begins: Callable[[], object] = lambda: None

    @property
    def session(self) -> str:
        """Return the session of the message being attempted in the present channel; empty when a new one begins."""
        return self.sessions.get(self.channel.pk, "")

    def add_section(self, heading: str, body: str) -> None:
        """Add a prompt section, noted under the stage that is running."""
        stage = self.running[-1].stage if self.running else ""
        self.sections.append(Section(heading, self.mask(body), stage=stage))

    def skip(self, why: str) -> None:
        """Note that the running stage has nothing to do here. Skipped in `review`, its `committed` is not called for that message."""
        self.running[-1].status = "skipped"
        self.running[-1].why = why

    def count(self, **counters: int) -> None:
        """Add to the running stage's counters, for layers that report them without knowing the stage."""
        counted = self.running[-1].counters
        for name, number in counters.items():
            counted[name] = counted.get(name, 0) + number


class Stage(Protocol):
    """A stage of the pipeline. All methods are optional; a stage is made once per process and holds no state of a turn.

    * ``received(message, agent) -> str | None``: a human message arrived for this agent; no turn exists yet. A text tells its
      sender why the stage does nothing with it.
    * ``ingested(messages) -> str | None``: messages that were said elsewhere were stored. A text is for the program that sent them.
    * ``prepare(turn) -> Draft | None``: add sections, reshape the transcript, or answer at once with a draft.
    * ``review(turn, draft) -> Accept | Revise``: judge or rewrite a draft before it is saved. No transaction is open.
    * ``committed(turn, message) -> None``: inside the short transaction that saves the message. Database only, never a model call.
    * ``finish(turn) -> None``: the turn ends.

    A stage that raises is noted on the trace and passed over, unless it is `required`.
    """

    name: str
    required: bool
    needs: str  # a fact of the agent (`agent_facts`): it has no part in turns of agents that are known to lack it
    lacking: str  # why it has none then


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The outcome of sending a draft.

    Attributes:
        committed: Whether it was said. Then `message` is the row and `text` what was said.
        outcome: The deciding stage's word; ``sent`` when no stage had one. A repeated idempotency key returns the first result.
        feedback: For the agent, when it was sent back; `session` continues with the next attempt.
        reports: Stage name to its report, e.g. the gate's scores.
        trace: What the stages did with this draft.
    """

    committed: bool
    outcome: str
    text: str
    message: Message | None = None
    feedback: str = ""
    session: str = ""
    reports: Mapping[str, Any] = field(default_factory=dict)
    trace: Sequence[TraceEntry] = ()


logger = logging.getLogger(__name__)


class StageFailed(Exception):
    """A stage marked `required` raised: the turn cannot go on."""


class Pipeline:
    """The stages in their order. Holds no state of a turn, so that threads and turns can share it."""

    def __init__(self, stages: Sequence[Any]) -> None:
        self.stages = tuple(stages)

    def received(self, *, message: Message, agent: Agent) -> list[TraceEntry]:
        """Tell the stages that a human message arrived for `agent`; return what they did.

        Raises:
            StageFailed: A required stage raised. An exception of another stage is only noted in what is returned.
        """
        trace: list[TraceEntry] = []
        for stage, method in self._having("received"):
            with _trace_and_catch(stage, "received", trace, []):
                why_nothing_is_done = method(message, agent)
                if why_nothing_is_done:
                    trace[-1].status = "skipped"
                    trace[-1].why = str(why_nothing_is_done)
        return trace

    def ingested(self, messages: Sequence[Message]) -> list[str]:
        """Tell the stages that messages that were said elsewhere were stored; return their texts for the program that sent them.

        Raises:
            StageFailed: A required stage raised. An exception of another stage is only logged.
        """
        notes: list[str] = []
        for stage, method in self._having("ingested"):
            with _trace_and_catch(stage, "ingested", [], []):
                note = method(messages)
                if note:
                    notes.append(note)
        return notes

    def prepare(self, turn: Turn) -> Draft | None:
        """Let the stages add to the prompt; return a draft when one of them answers at once (the later ones are not asked).

        Returns:
            The draft, which is sent in place of asking the model; None where no stage answers.

        Raises:
            StageFailed: A required stage raised. An exception of another stage is noted on the trace, and the next one goes on.
        """
        for stage, method in self._having("prepare"):
            with _trace_and_catch(stage, "prepare", turn.trace, turn.running, begins=turn.stage_begins):
                if _skip_for_lacking_fact(stage, turn):
                    continue
                answer = method(turn)
                if answer is not None:
                    draft: Draft = _checked_type(answer, Draft)
                    return draft
        return None

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        """Pass a draft through the stages; the first that sends it back decides. No transaction may be open here.

        Returns:
            What sends it back, or the draft as the stages rewrote it one after the other, with the last outcome that one of them gave.

        Raises:
            StageFailed: A required stage raised. One that is not required is noted on the trace and lets the draft pass as it was.
        """
        turn.original = draft
        accepted = Accept(draft)
        for stage, method in self._having("review"):
            with _trace_and_catch(stage, "review", turn.trace, turn.running, begins=turn.stage_begins):
                if _skip_for_lacking_fact(stage, turn):
                    continue
                answer = _checked_type(method(turn, accepted.draft), Accept, Revise)
                if isinstance(answer, Revise):
                    return answer
                accepted = Accept(answer.draft, answer.outcome or accepted.outcome)
        return accepted

    def committed(self, turn: Turn, message: Message) -> None:
        """Tell the stages that the message is saved, inside the transaction that saved it, each in a savepoint of its own.

        A stage that skipped its review of the message has nothing to do with it.

        Raises:
            StageFailed: A required stage raised. What another stage wrote before it raised is rolled back alone.
        """
        review_status = {}
        for entry in turn.trace:
            if entry.phase == "review":
                review_status[entry.stage] = entry.status  # the latest review counts
        for stage, method in self._having("committed"):
            if review_status.get(stage_name(stage)) == "skipped":
                continue
            with _trace_and_catch(stage, "committed", turn.trace, turn.running), transaction.atomic():
                method(turn, message)

    def finish(self, turn: Turn) -> None:
        """Tell the stages that the turn ends, for any reason."""
        for stage, method in self._having("finish"):
            with _trace_and_catch(stage, "finish", turn.trace, turn.running):
                method(turn)

    def _having(self, method: str) -> Iterator[tuple[Any, Callable[..., Any]]]:
        """Yield the stages that have this method, with it."""
        for stage in self.stages:
            function = getattr(stage, method, None)
            if function is not None:
                yield stage, function


def pipeline(overrides: Mapping[str, Any] | None = None) -> Pipeline:
    """Return the pipeline that `TURN_PIPELINE` lists now, built once per list, without the stages that a turn's overrides leave out.

    Raises:
        ImportError: A path leads nowhere (the system check ``agents.E006`` says so at start-up).
    """
    whole = _built(tuple(settings.TURN_PIPELINE))
    chosen = Overrides.of(overrides).stages if overrides else None  # None: all
    if chosen is None:
        return whole
    stages = []
    for stage in whole.stages:
        is_required = getattr(stage, "required", False)
        if is_required or stage_name(stage) in chosen:
            stages.append(stage)
    return Pipeline(stages)


@lru_cache(maxsize=16)
def _built(paths: tuple[str, ...]) -> Pipeline:
    return Pipeline([import_string(path)() for path in paths])


def stage_name(stage: Any) -> str:
    """Return the name of a stage, by default that of its class."""
    return str(getattr(stage, "name", "") or type(stage).__name__)


def _checked_type(answer: Any, *allowed: type) -> Any:
    """Return what a stage answered.

    Raises:
        TypeError: It is of no allowed type.
    """
    if not isinstance(answer, allowed):
        names = " or ".join(kind.__name__ for kind in allowed)
        raise TypeError(f"expected {names}, got {type(answer).__name__}")
    return answer


def _skip_for_lacking_fact(stage: Any, turn: Turn) -> bool:
    """Note the stage as skipped where the agent is known to lack the fact that it needs; return whether it is."""
    if turn.facts.get(getattr(stage, "needs", ""), True):
        return False
    turn.skip(stage.lacking)
    return True


def agent_facts() -> dict[str, Exists]:
    """Return the columns that apps add to a query that reads the agent of a turn, by name."""
    return {name: import_string(path)() for name, path in declared("agent_facts").items()}


@contextmanager
def _trace_and_catch(
    stage: Any,
    phase: Phase,
    trace: list[TraceEntry],
    running: list[TraceEntry],
    *,
    begins: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Add an entry for the stage to the trace, with its time; catch an exception of the block, note it there, log it and send it to Sentry.

    Args:
        running: The entries of the stages at work, to which it belongs meanwhile.
        begins: Called once the entry is there; what it raises is raised on.

    Raises:
        StageFailed: The block raised, and the stage is required.
    """
    entry = TraceEntry(stage_name(stage), phase, "running")
    trace.append(entry)
    running.append(entry)
    begins()
    started = time.perf_counter()
    try:
        yield
    except Exception as error:
        entry.status = "failed"
        entry.why = f"{type(error).__name__}: {error}"[:300]
        logger.exception("stage %s failed in %s", entry.stage, phase)
        sentry_sdk.capture_exception(error)
        if getattr(stage, "required", False):
            raise StageFailed(f"{entry.stage}: {entry.why}") from error
    else:
        if entry.status == "running":  # not skipped
            entry.status = "ran"
    finally:
        running.pop()
        entry.ms += (time.perf_counter() - started) * 1000
