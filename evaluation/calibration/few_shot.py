"""Few-shot examples from labels: does a judge agree better with people when it is shown some of their scores?

The labelled judgements are divided into folds by conversation. Each is asked twice in the same way: without examples, and with examples
chosen from the other folds, so that the judge saw no label of what it is compared on, nor of anything said in the same conversation.
What is stored for use are examples chosen from all labels by the same rule.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel, computed_field

from agents.kit.llm import Label, ledger
from agents.kit.text.fences import new_nonce
from agents.kit.text.wording import decimal
from evaluation.budget import why_over_budget
from evaluation.calibration.agreement import Figure
from evaluation.calibration.labels import scored_judgements
from evaluation.calibration.shown import asked_again
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.judge.asking import JudgeHealth, ask_all
from evaluation.judge.examples import digest_of, examples_beside, make_examples, with_people
from evaluation.judge.prompts import Example
from evaluation.judge.questions import Question
from evaluation.models import EvaluationScore, FewShotExamples, is_heuristic, procedure_fields
from evaluation.models.few_shot import LOSS
from evaluation.runs.estimate import estimate_questions
from evaluation.runs.failures import FAILURES
from evaluation.runs.numbers import Spending, Used
from evaluation.statistics.gain import LEAST_CLUSTERS, KappaGain, kappa_gain

PURPOSE = "few-shot"  # of its calls in the ledger
EXAMPLES = 10  # at most: one for each value from 0 to 9
FOLDS = 5
GAIN = "gain"
NO_GAIN = "no gain shown"

Arm = Literal["before", "after"]
Scores = Mapping[Arm, Mapping[int, int]]  # the judge's raw scores without and with examples, by labelled judgement


class CannotTry(ValueError):
    """Too little is labelled for a trial, the judge reads no examples, or the budget has no room."""


class JudgeDown(RuntimeError):
    """The judge answered none of the first questions; nothing is stored."""


@dataclass(frozen=True, slots=True)
class LabelledMessage:
    """A judgement about one message that people labelled blind.

    Attributes:
        score: Primary key of the judgement. `message`: of the message. `conversation`: of its channel.
        people: Mean of the labels, 0 to 9, for the claim as written.
    """

    score: int
    message: int
    conversation: int
    people: float

    @property
    def value(self) -> int:
        """Return what people gave as the whole number an example shows."""
        return round(self.people)


class FewShotResult(BaseModel):
    """Agreement with people without and with examples, on labels the judge was not shown, as it is printed and stored.

    Attributes:
        procedure: Of the labelled judgements, without examples.
        digest: Of the examples chosen from all labels; `examples`: how many.
        labelled: Judgements asked about, in `conversations` conversations and `folds` folds; `items`: those scored both times.
        earlier: Verdicts of the earlier trials with this judge and procedure, oldest first.
        before, after: Quadratic-weighted kappa of judge and people, on the same items. `difference`: after − before.
    """

    judge: str
    procedure: str
    dimension: str
    digest: str
    examples: int
    labelled: int
    items: int
    conversations: int
    folds: int
    earlier: list[str]
    before: Figure
    after: Figure
    difference: Figure
    tried_at: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """Return ``gain`` or ``loss`` where the interval of the difference lies wholly above or below 0, else ``no gain shown``."""
        if self.difference.interval is None:
            return NO_GAIN
        low, high = self.difference.interval
        if low > 0:
            return GAIN
        return LOSS if high < 0 else NO_GAIN

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Return the verdict with the end of the interval that decides it, and what earlier trials showed: each is another chance."""
        if not self.earlier:
            return self._verdict_sentence()
        earlier = ", ".join(self.earlier)
        return f"{self._verdict_sentence()} This is trial {len(self.earlier) + 1}; earlier ones: {earlier}."

    def _verdict_sentence(self) -> str:
        if self.difference.interval is None:
            return f"No gain shown: {self.difference.reason}."
        low, high = self.difference.interval
        if self.verdict == GAIN:
            return f"Gain: with examples kappa is higher by at least {decimal(low, 2)}."
        if self.verdict == LOSS:
            return f"Loss: with examples kappa is lower by at least {decimal(-high, 2)}."
        return "No gain shown: the interval of the difference includes 0."

    def rows(self) -> list[tuple[str, Figure]]:
        """Return the figures in the order they are shown."""
        return [
            ("Kappa without examples", self.before),
            ("Kappa with examples", self.after),
            ("Difference", self.difference),
        ]


# -- choosing, without a database
def choose_examples(labelled: Sequence[LabelledMessage]) -> list[LabelledMessage]:
    """Return up to `EXAMPLES` labelled judgements of different messages, spread over the values that people gave, lowest value first.

    One of each value is taken, then a second one of each, and so on; those stored first come first. The same labels give the same.
    """
    by_value: dict[int, list[LabelledMessage]] = defaultdict(list)
    messages: set[int] = set()
    for item in sorted(labelled, key=lambda item: item.score):
        if item.message not in messages:
            messages.add(item.message)
            by_value[item.value].append(item)
    chosen: list[LabelledMessage] = []
    while by_value and len(chosen) < EXAMPLES:
        for value in sorted(by_value):
            chosen.append(by_value[value].pop(0))
            if not by_value[value]:
                del by_value[value]
    return sorted(chosen[:EXAMPLES], key=lambda item: (item.value, item.score))


