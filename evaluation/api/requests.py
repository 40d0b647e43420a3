"""Requests about evaluations: what is asked to be measured, what lists are narrowed by, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from rest_framework.exceptions import ValidationError

from agents.api.filters import of_agent, of_channel
from agents.bodies import AgentSlug, ChannelSlug
from agents.kit.api import filters
from agents.kit.api.filters import InTime
from agents.kit.api.problems import Conflict
from agents.kit.bodies import ABSENT, Anything, Body, OneOf, Reads, Tags, fault
from agents.kit.llm.endpoints import problem_of
from evaluation import windows
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun, Method, procedure_fields
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.control import judges_offered
from evaluation.runs.planning import ENOUGH, MOST_REPEATS, RunSpec
from evaluation.scorers.subjects import ALLOWED_BINS, Bin, parse_bins


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Proposition files that cannot be used are a 409 that says what to correct where."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None


MOST_SAMPLES = 2_000  # per request: what it plans is stored before it is answered
MOST_JUDGED = (
    4_000  # samples times repeats: planning that many takes seconds, in which SQLite lets no other process write
)
MOST_CONTEXT = 10_000  # characters of JSON: every call to the judge carries it


def _judge(name: str) -> str:
    """A judge that may be named from outside: no file on this machine, and nothing whose cost is not known."""
    allowed = judges_offered()
    if name not in allowed:
        raise ValueError(f"judge {name[:80]!r}: allowed: {', '.join(allowed)}")
    if problem := problem_of("judge", name):
        raise ValueError(f"judge {name!r}: {problem}")
    return name


def _context(context: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(context, ensure_ascii=False)) > MOST_CONTEXT:
        raise PydanticCustomError("context", f"a JSON object of at most {MOST_CONTEXT:,} characters")
    return context


class _Asked(Body):
    """Who is measured, and how. What is left out is as the command line has it."""

    agent: AgentSlug = Field(ABSENT, description="slug of who is measured")
    dimensions: list[Annotated[str, OneOf(*Dimension.values)]] = Field(
        [], min_length=1, description="default: all there are propositions for"
    )
    window: Annotated[windows.MessageWindow, Reads(windows.parse_window, windows.ALLOWED, maxLength=32)] = Field(
        ABSENT, description=windows.ALLOWED
    )
    where: Tags = Field({}, description="tags a message must have to be measured")
    samples: int = Field(20, ge=1, le=MOST_SAMPLES, description="most messages sampled; default 20")
    seed: int = Field(0, ge=-(2**63), le=2**63 - 1, description="seed of the sampling; default 0")
    per_call: int = Field(10, ge=1, le=10, description="most propositions in one call; default 10")
    history: Annotated[
        windows.MessageWindow, Reads(windows.parse_history, f"{windows.ALLOWED}, {windows.BEFORE}", maxLength=32)
    ] = Field(ABSENT, description="what self-consistency compares the window with")
    history_where: Tags = Field({}, description="tags a message of the history must have")
    repeats: int = Field(1, ge=1, le=MOST_REPEATS, description="judgements per item; default 1")
    hard: bool = Field(False, description="20 % off for every flaw the judge finds")
    double_check: bool = Field(False, description="ask the judge a second time whether it is sure")
    method: Annotated[str, OneOf(*Method.values)] = ABSENT
    position_bins: Annotated[tuple[Bin, ...], Reads(parse_bins, ALLOWED_BINS, maxLength=100)] = Field(
        ABSENT, description=f"sampled evenly from {ALLOWED_BINS}"
    )
    judge: Annotated[str, AfterValidator(_judge)] = Field(
        "", max_length=200, description="default: the configured judge"
    )
    batch: bool = Field(
        False, description="hand the questions in as a batch: half the price, an answer within a day; default false"
    )
    additional_context: Annotated[Anything, AfterValidator(_context)] = Field(
        {}, description="shown to the judge as data"
    )


class RunRequest(_Asked):
    """An evaluation of exactly one of agent and channel."""

    channel: ChannelSlug = Field(ABSENT, description="slug of what is measured")

    @model_validator(mode="after")
    def _one_of_them(self) -> RunRequest:
        if (self.agent is None) == (self.channel is None):
            given = "none is given" if self.agent is None else "both are given"
            raise fault("agent", f"give the slug of an agent or of a channel, exactly one of them; {given}")
        return self


class CaptureRequest(_Asked):
    """Whose baseline is captured, and how. What is left out is as the command line has it."""

    agent: AgentSlug = Field(description="slug of who is measured")
    simulate: bool = Field(
        True,
        description=f"false: do not simulate conversations with an agent that has fewer than {ENOUGH} messages, measure these",
    )
    replace: bool = Field(
        False,
        description="true: replace a baseline of messages with a tag (build=40) also by one that does not ask for that tag",
    )


def spec_of(given: RunRequest | CaptureRequest) -> RunSpec:
    """The evaluation that a request asks for.

    Raises:
        ValidationError: What it asks for makes no sense; names the field, the value and what is allowed.
        PropositionError: Proposition files cannot be used.
    """
    asked = {name: value for name, value in given.sent.items() if name not in ("simulate", "replace")}
    if not given.dimensions:
        of = [*Dimension.values] if given.agent else CHANNEL_DIMENSIONS
        asked["dimensions"] = [name for name in default_dimensions() if name in of]
    asked["dimensions"] = tuple(asked["dimensions"])
    try:
        spec = RunSpec(**asked, is_baseline=isinstance(given, CaptureRequest))
        if spec.samples * spec.repeats > MOST_JUDGED:
            most = MOST_JUDGED // spec.repeats
            raise ValueError(
                f"samples {spec.samples}: at most {most:,} with {spec.repeats} repeats; the command line takes more"
            )
        return spec
    except ValueError as error:  # its sentences begin with the name of the field
        name = str(error).split()[0]
        known = name in type(given).model_fields
        raise ValidationError({name if known else "non_field_errors": [str(error)]}) from None


def by_dimension(field: str = "dimension", **more: Any) -> filters.Parameter:
    return filters.choice(Dimension.values, field, **more)


def _procedure(text: str) -> str:
    procedure_fields(text)
    return text


def by_procedure(**more: Any) -> filters.Parameter:
    kinds = f"{' or '.join(Method.values)}, then [+hard][+double-check][+simulated]"
    return filters.Parameter(read=_procedure, allowed=kinds, about="how it was judged, such as plumbline+hard", **more)


def by_judge() -> filters.Parameter:
    return filters.Parameter("judge", about="the name of the judge, such as offline:lexical-1")


class RunFilters(InTime):
    agent = of_agent()
    channel = of_channel()
    dimension = by_dimension(method="asked")
    judge = by_judge()
    procedure = by_procedure(method="judged_by")
    status = filters.choice(EvaluationRun.Status.values)
    is_baseline = filters.flag()

    def asked(self, runs: QuerySet[EvaluationRun], name: str, value: str) -> QuerySet[EvaluationRun]:
        # No database but PostgreSQL looks into lists of JSON; as text they are the same everywhere.
        return runs.alias(asked=Cast("dimensions", TextField())).filter(asked__contains=f'"{value}"')

    def judged_by(self, runs: QuerySet[EvaluationRun], name: str, value: str) -> QuerySet[EvaluationRun]:
        return runs.filter(**procedure_fields(value))
