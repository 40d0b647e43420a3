"""What lists of evaluations, judgements and baselines are narrowed by."""

from __future__ import annotations

from itertools import product
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api import parameters
from agents.api.schema import AGENT, SINCE, UNTIL, query
from agents.models import Channel
from evaluation.api.run_request import no_channel
from evaluation.models import Dimension, EvaluationRun, Method, procedure_name

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
