"""Examples that a judge is shown: labelled claims about other messages, loaded as they were when their effect was measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from agents.kit.text.fences import prompt_path
from agents.models import Message
from evaluation.judge.questions import Example
from evaluation.models import EvaluationRun, EvaluationScore, FewShotExamples

HOW_TO_MAKE = "manage.py calibrate_judge --few-shot makes some from labels"


class ExamplesGone(ValueError):
    """There are no examples for a judge and procedure, or theirs cannot be shown as they were measured."""


def newest_examples(judge: str, procedure: str) -> FewShotExamples:
    """Return the examples that were tried last with a judge and procedure.

    Raises:
        ExamplesGone: There are none, or what they refer to was deleted or changed.
    """
    newest = FewShotExamples.objects.filter(judge=judge, procedure=procedure).first()
    if newest is None:
        raise ExamplesGone(f"there are no examples for {judge} ({procedure}); {HOW_TO_MAKE}")
    _checked(newest)
    return newest


def load_examples(run: EvaluationRun) -> dict[str, tuple[Example, ...]]:
    """Return the examples that the judge of a run is shown, by dimension; empty where it is shown none.

    Raises:
        ExamplesGone: What they refer to was deleted or changed.
    """
    if not run.few_shot:
        return {}
    stored = FewShotExamples.objects.filter(judge=run.judge, digest=run.few_shot).first()
    if stored is None:
        raise ExamplesGone(f"the examples {run.few_shot} are gone; {HOW_TO_MAKE}")
    return _checked(stored)


def _checked(stored: FewShotExamples) -> dict[str, tuple[Example, ...]]:
    """Return stored examples by dimension.

    Raises:
        ExamplesGone: What they refer to was deleted or changed, or the prompt that shows them.
    """
    values = {item["score"]: item["value"] for item in stored.items}
    examples = make_examples(values)
    if digest_of(examples) != stored.digest:
        raise ExamplesGone(f"messages or the prompt of examples {stored.digest} were deleted or changed; {HOW_TO_MAKE}")
    return examples


def make_examples(values: Mapping[int, int]) -> dict[str, tuple[Example, ...]]:
    """Return judgements as examples, by dimension, in the order given; those whose message was deleted are left out.

    Args:
        values: The score that people gave, by the judgement's primary key.
    """
    rows = EvaluationScore.objects.select_related("message__agent").in_bulk(list(values))
    examples: dict[str, tuple[Example, ...]] = {}
    for pk, value in values.items():
        row = rows.get(pk)
        if row is None or row.message is None:
            continue
        example = Example(row.message.pk, row.message.author_name, row.message.text, row.claim, value)
        examples[row.dimension] = (*examples.get(row.dimension, ()), example)
    return examples


def digest_of(examples: Mapping[str, Sequence[Example]]) -> str:
    """Return eight hexadecimal digits that change with any text, claim or score in the examples, and with the prompt that shows them."""
    content = []
    for dimension in sorted(examples):
        for example in examples[dimension]:
            content.append([dimension, example.speaker, example.text, example.claim, example.value])
    prompt = prompt_path("judge/few_shot").read_text(encoding="utf-8")
    return hashlib.sha256(json.dumps([prompt, content], ensure_ascii=False).encode()).hexdigest()[:8]


def examples_beside(examples: Sequence[Example], message: Message | None) -> tuple[Example, ...]:
    """Return the examples to show with claims about a message: those of other messages; none where a whole window is judged."""
    if message is None:
        return ()
    return tuple(example for example in examples if example.message != message.pk)
