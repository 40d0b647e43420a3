"""Requests about evaluations: what lists are narrowed by, and what is refused. For what is measured see `evaluation.runs.request`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from rest_framework.exceptions import ValidationError

from agents.api.filters import of_agent, of_channel
from agents.kit.api import filters
from agents.kit.api.filters import InTime
from agents.kit.api.problems import Conflict
from agents.kit.bodies import Refused
from evaluation.models import Dimension, EvaluationRun, Method, procedure_fields
from evaluation.propositions.files import PropositionError


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Answer 409 for proposition files that cannot be used, with what to correct where; 400 where there are none for what is asked."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None
    except Refused as refused:
        raise ValidationError({name: [sentence] for name, sentence in refused.errors.items()}) from None


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
