"""Labelling in the console: blind until stored, one's own labels only, back and again, and who may."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from agents.personas.persona import current_digest, save_persona
from evaluation.calibration.labels import draw_label_set, save_label
from evaluation.calibration.models import LabelSet, ScoreLabel
from evaluation.models import EvaluationScore
from tests.console import list_of, page_of, queries, read, signed_in, staff, superuser, viewer
from tests.evaluation.calibration.labelled import annotator, drawn, judgements, label_all, label_page, window_judgement
from tests.evaluation.judged import LLM, cells, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"
REASONS = "The judge weighed it"


@pytest.fixture
def label_set() -> LabelSet:
    judgements([1, 4, 8])
    return draw_label_set(name="first", judge=LLM, dimension="adherence", n=3)


def give(client: Client, label_set: LabelSet, score: EvaluationScore, value: object, **fields: str) -> str:
    """Label in the page, and the page that follows."""
    data = {"item": str(score.pk), "value": str(value), **fields}
    answer = client.post(label_page(label_set), data, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def why_hidden(client: Client, label_set: LabelSet) -> str:
    """Why the page of a set hides its figures; empty where it shows them."""
    context = client.get(page_of(label_set)).context
    assert ("differences" in context) == (not context["hidden"])
    return str(context["hidden"])


def without_tokens(html: str) -> str:
    return re.sub(r'(name="csrfmiddlewaretoken" value|nonce|hx-headers)=(".*?"|\'.*?\')', "", html)


# -- blindness
def test_the_page_is_the_same_whatever_the_judge_made_of_it(label_set: LabelSet) -> None:
    ann = annotator()
    before = [read(ann, label_page(label_set, f"?item={score.pk}")) for score in drawn(label_set)]
    EvaluationScore.objects.update(
        raw_score=3, score=6, first_score=2, reasoning="Other reasons.", justification="Other.", confidence=0.31,
        flaws=["a flaw"], recommendations="Be drier.", reason="because", served_model="other-model", evidence="present",
        inverted=True, weight=4.75,
    )  # fmt: skip
    after = [read(ann, label_page(label_set, f"?item={score.pk}")) for score in drawn(label_set)]

    assert [without_tokens(page) for page in before] == [without_tokens(page) for page in after]
    assert all(REASONS not in page and "It is clearly" not in page for page in before)


def test_the_judge_is_shown_only_after_the_label_is_stored(label_set: LabelSet) -> None:
    ann, (first, second, _) = annotator(), drawn(label_set)
    peeked = read(ann, label_page(label_set, f"?saved={first.pk}"))
    assert REASONS not in peeked

    page = give(ann, label_set, first, 6)
    assert f"The judge weighed it: {first.raw_score} of 9." in page
    assert f"The judge weighed it: {second.raw_score} of 9." not in page
    assert re.search(
        rf'You: <strong class="pl-number">6</strong>.*Judge: <strong class="pl-number">{first.raw_score}<', page, re.S
    )


def test_pages_of_an_annotator_do_not_give_the_judge_away(label_set: LabelSet) -> None:
    ann = annotator()
    pages = [read(ann, list_of(LabelSet)), read(ann, page_of(label_set))]
    assert why_hidden(ann, label_set) == "not begun"
    give(ann, label_set, drawn(label_set)[0], 6)
    pages.append(read(ann, page_of(label_set)))

    assert not any(REASONS in page or "κ" in page for page in pages)
    assert why_hidden(ann, label_set) == "unfinished"
    ann.post(page_of(label_set, "open"))
    assert why_hidden(ann, label_set) == "unfinished"


# -- one at a time
def test_labels_are_stored_under_ones_name_and_the_next_judgement_follows(label_set: LabelSet) -> None:
    ann, order = annotator(), drawn(label_set)
    start = read(ann, label_page(label_set))
    page = give(ann, label_set, order[0], 6, note="dry enough")

    assert "0 of 3" in start
    assert f'name="item" value="{order[0].pk}"' in start
    assert "1 of 3" in page
    assert f'name="item" value="{order[1].pk}"' in page
    label = ScoreLabel.objects.get()
    assert (label.annotator, label.value, label.note, label.blind) == ("ann", 6, "dry enough", True)
    assert label.user is not None


def test_one_can_skip_and_go_back(label_set: LabelSet) -> None:
    ann, order = annotator(), drawn(label_set)
    skipped = read(ann, label_page(label_set, f"?after={order[0].pk}"))
    give(ann, label_set, order[1], 5)
    around = give(ann, label_set, order[2], 5)
    back = read(ann, label_page(label_set, f"?item={order[1].pk}"))

    assert f'name="item" value="{order[1].pk}"' in skipped
    assert f'name="item" value="{order[0].pk}"' in around
    assert "you gave 5" in back


def test_a_label_given_after_undo_is_not_blind(label_set: LabelSet) -> None:
    ann, (first, *_) = annotator(), drawn(label_set)
    give(ann, label_set, first, 6)
    answer = ann.post(label_page(label_set), {"item": str(first.pk), "undo": "1"}, follow=True)
    opened = answer.content.decode()

    assert f'name="item" value="{first.pk}"' in opened
    assert "0 of 3" in opened
    assert REASONS not in opened
    page = give(ann, label_set, first, 2)
    assert "not blind" in page
    assert ScoreLabel.objects.values_list("value", "blind", "withdrawn").get() == (2, False, False)


def test_the_same_button_twice_is_one_blind_label(label_set: LabelSet) -> None:
    ann, (first, *_) = annotator(), drawn(label_set)
    give(ann, label_set, first, 6)
    give(ann, label_set, first, 6)

    assert ScoreLabel.objects.get().blind


@pytest.mark.parametrize("value", ["10", "-1", "", "٣", "6.5", HOSTILE])
def test_another_value_is_refused(label_set: LabelSet, value: str) -> None:
    page = give(annotator(), label_set, drawn(label_set)[0], value)

    assert "allowed: 0 to 9, or cannot tell" in page
    assert HOSTILE not in page
    assert not ScoreLabel.objects.exists()


def test_only_what_was_drawn_can_be_labelled(label_set: LabelSet) -> None:
    (other,) = judgements([5], agent=make_agent("bob"))
    answer = annotator().post(label_page(label_set), {"item": str(other.pk), "value": "5"})

    assert answer.status_code == 404
    assert not ScoreLabel.objects.exists()


# -- two annotators
def test_two_annotators_see_only_their_own_labels_until_both_are_done(label_set: LabelSet) -> None:
    ann, ben, order = annotator("ann"), annotator("ben"), drawn(label_set)
    for score in order:
        give(ann, label_set, score, 1)
    give(ben, label_set, order[0], 9)

    assert ben.get(label_page(label_set, f"?item={order[1].pk}")).context["label"] is None
    assert why_hidden(ben, label_set) == "unfinished"
    assert ann.get(page_of(label_set)).context["only_mine"]

    for score in order[1:]:
        give(ben, label_set, score, 9)
    assert not ann.get(page_of(label_set)).context["only_mine"]


def test_somebody_who_has_not_labelled_is_asked_before_the_figures_are_shown(label_set: LabelSet) -> None:
    label_all(drawn(label_set), [1, 4, 8])
    root = signed_in(superuser())

    assert why_hidden(root, label_set) == "not begun"
    assert root.get(page_of(label_set, "open")).status_code == 405
    root.post(page_of(label_set, "open"))
    assert why_hidden(root, label_set) == ""
    looking = signed_in(viewer())
    assert why_hidden(looking, label_set) == ""
    looking.post(page_of(label_set, "open"))
    assert ScoreLabel.objects.filter(withdrawn=True).count() == 3, "only of who may label"


def test_what_is_labelled_after_the_figures_were_shown_is_not_blind(label_set: LabelSet) -> None:
    label_all(drawn(label_set), [1, 4, 8], "ben")
    ann = annotator()
    ann.post(page_of(label_set, "open"))
    start = read(ann, label_page(label_set))
    page = give(ann, label_set, drawn(label_set)[0], 6)

    assert "0 of 3" in start
    assert "not blind" in page
    assert ScoreLabel.objects.filter(annotator="ann", withdrawn=False).values_list("value", "blind").get() == (6, False)


def test_a_label_of_a_file_changed_in_the_console_is_not_blind(label_set: LabelSet) -> None:
    first, second, _ = drawn(label_set)
    label_all([first, second], [6, 6], "ann")
    ann = annotator()
    assert REASONS in read(ann, label_page(label_set, f"?saved={first.pk}")), "it is ann's own"
    give(ann, label_set, first, first.raw_score)
    give(ann, label_set, second, 6)

    labels = dict(ScoreLabel.objects.values_list("evaluation_score", "blind"))
    assert labels == {first.pk: False, second.pk: True}


# -- What the pages of label sets show, who may see them, drawing with the form, and what they cost
DRAW = list_of(LabelSet) + "add/"


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


def test_a_deleted_message_is_shown_as_far_as_known() -> None:
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


def test_a_set_is_drawn_with_the_form() -> None:
    judgements([1, 4, 8])
    root = signed_in(superuser())
    wanted = {"name": "mine", "judged_by": f"{LLM}, plumbline", "dimension": "adherence", "n": "2", "agents": "ada"}
    assert LLM in read(root, DRAW)
    answer = root.post(DRAW, wanted, follow=True).content.decode()

    label_set = LabelSet.objects.get()
    assert (label_set.name, label_set.drawn.count()) == ("mine", 2)
    assert label_set.created_by is not None
    assert "2 of 3 judgements drawn" in answer


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("agents", "nobody", "no agent &#x27;nobody&#x27;"),
        ("dimension", "fluency", "no scored judgement of fluency"),
    ],
)
def test_a_draw_that_cannot_be_is_explained_in_the_form(field: str, value: str, expected: str) -> None:
    judgements([1])
    wanted = {"name": "mine", "judged_by": f"{LLM}, plumbline", "dimension": "adherence", "n": "2", field: value}
    answer = signed_in(superuser()).post(DRAW, wanted).content.decode()

    assert expected in answer
    assert not LabelSet.objects.exists()


def test_the_list_says_how_far_everybody_is_in_constant_queries(label_set: LabelSet) -> None:
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
