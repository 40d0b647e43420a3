"""Requests about evaluations: what is asked to be measured, what lists are narrowed by, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NoReturn

from django.conf import settings
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api import parameters
from agents.api.bodies import Flag, OneOf, Pairs, SomeOf, StrictBody, Text, Whole
from agents.api.problems import Conflict
from agents.api.schema import AGENT, SINCE, UNTIL, query
from agents.finding import no_agent
from agents.llm.endpoints import problem_of
from agents.models import Agent, Channel, ModelPrice
from agents.models.conversations import TAG_KEY
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun, Method, procedure_name
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.planning import MOST_REPEATS, RunSpec
from evaluation.scorers import windows
from evaluation.scorers.windows import ALLOWED_BINS, Bin, parse_bins
from evaluation.simulation.conversations import ENOUGH


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Proposition files that cannot be used are a 409 that says what to mend where."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None


MOST_SAMPLES = 2_000  # per request: what it plans is stored before it is answered
MOST_JUDGED = 4_000  # samples times repeats: planning that many takes seconds, in which SQLite lets nobody else write
MOST_CONTEXT = 10_000  # characters of JSON: every call to the judge carries it
LEXICAL_JUDGE = "offline:lexical-1"


class ContextField(serializers.JSONField):
    """What the judge is told beside the messages."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        try:
            fits = isinstance(data, dict) and len(json.dumps(data, ensure_ascii=False, allow_nan=False)) <= MOST_CONTEXT
        except ValueError:  # JSON may spell numbers that are too large, such as 1e999; no database stores them
            fits = False
        if not fits:
            raise ValidationError([f"{self.field_name}: allowed: a JSON object of at most {MOST_CONTEXT:,} characters"])
        return dict(data)


class CaptureRequest(StrictBody):
    """Who is measured, and how. What is left out is as the command line has it."""

    agent = Text(required=False, allowed="the slug of an agent", help_text="slug of who is measured")
    dimensions = SomeOf(Dimension.values, required=False, help_text="default: all there are propositions for")
    window = Text(required=False, most=32, allowed=windows.ALLOWED, help_text=windows.ALLOWED)
    where = Pairs(required=False, help_text="tags a message must have to be measured")
    samples = Whole(required=False, least=1, most=MOST_SAMPLES, help_text="most messages sampled; default 20")
    seed = Whole(required=False, least=-(2**63), most=2**63 - 1, help_text="seed of the sampling; default 0")
    per_call = Whole(required=False, least=1, most=10, help_text="most propositions in one call; default 10")
    history = Text(
        required=False,
        most=32,
        allowed=f"{windows.ALLOWED}, {windows.BEFORE}",
        help_text="what self-consistency compares the window with",
    )
    history_where = Pairs(required=False, help_text="tags a message of the history must have")
    repeats = Whole(required=False, least=1, most=MOST_REPEATS, help_text="judgements per item; default 1")
    hard = Flag(required=False, help_text="20 % off for every flaw the judge finds")
    double_check = Flag(required=False, help_text="ask the judge a second time whether it is sure")
    method = OneOf(Method.values, required=False)
    position_bins = Text(
        required=False, most=100, allowed=ALLOWED_BINS, help_text=f"sampled evenly from {ALLOWED_BINS}"
    )
    judge = Text(required=False, allowed="a model", help_text="default: the configured judge")
    batch = Flag(
        required=False,
        help_text="hand the questions in as a batch: half the price, an answer within a day; default false",
    )
    additional_context = ContextField(required=False, help_text="shown to the judge as data")
    simulate = Flag(
        required=False,
        help_text=f"false: do not simulate conversations with an agent that has fewer than {ENOUGH} messages, measure these; default true",
    )


class RunRequest(CaptureRequest):
    """An evaluation of exactly one of agent and channel."""

    channel = Text(required=False, most=120, allowed="the slug of a channel", help_text="slug of what is measured")
    simulate = None  # type: ignore[assignment]  # only a baseline is of simulated speech


def spec_of(body: StrictBody, *, is_baseline: bool = False) -> RunSpec:
    """The evaluation that a request asks for.

    Raises:
        ValidationError: What it asks for makes no sense; names the field, the value and what is allowed.
        PropositionError: Proposition files cannot be used.
    """
    body.is_valid(raise_exception=True)
    asked = {name: value for name, value in body.validated_data.items() if name != "simulate"}
    target = _target(asked.pop("agent", ""), asked.pop("channel", ""), channels="channel" in body.fields)
    for name, parse in _PARSED.items():
        if name in asked:
            asked[name] = parse(name, asked[name])
    dimensions = tuple(asked.pop("dimensions", ()) or _default_dimensions(target))
    try:
        spec = RunSpec(**target, **asked, dimensions=dimensions, is_baseline=is_baseline)
        if spec.samples * spec.repeats > MOST_JUDGED:
            most = MOST_JUDGED // spec.repeats
            raise ValueError(
                f"samples {spec.samples}: at most {most:,} with {spec.repeats} repeats; the command line takes more"
            )
        return spec
    except ValueError as error:  # its sentences begin with the name of the field
        name = str(error).split()[0]
        raise ValidationError({name if name in body.fields else "non_field_errors": [str(error)]}) from None


