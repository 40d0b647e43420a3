"""How wide a command's tables are, and where its progress bars stay silent."""

from __future__ import annotations

import io

import pytest

from agents.kit.commands import BaseCommand, console_for_bars, console_on, empty_tables, print_table, unusable


class Refusing(BaseCommand):
    """A command that refuses a file by a name in it."""

    def handle(self, *args: object, **options: object) -> None:
        raise unusable(f"there is no agent {CONTROLS}")


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


@pytest.mark.parametrize(("columns", "width"), [("66", 66), ("0", 120), ("wide", 120)])
def test_tables_are_as_wide_as_columns_says_or_120(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    assert console_on(io.StringIO()).width == width


@pytest.mark.parametrize("columns", [120, 64, 40, 20])
def test_a_table_breaks_no_word_and_leaves_no_cell_out_however_narrow_it_is(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()

    heads = ["Measure", ">Treatment", ">Median confidence", "Groupthink", "What may be said"]
    print_table(console_on(out), heads, [["Repetition", "0.98 (0.02)", 12_345, None, "not enough data [1]"]])

    words = out.getvalue().replace(":", " ").split()
    assert {"Measure", "Repetition", "0.98", "(0.02)", "12,345", "confidence", "enough", "[1]"} <= set(words)
    assert max(map(len, out.getvalue().splitlines())) <= columns


def test_an_id_stays_in_one_piece_while_other_columns_can_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    slug = "customer-support-berlin-night-shift"

    print_table(console_on(out), ["Agent", ">Score", "What it said"], [[slug, "4.2", "long words and short ones " * 9]])

    row = next(line for line in out.getvalue().splitlines() if slug in line)
    assert "4.2" in row, "it is a table"


CONTROLS = "\x1b[2J\x9b\u202e"


def test_control_characters_of_others_take_no_effect_in_tables_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    table = io.StringIO()

    print_table(console_on(table), ["Build"], [[CONTROLS]], title=CONTROLS)
    with pytest.raises(SystemExit):
        Refusing().run_from_argv(["manage.py", "refusing", "--skip-checks"])

    errors = capsys.readouterr().err
    assert "<U+202E>" in table.getvalue()
    assert "<U+202E>" in errors
    assert not {"\x1b", "\x9b", "\u202e"} & set(table.getvalue() + errors)


def test_styles_are_for_terminals_and_square_brackets_can_be_text() -> None:
    file, terminal, raw = io.StringIO(), Terminal(), io.StringIO()

    console_on(file).print("[bold]kept[/bold]")
    console_on(terminal).print("[bold]kept[/bold]")
    console_on(raw, markup=False).print("[bold]")

    assert file.getvalue() == "kept\n"
    assert "\x1b[1mkept" in terminal.getvalue()
    assert raw.getvalue() == "[bold]\n"


@pytest.mark.parametrize(
    ("stream", "quiet", "silent"), [(io.StringIO(), False, True), (Terminal(), False, False), (Terminal(), True, True)]
)
def test_bars_are_for_whoever_looks_at_a_terminal(stream: io.StringIO, quiet: bool, silent: bool) -> None:
    assert console_for_bars(stream, quiet=quiet).quiet is silent
