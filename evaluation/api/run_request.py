"""What a request for an evaluation may say, and the `RunSpec` it means."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from agents.api.bodies import Flag, OneOf, Pairs, SomeOf, StrictBody, Text, Whole
from agents.finding import no_agent
from agents.llm.endpoints import problem_of
from agents.models import Agent, Channel, ModelPrice
from agents.models.conversations import TAG_KEY
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, Method
from evaluation.propositions.files import default_dimensions
from evaluation.runs.spec import MOST_REPEATS, RunSpec
from evaluation.scorers import windows
from evaluation.scorers.positions import ALLOWED_BINS, Bin, parse_bins
from evaluation.simulation import ENOUGH

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
