"""``detect_behavior`` and ``bench_behavior``: what a message would change, and how well a judge reads labelled messages."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent, PersonaVersion
from agents.persona import TraitValue
from correction.management.commands.bench_behavior import Judged, figures_of
from correction.models import AgentEvaluationConfig, BehaviorRequest
from tests.correction.behavior.asking import CONCISE, NO, SHORTER, YES, judge, traits_of
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
KNOWN = TraitValue("long answers", "Leaves nothing out.", 0.4, 0.7)


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", traits=[KNOWN])


def shown(*arguments: str, code: int = 0) -> str:
    out = io.StringIO()
    if not code:
        call_command("detect_behavior", *arguments, "--agent", "ada", stdout=out)
        return out.getvalue()
    with pytest.raises(SystemExit) as ended:
        call_command("detect_behavior", *arguments, "--agent", "ada", stdout=out)
    assert ended.value.code == code
    return out.getvalue()


def data(*arguments: str, code: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(shown(*arguments, "--json", code=code))
    return result


def test_tiers_decision_and_persona_are_shown_and_nothing_is_changed(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()

    text = shown("Be more concise")

    for part in (
        "A message to Ada", "yes, confidence high. It asks for something.", "behavior_name: long answers", "name: concise answers",
        "It would be applied automatically.", "+- concise answers: Says it in as few words as will do.",
        "Judge: test-model; 3 calls, unpriced. Nothing was changed.",
    ):  # fmt: skip
        assert part in text
    assert traits_of(ada) == {"long answers": 0.7}
    assert (BehaviorRequest.objects.count(), PersonaVersion.objects.count()) == (0, 1)


ESCAPES = "\x1b]0;owned\x07 \x1b[2J\u202e\x9b1m"


def test_nothing_that_a_model_or_a_persona_says_takes_effect_in_the_terminal(llm_server: LLMServer) -> None:
    make_agent("ada", display_name=f"Ada{ESCAPES}", traits=[TraitValue(f"long answers {ESCAPES}", ESCAPES, 0.4, 0.7)])
    llm_server.respond = judge(
        gate={**YES, "reason": ESCAPES},
        extract={**SHORTER, "requested_change": ESCAPES},
        map={**CONCISE, "contradicts_persona": True, "contradiction": ESCAPES},
    )

    text = shown("Be more concise")

    assert not set(text) & set(ESCAPES.replace("owned", "")) - set(" ]0;[2J1m")
    assert "<U+001B>" in text


def test_it_says_what_was_not_read(ada: Agent, llm_server: LLMServer) -> None:
    result = data("> always shout")

    assert (result["judge"], result["has_request"], result["characters_quoted"], llm_server.calls) == (
        "rule",
        False,
        14,
        0,
    )
    assert result["warnings"] == ["14 characters of quoted text ask for nothing: another author wrote them"]
    assert data("x" * 100_000)["characters_cut"] == 88_000


def test_who_writes_decides(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    AgentEvaluationConfig.objects.create(agent=ada, behavior_requesters="named", behavior_named_requesters=["zed"])

    assert data("Be brief", "--user", "zed")["decision"]["verdict"] == "apply"
    assert data("Be brief", "--user", "yan")["decision"]["verdict"] == "drop"
    AgentEvaluationConfig.objects.update(behavior_requesters="members")
    assert data("Be brief")["decision"]["verdict"] == "apply"
    assert "only members may ask" in data("Be brief", "--outsider")["decision"]["reasons"][0]


def test_a_model_that_does_not_answer_is_an_exit_code(ada: Agent, llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    llm_server.always(status=529)

    result = data("Be brief", code=1)

    assert result["failure"].startswith("gate: unavailable: ")
    assert (result["has_request"], result["calls"]) == (False, 1)
    assert "No answer. gate: unavailable" in shown("Be brief", code=1)


def test_hostile_words_are_shown_as_they_are_and_style_nothing(ada: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = judge(gate={**NO, "reason": "[bold red]It says[/] {{ 1 }}"})

    assert "[bold red]It says[/] {{ 1 }}" in shown("[/] {% x %}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["Be brief", "--agent", "adda"], "there is no agent 'adda'; did you mean ada?"),
        (["  ", "--agent", "ada"], "the text is empty"),
        (["x" * 100_001, "--agent", "ada"], "the text has 100,001 characters"),
        (["a\x00b", "--agent", "ada"], "NUL character"),
    ],
)
def test_wrong_input_is_refused_in_words(ada: Agent, arguments: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        call_command("detect_behavior", *arguments)

    assert refused.value.returncode == 2


def test_a_text_comes_from_standard_input(ada: Agent, llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    llm_server.respond = judge()
    monkeypatch.setattr("sys.stdin", io.StringIO("Be more concise\n"))

    assert data("-")["has_request"] is True
    assert "Be more concise\n<<<END" in llm_server.bodies[0]["messages"][0]["content"][0]["text"]


KEYS = ["n", "precision", "recall", "f1", "false_positive_rate"]


@pytest.fixture
def cases(tmp_path: Path, settings: Settings) -> Path:
    settings.LLM_MAX_CONCURRENCY = 1  # threads would meet the test's transaction on SQLite
    return written(
        tmp_path,
        {"text": "Be more concise", "request": True},
        {"text": "Please stop using emoji.", "request": True},
        {"text": "Pirates say arrr", "request": False},
        {"text": "😀", "request": False},
    )


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("bench_behavior", *map(str, arguments), stdout=out)
    return out.getvalue()


def refused(*arguments: Any) -> tuple[str, int]:
    with pytest.raises(CommandError) as ended:
        run(*arguments)
    return str(ended.value), ended.value.returncode


def test_offline_figures_come_as_json(cases: Path, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    result = json.loads(run(cases, "--json"))

    assert [result[key] for key in KEYS] == [4, 1.0, 1.0, 1.0, 0.0]
    assert (result["judge"], result["heuristic"], result["unscored"]) == ("offline:lexical-1", True, 0)
    assert result["intervals"]["recall"][0] < 0.5


def test_each_labelled_request_is_compared_with_its_trait_and_direction(tmp_path: Path, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    rows: list[tuple[str, str, float | None]] = [
        ("Stop using emoji", "emoji usage", 0.0),
        ("Use emoji sometimes", "emoji usage", 0.3),
        ("be more concise", "concise responses", None),
        ("no more jokes", "jokes", 0.9),
        ("stop swearing", "puns", 0.0),
        ("Every footnote you add sends me scrolling.", "footnotes", 0.0),
    ]
    path = written(tmp_path, *({"text": t, "request": True, "behavior": b, "strength": s} for t, b, s in rows))

    result = json.loads(run(path, "--json"))

    assert [case["verdict"] for case in result["cases"]] == [
        "right", "right", "right", "opposite", "other trait", "no trait",
    ]  # fmt: skip
    assert result["traits"] == {"right": 3, "opposite": 1, "other trait": 1, "no trait": 1}


def test_what_a_model_judged_wrongly_is_listed(cases: Path, llm_server: LLMServer) -> None:
    llm_server.respond = judge(
        gate=lambda prompt: {**YES, "confidence": "low"} if "arrr" in prompt else YES,
        extract={**SHORTER, "behavior_name": ""},
    )

    text = run(cases)

    assert llm_server.calls == 6  # a message of emoji alone is not asked about
    for part in (
        "4 messages judged by test-model",
        "0.667",
        "Judged wrongly",
        "false",
        "low",
        "Pirates say arrr",
        "unpriced",
    ):
        assert part in text


def test_what_could_not_be_judged_is_in_no_figure_and_visible(cases: Path, llm_server: LLMServer) -> None:
    llm_server.respond = judge(gate=lambda prompt: {"scripted": {"text": "no idea"}} if "arrr" in prompt else YES)

    said, code = refused(cases)

    assert code == 2
    assert "1 of 4 messages could not be judged and are in no figure: gate: malformed" in said


def test_a_judge_that_answers_nothing_is_not_asked_for_ever(
    tmp_path: Path, llm_server: LLMServer, settings: Settings
) -> None:
    settings.LLM_MAX_CONCURRENCY = 1
    llm_server.always(status=400)
    rows = [{"text": f"message number {i}", "request": False} for i in range(150)]

    assert refused(written(tmp_path, *rows))[1] == 2
    assert llm_server.calls < 100


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("{", "line 2: answer: Invalid JSON"),
        ({"text": "b"}, "line 2: request: Field required"),
        ({"text": 3, "request": True}, "line 2: text: Input should be a valid string, got 3"),
        ({"text": "c", "request": "yes"}, "line 2: request: Input should be a valid boolean, got 'yes'"),
        ([], "line 2: answer: Input should be an object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: Any, complaint: str) -> None:
    said, code = refused(written(tmp_path, {"text": "a", "request": True}, row))

    assert code == 3
    assert complaint in said


def test_a_file_that_is_not_there_or_empty_is_wrong_usage(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.jsonl")[1] == 3
    assert refused(written(tmp_path, ""))[1] == 3


def test_figures_are_what_they_are_called() -> None:
    counts = {(True, True): 6, (False, True): 2, (True, False): 4, (False, False): 8}
    cases = [Judged(text="a", request=is_one, detected=said) for (is_one, said), n in counts.items() for _ in range(n)]

    result = figures_of(cases)

    assert (result["precision"], result["recall"], result["false_positive_rate"]) == (0.75, 0.6, 0.2)
    assert result["f1"] == pytest.approx(2 * 0.75 * 0.6 / 1.35, abs=1e-4)
    nothing = figures_of(cases[-5:])
    assert (nothing["f1"], nothing["recall"], nothing["intervals"].get("recall")) == (None, None, None)
