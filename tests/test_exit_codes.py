"""The same mistake ends every command with the same code, and options are written out."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from django.core.management import BaseCommand, CommandError, get_commands, load_command_class
from pytest_django import Settings

from agents.kit.capability import capabilities
from agents.models import Agent, ChannelMember
from tests import zygote
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer
from tests.machinery import ROOT

APPS = {app.name for app in capabilities()}
OURS = sorted(name for name, app in get_commands().items() if app in APPS)
SUBCOMMANDS = {"experiment": ("run", "report", "cancel"), "schedule": ("list", "add", "fire")}
LINES = [
    [name, *action]
    for name in OURS
    for action in ([[one] for one in SUBCOMMANDS[name]] if name in SUBCOMMANDS else [[]])
]

UNCHECKED = ("check_propositions", "try_proposition")  # they serve to correct what a check complains of
NEEDED = {
    "chat": "ada",
    "configure": "ada",
    "detect_behavior": "text --agent ada",
    "experiment": "list",
    "export_payloads": "--out answers.jsonl",
    "export_transcript": "--channel office",
    "forget": "--outsider Nobody",
    "import_agents": "personas",
    "import_transcript": "chat.csv",
    "make_token": "admin",
    "prune_logs": "--older-than 90d",
    "say": "ada office text",
    "lab": "office",
    "simulated_users": "runs",
    "schedule": "list",
    "turn": "ada --channel office",
}
COMPLETE = [f"{name} {NEEDED.get(name, '')}" for name in OURS if name not in UNCHECKED]


def ended(*words: str, checks: bool = False) -> tuple[int, str]:
    """Run a command as the shell does; return its exit code and what it said on standard error."""
    name, *arguments = words
    said = io.StringIO()
    code: Any = 0
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(said):
        command = load_command_class(get_commands()[name], name)
        assert isinstance(command, BaseCommand)
        if not checks:
            command.requires_system_checks = ()
        try:
            command.run_from_argv(["manage.py", name, *arguments])
        except SystemExit as end:
            code = end.code
        except CommandError as error:
            code = error.returncode
    return int(code or 0), said.getvalue()


def test_an_option_that_does_not_exist_is_2() -> None:
    for line in LINES:
        code, said = ended(*line, "--nonsense")

        assert (code, "--nonsense" in said) == (2, True), said


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("evaluate --wher build=41", "--where"),
        ("capture_baseline --agent michael", "--agents"),
        ("experiment run office --see 3", "--seed"),
        ("debate topic --con 0.5", "--consensus or --convergence-rounds or --convergence-similarity"),
    ],
)
def test_an_abbreviation_is_refused_with_the_option_that_was_meant(line: str, meant: str) -> None:
    code, said = ended(*line.split())

    assert (code, f"did you mean {meant}?" in said) == (2, True), said


def test_a_command_that_is_interrupted_ends_with_130_and_a_word() -> None:
    waiting = "print('ready', flush=True); input()"
    process = zygote.Popen(
        [sys.executable, "manage.py", "shell", "-c", waiting],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "sqlite:///:memory:"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (130, "Stopped.\n")


def test_a_text_that_begins_with_dashes_is_no_option(db: None) -> None:
    make_agent("ada")

    assert ended("detect_behavior", "--agent", "ada", "--", "--nonsense")[0] == 0
    assert ended("detect_behavior", "--agent", "ada", "-- be brief")[0] == 0


def proposition_file(folder: Path) -> Path:
    file = folder / "ada.yaml"
    file.write_text("dimension: adherence\npropositions:\n  - {id: short, claim: short, rule: {max_words: 9}}\n")
    return file


@pytest.mark.django_db
@pytest.mark.parametrize(
    "line",
    [
        "capture_baseline --agents nobody",
        "chat nobody",
        "calibrate_judge --draw 3 --name first --dimension adherence --agents nobody",
        "check_judge --agents nobody",
        "compare --baseline FILE --agents nobody",
        "configure nobody",
        "costs nobody",
        "debate topic --agents nobody,none",
        "detect_behavior text --agent nobody",
        "draft_propositions --dry-run --agents nobody",
        "drift --agents nobody",
        "evaluate --agents nobody",
        "export_scores --agents nobody",
        "export_transcript --channel office --format openai --agent nobody",
        "import_transcript FILE --format jsonl --map x=nobody",
        "say nobody office text",
        "schedule add nightly --agents nobody",
        "try_proposition FILE:short --agent nobody",
        "turn nobody --channel office",
        # further names of things that are not there
        "capture_baseline --out /no/such/folder/file",
        "compare --runs 1 2",
        "debate 12",
        "drift --schedule none",
        "experiment report 12",
        "experiment run no-such-scenario",
        "export_scores --run 12",
        "export_transcript --channel nowhere",
        "forget --outsider Nobody",
        "import_agents no-such-folder",
        "import_transcript no-such-file",
        "make_token nobody",
        "say ada nowhere text",
        "schedule fire none",
        "try_proposition no-such-file:x",
        "turn ada --channel nowhere",
    ],
)
def test_a_name_that_is_nothings_is_3(line: str, tmp_path: Path) -> None:
    make_agent("ada")
    make_channel("office")

    code, said = ended(*line.replace("FILE", str(proposition_file(tmp_path))).split())

    assert code == 3, said


@pytest.mark.django_db
@pytest.mark.parametrize(
    "line",
    [
        "calibrate_judge --name first",
        "capture_baseline --repeats 0",
        "chat ada --json",
        "check_judge --dimensions convergence",
        "compare --a build=1 --b build=2 --window soon",
        "configure ada nonsense=1",
        "costs --window soon",
        "debate topic --agents ada,bob --rounds 0",
        "draft_propositions --dry-run --max 0",
        "drift --dimension charm",
        "evaluate --margin 10",
        "evaluate --window yesterday",
        "experiment",
        "export_scores --format xml",
        "export_transcript --channel office --where build",
        "forget --outsider Nobody --deactivate",
        "import_transcript chat.csv --tag build",
        "lab office --arm hypnosis",
        "make_token admin --days -1",
        "prune_logs --older-than soon",
        "schedule add nightly --every soon",
        "seed --yes",
        "serve --port 0",
        "try_proposition FILE:short --agent ada --n 0",
        "work --threads 0",
    ],
)
def test_a_value_that_is_not_allowed_is_2(line: str, tmp_path: Path) -> None:
    for slug in ("ada", "bob"):
        make_agent(slug)
    make_channel("office")

    code, said = ended(*line.replace("FILE", str(proposition_file(tmp_path))).split())

    assert code == 2, said


@pytest.mark.django_db
def test_a_model_without_a_key_is_3(settings: Settings) -> None:
    settings.JUDGE_MODEL = "claude-haiku-5-5"
    settings.ANTHROPIC_API_KEY = ""

    for line in COMPLETE:
        code, said = ended(*line.split(), checks=True)

        assert (code, "ANTHROPIC_API_KEY" in said) == (3, True), said


# -- what texts name
def named_options() -> Iterator[tuple[str, str, str]]:
    """Yield each command that a message, a help text or a document names with an option, the option, and where."""
    files = [*ROOT.glob("*/**/*.py"), *ROOT.glob("*/**/*.md"), *ROOT.glob("*/**/*.html"), ROOT / "README.md"]
    for file in files:
        if {"tests", ".venv", "site"} & set(file.relative_to(ROOT).parts):
            continue
        text = file.read_text()
        if "manage.py" not in text:
            continue
        for name, words in re.findall(r"manage\.py ([a-z_]+)((?: (?!manage\.py)[^\s`'\"<)]*[^\s`'\"<).;:,])*)", text):
            for option in re.findall(r" (--[a-z][a-z-]+)", words):
                yield name, option, str(file)


def test_the_options_that_texts_name_exist() -> None:
    known = {name: set(options_of(parser_of(name))) for name in OURS}
    named = [found for found in named_options() if found[0] in known]

    assert len(named) > 100
    assert [found for found in named if found[1] not in known[found[0]]] == []


def parser_of(name: str) -> ArgumentParser:
    command = load_command_class(get_commands()[name], name)
    assert isinstance(command, BaseCommand)
    return command.create_parser("", name)


def options_of(parser: ArgumentParser) -> Iterator[str]:
    yield from parser._option_string_actions
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for subcommand in action.choices.values():
                yield from options_of(subcommand)


def test_the_pages_that_help_texts_name_exist() -> None:
    for name in OURS:
        pages = re.findall(r"docs/[\w/-]+\.md", parser_of(name).format_help())

        assert [page for page in pages if not (ROOT / page).is_file()] == [], name


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "otherwise"),
    [
        ("dev bench_behavior CASES", 2),
        ("capture_baseline --no-simulate", 2),
        ("chat ada --script SCRIPT", 1),
        ("check_judge --dimensions adherence", 2),
        ("detect_behavior text --agent ada", 2),
        ("draft_propositions --dry-run --agents ada", 2),
        ("evaluate", 2),
        ("try_proposition FILE:warm --agent ada", 2),
        ("turn ada --channel office", 1),
    ],
)
def test_a_refused_model_key_is_3_and_a_missing_answer_is_not(
    line: str,
    otherwise: int,
    llm_server: LLMServer,
    settings: Settings,
    tmp_path: Path,
) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    settings.ACTOR_MODEL, settings.ACTOR_BASE_URL = "test-model", llm_server.url
    channel = make_channel("office")
    for slug in ("ada", "bob"):
        talk(make_agent(slug), [f"{slug} says line {n}." for n in range(3)], channel=channel)
        ChannelMember.objects.get_or_create(channel=channel, agent=Agent.objects.get(slug=slug))
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = tmp_path / "propositions", []
    file = PropositionFolder(settings.PROPOSITIONS_DIR).claims("adherence/_default.yaml", "warm")
    (tmp_path / "cases.jsonl").write_text('{"text": "Be brief.", "request": true}\n')
    (tmp_path / "script.txt").write_text("Hello.\n")
    for name, path in {"FILE": file, "CASES": tmp_path / "cases.jsonl", "SCRIPT": tmp_path / "script.txt"}.items():
        line = line.replace(name, str(path))

    # What the second run does not ask again keeps its first answer: a 500 among refusals is enough for `otherwise`.
    for status, code in ((401, 3), (500, otherwise)):
        llm_server.always(status=status, message="invalid x-api-key")
        ended_with, said = ended(*line.split())
        assert ended_with == code, said
