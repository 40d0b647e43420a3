"""Measurements: what a comparison holds one evaluation against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.models import Agent, Message
from evaluation.change.comparison import compare
from evaluation.change.measurement_files import UnreadableFile, as_json, measurements_of_file, observations_json
from evaluation.change.measurements import Measurement, NotComparable, measurement_of
from evaluation.runs.execute import capture
from evaluation.runs.numbers import RunSummary
from evaluation.runs.shares import Share, percent
from evaluation.runs.spec import RunSpec
from evaluation.statistics.bootstrap import Observation
from tests.evaluation.change.samples import LLM, measurement, only, run_json
from tests.evaluation.ci.building import own_bot
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import converged, diverse
from tests.evaluation.judged import make_run, make_score
from tests.evaluation.judging import answers
from tests.evaluation.measuring import evaluate_agent
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def clusters(found: Measurement, dimension: str = "adherence") -> set[str]:
    return {str(o.cluster) for o in found.dimensions[dimension].sample.observations}


def scores(found: Measurement, dimension: str = "adherence") -> dict[str, float | None]:
    return {name: one.score for name, one in found.dimensions[dimension].propositions.items()}


def same_numbers(made: Measurement, summary: RunSummary) -> None:
    for name, dimension in summary.dimensions.items():
        number = dimension.score if dimension.count is None else dimension.count
        assert made.dimensions[name].score == (None if number is None else pytest.approx(number, abs=2e-4)), name
        for found in dimension.propositions:
            number = found.score if found.count is None else found.count
            expected = None if number is None else pytest.approx(number, abs=2e-4)
            assert scores(made, name)[found.id] == expected, found.id


def test_a_measurement_has_the_numbers_of_its_run(
    llm_server: LLMServer, ada: Agent, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/ada.yaml", "terse", extra="weight: 3, rule: {max_words: 1}")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    values = iter(range(1, 10_000))
    llm_server.respond = answers(lambda claim: next(values) % 10)

    summary = evaluate_agent(agent=ada, repeats=2)
    found = measurement_of(summary.run)

    same_numbers(found, summary)
    assert (found.target, found.judge, found.procedure) == ("ada", "test-model", "plumbline")
    judged = {len(one.observations) for one in found.dimensions["adherence"].propositions.values()}
    assert judged == {3}, "the mean of the repeats, once"
    assert clusters(found, "fluency") == {"repeat:1", "repeat:2"}
    assert found.dimensions["fluency"].share == Share(1, 1), "repeats count once"
    assert found.evaluation_run == summary.run.pk


def test_an_agents_channels_have_the_numbers_of_its_run(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.write(
        "convergence/_default.yaml",
        """
        dimension: convergence
        target_type: environment
        propositions:
          - {id: apart, claim: voices stay apart}
          - {id: topics, claim: topics vary, weight: 2}
        """,
    )
    diverse(), converged()
    talk(Agent.objects.get(slug="ada"), ["More."] * 4, channel=converged("third"))
    values = iter(range(1, 10_000))
    llm_server.respond = answers(lambda claim: next(values) % 10)

    summary = evaluate_agent(agent=Agent.objects.get(slug="ada"), dimensions=("convergence",), repeats=2)
    found = measurement_of(summary.run)

    assert found.dimensions["convergence"].score == pytest.approx(summary.dimensions["convergence"].score, abs=2e-4)
    assert clusters(found, "convergence") == {"channel:diverse", "channel:converged", "channel:third"}
    assert {p: bool(one.digest) for p, one in found.dimensions["convergence"].propositions.items()} == {
        "apart": True,
        "topics": True,
    }


def test_counts_are_the_runs_counts_and_a_repeat_each() -> None:
    run = make_run(dimensions=["ideas_quantity"])
    for repeat, count in enumerate((4, 9, 6), 1):
        fields: dict[str, Any] = {"dimension": "ideas_quantity", "proposition_id": "ideas", "repeat": repeat}
        make_score(run, None, status="scored", count=count, **fields)

    found = measurement_of(run)

    assert found.dimensions["ideas_quantity"].score == 6
    assert [o.value for o in found.dimensions["ideas_quantity"].sample.observations] == [4, 9, 6]


def test_a_message_has_the_same_key_in_every_run(ada: Agent) -> None:
    message = Message.objects.filter(agent=ada).first()
    keys = []
    for _ in range(2):
        run = make_run(ada)
        make_score(run, 5, message=message)
        keys.append(clusters(measurement_of(run)))
    Message.objects.filter(agent=ada).update(text="Something else.")

    assert keys[0] == keys[1]
    assert clusters(measurement_of(run)) != keys[0]


def test_messages_deleted_since_are_one_cluster(ada: Agent) -> None:
    run = make_run(ada)
    for score, message in enumerate(Message.objects.filter(agent=ada), 5):
        make_score(run, score, message=message)
    Message.objects.filter(agent=ada, text__in=["No.", "Why?"]).delete()

    found = measurement_of(run)

    assert (found.dimensions["adherence"].score, len(clusters(found))) == (6.0, 2)


def test_played_speech_is_clustered_by_situation() -> None:
    agent, run = make_agent(), None
    for situations in (("a", "b"), ("only",)):
        run = make_run(agent, simulated=True)
        for situation in situations:
            for repeat in ("1", "2"):
                tags = {"simulation": "p", "situation": situation, "repeat": repeat}
                channel = make_channel(f"{situation}-{repeat}")
                for message in talk(agent, ["Well.", "No."], channel=channel, tags=tags, synthetic=True):
                    make_score(run, 5, message=message)
        expected = {"situation:a", "situation:b"} if len(situations) > 1 else {"situation:only/1", "situation:only/2"}
        assert clusters(measurement_of(run)) == expected


def test_a_comparison_says_that_the_judge_was_given_another_background(ada: Agent) -> None:
    def measured(**background: str) -> Measurement:
        run = make_run(ada, additional_context=background)
        for message in Message.objects.filter(agent=ada):
            make_score(run, 5, message=message)
        return measurement_of(run)

    def is_noted(before: Measurement, now: Measurement) -> bool:
        return any("another background" in note for note in compare(before, now).notes)

    winter = measured(season="winter")

    assert is_noted(winter, measured())
    assert not is_noted(winter, measured(season="winter"))
    of_file = winter.model_copy(update={"background": None})
    assert not is_noted(of_file, measured()), "not known is not another one"


def test_a_run_that_is_not_completed_does_not_compare(ada: Agent) -> None:
    run = make_run(ada, status="failed", error="the judge scored nothing")

    with pytest.raises(
        NotComparable, match=f"evaluation {run.pk} of ada is failed: the judge scored nothing; only completed"
    ):
        measurement_of(run)


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def document(**run: Any) -> dict[str, Any]:
    found = {
        "agent": "ada",
        "dimensions": {"adherence": {"score": 8.0, "propositions": {"voice": 8.0}}},
        "observations": {"adherence": {"voice": {"scores": {"message:1": 8}}}},
    }
    return {"judge": LLM, "runs": [{**found, **run}]}


@pytest.mark.django_db
def test_what_a_capture_prints_is_read_back_as_the_same_measurement(
    llm_server: LLMServer, ada: Agent, tmp_path: Path
) -> None:
    values = iter(range(1, 1000))
    llm_server.respond = answers(lambda claim: next(values) % 10)
    results = capture([RunSpec(agent=ada, dimensions=("adherence",), repeats=3)])
    path = written(tmp_path / "baseline.json", as_json("test-model", results))

    read, made = measurements_of_file(path)["ada"], measurement_of(results[0].summary.run)

    assert (read.dimensions["adherence"].score, scores(read)) == (made.dimensions["adherence"].score, scores(made))
    assert (read.judge, read.procedure, read.persona_digest) == (made.judge, made.procedure, made.persona_digest)
    assert observations_json(read) == observations_json(made)
    change = only(compare(read, made))
    assert (change.delta, change.paired, change.n) == (0.0, True, 3), "the same messages, known again by their keys"


def test_a_file_has_the_scored_shares_of_its_evaluation(
    propositions: PropositionFolder, settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    own_bot(propositions, rule=True)
    nora = Agent.objects.get(slug="nora")
    (captured,) = capture([RunSpec(agent=nora, dimensions=("adherence",), where={"build": "7"}, samples=50)])
    path = written(tmp_path / "baseline.json", as_json("offline:lexical-1", [captured]))

    read = measurements_of_file(path)["nora"].dimensions["adherence"]
    made = measurement_of(captured.summary.run).dimensions["adherence"]

    assert read.share == made.share == Share(28, 56), "the rule scores each message, the cues none"
    assert (read.messages, read.unscored) == (made.messages, made.unscored) == (28, 0)
    assert read.propositions["stock"].hits == Share(0, 28)
    assert compare(measurements_of_file(path)["nora"], measurement_of(captured.summary.run)).unjudged == (
        "adherence/kind",
        "adherence/stock",
        "adherence/warm",
    )


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({"coverage": 0.5714, "scored": 8, "unscored": 6}, "57 %"),
        ({"coverage": 0.0, "scored": 0, "unscored": 8}, "0 %"),
        ({"coverage": None}, ""),
    ],
)
def test_a_file_has_the_share_that_it_states(tmp_path: Path, fields: dict[str, Any], share: str) -> None:
    dimension = {"score": 8.0, "propositions": {"voice": 8.0}, **fields}
    path = written(tmp_path / "b.json", document(dimensions={"adherence": dimension}))

    assert percent(measurements_of_file(path)["ada"].dimensions["adherence"].share) == share


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 4)), min_size=1, max_size=20))
def test_every_judgement_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]) -> None:
    found = measurement({"adherence": {"voice": [Observation(v / 10, 1.5, f"situation:{n}") for v, n in rows]}})
    path = written(tmp_path_factory.mktemp("measured") / "b.json", {"judge": LLM, "runs": [run_json(found)]})

    read = measurements_of_file(path)["ada"].dimensions["adherence"].propositions["voice"].observations
    assert sorted(map(tuple, read)) == sorted((v / 10, 1.5, f"situation:{n}", None, None) for v, n in rows)


def test_channels_and_agents_of_one_slug_are_kept_apart(tmp_path: Path) -> None:
    channel = {
        "channel": "ada",
        "dimensions": {"convergence": {"score": 5.0}, "ideas_quantity": {"count": 40}},
        "observations": {"convergence": {"apart": {"scores": {"repeat:1": 5}}}},
    }
    path = written(tmp_path / "b.json", {**document(), "channels": [channel]})

    found = measurements_of_file(path)

    assert sorted(found) == ["#ada", "ada"]
    assert {d: of.score for d, of in found["#ada"].dimensions.items()} == {"convergence": 5.0, "ideas_quantity": 40}


def test_runs_that_are_not_completed_are_left_out(tmp_path: Path) -> None:
    assert measurements_of_file(written(tmp_path / "b.json", document(status="failed"))) == {}


# -- files that are none
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "not valid JSON"),
        ("[" * 100_000, "b.json: n"),
        ("[]", "expected an object with judge and runs"),
        ({"judge": LLM, "runs": 7}, "runs: "),
        (document(observations={}), "dimensions.adherence has a score, but observations.adherence has no judgements"),
        (document(agent=None), r"runs\[0\]: names no target; allowed: agent or channel"),
        (document(dimensions={"charm": {}}), "unknown dimension 'charm'; allowed: adherence,"),
        (
            document(dimensions={"adherence": {"score": 12}}),
            r"runs\[0\].dimensions.adherence.score: .*less than or equal to 9.*12",
        ),
        (document(dimensions={"adherence": {"score": True}}), r"dimensions.adherence.score: .*True"),
        (
            document(dimensions={"adherence": {"propositions": {"voice": 10}}}),
            "propositions.voice is 10.*; allowed: 0 to 9",
        ),
        (document(observations={"adherence": {"voice": {"scores": {"message:1": 90}}}}), "is 90.*; allowed: 0 to 9"),
        (
            document(observations={"adherence": {"voice": {"weight": 0, "scores": {}}}}),
            "voice.weight: .*greater than 0",
        ),
        ('{"judge": "j", "runs": [{"agent": "a", "dimensions": {"adherence": {"score": NaN}}}]}', "NaN is not allowed"),
        ({"judge": LLM, "runs": document()["runs"] * 2}, "ada stands twice"),
        (document(procedure="a\x1b[31m"), r"'a\\x1b\[31m' holds control characters; allowed: one line"),
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
