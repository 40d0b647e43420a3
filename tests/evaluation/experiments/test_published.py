"""Raw scores of others: every metric of a file in the published form, to two decimals, and what is wrong with a file that has another."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from scipy import stats

from evaluation.experiments.published import figures

CONTENT = {
    "provenance": "made up",
    "sets": {
        "spring": {
            "one": {
                "metrics": {
                    "adherence": {"treatment": [5, 6, 7, None, 8], "control": [4, 4, 5, 6], "p": 0.5},
                    "ideas_quantity": {"treatment": [10, 12], "control": [3, 3, 4]},
                }
            },
            "two": {"metrics": {"wit": {"treatment": [1, 2, 3], "control": [1, 2, 3]}}},
        }
    },
}


def printed(path: Path, *options: str) -> str:
    out = StringIO()
    call_command("experiment", "--published", str(path), *options, stdout=out)
    return out.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(CONTENT))
    return path


def test_every_metric_is_a_row_with_means_deviations_difference_and_p(file: Path) -> None:
    document = json.loads(printed(file, "--json"))
    rows = document["rows"]

    assert document["version"] == 1
    first = rows[0]["row"]
    assert [(one["experiment"], one["row"]["measure"]) for one in rows] == [
        ("one", "adherence"),
        ("one", "ideas_quantity"),
        ("two", "wit"),
    ]
    assert (first["treatment"]["n"], first["treatment"]["mean"], first["control"]["mean"]) == (4, 6.5, 4.75)
    p = stats.ttest_ind([5, 6, 7, 8], [4, 4, 5, 6], equal_var=False).pvalue
    assert first["naive_p"] == float(f"{p:.3g}")
    assert first["p"] is None, "no environments in such a file: nothing is clustered"
    assert "6.50 (1.29)" in printed(file)
    assert "+1.75" in printed(file)


@pytest.mark.parametrize(
    "ideas",
    [
        {"treatment": [4, 5, 6] * 7 + [7] + [None] * 8, "control": [3, 4, 5] * 10},
        {"treatment": [4, 5, 6] * 7 + [7], "control": [3, 4, 5] * 10, "missing_treatment": 8, "missing_control": 0},
    ],
    ids=["as nulls", "as a number"],
)
def test_missing_scores_are_shown_and_too_many_leave_no_verdict(ideas: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "october.json"
    path.write_text(json.dumps({"sets": {"october": {"exp1": {"metrics": {"ideas_quantity": ideas}}}}}))

    text = " ".join(printed(path).split())
    row = json.loads(printed(path, "--json"))["rows"][0]["row"]

    assert "22/30, missing 8/0" in text
    assert "p naive" in text
    assert "not enough data: 8 of 30 values missing in treatment; allowed: 10 %" in text
    assert (row["treatment"]["n"], row["treatment"]["missing"], row["verdict"]) == (22, 8, "not enough data")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("no json", "no JSON"),
        ('{"sets": {"s": {"e": {"metrics": {"m": {"treatment": ["five"], "control": [1]}}}}}}', "treatment"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(tmp_path: Path, content: Any, named: str) -> None:
    path = tmp_path / "scores.json"
    path.write_text(content)

    with pytest.raises(CommandError, match=named) as refused:
        printed(path)

    assert refused.value.returncode == 3


def test_the_papers_own_table_has_nineteen_rows() -> None:
    assert sum(map(len, figures().values())) == 19
