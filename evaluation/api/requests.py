"""Requests about evaluations: what is asked to be measured, what lists are narrowed by, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NoReturn, TypeVar

from django.conf import settings
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from rest_framework.exceptions import ValidationError
from rest_framework.serializers import BooleanField, CharField, ChoiceField, IntegerField, ListField

from agents.api import filters
from agents.api.bodies import AgentField, Anything, Body, ChannelField, Tags, refusal, says
from agents.api.filters import Filters, InTime
from agents.api.problems import Conflict
from agents.llm.endpoints import problem_of
from agents.models import ModelPrice
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun, Method, procedure_name
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.planning import MOST_REPEATS, RunSpec
from evaluation.scorers import subjects
from evaluation.scorers.subjects import ALLOWED_BINS, Bin, parse_bins
from evaluation.simulation.conversations import ENOUGH


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Proposition files that cannot be used are a 409 that says what to correct where."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None


T = TypeVar("T")
MOST_SAMPLES = 2_000  # per request: what it plans is stored before it is answered
MOST_JUDGED = (
    4_000  # samples times repeats: planning that many takes seconds, in which SQLite lets no other process write
)
MOST_CONTEXT = 10_000  # characters of JSON: every call to the judge carries it
LEXICAL_JUDGE = "offline:lexical-1"


class Context(Anything):
    """What the judge is shown beside the messages."""

    most = MOST_CONTEXT
    default_error_messages = says(f"a JSON object of at most {MOST_CONTEXT:,} characters")


class CaptureRequest(Body):
    """Who is measured, and how. What is left out is as the command line has it."""

    agent = AgentField(help_text="slug of who is measured")
    dimensions = ListField(
        child=ChoiceField(Dimension.values), allow_empty=False, help_text="default: all there are propositions for"
    )
    window = CharField(max_length=32, help_text=subjects.ALLOWED, error_messages=says(subjects.ALLOWED))
    where = Tags(help_text="tags a message must have to be measured")
    samples = IntegerField(min_value=1, max_value=MOST_SAMPLES, help_text="most messages sampled; default 20")
    seed = IntegerField(min_value=-(2**63), max_value=2**63 - 1, help_text="seed of the sampling; default 0")
    per_call = IntegerField(min_value=1, max_value=10, help_text="most propositions in one call; default 10")
    history = CharField(
        max_length=32,
        help_text="what self-consistency compares the window with",
        error_messages=says(f"{subjects.ALLOWED}, {subjects.BEFORE}"),
    )
    history_where = Tags(help_text="tags a message of the history must have")
    repeats = IntegerField(min_value=1, max_value=MOST_REPEATS, help_text="judgements per item; default 1")
    hard = BooleanField(help_text="20 % off for every flaw the judge finds")
    double_check = BooleanField(help_text="ask the judge a second time whether it is sure")
    method = ChoiceField(Method.values)
    position_bins = CharField(
        max_length=100, help_text=f"sampled evenly from {ALLOWED_BINS}", error_messages=says(ALLOWED_BINS)
    )
    judge = CharField(max_length=200, help_text="default: the configured judge", error_messages=says("a model"))
    batch = BooleanField(
        help_text="hand the questions in as a batch: half the price, an answer within a day; default false"
    )
    additional_context = Context(help_text="shown to the judge as data")
    simulate = BooleanField(
        help_text=f"false: do not simulate conversations with an agent that has fewer than {ENOUGH} messages, measure these; default true"
    )

    def validate_window(self, text: str) -> subjects.MessageWindow:
        return _read(subjects.parse_window, text)

    def validate_history(self, text: str) -> subjects.MessageWindow:
        return _read(subjects.parse_history, text)

    def validate_position_bins(self, text: str) -> tuple[Bin, ...]:
        return _read(parse_bins, text, before="position_bins: ")

    def validate_judge(self, name: str) -> str:
        """A judge that may be named from outside: no file on this machine, and nothing whose cost is not known."""
        allowed = dict.fromkeys([str(settings.JUDGE_MODEL), LEXICAL_JUDGE])
        allowed |= dict.fromkeys(ModelPrice.objects.order_by("model").values_list("model", flat=True).distinct())
        if name not in allowed:
            raise refusal(f"judge {name[:80]!r}: allowed: {', '.join(allowed)}")
        if problem := problem_of("judge", name):
            raise refusal(f"judge {name!r}: {problem}")
        return name


def _read(parse: Callable[[str], T], text: str, before: str = "") -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise refusal(f"{before}{error}") from None


class RunRequest(CaptureRequest):
    """An evaluation of exactly one of agent and channel."""

    channel = ChannelField(help_text="slug of what is measured")
    simulate = None  # type: ignore[assignment]  # only a baseline is of simulated speech


def spec_of(given: dict[str, Any], *, is_baseline: bool = False) -> RunSpec:
    """The evaluation that a request asks for.

    Raises:
        ValidationError: What it asks for makes no sense; names the field, the value and what is allowed.
        PropositionError: Proposition files cannot be used.
    """
    asked = {name: value for name, value in given.items() if name != "simulate"}
    if is_baseline and "agent" not in asked:
        _refuse("agent", "agent is missing; allowed: the slug of an agent")
    if ("agent" in asked) == ("channel" in asked):
        both = "both are given" if "agent" in asked else "none is given"
        _refuse("agent", f"give the slug of an agent or of a channel, exactly one of them; {both}")
    dimensions = tuple(asked.pop("dimensions", ()) or _default_dimensions("agent" in asked))
    try:
        spec = RunSpec(**asked, dimensions=dimensions, is_baseline=is_baseline)
        if spec.samples * spec.repeats > MOST_JUDGED:
            most = MOST_JUDGED // spec.repeats
            raise ValueError(
                f"samples {spec.samples}: at most {most:,} with {spec.repeats} repeats; the command line takes more"
            )
        return spec
    except ValueError as error:  # its sentences begin with the name of the field
        name = str(error).split()[0]
        known = name in CaptureRequest._declared_fields
        raise ValidationError({name if known else "non_field_errors": [str(error)]}) from None


def _refuse(name: str, text: str) -> NoReturn:
    raise ValidationError({name: [text]})


def _default_dimensions(of_agent: bool) -> tuple[str, ...]:
    names = default_dimensions()
    return names if of_agent else tuple(name for name in names if name in CHANNEL_DIMENSIONS)


_FLAGS = ("hard", "double_check", "simulated")
PROCEDURES = {  # every name a procedure can have, and the fields it stands for
    procedure_name(method=method, **flags): {"method": method, **flags}
    for method in Method.values
    for flags in (dict(zip(_FLAGS, values, strict=True)) for values in product((False, True), repeat=len(_FLAGS)))
}


def by_dimension(field: str = "dimension", **more: Any) -> filters.Parameter:
    return filters.choice(Dimension.values, field, **more)


def by_procedure(**more: Any) -> filters.Parameter:
    return filters.choice(PROCEDURES, about="how it was judged", **more)


def by_judge() -> filters.Parameter:
    return filters.Parameter("judge", about="the name of the judge, such as offline:lexical-1")


class RunFilters(InTime):
    agent = filters.agent()
    channel = filters.channel()
    dimension = by_dimension(method="asked")
    judge = by_judge()
    procedure = by_procedure(method="judged_by")
    status = filters.choice(EvaluationRun.Status.values)
    is_baseline = filters.flag()

    def asked(self, runs: QuerySet[EvaluationRun], name: str, value: str) -> QuerySet[EvaluationRun]:
        # No database but PostgreSQL looks into lists of JSON; as text they are the same everywhere.
        return runs.alias(asked=Cast("dimensions", TextField())).filter(asked__contains=f'"{value}"')

    def judged_by(self, runs: QuerySet[EvaluationRun], name: str, value: str) -> QuerySet[EvaluationRun]:
        return runs.filter(**PROCEDURES[value])


class BaselineFilters(Filters):
    agent = filters.agent()
    judge = by_judge()
    procedure = by_procedure()
    dimension = by_dimension()
