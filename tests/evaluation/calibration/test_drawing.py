"""Label sets: what is drawn from, that the draw is random and repeatable, and what cannot be drawn."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from evaluation.calibration.labels import draw_label_set, drawn_ids, population_of
from evaluation.calibration.models import LabelSet
from evaluation.models import EvaluationRun, EvaluationScore
from tests.evaluation.calibration.labelled import judgements
from tests.evaluation.judged import LLM, OFFLINE, make_run, make_score
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def draw(
    n: int = 5, *, name: str = "first", judge: str = LLM, dimension: str = "adherence", **fields: object
) -> LabelSet:
    return draw_label_set(name=name, judge=judge, dimension=dimension, n=n, **fields)  # type: ignore[arg-type]


def test_a_draw_keeps_what_it_was_drawn_from() -> None:
    scores = judgements([5] * 30)
    label_set = draw(10, seed=7)

    assert label_set.population_size == 30
    assert label_set.population["runs"] == [scores[0].evaluation_run_id]
    assert (label_set.seed, label_set.judge, label_set.procedure) == (7, LLM, "plumbline")
    assert len(set(drawn_ids(label_set))) == 10
    assert set(drawn_ids(label_set)) <= {score.pk for score in scores}


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    judgements([5] * 30)
    first, again, other = draw(10, seed=1), draw(10, name="again", seed=1), draw(10, name="other", seed=2)

    assert drawn_ids(first) == drawn_ids(again)
    assert drawn_ids(first) != drawn_ids(other)


def test_every_judgement_is_as_likely_as_any_other() -> None:
    scores = judgements([5] * 10)
    counts = Counter(pk for seed in range(200) for pk in drawn_ids(draw(5, name=f"set {seed}", seed=seed)))

    # 200 draws with probability 1/2 each: 100 ± 5 standard deviations of 7.07
    assert all(65 <= counts[score.pk] <= 135 for score in scores)


def test_trivial_unscored_ruled_and_counted_judgements_are_not_drawn() -> None:
    scores = judgements([5, 6])
    run = scores[0].evaluation_run
    message = scores[0].message
    make_score(run, 9, message=message, proposition_id="a", status="trivial")
    make_score(run, None, message=message, proposition_id="b", status="unscored")
    make_score(run, None, message=message, proposition_id="c", status="pending")
    make_score(run, 9, message=message, proposition_id="d", raw_score=9, judge="rule")
    make_score(run, 9, message=message, proposition_id="e", raw_score=9, evidence="absent")
    make_score(run, 9, message=message, proposition_id="f", raw_score=9, repeat=2)

    assert sorted(drawn_ids(draw(50))) == sorted(score.pk for score in scores)


def test_other_judges_procedures_and_dimensions_are_not_drawn() -> None:
    agent = make_agent()
    scores = judgements([5], agent=agent)
    judgements([5], run=make_run(agent, judge=OFFLINE))
    judgements([5], run=make_run(agent, hard=True))
    judgements([5], run=make_run(agent, simulated=True))
    judgements([5], run=make_run(agent, method="tinytroupe"))
    judgements([5], run=make_run(agent), fields={"dimension": "fluency"})

    assert drawn_ids(draw()) == [scores[0].pk]
    assert draw(name="hard", procedure="plumbline+hard").population_size == 1


def test_what_was_judged_twice_is_drawn_once_as_it_was_judged_last() -> None:
    first = judgements([5, 6])
    again = make_run(first[0].evaluation_run.agent)
    later = [make_score(again, 3, message=score.message, raw_score=3) for score in first]

    assert sorted(drawn_ids(draw())) == [score.pk for score in later]


def test_what_is_judged_later_is_not_in_the_population() -> None:
    scores = judgements([5, 6])
    label_set = draw()
    judgements([1, 2, 3], run=scores[0].evaluation_run)

    assert population_of(label_set).count() == 2


def test_a_draw_can_be_narrowed_to_agents_and_evaluations() -> None:
    ada, bob = make_agent(), make_agent("bob")
    first, second = judgements([5], agent=ada), judgements([6], agent=ada)
    other = judgements([7], agent=bob)

    assert drawn_ids(draw(agents=[bob])) == [other[0].pk]
    assert drawn_ids(draw(name="one", runs=[first[0].evaluation_run])) == [first[0].pk]
    assert sorted(drawn_ids(draw(name="ada", agents=[ada]))) == [first[0].pk, second[0].pk]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"n": 0}, "n is 0; allowed: 1 to 10,000"),
        ({"dimension": "ideas_quantity"}, "'ideas_quantity' is a count, not a score"),
        ({"dimension": "charm"}, "dimension 'charm'; allowed: adherence, consistency, fluency, convergence"),
        ({"procedure": "plumbline+soft"}, "procedure 'plumbline+soft': allowed"),
        ({"name": " "}, "1 to 100 characters"),
        ({"name": "a\x1b[31m"}, "none of them a control character"),
        ({"seed": 2**63}, "seed 9223372036854775808"),
    ],
)
def test_what_cannot_be_drawn_is_named(fields: dict[str, object], expected: str) -> None:
    judgements([5])
    with pytest.raises(ValueError, match=re.escape(expected)):
        draw(**fields)  # type: ignore[arg-type]

    assert not LabelSet.objects.exists()


def test_a_name_is_given_once() -> None:
    judgements([5])
    draw()
    with pytest.raises(ValueError, match="there is a label set of that name"):
        draw()


def test_messages_that_were_deleted_are_not_drawn() -> None:
    scores = judgements([5, 6])
    message = scores[0].message
    assert message is not None
    message.delete()

    assert drawn_ids(draw()) == [scores[1].pk]


def test_whole_windows_of_every_evaluation_are_drawn() -> None:
    agent = make_agent()
    runs = [make_run(agent, dimensions=["fluency"]) for _ in range(3)]
    made = [make_score(run, 5, raw_score=5, dimension="fluency") for run in runs]

    assert sorted(drawn_ids(draw(dimension="fluency"))) == [score.pk for score in made]
    assert EvaluationScore.objects.count() == EvaluationRun.objects.count() == 3
