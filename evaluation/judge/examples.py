"""Examples that a judge is shown: labelled claims about messages, loaded as they were when their effect was measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from django.db.models import Avg, Q, QuerySet

from agents.kit.text.fences import prompt_path
from agents.models import Message
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.judge.prompts import Example
from evaluation.models import EvaluationRun, EvaluationScore, FewShotExamples, procedure_name

HOW_TO_MAKE = "manage.py calibrate_judge --few-shot makes some from labels"


class NoExamples(ValueError):
    """There are no examples for a judge and procedure, or theirs must not be shown."""


def newest_examples(judge: str, procedure: str) -> FewShotExamples:
    """Return the examples that were tried last with a judge and procedure.

    Raises:
        NoExamples: There are none, the judge agreed worse with people when it was shown them, or what they refer to has changed.
    """
    newest = FewShotExamples.objects.filter(judge=judge, procedure=procedure).first()
    if newest is None:
        raise NoExamples(f"there are no examples for {judge} ({procedure}); {HOW_TO_MAKE}")
    if newest.shows_loss:
        raise NoExamples(f"with examples {newest.digest} {judge} agrees worse with people. {newest.sentence}")
    _load(newest)
    return newest


def find_examples(*, judge: str, method: str, hard: bool, double_check: bool, digest: str) -> FewShotExamples | None:
    """Return the examples of that digest that were tried with a judge and procedure; None where there are none."""
    procedure = procedure_name(method=method, hard=hard, double_check=double_check)
    return FewShotExamples.objects.filter(judge=judge, procedure=procedure, digest=digest).first()


def load_examples(run: EvaluationRun) -> tuple[Example, ...]:
    """Return the examples that the judge of a run is shown; empty where it is shown none.

    Raises:
        NoExamples: What they refer to has changed.
    """
    if not run.few_shot:
        return ()
    stored = find_examples(
        judge=run.judge, method=run.method, hard=run.hard, double_check=run.double_check, digest=run.few_shot
    )
    if stored is None:
        raise NoExamples(f"the examples {run.few_shot} are gone; {HOW_TO_MAKE}")
    return _load(stored)


def _load(stored: FewShotExamples) -> tuple[Example, ...]:
    """Return stored examples.

    Raises:
        NoExamples: Their messages or labels were deleted or changed, or the prompt that shows them.
    """
    examples = make_examples(stored.scores)
    if digest_of(examples.values()) != stored.digest:
        raise NoExamples(
            f"messages, labels or the prompt of examples {stored.digest} were deleted or changed; {HOW_TO_MAKE}"
        )
    return tuple(examples.values())


def with_people(scores: QuerySet[EvaluationScore]) -> QuerySet[EvaluationScore]:
    """Return the judgements that people labelled blind, each with `people`: the mean of these labels, 0 to 9."""
    blind = Q(labels__blind=True, labels__withdrawn=False, labels__value__isnull=False)
    return scores.annotate(people=Avg("labels__value", filter=blind)).filter(people__isnull=False)


def make_examples(scores: Sequence[int]) -> dict[int, Example]:
    """Return judgements as examples with what people say now, by primary key, in the order given.

    Those whose message was deleted, or that have no blind label any more, are left out.
    """
    labelled = with_people(EvaluationScore.objects.filter(pk__in=scores, message__isnull=False))
    rows = {row.pk: row for row in labelled.select_related("message__agent")}
    examples: dict[int, Example] = {}
    for pk in scores:
        row = rows.get(pk)
        if row is None or row.message is None:
            continue
        people: float = row.people  # type: ignore[attr-defined]
        message = row.message
        examples[pk] = Example(message.channel_id, message.author_name, message.text, row.claim, round(people))
    return examples


def digest_of(examples: Iterable[Example]) -> str:
    """Return eight hexadecimal digits that change with any text, claim or score in the examples, and with the prompt that shows them."""
    content = [[example.speaker, example.text, example.claim, example.value] for example in examples]
    prompt = prompt_path("judge/few_shot").read_text(encoding="utf-8")
    return hashlib.sha256(json.dumps([prompt, content], ensure_ascii=False).encode()).hexdigest()[:8]


def examples_beside(examples: Iterable[Example], *, dimension: str, message: Message | None) -> tuple[Example, ...]:
    """Return the examples to show with claims about a message, as a trial shows them: those of other conversations.

    None are shown in dimensions whose judgements are not about a single message.
    """
    if message is None or dimension not in BY_ONE_MESSAGE:
        return ()
    return tuple(example for example in examples if example.conversation != message.channel_id)
