"""Whether 01/02/2026 is in January or February follows from the file; where it is a guess the report says so."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.files.source import Source
from agents.transcripts.readers.chat_log import read_log
from agents.transcripts.records import Guess, SourceMessage
from tests.agents.transcripts.helpers import run_json, write

DAY, MONTH = ("2026-01-05", "2026-05-01")


def imported(folder: Path, stamps: list[str], **options: Any) -> dict[str, Any]:
    text = "".join(f"{stamp}Ann: line {number}\n" for number, stamp in enumerate(stamps))
    return run_json("import_transcript", write(folder, "log.txt", text), **options)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("stamps", "first", "guessed"),
    [
        (["05/01/26, 10:00 pm - ", "06/01/26, 8:00 am - "], DAY, True),
        (["05/01/2026, 21:58 - ", "05/01/2026, 21:59 - "], DAY, True),
        (["05.01.26, 21:58 - ", "05.01.26, 21:59 - "], DAY, False),
        (["05/01/26, 9:58 pm - ", "13/01/26, 9:59 pm - "], DAY, False),
        (["1/5/26, 9:58 pm - ", "1/13/26, 9:59 pm - "], DAY, False),
        (["05/01/26, 9:58 PM - ", "01/02/26, 9:59 PM - "], DAY, False),
        (["5/1/2026, 9:58 pm - ", "6/2/2026, 9:59 pm - ", "7/1/2026, 9:59 pm - "], MONTH, False),
        (["01/01/26, 9:58 pm - ", "01/01/26, 9:59 pm - "], "2026-01-01", False),
    ],
)  # fmt: skip
def test_the_order_of_day_and_month_follows_from_the_file(
    tmp_path: Path, stamps: list[str], first: str, guessed: bool
) -> None:
    report = imported(tmp_path, stamps)
    assert report["first_sent_at"].startswith(first)
    assert [("--dates" in warning) for warning in report["warnings"]] == [True] * guessed


@pytest.mark.django_db
@pytest.mark.parametrize(("dates", "first"), [("day-first", DAY), ("month-first", MONTH)])
def test_the_option_decides_the_order_without_a_guess(tmp_path: Path, dates: str, first: str) -> None:
    report = imported(tmp_path, ["05/01/26, 9:58 PM - "], dates=dates)
    assert report["first_sent_at"].startswith(first)
    assert report["warnings"] == []


@pytest.mark.django_db
def test_an_option_that_the_file_contradicts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="line 1: '13/01/26, 9:58 PM -' is no time"):
        imported(tmp_path, ["13/01/26, 9:58 PM - "], dates="month-first")
    with pytest.raises(CommandError, match="--dates: the order of dates is for chat logs"):
        run_json("import_transcript", write(tmp_path, "a.csv", "who,text\nann,hi\n"), dates="day-first")


@given(
    days=st.sets(st.dates(min_value=date(2024, 1, 1), max_value=date(2026, 12, 31)), min_size=1, max_size=30),
    form=st.sampled_from(["%d/%m/%Y, 21:58 - ", "%m/%d/%Y, 21:58 - ", "%d.%m.%y, 21:58 - ", "%m/%d/%y, 9:58 PM - "]),
)
def test_a_log_in_order_has_its_dates_or_says_that_it_guessed(
    days: set[date], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(f"{day.strftime(form)}Ann: hi\n" for day in sorted(days))
    records = list(read_log(Source(write(tmp_path_factory.mktemp("log"), "log.txt", text)), {}))
    read = [record.sent_at.date() for record in records if isinstance(record, SourceMessage) and record.sent_at]
    assert read == sorted(days) or any(isinstance(record, Guess) for record in records)
