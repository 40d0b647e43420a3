"""How wide a command's tables are, and where its progress bars stay silent."""

from __future__ import annotations

import io

import pytest

from agents.kit.commands import console_for_bars, console_on, empty_tables


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"a": 0, "b": 0}, "Nothing was found in 2 tables."),
        ({"a": 3, "b": 0}, "Nothing was found in 1 other table."),
        ({"a": 3}, ""),
    ],
)
def test_tables_without_rows_are_one_sentence(rows: dict[str, int], told: str) -> None:
    assert empty_tables(rows, what="found") == told


def test_where_there_is_no_terminal_tables_are_120_wide_and_plain() -> None:
    out = io.StringIO()
    console = console_on(out)

    console.print("[bold]kept in character[/bold]")

    assert console.width == 120
    assert out.getvalue() == "kept in character\n"


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_columns_set_the_width(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> None:
    monkeypatch.setenv("COLUMNS", "66")

    assert console_on(out).width == 66


@pytest.mark.parametrize("columns", ["0", "wide"])
def test_columns_that_are_no_width_count_for_nothing(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    assert console_on(io.StringIO()).width == 120


def test_a_terminal_gets_styles() -> None:
    out = Terminal()

    console_on(out).print("[bold]kept[/bold]")

    assert "\x1b[1mkept" in out.getvalue()


def test_square_brackets_can_be_text() -> None:
    out = io.StringIO()

    console_on(out, markup=False).print("[bold]")

    assert out.getvalue() == "[bold]\n"


@pytest.mark.parametrize(
    ("stream", "quiet", "silent"), [(io.StringIO(), False, True), (Terminal(), False, False), (Terminal(), True, True)]
)
def test_bars_are_for_whoever_looks_at_a_terminal(stream: io.StringIO, quiet: bool, silent: bool) -> None:
    assert console_for_bars(stream, quiet=quiet).quiet is silent
