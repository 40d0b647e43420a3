"""Runs of agents with simulated users: files of τ²-bench, of the ADK's evaluations, and of LangWatch Scenario.

A run is a conversation whose channel is tagged with its ``task`` and with ``passed`` (``yes`` or ``no``; absent where the file does
not say); its topic is what the simulated user was instructed, where the file has it. The simulated user has the role ``user``, so
``--map user=SLUG`` measures it. A run without an id is named after its file: those of two files are different runs.

Read: `Results` and `SimulationRun` of https://github.com/sierra-research/tau2-bench (src/tau2/data_model/simulation.py), `EvalSetResult` of
https://github.com/google/adk-python (src/google/adk/evaluation/eval_result.py), and the events and `ScenarioResult` of
https://github.com/langwatch/scenario (python/scenario/_events/events.py, types.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.chat import SYSTEM_ROLES, TOOL_ROLES, content
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage

PASSED_TAG, TASK_TAG = "passed", "task"
# What a user of τ²-bench writes to end a run; it is an instruction to the benchmark, not something that was said.
_ENDS = re.compile(r"###\s?(STOP|TRANSFER|OUT-OF-SCOPE)\s?###")


# -- τ²-bench
def is_tau2(value: dict[str, Any]) -> bool:
    """Return whether it is a file of results, or one run."""
    runs = value.get("simulations")
    if isinstance(runs, list):
        return not runs or (isinstance(runs[0], dict) and "messages" in runs[0])
    return isinstance(value.get("messages"), list) and {"task_id", "termination_reason"} <= set(value)


def read_tau2(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every run of a file of results; a run that earned the whole reward (1) passed.

    Raises:
        FileError: The file holds no run, or is malformed.
    """
    number = 0
    for line, value in json_values(source):
        results = Row(value, path=source.name, line=line, what="results of τ²-bench")
        instructions = _tau2_instructions(results)
        runs = results.list("simulations") if results.has("simulations") else [results.value]
        for entry in runs:
            number += 1
            run = results.child(entry, f"run {number}")
            own_name = _name_of_run(source, run.name("task_id"), number)
            yield from _tau2_run(run, number, run.name("id") or own_name, instructions)
    if not number:
        raise FileError(source.name, 0, "the file holds no run")


def _tau2_instructions(results: Row) -> dict[str, str]:
    """Return what the user of each task was instructed, by the task's id; empty where the file holds no tasks."""
    instructions: dict[str, str] = {}
    for entry in results.list("tasks"):
        task = results.child(entry, "a task")
        lines: list[str] = []
        scenario = task.value.get("user_scenario")
        if isinstance(scenario, dict):
            lines += _texts_in(scenario)
        elif isinstance(scenario, str):
            lines.append(scenario)
        instructions[task.name("id")] = "\n".join(lines)
    return instructions


