"""Judgements with planted raw scores, and people who label them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.test import Client
from django.utils import timezone

from agents.models import Agent, Channel
from evaluation.calibration.labels import Key, save_label
from evaluation.calibration.models import LabelSet, ScoreLabel
from evaluation.models import EvaluationRun, EvaluationScore
from tests.console import page_of, signed_in, staff
from tests.evaluation.judged import LLM, make_run, make_score
from tests.factories import make_agent, talk

KEY = Key(LLM, "plumbline", "adherence")


def judgements(
    raws: Sequence[int],
    *,
    agent: Agent | None = None,
    run: EvaluationRun | None = None,
    inverted: Sequence[bool] = (),
    fields: dict[str, Any] | None = None,
    **run_fields: Any,
) -> list[EvaluationScore]:
    """One judgement per raw score, each of a message of its own; the judge's reasoning gives the score away."""
    agent = agent or Agent.objects.filter(slug="ada").first() or make_agent()
    run = run or make_run(agent, **run_fields)
    said = talk(agent, [f"Remark number {n}." for n in range(len(raws))])
    flipped = [*inverted, *([False] * (len(raws) - len(inverted)))]
    return [
        make_score(
            run,
            9 - raw if flip else raw,
            message=message,
            raw_score=raw,
            inverted=flip,
            reasoning=f"The judge weighed it: {raw} of 9.",
            justification=f"It is clearly a {raw}.",
            judged_at=timezone.now(),
            **(fields or {}),
        )
        for raw, message, flip in zip(raws, said, flipped, strict=True)
    ]


def label_all(
    scores: Sequence[EvaluationScore], values: Sequence[int | None], annotator: str = "ann", **fields: Any
) -> None:
    for score, value in zip(scores, values, strict=True):
        save_label(score=score, annotator=annotator, value=value, **fields)


def window_judgement(agent: Agent, raw: int, **fields: Any) -> EvaluationScore:
    """A judgement of a whole window: fluency."""
    run = make_run(agent, dimensions=["fluency"])
    return make_score(run, raw, raw_score=raw, dimension="fluency", judged_at=timezone.now(), **fields)


def channel_of(scores: Sequence[EvaluationScore]) -> Channel:
    message = scores[0].message
    assert message is not None
    return message.channel


def drawn(label_set: LabelSet) -> list[EvaluationScore]:
    """What a set drew, in its order."""
    rows = label_set.drawn.select_related("evaluation_score__evaluation_run").order_by("place")
    return [row.evaluation_score for row in rows]


def annotator(name: str = "ann") -> Client:
    """A user who may label and nothing else, at the console."""
    return signed_in(staff("calibration.add_scorelabel", username=name))


def label_page(label_set: LabelSet, query: str = "") -> str:
    return page_of(label_set, "label") + query


def stored() -> list[tuple[int, str, int | None, str]]:
    rows = ScoreLabel.objects.order_by("evaluation_score", "annotator")
    return list(rows.values_list("evaluation_score", "annotator", "value", "note"))


def written(tmp_path: Path, text: str, name: str = "labels.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path
