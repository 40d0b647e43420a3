"""Who a judge really is. Behind one name the endpoint, the model that answers, or the prompts of this program can change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery
from pydantic import BaseModel, ConfigDict, Field

from agents.kit.text.fences import prompt_path, safe_and_cut
from evaluation.dimensions import COUNTED
from evaluation.judge import offline
from evaluation.judge.verdicts import entry_schema
from evaluation.models import STATISTIC, EvaluationRun, EvaluationScore, Method, is_heuristic, procedure_fields

_SCORING_PROMPTS = ("persona", "trajectory", "additional", "claims")
_COUNTING_PROMPTS = ("ideas", "ideas_list", "ideas_part", "ideas_collapse")


class JudgeIdentity(BaseModel):
    """Who gave a score.

    Attributes:
        endpoint: The address of the server; empty for what answers in this process.
        served_model: The model that the server says it used.
        prompt_digest: As of `prompt_digest`; empty for evaluations that stored none.
        since: When it began to answer like this, as its sentinel found; None: no change is known.
    """

    model_config = ConfigDict(frozen=True)

    endpoint: str = ""
    served_model: str = ""
    prompt_digest: str = ""
    since: datetime | None = Field(None, exclude_if=lambda since: since is None)

    @property
    def name(self) -> str:
        """Name it in a sentence, e.g. ``claude-haiku-5-5 (prompts 3fa9c1d2)``."""
        parts: list[str] = []
        if self.endpoint:
            parts.append(f"at {self.endpoint}")
        if self.prompt_digest:
            parts.append(f"prompts {self.prompt_digest[:8]}")
        name = self.served_model or "an unnamed model"
        if not parts:
            return name
        return f"{name} ({', '.join(parts)})"


def prompt_digest(judge: str, *, method: str, double_check: bool, dimensions: Collection[str]) -> str:
    """Return a digest of how a judge is asked: the templates of its prompts and the form of its answers; 16 characters.

    It is the same whatever is judged, also where ideas are counted beside it. Of an offline judge it is a digest of its name and the
    figures of its rules.

    Args:
        dimensions: What one evaluation measures itself. What is only counted has prompts of its own.
    """
    if is_heuristic(judge):
        parts: list[Any] = [judge, offline.RULES]
    else:
        if set(dimensions) - set(COUNTED):
            names = ["rubric" if method == Method.PLUMBLINE else f"rubric_{method}", *_SCORING_PROMPTS]
        else:
            names = [*_COUNTING_PROMPTS]
        if double_check:
            names.append("double_check")
        parts = [entry_schema(hard=True, advised=True)]
        for name in names:
            parts.append((name, prompt_path(f"judge/{name}").read_text(encoding="utf-8")))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def identity_in(run: EvaluationRun, served_model: str) -> JudgeIdentity:
    """Return who gave a score of this evaluation.

    Args:
        served_model: As stored with the score. An offline judge answers as itself, also where it computed a statistic.
    """
    if run.is_heuristic:
        served_model = run.judge
    return JudgeIdentity(endpoint=run.judge_endpoint, served_model=served_model, prompt_digest=run.prompt_digest)


def identities_of(run: EvaluationRun) -> tuple[JudgeIdentity, ...]:
    """Return who gave the scores of an evaluation; several where the server changed its model meanwhile, none where it stored none."""
    if not run.prompt_digest and not run.served_models:
        return ()
    return tuple(identity_in(run, served_model) for served_model in run.served_models or [""])


MOST_MODELS = 5  # that are noted of one evaluation


def served_models_of(run: EvaluationRun) -> list[str]:
    """Return the models that answered for the judge of an evaluation, as the server named them with its scores, sorted."""
    scores = EvaluationScore.objects.filter(evaluation_run=run, judge=run.judge).exclude(served_model="")
    served = scores.exclude(served_model=STATISTIC).order_by("served_model").values_list("served_model", flat=True)
    return list(served.distinct()[:MOST_MODELS])


def newest_identity(*, judge: str, procedure: str, dimension: str) -> JudgeIdentity | None:
    """Return who gave the newest scores of a judge, procedure and dimension, in one query; None where it gave none.

    Raises:
        ValueError: It is no procedure, see `procedure_fields`.
    """
    answered = EvaluationScore.objects.filter(evaluation_run=OuterRef("pk"), dimension=dimension, judge=judge)
    served = answered.exclude(served_model="").order_by("-pk").values("served_model")[:1]
    runs = EvaluationRun.objects.filter(judge=judge, swap_test="", **procedure_fields(procedure))
    run = runs.annotate(served=Subquery(served)).filter(served__isnull=False).order_by("-pk").first()
    if run is None:
        return None
    return identity_in(run, run.served)


def judge_changed(before: Collection[JudgeIdentity], now: Collection[JudgeIdentity]) -> str:
    """Return a sentence where scores that are compared were given by another server, model or with other prompts, or where the judge's
    sentinel found a change between them; else empty.

    What is not known of one of the two is taken to be the same. It is the one sentence that says so, wherever scores are compared.
    """
    was: list[str] = []
    is_now: list[str] = []
    for name, words in _WORDS.items():
        values_before = {getattr(identity, name) for identity in before} - {""}
        values_now = {getattr(identity, name) for identity in now} - {""}
        if values_before and values_now and values_before != values_now:
            was.append(words.format(_listed(values_before)))
            is_now.append(words.format(_listed(values_now)))
    differences: list[str] = []
    if was:
        differences.append(f"the judge answered {' '.join(was)} before and {' '.join(is_now)} now")
    if before and now and {identity.since for identity in before} != {identity.since for identity in now}:
        differences.append("by its sentinel the judge changed between the two, or its new answers were accepted")
    if not differences:
        return ""
    return f"{'; '.join(differences)}: differences may be the judge's"


_WORDS = {"served_model": "as {}", "endpoint": "at {}", "prompt_digest": "with the prompts {}"}


def _listed(values: Collection[str]) -> str:
    return " and ".join(safe_and_cut(value, 100) for value in sorted(values))
