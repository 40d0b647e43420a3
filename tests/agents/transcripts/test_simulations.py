"""Runs with simulated users are read as conversations that know their task and whether they passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.kit.files.source import FileError, Source
from agents.models import Channel
from agents.transcripts.readers import FORMATS, detect
from agents.transcripts.records import Skipped
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

USER, ANSWER = {"role": "user", "content": "My line is dead."}, {"role": "assistant", "content": "Since when?"}
TOOLS: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "look_up", "arguments": {}}]},
    {"role": "tool", "id": "c1", "content": "{}", "requestor": "assistant"},
    {
        "role": "user",
        "content": None,
        "tool_calls": [{"id": "c2", "name": "reboot", "arguments": {}, "requestor": "user"}],
    },
]


def tau2_run(number: int, reward: object, *messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"run-{number}",
        "task_id": "t-1",
        "termination_reason": "user_stop",
        "reward_info": None if reward is None else {"reward": reward},
        "messages": [USER, ANSWER, *messages],
    }


def adk_case(status: object, **values: Any) -> dict[str, Any]:
    return {"eval_id": "t-1", "final_eval_status": status, "session_id": "run-1", **values}


def content(text: str, **part: Any) -> dict[str, Any]:
    return {"parts": [{"text": text, **part}]}


def events(**values: Any) -> dict[str, Any]:
    lines = [
        {"author": "user", "content": content("My line is dead.")},
        {"author": "agent", "content": {"parts": [{"function_call": {"name": "look_up"}}]}},
        {"author": "agent", "content": content("Let me", thought=True)},
        {"author": "agent", "content": content("Since"), "partial": True},
        {"author": "agent", "content": content("Since when?")},
    ]
    return {"session_details": {"events": lines}, **values}


INVOCATIONS = [
    {"actual_invocation": {"user_content": content("My line is dead."), "final_response": content("Since when?")}}
]
CAMEL = {
    "evalSetResultId": "e",
    "evalCaseResults": [
        {
            "evalId": "t-1",
            "finalEvalStatus": 2,
            "sessionId": "run-1",
            "evalMetricResultPerInvocation": [
                {
                    "actualInvocation": {
                        "userContent": content("My line is dead."),
                        "finalResponse": content("Since when?"),
                    }
                }
            ],
        }
    ],
}


def adk(case: dict[str, Any]) -> dict[str, Any]:
    return {"eval_set_result_id": "e", "eval_case_results": [case]}


def scenario_events(status: str) -> str:
    run = {"scenarioId": "t-1", "scenarioRunId": "run-1", "batchRunId": "b"}
    lines = [
        {"type": "SCENARIO_RUN_STARTED", **run, "metadata": {"name": "dead line"}},
        {"type": "SCENARIO_MESSAGE_SNAPSHOT", **run, "messages": [USER]},
        {"type": "SCENARIO_MESSAGE_SNAPSHOT", **run, "messages": [USER, ANSWER]},
        {"type": "SCENARIO_RUN_FINISHED", **run, "status": status},
    ]
    return "\n".join(map(json.dumps, lines))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "text", "passed"),
    [
        ("tau2", json.dumps({"simulations": [tau2_run(1, 1.0, *TOOLS)]}), "yes"),
        ("tau2", json.dumps(tau2_run(1, 0.0)), "no"),
        ("tau2", json.dumps({"simulations": [tau2_run(1, None)]}), None),
        ("adk", json.dumps(adk(adk_case(1, **events()))), "yes"),
        ("adk", json.dumps(adk(adk_case(3, eval_metric_result_per_invocation=INVOCATIONS))), None),
        ("adk", json.dumps(CAMEL), "no"),
        ("scenario", scenario_events("SUCCESS"), "yes"),
        ("scenario", scenario_events("FAILED"), "no"),
        (
            "scenario",
            json.dumps({"runs": [{"scenarioRunId": "run-1", "scenarioId": "t-1", "messages": [USER, ANSWER]}]}),
            None,
        ),
    ],
)
def test_a_run_is_a_conversation_with_its_task_and_outcome(
    tmp_path: Path, name: str, text: str, passed: str | None
) -> None:
    make_agent("caller")
    report = run_json("import_transcript", write(tmp_path, "runs.json", text), map=["user=caller"])

    assert report["format"] == name
    assert [line for _, line in said("run-1")] == ["My line is dead.", "Since when?"]
    assert said("run-1")[0][0] == "Caller"
    tags = Channel.objects.get(slug="run-1").tags
    assert (tags["task"], tags.get("passed")) == ("t-1", passed)


def test_tokens_that_end_a_run_are_no_text(tmp_path: Path) -> None:
    run = tau2_run(
        1,
        1,
        {"role": "user", "content": "Thanks. ###STOP###"},
        {"role": "user", "content": "###OUT-OF-SCOPE###"},
    )
    source = Source(write(tmp_path, "runs.json", json.dumps(run)))

    records = list(FORMATS["tau2"].read(source, {}))

    last = records[-2]
    assert (getattr(last, "text", ""), getattr(last, "payload", {})) == ("Thanks.", {"ended_by": "STOP"})
    assert isinstance(records[-1], Skipped)


def test_a_run_that_failed_a_check_says_so_in_a_result_of_one_run(tmp_path: Path) -> None:
    result = {"success": False, "passed_criteria": [], "failed_criteria": ["asks"], "messages": [USER, ANSWER]}
    source = Source(write(tmp_path, "result.json", json.dumps(result)))

    assert detect(source) == "scenario"
    assert next(iter(FORMATS["scenario"].read(source, {}))).tags == {"passed": "no"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tau2", {"simulations": []}),
        ("tau2", {"simulations": [{"messages": "many"}]}),
        ("tau2", {"simulations": [{"messages": [{"role": "", "content": "Hello"}]}]}),
        ("adk", {"eval_case_results": []}),
        ("adk", adk({"session_details": {"events": ["no event"]}})),
        ("scenario", {"type": "SCENARIO_RUN_STARTED", "scenarioRunId": "run-1"}),
        ("scenario", {"scenarioRunId": 7, "messages": [{"content": "no role"}, 3]}),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, name: str, value: dict[str, Any]) -> None:
    source = Source(write(tmp_path, "runs.json", json.dumps(value)))
    with pytest.raises(FileError):
        list(FORMATS[name].read(source, {}))
