"""The request to measure, from which commands, pages and routes are made (`agents.kit.use_cases`).

A request says what is measured and how; its door adds of whom, and `EvaluationRequest.spec` makes of both what is planned. Limits are the
same at all doors: what a request plans is stored in one transaction, in which SQLite lets no other process write, and 4,000 judgements of
each proposition take seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Self

from django.conf import settings
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from agents.bodies import AgentSlug, ChannelSlug, NamedAgents
from agents.kit.bodies import ABSENT, Anything, Body, OneOf, Reads, Refused, Tags, fault, is_local, not_there
from agents.kit.llm.endpoints import model_of, problem_of
from agents.kit.llm.providers import batch_problem, reads_files
from agents.kit.llm.providers.base import OFFLINE_MODELS
from agents.kit.text.storable import storable
from agents.kit.use_cases import FieldDisplay, FromFile
from agents.models import Agent, Channel
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.judge.examples import NoExamples, find_examples, newest_examples
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, Method, procedure_name
from evaluation.propositions.files import YamlProblems, default_dimensions, read_mapping
from evaluation.runs.control import is_judge_allowed, judges_offered, queue_run
from evaluation.runs.planning import ENOUGH_MESSAGES, PreparedRun
from evaluation.runs.spec import MOST_REPEATS, RunSpec
from evaluation.scorers.selection import ALLOWED_BINS, DEFAULT_BINS, Bin, parse_bins
from evaluation.simulation.situations import Situation, load_situations
from evaluation.windows import ALLOWED, BEFORE, MessageWindow, parse_history, parse_window

MOST_SAMPLES = 2_000
MOST_JUDGED = 4_000  # samples, or lines of situations, times repeats
MOST_CONTEXT = 10_000  # characters of JSON: every call to the judge carries it
MOST_YAML = 100_000  # characters
# When conversations are simulated before an evaluation.
NEVER = "never"
AUTO = "auto"
ALWAYS = "always"


def check_judge(name: str, info: ValidationInfo) -> str:
    """Refuse, but on the command line, a judge that is a file on this machine, or whose cost is not known; return its name.

    Empty is the configured one. Whether it can be asked now is a matter of `refuse_judge`: a page shows what it would take even without
    a key.
    """
    if is_local(info) or not name:
        return name
    if not is_judge_allowed(name):
        raise ValueError(f"{info.field_name} {name[:80]!r}: allowed: {', '.join(judges_offered())}")
    return name


def refuse_judge(name: str, *, field: str = "judge") -> None:
    """Refuse a judge that a field names and that cannot be asked, such as a model without a key."""
    problem = problem_of("judge", name) if name else ""
    if problem:
        raise Refused({field: f"{field} {name!r}: {problem}"})


def _check_actor(name: str, info: ValidationInfo) -> str:
    """Refuse, but on the command line, an actor that is a file on this machine."""
    if reads_files(name) and name != model_of("actor") and not is_local(info):
        raise ValueError(f"actor_model {name[:80]!r}: allowed: the name of a model, or {OFFLINE_MODELS['actor'][0]}")
    return name


def _read_context(value: Any) -> Any:
    """Read context that is a file (a path) or the text of one; any other value is returned as it is, for pydantic to check.

    Dates, which YAML has and JSON has not, become texts.

    Raises:
        ValueError: The YAML cannot be used, or not as JSON.
    """
    if not isinstance(value, str | Path):
        return value
    try:
        _, data = read_mapping(value, "names and what they stand for")
        context = json.loads(json.dumps(data, default=str))
        can_be_stored = storable(context) == context
    except YamlProblems as problems:
        raise not_there(str(problems)) from None
    except TypeError as error:  # of a name that is a date
        raise ValueError(f"allowed: names that are texts; {error}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not can_be_stored:
        raise ValueError("holds a NUL character or half of a surrogate pair; allowed: any other text")
    return context


def _check_context_size(context: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(context, ensure_ascii=False)) > MOST_CONTEXT:
        raise PydanticCustomError("context", f"a JSON object of at most {MOST_CONTEXT:,} characters")
    return context


def judge_choices() -> list[tuple[str, str]]:
    """Return the judges that may be chosen from outside of this machine, with labels; the configured one first."""
    choices: list[tuple[str, str]] = []
    for name in judges_offered():
        label = f"{name} (configured)" if name == settings.JUDGE_MODEL else name
        choices.append((name, label))
    return choices


Judge = Annotated[str, AfterValidator(check_judge), FieldDisplay(choices=judge_choices, metavar="MODEL")]
Simulate = Annotated[str, OneOf(NEVER, AUTO, ALWAYS), FieldDisplay(label="Simulate conversations first")]
SIMULATE = (
    f"simulate conversations with the agent first and measure what it says in them: {NEVER}, {ALWAYS}, or {AUTO}: where it has fewer than "
    f"{ENOUGH_MESSAGES} messages"
)


class EvaluationRequest(Body):
    """What is measured, and how."""

    dimensions: Annotated[
        list[Annotated[str, OneOf(*Dimension.values)]], FieldDisplay(choices=lambda: Dimension.choices)
    ] = Field([], min_length=1, description="what is scored (default: all there are propositions for)")
    window: Annotated[MessageWindow, Reads(parse_window, ALLOWED, maxLength=32)] = Field(
        "all", validate_default=True, description=f"which messages: {ALLOWED} (default: all)"
    )
    where: Annotated[Tags, FieldDisplay(label="Only messages tagged")] = Field(
        {}, description="only messages with all of these tags, such as build=41"
    )
    history: Annotated[MessageWindow, Reads(parse_history, f"{ALLOWED}, {BEFORE}", maxLength=32)] = Field(
        BEFORE,
        validate_default=True,
        description=f"what self-consistency compares the window with: {BEFORE} (all that was said before it), or a window "
        f"(default: {BEFORE})",
    )
    history_where: Tags = Field({}, description="tags that the messages of that history must have")
    simulate: Simulate = Field(NEVER, description=SIMULATE)
    situations: Annotated[
        tuple[Situation, ...],
        FromFile(load_situations, longest=MOST_YAML, refusal=YamlProblems),
        FieldDisplay(option="--simulate", label="Situations of your own"),
    ] = Field(
        (),
        description="simulate these situations with the agent first and measure what it says in them: YAML as docs/how-to/measure-a-log.md "
        "describes it",
    )
    actor_model: Annotated[
        str, AfterValidator(_check_actor), FieldDisplay(label="Model that acts", metavar="MODEL")
    ] = Field(
        "",
        max_length=200,
        description="who acts in simulated conversations (default: the agent's model, or ACTOR_MODEL)",
    )
    by: Annotated[str, OneOf("position"), FieldDisplay(label="By position")] = Field(
        ABSENT, description="position: do agents fade within long conversations? Compares with no baseline"
    )
    position_bins: Annotated[
        tuple[Bin, ...],
        Reads(parse_bins, ALLOWED_BINS, maxLength=100),
        FieldDisplay(option="--bins", label="Stretches of positions", metavar="POSITIONS"),
    ] = Field((), description=f"by position, sampled evenly from {ALLOWED_BINS} (default: {DEFAULT_BINS})")
    repeats: int = Field(
        1,
        ge=1,
        le=MOST_REPEATS,
        description=f"judgements per item; with situations of your own, conversations per situation; 1 to {MOST_REPEATS} (default: 1)",
    )
    samples: Annotated[int, FieldDisplay(label="Messages")] = Field(
        20,
        ge=1,
        le=MOST_SAMPLES,
        description=f"most messages sampled per agent, 1 to {MOST_SAMPLES:,}, times repeats at most {MOST_JUDGED:,}; more make a surer "
        "number and cost more (default: 20)",
    )
    seed: int = Field(
        0,
        ge=-(2**63),
        le=2**63 - 1,
        description="seed of the sampling, stored with the evaluation (default: 0)",
    )
    per_call: int = Field(10, ge=1, le=10, description="most propositions in one call, 1 to 10 (default: 10)")
    hard: bool = Field(False, description="20 % off for every flaw the judge finds, in claims that can be hard")
    double_check: bool = Field(False, description="ask the judge a second time whether it is sure")
    method: Annotated[str, OneOf(*Method.values)] = Field(
        Method.PLUMBLINE.value,
        description="tinytroupe: one claim per call, penalties taken off by the judge, a trivial 9 counts; compares with nothing else",
    )
    few_shot: Annotated[bool, FieldDisplay(label="Show labelled examples")] = Field(
        False,
        description="show the judge labelled messages as examples of how strictly to score, those that were tried last (calibrating a "
        "judge), unless they did harm; compares only with scores made with the same examples",
    )
    judge: Judge = Field(
        "", max_length=200, description="scores by different judges are never compared (default: the configured judge)"
    )
    batch: bool = Field(
        False,
        description="send the questions as Message Batches: half the price, an answer within a day; a command waits for it, and after "
        "Ctrl-C the same command, or a worker, resumes",
    )
    additional_context: Annotated[
        Anything,
        BeforeValidator(_read_context),
        AfterValidator(_check_context_size),
        FieldDisplay(option="--context", label="Background for the judge", is_yaml=True),
    ] = Field(
        {},
        description="background for the judge, shown as data, and for preconditions: names and what they stand for, such as "
        f"season: winter, as YAML or JSON of at most {MOST_CONTEXT:,} characters",
    )

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        """Refuse values that are allowed alone, but not together; the error is of one field and says what is allowed."""
        if self.samples * self.repeats > MOST_JUDGED:
            most = MOST_JUDGED // self.repeats
            raise fault("samples", f"samples {self.samples}: at most {most:,} with {self.repeats} repeats")
        if self.samples < len(self.bins):
            raise fault("samples", f"samples {self.samples}: at least one for each of the {len(self.bins)} bins")
        if self.is_simulated and (self.where or self.window.spec != "all"):
            sentence = "measures all that was simulated; where and window are for what was said before"
            raise fault("situations" if self.situations else "simulate", f"simulate {sentence}")
        lines = self.repeats * sum(len(situation.lines) for situation in self.situations)
        if lines > MOST_JUDGED:
            sentence = f"situations of {lines:,} lines with {self.repeats} repeats; at most {MOST_JUDGED:,}"
            raise fault("situations", sentence)
        if self.actor_model and not self.is_simulated:
            raise fault("actor_model", "actor_model is for simulations")
        if self.batch and not is_local(info):  # a command names its option, see `check_batches`
            problem = batch_problem(self.judge or model_of("judge"))
            if problem:
                raise fault("batch", f"batch: the judge {problem}")
        return self

    @property
    def is_simulated(self) -> bool:
        """Return whether simulated speech is measured, whatever the agent has said."""
        return self.simulate == ALWAYS or bool(self.situations)

    @property
    def bins(self) -> tuple[Bin, ...]:
        """Return the stretches of positions to sample from; empty where it is not by position."""
        if self.by and not self.position_bins:
            return parse_bins(DEFAULT_BINS)
        return self.position_bins

    def spec(self, *, agent: Agent | None = None, channel: Channel | None = None, is_baseline: bool = False) -> RunSpec:
        """Return what is to be planned for an agent, or for a channel.

        Where no dimensions are named these are all that have propositions; of a channel only those that are measured of channels.

        Raises:
            Refused: There are propositions for no dimension.
            PropositionError: Proposition files cannot be used.
        """
        dimensions: Sequence[str] = self.dimensions
        if not dimensions:
            dimensions = [name for name in default_dimensions() if agent or name in CHANNEL_DIMENSIONS]
        if not dimensions:
            raise Refused(
                {"dimensions": "dimensions: there are propositions for none of them; name some, or write some"}
            )
        return RunSpec(
            agent=agent,
            channel=channel,
            dimensions=tuple(dimensions),
            is_baseline=is_baseline,
            simulated=self.is_simulated,
            situations=tuple(situation.model_dump(mode="json") for situation in self.situations),
            position_bins=self.bins,
            few_shot=self._few_shot_digest(dimensions) if self.few_shot else "",
            **{name: getattr(self, name) for name in _FIELDS_OF_BOTH},
        )

    def _few_shot_digest(self, dimensions: Sequence[str]) -> str:
        """Return the digest of the newest examples for the judge and procedure.

        Raises:
            Refused: There are none that may be shown, or no dimension is judged message by message.
        """
        if not set(dimensions) & set(BY_ONE_MESSAGE):
            raise Refused(
                {"few_shot": f"few_shot: examples are shown with {', '.join(BY_ONE_MESSAGE)}, which is not measured"}
            )
        judge = self.judge or str(settings.JUDGE_MODEL)
        procedure = procedure_name(method=self.method, hard=self.hard, double_check=self.double_check)
        try:
            return newest_examples(judge, procedure).digest
        except NoExamples as error:
            raise Refused({"few_shot": f"few_shot: {error}"}) from None


_CONVERTED = {
    "agent",
    "channel",
    "dimensions",
    "situations",
    "position_bins",
    "few_shot",
}  # fields of `RunSpec` that `spec` makes itself
_FIELDS_OF_BOTH = {field.name for field in fields(RunSpec)} & set(EvaluationRequest.model_fields) - _CONVERTED


def trial_sentence(spec: RunSpec) -> str:
    """Return what the trial of the examples showed that the judge will be shown; empty where it is shown none."""
    if not spec.few_shot:
        return ""
    stored = find_examples(
        judge=spec.judge_model,
        method=spec.method,
        hard=spec.hard,
        double_check=spec.double_check,
        digest=spec.few_shot,
    )
    return "" if stored is None else stored.sentence


class AgentsRequest(EvaluationRequest, NamedAgents):
    """What is measured of several agents, and how."""

    def specs(self, *, is_baseline: bool = False) -> list[RunSpec]:
        """Return what is to be planned, an evaluation for each agent.

        Raises:
            UnknownAgent: There is no such agent.
            Refused, PropositionError: As `spec`.
        """
        return [self.spec(agent=agent, is_baseline=is_baseline) for agent in self.find_agents()]


class RunRequest(EvaluationRequest):
    """An evaluation of exactly one of agent and channel. What is left out is as the command line has it."""

    agent: AgentSlug = Field(ABSENT, description="slug of who is measured")
    channel: ChannelSlug = Field(ABSENT, description="slug of what is measured")

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if (self.agent is None) == (self.channel is None):
            count_text = "none is given" if self.agent is None else "both are given"
            raise fault("agent", f"give the slug of an agent or of a channel, exactly one of them; {count_text}")
        if self.channel is not None:
            self._check_fits_channel()
        return self

    def _check_fits_channel(self) -> None:
        """Refuse what can be measured of agents only."""
        of_agents = [name for name in self.dimensions if name not in CHANNEL_DIMENSIONS]
        if of_agents:
            allowed = ", ".join(CHANNEL_DIMENSIONS)
            raise fault(
                "dimensions",
                f"dimensions {', '.join(of_agents)}: measured of an agent; allowed for a channel: {allowed}",
            )
        if self.is_simulated:
            raise fault("simulate", "simulate is for agents, not for a channel")
        if self.few_shot:
            raise fault("few_shot", "few_shot is for agents: examples are shown with claims about one message")


class CaptureRequest(EvaluationRequest):
    """Whose baseline is captured, and how. What is left out is as the command line has it."""

    agent: AgentSlug = Field(description="slug of who is measured")
    simulate: Simulate = Field(AUTO, description=SIMULATE)
    replace: bool = Field(
        False,
        description="replace a baseline of messages with a tag (build=40) also by one that does not ask for that tag",
    )


def request_evaluation(
    request: EvaluationRequest, *, agent: Agent | None = None, channel: Channel | None = None, is_baseline: bool = False
) -> PreparedRun:
    """Have a worker measure what is asked for.

    With ``simulate: auto`` conversations are simulated first for an agent that has little speech.

    Returns:
        The run; it is resumed if it asked for the same within 24 hours and had not ended.

    Raises:
        Refused: As `EvaluationRequest.spec`, or the judge cannot be asked.
        PropositionError: As `EvaluationRequest.spec`.
    """
    refuse_judge(request.judge)
    spec = request.spec(agent=agent, channel=channel, is_baseline=is_baseline)
    return queue_run(spec, simulate=request.simulate == AUTO)