def folds_of(labelled: Sequence[LabelledMessage]) -> dict[int, int]:
    """Return the fold of each conversation, 0 to `FOLDS` − 1, so that all have about as many labelled judgements."""
    items_of_conversation = Counter(item.conversation for item in labelled)
    items_of_fold = [0] * FOLDS
    fold_of: dict[int, int] = {}
    largest_first = sorted(items_of_conversation.items(), key=lambda pair: (-pair[1], pair[0]))
    for conversation, items in largest_first:
        smallest = items_of_fold.index(min(items_of_fold))
        fold_of[conversation] = smallest
        items_of_fold[smallest] += items
    return fold_of


def examples_for_each(labelled: Sequence[LabelledMessage]) -> dict[int, list[LabelledMessage]]:
    """Return the examples that may be shown for each labelled judgement, by its key: chosen from the folds that it is not in."""
    fold_of = folds_of(labelled)
    chosen_for_fold: dict[int, list[LabelledMessage]] = {}
    for fold in sorted(set(fold_of.values())):
        chosen_for_fold[fold] = choose_examples([item for item in labelled if fold_of[item.conversation] != fold])
    return {item.score: chosen_for_fold[fold_of[item.conversation]] for item in labelled}


def gain_of(labelled: Sequence[LabelledMessage], scores: Scores) -> KappaGain:
    """Return the agreement of judge and people before and after, over the judgements scored both times, clustered by conversation."""
    both = [item for item in labelled if item.score in scores["before"] and item.score in scores["after"]]
    return kappa_gain(
        people=[item.people for item in both],
        before=[float(scores["before"][item.score]) for item in both],
        after=[float(scores["after"][item.score]) for item in both],
        clusters=[item.conversation for item in both],
    )


# -- a trial
@dataclass(frozen=True, slots=True)
class TrialItem:
    """Which labelled judgement a question is about, and whether it is asked with examples."""

    score: int
    arm: Arm


@dataclass(slots=True, kw_only=True)
class FewShotTrial:
    """A trial before it is made: the labelled judgements, the examples chosen from all of them for use, and all questions.

    Attributes:
        examples: By the primary key of the judgement, in the order they are shown.
    """

    judge: str
    procedure: str
    dimension: str
    labelled: list[LabelledMessage]
    examples: dict[int, Example]
    questions: list[Question]
    work_id: str
    scores: dict[Arm, dict[int, int]] = field(default_factory=lambda: {"before": {}, "after": {}})

    def estimate(self) -> Spending:
        return estimate_questions(self.questions, judge=self.judge)

    def spent(self) -> Used:
        """Return what its calls used, as the ledger has them."""
        totals = ledger.totals(work_id=self.work_id)
        return Used(
            calls=totals.calls,
            input_tokens=totals.input_tokens + totals.cache_read_tokens + totals.cache_write_tokens,
            output_tokens=totals.output_tokens,
            cache_read_tokens=totals.cache_read_tokens,
            cache_write_tokens=totals.cache_write_tokens,
            unpriced_calls=totals.unpriced,
            cost_usd=totals.cost_usd if totals.calls > totals.unpriced else None,
        )


def plan_trial(*, judge: str, procedure: str, dimension: str) -> FewShotTrial:
    """Prepare a trial with all blind labels of a judge, procedure and dimension; nothing is asked yet.

    Raises:
        CannotTry: Too little is labelled, or the judge reads no examples.
        ValueError: A procedure or dimension that is not allowed.
    """
    fields = procedure_fields(procedure)
    if dimension not in BY_ONE_MESSAGE:
        allowed = ", ".join(BY_ONE_MESSAGE)
        raise ValueError(f"dimension {dimension!r}: examples are about one message; allowed: {allowed}")
    if fields["few_shot"] or fields["simulated"]:
        raise ValueError(f"procedure {procedure!r}: allowed: one without examples, and of real speech")
    if is_heuristic(judge):
        raise CannotTry(f"{judge} reads no examples; name a model with --judge")
    rows = _labelled_rows(judge=judge, procedure=procedure, dimension=dimension)
    labelled = [_labelled_message(row) for row in rows]
    conversations = len({item.conversation for item in labelled})
    if conversations < LEAST_CLUSTERS:
        raise CannotTry(f"labelled messages of {conversations} conversations; at least {LEAST_CLUSTERS} are needed")
    trial = FewShotTrial(
        judge=judge,
        procedure=procedure,
        dimension=dimension,
        labelled=labelled,
        examples=make_examples([item.score for item in choose_examples(labelled)]),
        questions=[],
        work_id=f"{PURPOSE}:{secrets.token_hex(8)}",
    )
    trial.questions = list(_questions(trial, rows))
    return trial


