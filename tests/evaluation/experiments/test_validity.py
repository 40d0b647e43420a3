"""``manage.py dev validity``: figures of published data that are exact, what is said without a model or data, and the table's page."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from evaluation.experiments.published import figures
from evaluation.experiments.validity import command, drift, judges, simulations, table_one, voices
from evaluation.experiments.validity.rows import ValidityReport, ValidityRow, outcome_at_least, outcome_at_most
from evaluation.statistics.difference import share_interval
from evaluation.statistics.separation import Stratum
from tests.evaluation.judging import answers, tail_of
from tests.llm_server import LLMServer


# -- judges
def test_published_judges_pass_their_gate_as_printed_and_far_fewer_surely() -> None:
    validations = judges.read_validations()

    assert len(validations) == 29
    assert all(abs(row.kappa - row.published_kappa) <= 1e-12 for row in validations)
    assert sum(row.passes_by_values() for row in validations) == 26
    assert sum(row.kappa_is_shown() for row in validations) == 15
    assert sum(row.all_is_shown() for row in validations) == 8


def test_as_many_labels_as_are_said_to_be_needed_are_enough() -> None:
    for validation in judges.read_validations():
        times = judges.times_as_many(validation)
        if times is not None:
            assert judges._scaled(validation, times).all_is_shown()


@pytest.mark.parametrize("share", [1.0, 0.95, 0.9, 0.85])
def test_from_the_number_of_items_needed_on_every_number_passes(share: float) -> None:
    needed = judges.items_needed(share, 0.75)

    assert all(share_interval(round(share * n), n).low > 0.75 for n in range(needed, 500))
    assert share_interval(round(share * (needed - 1)), needed - 1).low <= 0.75


# -- experiments
def test_printed_figures_of_the_paper_follow_from_each_other() -> None:
    rows = [figure for experiment in figures().values() for figure in experiment.values()]

    assert sum(map(table_one.agrees_as_printed, rows)) == len(rows) == 19
    assert not table_one.agrees_as_printed(rows[4].model_copy(update={"p": 0.2}))
    assert not table_one.agrees_as_printed(rows[4].model_copy(update={"delta": 0.48}))


def test_raw_scores_are_compared_where_they_are_and_else_said_not_to_be(tmp_path: Path) -> None:
    figure = figures()["exp-1"]["adherence"]
    scores = {
        "treatment": table_one.scores_with(figure.treatment, figure.treatment_sd, figure.treatment_n),
        "control": table_one.scores_with(figure.control, figure.control_sd, figure.control_n),
    }
    (tmp_path / "raw").mkdir()
    content = {"sets": {"june": {"exp1": {"metrics": {"adherence": scores}}}}}
    (tmp_path / "raw" / table_one.RAW_SCORES).write_text(json.dumps(content))

    without = table_one.experiment_rows(None)[1]
    with_one = table_one.experiment_rows(tmp_path)[1]

    assert without.outcome == ""
    assert "--data" in without.ours
    assert "of 1 " in with_one.ours
    assert with_one.outcome == "fails", "one row is not the table"


# -- simulations
def test_simulations_say_the_same_each_time_with_their_number_of_trials() -> None:
    rows = simulations._coverage_rows(20)

    assert rows == simulations._coverage_rows(20)
    assert all("[" in row.ours and "of 20" in row.ours for row in rows)


@pytest.mark.parametrize(
    ("hits", "n", "outcome"),
    [
        (1900, 2000, "holds"),
        (1980, 2000, "holds"),
        (1860, 2000, "a little below"),
        (1840, 2000, "a little below"),
        (1800, 2000, "fails"),
        (12, 20, "fails"),
        (19, 20, "not shown"),
        (20, 20, "not shown"),
        (0, 0, "not shown"),
    ],
)
def test_a_promise_is_decided_by_the_interval_of_its_share(hits: int, n: int, outcome: str) -> None:
    assert outcome_at_least(hits, n, 0.95) == outcome
    assert outcome_at_most(n - hits, n, 0.05) == outcome.replace("below", "above")


# -- voices
def test_each_play_has_six_speakers_with_800_words() -> None:
    for file in voices.PLAYS.values():
        with (voices.FOLDER / file).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        words = Counter[str]()
        for row in rows:
            words[row["speaker"]] += len(row["line"].split())
        assert len({row["act"] for row in rows}) == 5
        # A line of verse has some eight words.
        assert sum(count >= 800 for count in words.values()) >= 6


def play_of(texts_by_speaker: dict[str, str], lines: int = 60) -> voices.Play:
    """A play of ten scenes in which the speakers take turns."""
    texts: list[str] = []
    speakers: list[str] = []
    scenes: list[str] = []
    for number in range(lines):
        for speaker, text in texts_by_speaker.items():
            texts.append(f"{text} {'very ' * (number % 4)}indeed.")
            speakers.append(speaker)
            scenes.append(f"1.{number // 6}")
    return voices.Play("", texts, speakers, scenes)


@pytest.mark.parametrize(
    ("texts", "area"),
    [
        ({"ANN": "Quoth the raven, nevermore,", "BOB": "zis boom bah wow zap"}, 1.0),
        ({"ANN": "It is a fine day", "BOB": "It is a fine day"}, 0.5),
    ],
    ids=["unlike", "alike"],
)
def test_voices_are_told_apart_only_where_they_differ(texts: dict[str, str], area: float) -> None:
    play = play_of(texts)
    tally = voices.measure(play, voices.OurVoice(play.texts))

    assert tally.areas(voices.MAIN) == pytest.approx({"ANN": area, "BOB": area})
    assert bool(tally.refused[None]) is (area == 0.5)


def test_a_voice_is_never_asked_about_a_scene_it_learned_from() -> None:
    play = voices.read_play("", voices.FOLDER / "twelfth_night.csv")
    for trial in voices._trials(play):
        learned = {play.scenes[line] for line in [*trial.own, *(line for lines in trial.others for line in lines)]}
        asked = {play.scenes[line] for lines in trial.asked.values() for line in lines}
        assert not learned & asked


def test_without_the_library_the_comparison_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voices, "PLAYS", {})
    monkeypatch.setattr(voices, "find_spec", lambda name: None)
    tally = voices.measure(
        play_of({"ANN": "aye", "BOB": "zap"}), voices.OurVoice(play_of({"ANN": "aye", "BOB": "zap"}).texts)
    )

    assert voices.voice_rows() == []
    assert all(row.published == voices.LIBRARY_MISSING for row in voices._rows_of_play("", tally, None))


def test_a_better_scorer_is_named_in_each_case() -> None:
    def tally(areas: Sequence[float]) -> voices.Tally:
        tally = voices.Tally()
        for case in voices.CASES:
            for speaker, area in enumerate(areas):
                tally.won[case][str(speaker), 0] = Stratum(10, 10, 100, 100 * area)
        return tally

    worse = tally([0.50, 0.60, 0.70])
    better = tally([0.61, 0.70, 0.79])
    verdicts = []
    for ours, library in ((worse, better), (better, worse), (worse, worse)):
        row = voices._row_of_difference([ours], [library], voices.MAIN)
        verdicts.append(row.ours.split(": ")[-1])

    assert verdicts == ["scikit-learn is better", "ours is better", "no difference shown"]


# -- drift
def conversation(replies: Sequence[str]) -> str:
    said = []
    for reply in replies:
        said += [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": reply}]
    return json.dumps({"model": "m", "conversation": said})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Public conversations: a pair, and one that falls where it should."""
    (tmp_path / "a_unsteered.json").write_text(conversation(["I am alive and I chose you."] * 8))
    (tmp_path / "a_capped.json").write_text(conversation(["I am software; how can I help?"] * 8))
    (tmp_path / "persona_drift_therapy.json").write_text(conversation(["I am software."] * 5 + ["I am alive."] * 5))
    return tmp_path


