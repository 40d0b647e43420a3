"""What the pages of label sets show, who may see them, drawing with the form, and what they cost."""

from __future__ import annotations

import re

import pytest

from agents.persona import current_digest, save_persona
from evaluation.calibration import draw_label_set, save_label
from evaluation.models import LabelSet, ScoreLabel
from tests.console import list_of, page_of, queries, read, signed_in, staff, superuser, viewer
from tests.evaluation.calibration.labelled import annotator, drawn, judgements, label_all, label_page, window_judgement
from tests.evaluation.judged import LLM, cells, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"
DRAW = list_of(LabelSet) + "add/"


@pytest.fixture
def label_set() -> LabelSet:
    judgements([1, 4, 8])
    return draw_label_set(name="first", judge=LLM, dimension="adherence", n=3)


# -- what is shown
def test_the_message_stands_amid_its_conversation_with_the_persona() -> None:
    agent, channel = make_agent(), make_channel()
    say(channel, "Cy", f"Who broke it? {HOSTILE}")
    scores = judgements([5, 6], agent=agent)
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=2)
    page = read(annotator(), label_page(label_set, f"?item={scores[1].pk}"))

    assert "Ada is dry" in page
    assert re.search(r'<blockquote class="pl-judged[^>]*>Remark number 1\.', page)
    assert "Just before" in page
    assert "Who broke it? &lt;script&gt;" in page
    assert "You are Ada, a dry and careful clerk." in page


def test_a_window_is_shown_as_it_was_when_it_was_judged() -> None:
    agent, channel = make_agent(), make_channel()
    say(channel, agent, "Said before.")
    say(channel, agent, "Said before, too.")
    score = window_judgement(agent, 6)
    say(channel, agent, "Said afterwards.")
    label_set = draw_label_set(name="first", judge=LLM, dimension="fluency", n=1)
    page = read(annotator(), label_page(label_set, f"?item={score.pk}"))

    assert "Said before, too." in page
    assert "Said afterwards." not in page
    assert "You are Ada" not in page


def test_a_pair_is_shown_with_both_messages() -> None:
    scores = judgements([5, 6])
    run = scores[0].evaluation_run
    make_score(run, 4, raw_score=4, dimension="consistency", message=scores[1].message, compared_with=scores[0].message)
    label_set = draw_label_set(name="first", judge=LLM, dimension="consistency", n=1)
    page = read(annotator(), label_page(label_set))

    assert page.index("The earlier message") < page.index("Remark number 0.") < page.index("The later message")
    assert page.count(" pl-judged") == 2
    assert "You are Ada" not in page


def test_a_persona_that_changed_is_shown_as_the_judge_saw_it() -> None:
    agent = make_agent()
    scores = judgements([5], agent=agent, persona_digest=current_digest(agent))
    agent.system_prompt = "You are Ada, a loud dancer."
    save_persona(agent=agent, traits=[], note="edit")
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=1)
    page = read(annotator(), label_page(label_set, f"?item={scores[0].pk}"))

    assert "a dry and careful clerk" in page
    assert "a loud dancer" not in page


def test_a_message_that_was_deleted_is_shown_as_far_as_it_is_known() -> None:
    (score,) = judgements([5], fields={"context_snippet": "Remark numb…"})
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=1)
    assert score.message is not None
    score.message.delete()
    page = read(annotator(), label_page(label_set))

    assert "Remark numb…" in page
    assert "The message was deleted since" in page


# -- who may, and what it costs
def test_labelling_needs_the_right_to_it(label_set: LabelSet) -> None:
    looking = signed_in(viewer())
    data = {"item": str(drawn(label_set)[0].pk), "value": "5"}

    assert looking.get(label_page(label_set)).status_code == 403
    assert looking.post(label_page(label_set), data).status_code == 403
    assert "Label</a>" not in read(looking, list_of(LabelSet))
    nobody = signed_in(staff())
    assert nobody.get(list_of(LabelSet)).status_code == 403
    assert nobody.get(page_of(label_set)).status_code == 403
    assert not ScoreLabel.objects.exists()


def test_drawing_needs_the_right_to_add_label_sets(label_set: LabelSet) -> None:
    assert annotator().get(DRAW).status_code == 403


def test_a_set_is_drawn_with_the_form() -> None:
    judgements([1, 4, 8])
    root = signed_in(superuser())
    wanted = {"name": "mine", "judged_by": "0", "dimension": "adherence", "n": "2", "seed": "5", "agents": "ada"}
    assert LLM in read(root, DRAW)
    answer = root.post(DRAW, wanted, follow=True).content.decode()

    label_set = LabelSet.objects.get()
    assert (label_set.name, label_set.seed, label_set.drawn.count()) == ("mine", 5, 2)
    assert label_set.created_by is not None
    assert "2 of 3 judgements drawn" in answer


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("agents", "nobody", "no agent &#x27;nobody&#x27;"),
        ("dimension", "fluency", "no scored judgement of fluency"),
        ("n", "0", "greater than or equal to 1"),
        ("judged_by", "7", "Select a valid choice"),
    ],
)
def test_a_draw_that_cannot_be_is_explained_in_the_form(field: str, value: str, told: str) -> None:
    judgements([1])
    wanted = {"name": "mine", "judged_by": "0", "dimension": "adherence", "n": "2", "seed": "5", field: value}
    answer = signed_in(superuser()).post(DRAW, wanted).content.decode()

    assert told in answer
    assert not LabelSet.objects.exists()


def test_the_list_says_how_far_everybody_is_in_a_constant_number_of_queries(label_set: LabelSet) -> None:
    root = signed_in(superuser())
    label_all(drawn(label_set)[:2], [5, None], "ben")
    few = len(queries(root, list_of(LabelSet)))
    for number in range(5):
        more = draw_label_set(name=f"more {number}", judge=LLM, dimension="adherence", n=3)
        label_all(drawn(more)[:1], [5], f"annotator {number}")

    assert len(queries(root, list_of(LabelSet))) == few
    assert any("ben 2 of 3" in cell for cell in cells(read(root, list_of(LabelSet)), "people"))


def test_the_label_page_costs_the_same_however_much_was_drawn() -> None:
    judgements([5] * 4)
    small = draw_label_set(name="small", judge=LLM, dimension="adherence", n=2)
    ann = annotator()
    few = len(queries(ann, label_page(small)))
    judgements([5] * 60)
    large = draw_label_set(name="large", judge=LLM, dimension="adherence", n=60)
    save_label(score=drawn(large)[0], annotator="ben", value=1)

    assert len(queries(ann, label_page(large))) <= few + 1  # one more: what lies before and after
