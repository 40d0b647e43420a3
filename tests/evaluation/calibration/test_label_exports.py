"""Labels and templates as files: blind templates, no formulas, and what is written is read again."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from evaluation.calibration import draw_label_set, export_labels, export_template, import_labels, save_label
from evaluation.models import EvaluationScore, ScoreLabel
from tests.evaluation.calibration.labelled import (
    channel_of,
    drawn,
    judgements,
    label_all,
    stored,
    window_judgement,
    written,
)
from tests.evaluation.judged import LLM
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def scores() -> list[EvaluationScore]:
    return judgements([0, 3, 6])


def test_a_template_is_blind_and_in_the_order_of_the_draw(scores: list[EvaluationScore]) -> None:
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=3)
    out = io.StringIO(newline="")
    count = export_template(label_set, out, annotator="ann")
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))

    assert count == 3
    assert [int(row["score"]) for row in rows] == [score.pk for score in drawn(label_set)]
    shown = {int(row["score"]): row["shown"] for row in rows}
    assert shown[scores[2].pk] == "Ada: Remark number 0.\nAda: Remark number 1.\n→ Ada: Remark number 2."
    assert {(row["annotator"], row["value"]) for row in rows} == {("ann", "")}
    assert "The judge weighed it" not in out.getvalue()
    assert not {"judge_score", "score_given", "reasoning"} & set(rows[0])


def test_a_template_does_not_depend_on_what_the_judge_gave(scores: list[EvaluationScore]) -> None:
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=3)
    first, second = io.StringIO(newline=""), io.StringIO(newline="")
    export_template(label_set, first)
    EvaluationScore.objects.update(score=1, raw_score=8, reasoning="other", justification="other", confidence=0.1)
    export_template(label_set, second)

    assert first.getvalue() == second.getvalue()


def test_a_filled_template_is_imported(tmp_path: Path, scores: list[EvaluationScore]) -> None:
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=3)
    out = io.StringIO(newline="")
    export_template(label_set, out, annotator="ann")
    filled = out.getvalue().replace(",ann,,", ",ann,6,")
    done = import_labels(written(tmp_path, filled))

    assert (done.added, done.empty) == (3, 0)


def test_a_window_is_written_with_its_lines(tmp_path: Path) -> None:
    agent = make_agent()
    channel = make_channel()
    for text in ("No.", "Never."):
        say(channel, agent, text)
    window_judgement(agent, 7)
    label_set = draw_label_set(name="first", judge=LLM, dimension="fluency", n=1)
    out = io.StringIO(newline="")
    export_template(label_set, out, as_json=True)

    assert json.loads(out.getvalue())["shown"] == "# What Ada said\nAda: No.\nAda: Never."


def test_hostile_texts_are_no_formulas(scores: list[EvaluationScore]) -> None:
    EvaluationScore.objects.update(claim="=1+1")
    label_all(scores[:1], [5], "@ann", note="-1")
    out = io.StringIO(newline="")
    export_labels(ScoreLabel.objects.all(), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))

    assert (row["claim"], row["annotator"], row["note"]) == ("'=1+1", "'@ann", "'-1")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LABELS = st.lists(
    st.tuples(
        st.integers(0, 2), TEXTS.filter(lambda s: bool(s.strip())), st.one_of(st.none(), st.integers(0, 9)), TEXTS
    ),
    max_size=6,
    unique_by=lambda row: (row[0], row[1].replace("\0", "\ufffd").strip()),
)


class RoundTrip(TestCase):
    """What is written is read again, in both formats."""

    @given(labels=LABELS, as_json=st.booleans())
    def test_labels_survive_a_file(self, labels: list[tuple[int, str, int | None, str]], as_json: bool) -> None:
        scores = judgements([0, 3, 6])
        for place, annotator, value, note in labels:
            save_label(score=scores[place], annotator=annotator, value=value, note=note)
        before, out = stored(), io.StringIO(newline="")
        export_labels(ScoreLabel.objects.all(), out, as_json=as_json)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / ("labels.jsonl" if as_json else "labels.csv")
            path.write_bytes(out.getvalue().encode())
            again = import_labels(path)
            assert (again.added, again.replaced, again.unchanged) == (0, 0, len(before))
            ScoreLabel.objects.all().delete()
            import_labels(path)

        assert stored() == before
        assert channel_of(scores).slug == "office"