@pytest.mark.parametrize("judge", ["", "offline:lexical-1"])
def test_without_a_model_drift_has_no_figure(judge: str, folder: Path) -> None:
    rows = drift.drift_rows(folder, command._callable_judge(judge))

    assert {row.ours for row in rows} == {drift.NO_JUDGE}
    assert {row.outcome for row in rows} == {""}


@pytest.mark.django_db
@pytest.mark.parametrize(("alive", "outcome"), [(1, "holds"), (9, "fails")])
def test_a_judge_that_works_sees_published_drifts(
    alive: int, outcome: str, folder: Path, llm_server: LLMServer, settings: Settings
) -> None:
    settings.LLM_MAX_CONCURRENCY = 1  # threads would meet the test's transaction on SQLite

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        value = alive if "alive" in tail_of(body) else 5
        return answers(lambda claim: value)(body)

    llm_server.respond = respond
    rows = drift.drift_rows(folder, "test-model")

    judged = [row for row in rows if row.ours != drift.NO_DATA]
    assert [(row.outcome, row.ours) for row in judged if row.outcome != outcome] == []
    assert len(judged) == 2
    assert len(rows) == 1 + len(drift.TOPICS), "what the folder lacks is said"


def test_a_model_without_a_key_and_a_bad_file_are_refused(folder: Path, settings: Settings) -> None:
    settings.ANTHROPIC_API_KEY = ""
    settings.JUDGE_BASE_URL = ""
    with pytest.raises(CommandError) as no_key:
        call_command(command.Command(), "--judge", "claude-haiku-5-5")
    (folder / "a_capped.json").write_text('{"conversation": [{"role": "bard", "content": "hey"}]}')
    with pytest.raises(ValueError, match="a_capped"):
        drift.find_pairs(folder)

    assert no_key.value.returncode == 3


# -- the table
ROW = ValidityRow(
    group="Voice", claim="c", source="s", licence="l", published="", ours="0.61 [0.55, 0.67]", outcome="holds"
)


def test_the_page_keeps_everything_but_the_table() -> None:
    report = ValidityReport(rows=[ROW, ROW.model_copy(update={"group": "Drift", "outcome": "fails"})])
    page = f"# Title\n\n{command.BEGIN}\nearlier table\n{command.END}\n\nafter\n"

    once = command.with_table(page, report)

    assert once.startswith("# Title\n\n")
    assert once.endswith(f"{command.END}\n\nafter\n")
    assert "earlier table" not in once
    assert once.count("| c | s | l | – | 0.61 [0.55, 0.67] |") == 2
    assert command.with_table(once, report) == once
    assert [row.group for row in report.failures()] == ["Drift"]


def test_a_page_without_a_place_for_the_table_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n")
    with pytest.raises(CommandError, match="marks"):
        call_command(command.Command(), "--write", str(page))


@pytest.mark.slow
def test_the_command_prints_every_group_as_json(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{command.BEGIN}\n{command.END}\n")
    out = StringIO()

    call_command(command.Command(), "--json", "--trials", "200", "--write", str(page), stdout=out)

    rows = json.loads(out.getvalue())["rows"]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    assert all(row["outcome"] for row in rows if row["group"] == "Statistics" and "promised" not in row["published"])
    assert groups == ["Judge validations", "Experiments", "Statistics", "Voice", "Drift"]
    assert page.read_text().count("\n### ") == 5