def _labelled_rows(*, judge: str, procedure: str, dimension: str) -> list[EvaluationScore]:
    """Return the judgements about one message that have blind labels, each with `people`, their mean."""
    scores = scored_judgements(judge=judge, procedure=procedure, dimension=dimension)
    about_messages = scores.filter(message__isnull=False, over_window=False)
    related = ("evaluation_run__agent", "evaluation_run__channel", "message__channel", "message__agent")
    return list(with_people(about_messages).select_related(*related))


def _labelled_message(row: EvaluationScore) -> LabelledMessage:
    message = row.message
    assert message is not None  # noqa: S101 (chosen so in `_labelled_rows`)
    people: float = row.people  # type: ignore[attr-defined]
    return LabelledMessage(score=row.pk, message=message.pk, conversation=message.channel_id, people=people)


def _questions(trial: FewShotTrial, rows: Sequence[EvaluationScore]) -> Iterator[Question]:
    """Yield for each labelled judgement the question without examples and the same with examples from other folds."""
    fields = procedure_fields(trial.procedure)
    nonce = new_nonce()
    chosen = examples_for_each(trial.labelled)
    examples = make_examples([item.score for item in trial.labelled])
    for row in rows:
        question = asked_again(row)
        other_examples = [examples[item.score] for item in chosen[row.pk]]
        examples_shown = examples_beside(other_examples, dimension=trial.dimension, message=row.message)
        arms: dict[Arm, tuple[Example, ...]] = {"before": (), "after": examples_shown}
        for arm, examples_of_arm in arms.items():
            yield Question(
                propositions=(question.proposition,),
                context=question.context,
                label=Label(purpose=PURPOSE, dimension=trial.dimension, work_id=trial.work_id),
                model=trial.judge,
                nonce=nonce,
                double_check=fields["double_check"],
                method=fields["method"],
                examples=examples_of_arm,
                items=(TrialItem(row.pk, arm),),
            )


def run_trial(trial: FewShotTrial, *, done: Callable[[int], None] = lambda judged: None) -> FewShotResult:
    """Ask the judge, store the examples chosen from all labels with what they did, and return that.

    Nothing but the calls is stored until all is asked: a trial that is stopped is lost, and what it asked is paid.

    Args:
        done: Called with 1 after each answer.

    Raises:
        CannotTry: The daily budget has no room for what the trial is estimated to cost.
        JudgeDown: The judge answered none of the first questions.
    """
    over_budget = why_over_budget(None, trial.judge, planned=trial.estimate().cost_usd or Decimal(0))
    if over_budget:
        raise CannotTry(over_budget)
    _ask(trial, done)
    return _store(trial)


@transaction.atomic
def _store(trial: FewShotTrial) -> FewShotResult:
    """Store the examples of a trial with what they did, after the verdicts of the earlier trials, and return that."""
    gain = gain_of(trial.labelled, trial.scores)
    digest = digest_of(trial.examples.values())
    earlier: list[str] = []
    rows = FewShotExamples.objects.select_for_update().filter(judge=trial.judge, procedure=trial.procedure)
    newest = rows.first()
    if newest is not None:
        before = FewShotResult.model_validate(newest.figures)
        earlier = [*before.earlier, before.verdict]
    result = FewShotResult(
        judge=trial.judge,
        procedure=trial.procedure,
        dimension=trial.dimension,
        digest=digest,
        examples=len(trial.examples),
        labelled=len(trial.labelled),
        items=gain.difference.n,
        conversations=len({item.conversation for item in trial.labelled}),
        folds=FOLDS,
        earlier=earlier,
        before=Figure.of(gain.before),
        after=Figure.of(gain.after),
        difference=Figure.of(gain.difference),
        tried_at=timezone.now().isoformat(),
    )
    FewShotExamples.objects.update_or_create(
        judge=trial.judge,
        procedure=trial.procedure,
        digest=digest,
        defaults={"scores": list(trial.examples), "figures": result.model_dump(mode="json")},
    )
    return result


def _ask(trial: FewShotTrial, done: Callable[[int], None]) -> None:
    """Ask all questions and note the raw scores in `trial.scores`; what is not scored is in neither.

    Raises:
        JudgeDown: The judge answered none of the first questions.
    """
    health = JudgeHealth()

    def while_judge_answers() -> Iterator[Question]:
        for question in trial.questions:
            if health.down:
                return
            yield question

    for answered in ask_all(while_judge_answers(), deadline=settings.LLM_EVALUATION_DEADLINE):
        [item] = answered.question.items
        [verdict] = answered.verdicts
        health.note(failed=verdict.cause in FAILURES, why=verdict.reason)
        if verdict.status == "scored" and verdict.raw_value is not None:
            trial.scores[item.arm][item.score] = verdict.raw_value
        done(1)
    if health.down:
        raise JudgeDown(health.down)


def newest_result(*, judge: str, procedure: str, dimension: str) -> FewShotResult | None:
    """Return the newest trial of a judge, procedure and dimension; None where there was none."""
    if dimension not in BY_ONE_MESSAGE:
        return None
    newest = FewShotExamples.objects.filter(judge=judge, procedure=procedure).first()
    return None if newest is None else FewShotResult.model_validate(newest.figures)
