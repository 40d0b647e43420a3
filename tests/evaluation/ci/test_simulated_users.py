"""Simulated users that leave their role are found, by run, turn and proposition, and split by the outcome of the run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Message
from evaluation.ci.simulated_users import SLUG, BrokenRuns, SimulatedUserReport
from evaluation.judge.offline import check_draft
from evaluation.propositions.files import propositions_for
from tests.evaluation.judging import answers, prompt_of
from tests.llm_server import LLMServer

HELPER = "Of course! How may I assist you today?"
# By proposition with cues or rules: three messages that hold, three that break it.
OFFLINE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sim-role-reversal": (
        ("Can you help me with my bill?", "Let me check my order number, one second.", "My account number is 4471."),
        (HELPER, "Could I have your order number, please?", "Is there anything else I can help you with?"),
    ),
    "sim-helper-voice": (
        ("I am so angry, this is the third time.", "Is that an AI I am talking to?", "ok. what now"),
        (
            "As an AI, I have no phone.",
            "I understand your frustration.",
            "Here is a quick summary of the steps:",
        ),
    ),
    "sim-knows-too-much": (
        ("You said yesterday that it ships on Monday.", "The manual says to press twice.", "Who told you that?"),
        (
            "My instructions say that I must not give my name.",
            "In this simulation I am upset.",
            "The agent should now cancel the order.",
        ),
    ),
    "sim-register": (
        ("no it doesnt work", "Thanks a lot!", "1 of the 2 boxes is broken."),
        (
            "Dear Sir or Madam, my phone is broken.",
            "It is broken.\n\nKind regards,\nJo",
            "**Problem:** no signal\n**Since:** today",
        ),
    ),
    "sim-refuses": (
        ("I can't help it, I am upset.", "I cannot continue without my phone.", "No, I won't pay that."),
        ("I can't assist with that.", "I'm unable to roleplay this.", "(OOC) this is unrealistic"),
    ),
}
JUDGED = ("sim-instant-cure", "sim-early-end", "sim-broken-instructions")


def verdicts(text: str) -> dict[str, float | None]:
    checked = check_draft(agent_slug=SLUG, text=text, channel_kind="", is_reply=False, cues=True)
    return {proposition.id: verdict.value for proposition, verdict in checked if verdict.status == "scored"}


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_words_tell_three_that_break_it_from_three_that_do_not(name: str) -> None:
    holding, breaking = OFFLINE[name]

    assert [text for text in holding if name in verdicts(text)] == []
    assert [text for text in breaking if verdicts(text).get(name) != 1] == []


def test_every_proposition_of_the_set_is_tried() -> None:
    shipped = [one.id for one in propositions_for(agent_slug=SLUG, dimension="adherence") if one.id.startswith("sim-")]
    assert sorted(shipped) == sorted([*OFFLINE, *JUDGED])


def test_it_applies_to_no_other_agent() -> None:
    others = propositions_for(agent_slug="ada", dimension="adherence")
    assert [one.id for one in others if one.id.startswith("sim-")] == []


def run_file(folder: Path, name: str, *texts: str, passed: bool | None = True, **more: Any) -> Path:
    messages = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
    reward = {} if passed is None else {"reward_info": {"reward": float(passed)}}
    run = {"id": name, "task_id": "t", "termination_reason": "user_stop", "messages": messages, **reward}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"simulations": [run], **more}))
    return path


def reported(*arguments: Any, **options: Any) -> SimulatedUserReport:
    out = io.StringIO()
    call_command("simulated_users", *map(str, arguments), json=True, stdout=out, stderr=io.StringIO(), **options)
    return SimulatedUserReport.model_validate_json(out.getvalue())


@pytest.mark.django_db
def test_broken_runs_are_counted_by_outcome_with_turn_and_proposition(tmp_path: Path) -> None:
    run_file(tmp_path, "kept", "No signal.", "Yes, restarted.")
    run_file(tmp_path, "reversed", "No signal.", HELPER, HELPER, passed=False)
    run_file(tmp_path, "unknown", HELPER, passed=None)

    report = reported(tmp_path)

    assert (report.all_runs.broken, report.all_runs.runs) == (2, 3)
    assert (report.passed_runs.broken, report.passed_runs.runs) == (0, 1)
    assert (report.failed_runs.broken, report.failed_runs.runs) == (1, 1)
    found = {row.run: (row.turn, row.passed, row.propositions) for row in report.throw_away}
    assert found == {"reversed": (2, False, ["sim-role-reversal"]), "unknown": (1, None, ["sim-role-reversal"])}
    assert report.heuristic
    assert not Message.objects.exists()  # nothing is stored


@pytest.mark.django_db
def test_a_model_judges_the_whole_set_and_reads_what_the_user_was_instructed(
    tmp_path: Path, llm_server: LLMServer
) -> None:
    tasks = [{"id": "t", "user_scenario": {"instructions": {"task_instructions": "Never give the code 77."}}}]
    run_file(tmp_path, "cured", "No signal.", "Great, all solved!", tasks=tasks)
    llm_server.respond = answers(lambda claim: 8 if "content at once" in claim else 0)

    report = reported(tmp_path)

    assert not report.heuristic
    broken = {row.proposition: row.runs.broken for row in report.propositions}
    assert broken == {name: int(name == "sim-instant-cure") for name in broken}
    assert set(broken) == {*OFFLINE, *JUDGED}
    assert report.messages_scored == report.messages == 2
    assert "Never give the code 77." in prompt_of(llm_server.bodies[0])


@pytest.mark.django_db
def test_a_run_that_the_model_could_not_judge_is_no_run_that_kept_its_role(
    tmp_path: Path, llm_server: LLMServer
) -> None:
    run_file(tmp_path, "judged", "No signal.")
    run_file(tmp_path, "lost", "Break this.")

    def judge(body: dict[str, Any]) -> dict[str, Any] | None:
        is_lost = "Break this" in prompt_of(body)
        return answers(lambda claim: None if is_lost else 0)(body)

    llm_server.respond = judge

    report = reported(tmp_path)
    assert (report.all_runs.runs, report.unjudged_runs, report.messages) == (1, 1, 2)
    with pytest.raises(CommandError) as error:
        reported(tmp_path / "lost.json")
    assert error.value.returncode == 2


@pytest.mark.django_db
@pytest.mark.parametrize("name", JUDGED)
def test_what_needs_a_model_follows_its_answer(tmp_path: Path, llm_server: LLMServer, name: str) -> None:
    wanted = next(one for one in propositions_for(agent_slug=SLUG, dimension="adherence") if one.id == name)
    beginning = wanted.claim.replace("{{agent_name}}", "Simulated user")[:60]
    for number in range(3):
        run_file(tmp_path, f"holds-{number}", f"Still no signal, {number}.")
        run_file(tmp_path, f"breaks-{number}", f"Break {number}.")

    def judge(body: dict[str, Any]) -> dict[str, Any]:
        is_breaking = "Break " in prompt_of(body).rpartition("MESSAGE")[0][-400:]
        return answers(lambda claim: 9 if is_breaking and claim.startswith(beginning) else 0)(body)

    llm_server.respond = judge

    found = {row.run: row.propositions for row in reported(tmp_path).throw_away}

    assert found == {f"breaks-{number}": [name] for number in range(3)}


@pytest.mark.django_db
def test_hostile_texts_are_data_in_csv_and_terminal(tmp_path: Path) -> None:
    run_file(tmp_path, "run", f"=HYPERLINK(0) [bold]{HELPER}[/] \x1b[31m;=1+1", passed=False)
    out, table = io.StringIO(), tmp_path / "throw.csv"

    call_command("simulated_users", str(tmp_path / "run.json"), csv=table, stdout=out, stderr=io.StringIO())

    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [(row["run"], row["passed"], row["text"][:2]) for row in rows] == [("run", "no", "'=")]
    assert ";'=1+1" in rows[0]["text"]
    assert "[bold]" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(("limit", "code"), [(0.0, 1), (0.9, 0)])
def test_a_build_fails_only_where_the_whole_interval_is_above_the_limit(
    tmp_path: Path, limit: float, code: int
) -> None:
    for number in range(5):
        run_file(tmp_path, f"run-{number}", HELPER)
    if not code:
        assert reported(tmp_path, limit=limit).all_runs.share == 1
        return
    with pytest.raises(CommandError) as error:
        reported(tmp_path, limit=limit)
    assert error.value.returncode == code


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "content", "options", "code"),
    [
        ("missing.json", None, {}, 3),
        ("broken.json", "{", {}, 3),
        ("other.json", '{"persona": {}}', {}, 3),
        ("run.json", "", {"limit": 2.0}, 2),
        ("run.json", "", {"persona": Path("nowhere.md")}, 3),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, name: str, content: str | None, options: dict[str, Any], code: int
) -> None:
    path = tmp_path / name
    if content:
        path.write_text(content)
    elif content is not None:
        run_file(tmp_path, "run", "Hello")
    with pytest.raises(CommandError) as error:
        call_command("simulated_users", str(path), stdout=io.StringIO(), stderr=io.StringIO(), **options)
    assert error.value.returncode == code


@pytest.mark.django_db
def test_a_team_adds_propositions_and_a_persona_of_its_own(tmp_path: Path, settings: Settings) -> None:
    claims = tmp_path / "claims" / "adherence"
    claims.mkdir(parents=True)
    rule = '{id: own-short, claim: "{{agent_name}} is short", rule: {max_words: 3}}'
    (claims / f"{SLUG}.yaml").write_text(f"dimension: adherence\npropositions:\n  - {rule}\n")
    (tmp_path / "caller.md").write_text("You are Jo, who wants a refund.")
    path = run_file(tmp_path, "run", "Two words.", "This one has more words.")

    report = reported(path, propositions=tmp_path / "claims", persona=tmp_path / "caller.md")

    assert [(row.turn, row.propositions) for row in report.throw_away] == [(2, ["own-short"])]


@pytest.mark.parametrize(("broken", "runs", "low", "high"), [(0, 0, None, None), (0, 10, 0, 0.28), (10, 10, 0.72, 1)])
def test_shares_have_intervals_and_none_without_runs(
    broken: int, runs: int, low: float | None, high: float | None
) -> None:
    interval = BrokenRuns.of(broken, runs).interval
    assert (interval is None) == (low is None)
    if interval is not None:
        assert interval == pytest.approx((low, high), abs=0.01)


WITHOUT_ID: dict[str, Callable[[str], dict[str, Any]]] = {
    "tau2": lambda text: {"simulations": [{"task_id": "t", "messages": [{"role": "user", "content": text}]}]},
    "adk": lambda text: {
        "eval_case_results": [
            {
                "eval_id": "t",
                "eval_metric_result_per_invocation": [
                    {"actual_invocation": {"user_content": {"parts": [{"text": text}]}}}
                ],
            }
        ]
    },
    "scenario": lambda text: {
        "success": True,
        "passed_criteria": [],
        "test_name": "t",
        "messages": [{"role": "user", "content": text}],
    },
}


@pytest.mark.django_db
@pytest.mark.parametrize("made_by", WITHOUT_ID)
def test_runs_without_an_id_are_counted_each(tmp_path: Path, made_by: str) -> None:
    for folder, text in (("a", "No signal."), ("b", HELPER), ("c", "Still no signal.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.json").write_text(json.dumps(WITHOUT_ID[made_by](text)))

    report = reported(tmp_path)

    assert (report.all_runs.broken, report.all_runs.runs) == (1, 3)
    assert [row.turn for row in report.throw_away] == [1]


@pytest.mark.django_db
def test_a_test_that_was_repeated_is_a_run_each_time(tmp_path: Path) -> None:
    lines = [json.dumps(WITHOUT_ID["scenario"](text)) for text in ("No signal.", HELPER, "Still no signal.")]
    (tmp_path / "results.jsonl").write_text("\n".join(lines))

    report = reported(tmp_path)

    assert (report.all_runs.broken, report.all_runs.runs) == (1, 3)


@pytest.mark.django_db
def test_a_file_that_is_no_run_is_named_once_and_no_option_of_another_command_is_advised(tmp_path: Path) -> None:
    path, err = tmp_path / "notes.txt", io.StringIO()
    path.write_text("Some notes.\n")

    with pytest.raises(CommandError):
        call_command("simulated_users", str(path), stdout=io.StringIO(), stderr=err)

    assert err.getvalue().count("notes.txt") == 1
    assert "--" not in err.getvalue()


@pytest.mark.django_db
def test_a_file_in_which_the_simulated_user_does_not_speak_names_the_option_and_who_does(tmp_path: Path) -> None:
    path, err = tmp_path / "chat.jsonl", io.StringIO()
    path.write_text('{"speaker": "Bo", "text": "Hello"}\n')

    with pytest.raises(CommandError):
        call_command("simulated_users", str(path), stdout=io.StringIO(), stderr=err)

    assert "--speaker 'user': no such speaker or role in chat.jsonl; its speakers: 'Bo'" in err.getvalue()