def _target(agent: str, channel: str, *, channels: bool) -> dict[str, Any]:
    if not agent and not channels:
        raise ValidationError({"agent": ["agent is missing; allowed: the slug of an agent"]})
    if bool(agent) == bool(channel):
        given = "both are given" if agent else "none is given"
        raise ValidationError({"agent": [f"give the slug of an agent or of a channel, exactly one of them; {given}"]})
    if agent:
        found = Agent.objects.filter(slug=agent).first()
        return {"agent": found} if found is not None else _refuse("agent", no_agent(agent))
    place = Channel.objects.filter(slug=channel).first()
    return {"channel": place} if place is not None else _refuse("channel", no_channel(channel))


def no_channel(slug: str) -> str:
    """A sentence for a slug that is no channel's."""
    known = list(Channel.objects.order_by("slug").values_list("slug", flat=True)[:21])
    rest = " …" if len(known) > 20 else ""
    return f"there is no channel {slug[:80]!r}; channels: {', '.join(known[:20]) or 'none yet'}{rest}"


def _refuse(name: str, text: str) -> NoReturn:
    raise ValidationError({name: [text]})


def _default_dimensions(target: dict[str, Any]) -> tuple[str, ...]:
    found = default_dimensions()
    return found if "agent" in target else tuple(name for name in found if name in CHANNEL_DIMENSIONS)


def _window(name: str, value: str) -> windows.MessageWindow:
    try:
        return windows.parse_history(value) if name == "history" else windows.parse_window(value)
    except ValueError as error:
        _refuse(name, str(error))


def _tags(name: str, value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if not TAG_KEY.fullmatch(key):
            _refuse(name, f"{name} {key[:80]!r}: a tag is a letter, then up to 63 letters, digits, _ . or -")
    return value


def _bins(name: str, value: str) -> tuple[Bin, ...]:
    try:
        return parse_bins(value)
    except ValueError as error:
        _refuse(name, f"{name}: {error}")


def _judge(name: str, value: str) -> str:
    """A judge that may be named from outside: no file on this machine, and nothing whose cost nobody would see."""
    allowed = dict.fromkeys([str(settings.JUDGE_MODEL), LEXICAL_JUDGE])
    allowed |= dict.fromkeys(ModelPrice.objects.order_by("model").values_list("model", flat=True).distinct())
    if value not in allowed:
        _refuse(name, f"judge {value[:80]!r}: allowed: {', '.join(allowed)}")
    if problem := problem_of("judge", value):
        _refuse(name, f"judge {value!r}: {problem}")
    return value


_PARSED: dict[str, Callable[[str, Any], Any]] = {
    "window": _window,
    "history": _window,
    "where": _tags,
    "history_where": _tags,
    "position_bins": _bins,
    "judge": _judge,
}


_FLAGS = ("hard", "double_check", "simulated")
PROCEDURES = {  # every name a procedure can have, and the fields it stands for
    procedure_name(method=method, **flags): {"method": method, **flags}
    for method in Method.values
    for flags in (dict(zip(_FLAGS, values, strict=True)) for values in product((False, True), repeat=len(_FLAGS)))
}
OF_RUNS = ("agent", "channel", "dimension", "status", "judge", "procedure", "is_baseline", "since", "until", "ordering")
CHANNEL = query("channel", "the slug of a channel", type={"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"})
DIMENSION = query("dimension", enum=Dimension.values)
JUDGE = query("judge", "the name of the judge, such as offline:lexical-1")
PROCEDURE = query("procedure", "how it was judged", enum=PROCEDURES)
RUN_FILTERS = (
    *(AGENT, CHANNEL, DIMENSION, JUDGE, PROCEDURE, SINCE, UNTIL),
    query("status", enum=EvaluationRun.Status.values),
    query("is_baseline", enum=("true", "false")),
)
YES_NO = {"true": True, "false": False}


def filtered_runs(request: Request, runs: QuerySet[EvaluationRun]) -> QuerySet[EvaluationRun]:
    """Evaluations as the parameters of a request narrow them."""
    parameters.only(request, *OF_RUNS)
    if agent := parameters.agent(request):
        runs = runs.filter(agent=agent)
    if channel := channel_of(request):
        runs = runs.filter(channel=channel)
    if dimension := parameters.choice(request, "dimension", Dimension.values):
        # No database but PostgreSQL looks into lists of JSON; as text they are the same everywhere.
        runs = runs.alias(asked=Cast("dimensions", TextField())).filter(asked__contains=f'"{dimension}"')
    if status := parameters.choice(request, "status", EvaluationRun.Status.values):
        runs = runs.filter(status=status)
    if judge := parameters.text(request, "judge"):
        runs = runs.filter(judge=judge)
    if procedure := parameters.choice(request, "procedure", PROCEDURES):
        runs = runs.filter(**PROCEDURES[procedure])
    if baseline := parameters.choice(request, "is_baseline", YES_NO):
        runs = runs.filter(is_baseline=YES_NO[baseline])
    return in_time(request, runs)


def in_time(request: Request, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows created in ``since`` (included) to ``until`` (not)."""
    since, until = parameters.moment(request, "since"), parameters.moment(request, "until")
    if since:
        rows = rows.filter(created_at__gte=since)
    return rows.filter(created_at__lt=until) if until else rows


def channel_of(request: Request) -> Channel | None:
    """The channel of the slug in ``channel``; None when the parameter is not given."""
    slug = parameters.text(request, "channel")
    if not slug:
        return None
    found = Channel.objects.filter(slug=slug).first()
    if found is None:
        raise ValidationError({"channel": [no_channel(slug)]})
    return found


def number(request: Request, name: str, *, allowed: str) -> int | None:
    """A primary key in the parameters; None when it is not given."""
    text = parameters.text(request, name)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValidationError({name: [f"{name} {text[:60]!r}: allowed: {allowed}"]})
    return int(text)
