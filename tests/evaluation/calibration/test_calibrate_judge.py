"""``manage.py calibrate_judge``: from a draw to figures, and what it says when there is too little or something is wrong."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from evaluation.calibration.labels import save_label
from evaluation.calibration.models import JudgeCalibration, ScoreLabel
from tests.evaluation.calibration.labelled import judgements, label_all
from tests.evaluation.judged import LLM

pytestmark = pytest.mark.django_db
JUDGE = [0, 3, 6, 9, 2, 5, 8, 1, 4, 7] * 4


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    call_command("calibrate_judge", *arguments)
    return capsys.readouterr().out


def test_from_draw_to_figures_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    judgements(JUDGE * 2)
    template, exported = tmp_path / "labels.csv", tmp_path / "out.jsonl"
    output = command(
        capsys, "--draw", "60", "--name", "first", "--dimension", "adherence", "--judge", LLM, "--seed", "3",
        "--template", str(template), "--annotator", "ann",
    )  # fmt: skip
    assert "60 judgements drawn of 80" in output
    rows = list(csv.DictReader(template.open(encoding="utf-8", newline="")))
    assert len(rows) == 60

    with template.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "value": n % 10} for n, row in enumerate(rows))
    output = command(capsys, "--import", str(template), "--export", str(exported))
    assert "60 added" in output
    for name in ("kappa", "Spearman", "Krippendorff", "Bias", "prediction-powered"):
        assert name in output
    assert len(exported.read_text(encoding="utf-8").splitlines()) == 60
    assert not JudgeCalibration.objects.get().is_stale

    document = json.loads(command(capsys, "--json", "--label-set", "first"))
    (result,) = document["calibrations"]
    assert (result["labels"], result["annotators"]) == (60, 1)
    assert result["prediction_powered"][0]["labelled"] == 60
    assert result["prediction_powered"][0]["mean"]["interval"] is not None


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "nothing to calibrate: there are no labels. --draw 80"),
        (["--judge", "other"], 2, "there are no labels for --judge other"),
        (["--draw", "5"], 2, "--draw needs --name and --dimension"),
        (["--dimension", "charm"], 2, "dimension 'charm'; allowed: adherence"),
        (["--name", "a"], 2, "go with --draw N"),
        (["--label-set", "none"], 3, "--label-set 'none': there is none of that name"),
        (["--template", "x.csv"], 2, "--template needs --label-set or --draw"),
        (["--replace"], 2, "--replace goes with --import FILE"),
        (["--import", "missing.csv"], 3, "missing.csv: no such file"),
    ],
)
def test_exit_codes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], code: int, expected: str
) -> None:
    judgements([5])
    with pytest.raises(CommandError) as error:
        call_command("calibrate_judge", *arguments)

    assert (error.value.returncode, expected in str(error.value)) == (code, True), str(error.value)


def test_labels_of_a_bad_file_are_told_and_nothing_is_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    (score,) = judgements([5])
    path.write_text(f"score,annotator,value\n{score.pk},ann,5\n{score.pk},ben,12\n")
    with pytest.raises(CommandError, match=r"bad\.csv, line 3, column value: '12': allowed: 0 to 9") as error:
        call_command("calibrate_judge", "--import", str(path))

    assert error.value.returncode == 3
    assert not ScoreLabel.objects.exists()


def test_a_judge_that_agrees_by_chance_is_told_from_a_good_one(capsys: pytest.CaptureFixture[str]) -> None:
    scores = judgements(JUDGE * 2)
    draw = random.Random(4)
    label_all(scores, [draw.randint(0, 9) for _ in scores])
    assert "No better than chance, as far as these labels show: the interval of" in command(capsys)

    for score in scores:
        save_label(score=score, annotator="ann", value=score.raw_score)
    assert "No better than chance" not in command(capsys)
