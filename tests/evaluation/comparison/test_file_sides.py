"""Files as baselines: what a capture prints is read back as the same side; a wrong file names the field and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Agent
from evaluation.capture import capture
from evaluation.change.comparison import compare, side_json
from evaluation.change.measurement_files import UnreadableFile, measurements_of_file, observations_json
from evaluation.change.measurements import measurement_of
from evaluation.planning import RunSpec
from evaluation.result_json import as_json
from evaluation.statistics.bootstrap import Observation
from tests.evaluation.comparison.sides import LLM, adherence, of, only, side
from tests.evaluation.judging import answers
from tests.llm_server import LLMServer

HIGH, LOW = [8, 9, 8, 7, 9, 8], [3, 4, 2, 3, 5, 3]


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def document(**run: Any) -> dict[str, Any]:
    found = {"agent": "ada", "dimensions": {"adherence": {"score": 8.0, "propositions": {"voice": 8.0}}}}
    return {"judge": LLM, "runs": [{**found, **run}]}


@pytest.mark.django_db
def test_what_a_capture_prints_is_read_back_as_the_same_side(llm_server: LLMServer, ada: Agent, tmp_path: Path) -> None:
    values = iter(range(1, 1000))
    llm_server.respond = answers(lambda claim: next(values) % 10)
    results = capture([RunSpec(agent=ada, dimensions=("adherence",), repeats=3)])
    path = written(tmp_path / "baseline.json", as_json("test-model", results))

    read, made = measurements_of_file(path)["ada"], measurement_of(results[0].summary.run)

    assert (read.scores, read.proposition_scores) == (made.scores, made.proposition_scores)
    assert (read.judge, read.procedure, read.persona_digest) == (made.judge, made.procedure, made.persona_digest)
    assert read.digests == made.digests
    assert observations_json(read) == observations_json(made)
    change = only(compare(read, made))
    assert (change.delta, change.paired, change.n) == (0.0, True, 3), "the same messages, known again by their keys"


def test_a_side_written_and_read_gives_the_same_comparison(tmp_path: Path) -> None:
    before, now = adherence(HIGH, persona_digest="p"), adherence(LOW, first=100)
    path = written(tmp_path / "b.json", {"judge": LLM, "runs": [side_json(before)]})

    assert only(compare(measurements_of_file(path)["ada"], now)) == only(compare(before, now))


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 4)), min_size=1, max_size=20))
def test_every_judgement_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]) -> None:
    found = side({"adherence": {"voice": [Observation(v / 10, 1.5, f"situation:{n}") for v, n in rows]}})
    path = written(tmp_path_factory.mktemp("sides") / "b.json", {"judge": LLM, "runs": [side_json(found)]})

    read = measurements_of_file(path)["ada"].observations["adherence"]["voice"]
    assert sorted(map(tuple, read)) == sorted((v / 10, 1.5, f"situation:{n}", None) for v, n in rows)


def test_channels_keep_the_weight_of_each(tmp_path: Path) -> None:
    rows = [Observation(5.0, 30.0, "channel:a"), Observation(9.0, 10.0, "channel:b")]
    found = side({"convergence": {"apart": rows}})
    path = written(tmp_path / "b.json", {"judge": LLM, "runs": [side_json(found)]})

    assert measurements_of_file(path)["ada"].observations["convergence"]["apart"] == tuple(rows)


def test_a_file_without_judgements_is_taken_as_exact(tmp_path: Path) -> None:
    path = written(tmp_path / "b.json", document())

    change = only(compare(measurements_of_file(path)["ada"], adherence(LOW)))

    assert (change.delta, change.verdict) == (-4.6667, "drifted")
    assert "taken as exact" in change.interval_note


def test_channels_and_agents_of_one_slug_are_kept_apart(tmp_path: Path) -> None:
    dimensions = {"convergence": {"score": 5.0}, "ideas_quantity": {"count": 40}}
    path = written(tmp_path / "b.json", {**document(), "channels": [{"channel": "ada", "dimensions": dimensions}]})

    found = measurements_of_file(path)

    assert sorted(found) == ["#ada", "ada"]
    assert found["#ada"].scores == {"convergence": 5.0, "ideas_quantity": 40}


def test_runs_that_are_not_completed_are_left_out(tmp_path: Path) -> None:
    assert measurements_of_file(written(tmp_path / "b.json", document(status="failed"))) == {}


# -- files that are none
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "not valid JSON"),
        ("[" * 100_000, "b.json: n"),
        ("[]", "expected an object with judge and runs"),
        ({"runs": []}, "judge: is required"),
        ({"judge": LLM, "runs": 7}, "runs: "),
        (document(agent=None), r"runs\[0\]: names no target; allowed: agent or channel"),
        (document(dimensions={"charm": {}}), "unknown dimension 'charm'; allowed: adherence,"),
        (
            document(dimensions={"adherence": {"score": 12}}),
            r"runs\[0\].dimensions.adherence.score: .*less than or equal to 9.*12",
        ),
        (document(dimensions={"adherence": {"score": "8"}}), r"dimensions.adherence.score: .*'8'"),
        (document(dimensions={"adherence": {"score": True}}), r"dimensions.adherence.score: .*True"),
        (
            document(dimensions={"adherence": {"propositions": {"voice": 10}}}),
            "propositions.voice is 10.*; allowed: 0 to 9",
        ),
        (document(observations={"adherence": {"voice": {"scores": {"message:1": 90}}}}), "is 90.*; allowed: 0 to 9"),
        (
            document(observations={"adherence": {"voice": {"scores": {"m": -1}}}}),
            r"voice.scores.m.*greater than or equal to 0",
        ),
        (
            document(observations={"adherence": {"voice": {"weight": 0, "scores": {}}}}),
            "voice.weight: .*greater than 0",
        ),
        (document(observations={"adherence": {"voice": {}}}), "voice.scores: is required"),
        ('{"judge": "j", "runs": [{"agent": "a", "dimensions": {"adherence": {"score": NaN}}}]}', "NaN is not allowed"),
        ({"judge": LLM, "runs": document()["runs"] * 2}, "ada stands twice"),
        ({"judge": "a\x1b[31m", "runs": []}, "judge: "),
        (document(procedure="a\x1b[31m"), r"'a\\x1b\[31m' holds control characters; allowed: one line"),
        (document(observations={"adherence": {"a\u202eb": {"scores": {}}}}), "holds control characters"),
    ],
)
def test_a_wrong_file_names_the_file_the_field_and_what_is_allowed(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path / "b.json", content)

    with pytest.raises(UnreadableFile, match=message) as caught:
        measurements_of_file(path)

    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00\x01")

    for name, message in (("none.json", "No such file"), ("b.json", "not valid JSON")):
        with pytest.raises(UnreadableFile, match=f"{name}: {message}"):
            measurements_of_file(tmp_path / name)
    with pytest.raises(UnreadableFile, match="Is a directory"):
        measurements_of_file(tmp_path)


def test_observations_are_documented_as_they_are_printed() -> None:
    assert observations_json(side({"adherence": {"voice": of([7, 6.5])}})) == {
        "adherence": {"voice": {"digest": "same", "weight": 1.0, "scores": {"message:1": 7, "message:2": 6.5}}}
    }