def _texts_in(scenario: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a scenario, also of the object with its instructions, each with what it is about."""
    for name, value in scenario.items():
        if isinstance(value, str) and value.strip():
            yield f"{name.replace('_', ' ')}: {value.strip()}"
        elif name == "instructions" and isinstance(value, dict):
            yield from _texts_in({key: text for key, text in value.items() if isinstance(text, str)})


def _tau2_run(run: Row, number: int, channel: str, instructions: Mapping[str, str]) -> Iterator[Record]:
    """Yield the channel and the messages of a run; `number` is its place in the file, from 1."""
    task = run.name("task_id")
    reward = run.object("reward_info").get("reward")
    passed = None
    if isinstance(reward, int | float) and not isinstance(reward, bool):
        passed = reward >= 1
    yield _channel_of_run(channel, task, passed, run.line, instructions.get(task, ""))
    for position, entry in enumerate(run.list("messages"), start=1):
        yield _message(run.child(entry, f"message {position} of run {number}"), channel, number)


# -- the ADK
_ADK_PASSED = {"1": True, "PASSED": True, "2": False, "FAILED": False}


def is_adk(value: dict[str, Any]) -> bool:
    """Return whether it is the result of a set of evaluation cases, in either spelling of its keys."""
    return isinstance(_in_snake_case(value).get("eval_case_results"), list)


def read_adk(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read the conversation of every case: the events of its session, else its invocations.

    Raises:
        FileError: The file holds no case, or is malformed.
    """
    number = 0
    for line, value in json_values(source):
        original = Row(value, path=source.name, line=line, what="a result of the ADK")
        results = original.child(_in_snake_case(original.value), original.what)
        for entry in results.list("eval_case_results"):
            number += 1
            yield from _adk_case(results.child(entry, f"case {number}"), number, source)
    if not number:
        raise FileError(source.name, 0, "the file holds no case")


def _adk_case(case: Row, number: int, source: Source) -> Iterator[Record]:
    """Yield the channel and the messages of a case."""
    values = Row(_in_snake_case(case.value), path=case.path, line=case.line, what=case.what)
    channel = values.name("session_id") or _name_of_run(source, values.name("eval_id"), number)
    passed = _ADK_PASSED.get(values.name("final_eval_status"))
    yield _channel_of_run(channel, values.name("eval_id"), passed, case.line)
    session = values.child(_in_snake_case(values.object("session_details")), "the session")
    events = session.list("events")
    if events:
        for entry in events:
            event = session.child(entry, "an event")
            if event.value.get("partial") is not True:  # a piece of an answer that follows whole
                yield _adk_message(event, event.object("content"), event.name("author"), channel, number)
        return
    for entry in values.list("eval_metric_result_per_invocation"):
        result = values.child(_in_snake_case(values.child(entry, "a result").value), "a result")
        invocation = result.child(_in_snake_case(result.object("actual_invocation")), "an invocation")
        for key, author in (("user_content", "user"), ("final_response", "assistant")):
            if invocation.has(key):
                yield _adk_message(invocation, invocation.object(key), author, channel, number)


def _adk_message(row: Row, content: dict[str, Any], author: str, channel: str, number: int) -> Record:
    """Return what an event or invocation says, skipped where that is only a call of a tool, its result or a thought."""
    texts, others = [], []
    for entry in row.child(content, "'content'").list("parts"):
        part = row.child(entry, "a part")
        if part.value.get("thought") is True:
            others.append("thinking")
        elif part.has("text"):
            texts.append(part.text("text"))
        else:
            is_result = part.has("function_response") or part.has("functionResponse")
            others.append("tool result" if is_result else "tool call")
    text = "\n".join(texts)
    if not text.strip():
        return Skipped(others[0] if others else "empty message", row.line)
    role = "user" if author == "user" else "assistant"
    return SourceMessage(
        speaker=author or role,
        role=role,
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("timestamp"),
        channel=channel,
        conversation=number,
    )


# -- LangWatch Scenario
_EVENTS = ("SCENARIO_RUN_STARTED", "SCENARIO_MESSAGE_SNAPSHOT", "SCENARIO_RUN_FINISHED")


def is_scenario(value: dict[str, Any]) -> bool:
    """Return whether it is an event or a run of Scenario, the runs that its API answers, or the result of one run."""
    runs = value.get("runs")
    if isinstance(runs, list) and runs and isinstance(runs[0], dict):
        return is_scenario(runs[0])
    if value.get("type") in _EVENTS:
        return True
    has_messages = isinstance(value.get("messages"), list)
    return has_messages and ("scenarioRunId" in value or {"success", "passed_criteria"} <= set(value))


def read_scenario(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read runs: of a run's events the last snapshot of its messages.

    Raises:
        FileError: The file holds no run with messages, or is malformed.
    """
    runs: dict[str, dict[str, Any]] = {}
    for line, value in json_values(source):
        row = Row(value, path=source.name, line=line, what="a run of Scenario")
        for entry in row.list("runs") if row.has("runs") else [row.value]:
            part = row.child(entry, "a run")
            own_name = _name_of_run(source, part.name("test_name"), len(runs) + 1)
            name = part.name("scenarioRunId") or own_name
            fields = runs.setdefault(name, {"line": line})
            fields.update({key: entry[key] for key in entry if entry[key] is not None})
    if not any("messages" in run for run in runs.values()):
        raise FileError(source.name, 0, "the file holds no run with messages")
    for number, (name, values) in enumerate(runs.items(), start=1):
        run = Row(values, path=source.name, line=values["line"], what=f"run {name}")
        task = run.name("scenarioId") or run.name("test_name")
        instructions = run.child(run.object("metadata"), "'metadata'").text("description") or run.text("description")
        yield _channel_of_run(name, task, _scenario_passed(run), run.line, instructions)
        for position, entry in enumerate(run.list("messages"), start=1):
            yield _message(run.child(entry, f"message {position} of run {name}"), name, number)


def _scenario_passed(run: Row) -> bool | None:
    """Return whether a run passed, by its verdict, else by its status; None where it does not say."""
    if isinstance(run.value.get("success"), bool):
        return bool(run.value["success"])
    results = run.child(run.object("results"), "'results'")
    words = {results.name("verdict"), run.name("status")}
    if words & {"success", "SUCCESS"}:
        return True
    if words & {"failure", "FAILED", "FAILURE", "inconclusive"}:
        return False
    return None


# -- all of them
def _name_of_run(source: Source, task: str, number: int) -> str:
    """Return the name of a run that has no id of its own: by its file, its task and its place in the file."""
    return "-".join(part for part in (source.stem, task, str(number)) if part)


def _channel_of_run(channel: str, task: str, passed: bool | None, line: int, instructions: str = "") -> ChannelInfo:
    """Return the channel of a run with its tags, and what its user was instructed as its topic."""
    tags = {}
    if task:
        tags[TASK_TAG] = task
    if passed is not None:
        tags[PASSED_TAG] = "yes" if passed else "no"
    return ChannelInfo(channel=channel, topic=instructions, tags=tags, line=line)


def _message(row: Row, channel: str, number: int) -> Record:
    """Return a message with `role` and `content`, or why it is none; a token that ends the run stands in its payload."""
    role = row.name("role")
    if not role:
        row.fail(f"{row.what} has no 'role'")
    if role in TOOL_ROLES:
        return Skipped("tool result", row.line)
    text, left_out = content(row)
    ended = _ENDS.search(text)
    text = _ENDS.sub("", text).strip()
    if not text:
        reason = "end of the run" if ended else "empty message"
        return Skipped(left_out[0] if left_out else reason, row.line)
    return SourceMessage(
        speaker=row.name("name") or role,
        role=role,
        kind="system" if role in SYSTEM_ROLES else "named",
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("timestamp"),
        channel=channel,
        conversation=number,
        payload={"ended_by": ended.group(1)} if ended else {},
    )


def _in_snake_case(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its own keys written as ``eval_id``."""
    return {re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", key): values[key] for key in values}
