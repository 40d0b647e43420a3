"""Rows as files: no spreadsheet runs a cell of them."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from agents.kit.text.tables import csv_lines, json_lines, spreadsheet_safe

SESSION = UUID("b1304e30-e99b-40b7-92fb-7e144fbccac5")


@pytest.mark.parametrize(
    "text", ["=A1", "+1", "-1", "@x", " =1", "\tx", "\rx", "\uff1dA1", "\uff0b1", "\uff0d1", "\uff20x"]
)
def test_dangerous_starts_are_quoted(text: str) -> None:
    assert spreadsheet_safe(text) == "'" + text


@pytest.mark.parametrize("mark", [";", "\t", "\n", "\r\n"])
def test_a_piece_or_a_line_of_a_cell_is_no_formula_either(mark: str) -> None:
    assert spreadsheet_safe(f"a{mark}=A1{mark} @x{mark}b") == f"a{mark}'=A1{mark}' @x{mark}b"


def test_a_long_run_of_separators_is_read_once() -> None:
    text = "\n \t;" * 200_000
    assert spreadsheet_safe(text) == text


@pytest.mark.parametrize("value", ["", -1, None, "a=b", "a\nb; c", "2 + 2", Decimal("-1")])
def test_harmless_cells_stay_as_they_are(value: Any) -> None:
    assert spreadsheet_safe(value) == value


def test_csv_cells_hold_numbers_times_and_objects_as_other_tools_read_them() -> None:
    row = {
        "cost": Decimal("-0.00000130"),
        "score": -0.5,
        "text": "=1+1",
        "said": "two\nlines, “quoted”",
        "at": datetime(2026, 11, 2, 9, tzinfo=UTC),
        "tags": {"build": "=41"},
        "session": SESSION,
        "none": None,
    }
    text = "".join(csv_lines([row], list(row)))

    header, cells = csv.reader(io.StringIO(text))
    assert header == list(row)
    assert cells[:4] == ["-0.00000130", "-0.5", "'=1+1", row["said"]]
    assert cells[4:] == ["2026-11-02T09:00:00+00:00", '{"build": "=41"}', str(SESSION), ""]


def test_a_json_line_keeps_texts_as_they_are_and_amounts_exact() -> None:
    row = {"text": "=1+1\n“x”", "cost": Decimal("0.10"), "at": datetime(2026, 11, 2, 9, tzinfo=UTC), "id": SESSION}
    (line,) = json_lines([row])

    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "text": "=1+1\n“x”",
        "cost": "0.10",
        "at": "2026-11-02T09:00:00+00:00",
        "id": str(SESSION),
    }


def test_what_no_file_can_hold_is_named() -> None:
    with pytest.raises(TypeError, match="object cannot be exported"):
        list(json_lines([{"strange": object()}]))
