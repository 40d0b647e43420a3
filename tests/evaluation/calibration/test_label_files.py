"""Labels from files: every problem named, all or nothing, repeats change nothing; and back to files, templates blind."""

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

from evaluation.calibration.label_files import LabelFileError, export_labels, export_template, import_labels
from evaluation.calibration.labels import draw_label_set, save_label
from evaluation.calibration.models import JudgeCalibration, ScoreLabel
from evaluation.models import EvaluationScore
from tests.console import superuser
from tests.evaluation.calibration.labelled import (
    channel_of,
    drawn,
    judgements,
    label_all,
    stored,
    window_judgement,
    written,
)
from tests.evaluation.judged import LLM, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def problems(path: Path, **options: object) -> str:
    """What the import complains of; nothing may have been stored by it."""
    before = stored()
    with pytest.raises(LabelFileError) as error:
        import_labels(path, **options)  # type: ignore[arg-type]
    assert stored() == before
    return str(error.value)


@pytest.fixture
def scores() -> list[EvaluationScore]:
    return judgements([0, 3, 6])


# -- reading


def test_a_file_of_json_lines(tmp_path: Path, scores: list[EvaluationScore]) -> None:
    a, b, c = (score.pk for score in scores)
    rows = [
        {"score": a, "annotator": "ann", "value": 1, "note": "dry"},
        {"score": b, "annotator": "ann", "value": "cannot tell"},
        {"score": c, "annotator": "ann", "value": None},
    ]
    import_labels(written(tmp_path, "\n".join(map(json.dumps, rows)), "labels.jsonl"))

    assert stored() == [(a, "ann", 1, "dry"), (b, "ann", None, "")]


# -- what is wrong is named
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{a},ann,10,", "line 2, column value: '10': allowed: 0 to 9, “cannot tell”, or empty for not labelled yet"),
        ("{a},ann,-1,", "line 2, column value: '-1': allowed"),
        ("{a},ann,7.0,", "line 2, column value: '7.0': allowed"),
        ("{a},ann,seven,", "line 2, column value: 'seven': allowed"),
        ("{a},ann,٣,", "line 2, column value: '٣': allowed"),
        ("{a},,5,", "line 2, column annotator: annotator '': 1 to 150 characters"),
        ("x,ann,5,", "line 2, column score: 'x': allowed: the number of a score"),
        (",ann,5,", "line 2, column score: empty; name the judgement"),
        ("2147483000,ann,5,", "line 2, column score: '2147483000': there is no such score"),
        ("99999999999999999999,ann,5,", "line 2, column score: '99999999999999999999': allowed"),
    ],
)
def test_a_bad_cell_is_named_with_its_place(
    tmp_path: Path, scores: list[EvaluationScore], line: str, expected: str
) -> None:
    good = f"{scores[1].pk},ann,5,"
    text = f"score,annotator,value,note\n{line.format(a=scores[0].pk)}\n{good}\n"

    assert f"labels.csv, {expected}" in problems(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no header line; columns: score, annotator"),
        ("score,annotator\n1,ann\n", "line 1: columns score and value are needed"),
        ("annotator,value\nann,1\n", "line 1: columns score and value are needed"),
        ("score,value,value\n1,2,3\n", "line 1: column value stands twice"),
        ("score,value\n1,2,3\n", "line 2: 3 columns where the header has 2"),
        ('score,value\n1,"2\n', "line 2: not valid CSV"),
    ],
)
def test_a_bad_table_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(written(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "line 1: not valid JSON"),
        ("[1]", "line 1: '[1]': allowed: one JSON object per line"),
        ('{"score": true, "annotator": "ann", "value": 1}', "line 1, column score: 'true': allowed"),
        ('{"score": 1, "annotator": "ann", "value": true}', "line 1, column value: 'true': allowed"),
        (
            '{"score": 1, "annotator": "ann", "value": 1, "blind": "maybe"}',
            "column blind: 'maybe': allowed: true, false",
        ),
    ],
)
def test_bad_json_is_named_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    assert expected in problems(written(tmp_path, line, "labels.jsonl"))


def test_what_the_judge_did_not_score_is_refused(tmp_path: Path, scores: list[EvaluationScore]) -> None:
    run, message = scores[0].evaluation_run, scores[0].message
    trivial = make_score(run, 9, message=message, proposition_id="a", status="trivial")
    ruled = make_score(run, 9, message=message, proposition_id="b", raw_score=9, judge="rule")
    complaint = problems(written(tmp_path, f"score,annotator,value\n{trivial.pk},ann,5\n{ruled.pk},ann,5\n"))

    assert f"column score: '{trivial.pk}': it is trivial; only what the judge scored can be labelled" in complaint
    assert f"column score: '{ruled.pk}': an exact rule scored it, no judge" in complaint


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_is_none_is_said_to_be(tmp_path: Path, name: str) -> None:
    assert "no such file" in problems(tmp_path / name) or "is a folder" in problems(tmp_path / name)


# -- again and differently
def test_the_same_file_again_changes_nothing(tmp_path: Path, scores: list[EvaluationScore]) -> None:
    path = written(tmp_path, f"score,annotator,value\n{scores[0].pk},ann,1\n{scores[0].pk},ann,1\n")
    import_labels(path)
    changes = JudgeCalibration.objects.get().changes
    done = import_labels(path)

    assert (done.added, done.unchanged) == (0, 1)
    assert JudgeCalibration.objects.get().changes == changes


def test_a_label_that_differs_is_refused_or_replaced(tmp_path: Path, scores: list[EvaluationScore]) -> None:
    a = scores[0].pk
    import_labels(written(tmp_path, f"score,annotator,value\n{a},ann,1\n"))
    other = written(tmp_path, f"score,annotator,value\n{a},ann,2\n{a},ben,3\n")

    assert "line 2, column value: '2': 1 is stored by ann; --replace lets this file win" in problems(other)
    done = import_labels(other, replace=True)
    assert (done.added, done.replaced) == (1, 1)
    assert stored() == [(a, "ann", 2, ""), (a, "ben", 3, "")]
    assert ScoreLabel.objects.filter(blind=True).count() == 2


def test_what_replaces_a_label_of_the_console_was_not_given_blind(
    tmp_path: Path, scores: list[EvaluationScore]
) -> None:
    save_label(score=scores[0], annotator="ann", value=1, user=superuser("ann"))
    import_labels(written(tmp_path, f"score,annotator,value\n{scores[0].pk},ann,2\n"), replace=True)

    assert ScoreLabel.objects.get().blind is False


def test_a_file_full_of_problems_names_the_first_twenty_with_the_remedy(tmp_path: Path) -> None:
    rows = "".join(f"{score.pk},5\n" for score in judgements([1] * 25))

    complaint = problems(written(tmp_path, f"score,value\n{rows}")).splitlines()

    assert complaint[0].endswith("annotator '': 1 to 150 characters; or add --annotator NAME")
    assert (len(complaint), complaint[-1]) == (21, "… and 5 more problems")


# -- Labels and templates as files: blind templates, no formulas, and what is written is read again
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


def test_a_window_is_written_with_its_lines(tmp_path: Path) -> None:
    agent = make_agent()
    channel = make_channel()
    for text in ("No.", "Never."):
        say(channel, agent, text)
    window_judgement(agent, 7)
    label_set = draw_label_set(name="first", judge=LLM, dimension="fluency", n=1)
    out = io.StringIO(newline="")
    export_template(label_set, out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))
    export_template(label_set, lines := io.StringIO(), as_json=True)

    assert row["shown"] == json.loads(lines.getvalue())["shown"] == "# What Ada said\nAda: No.\nAda: Never."


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
