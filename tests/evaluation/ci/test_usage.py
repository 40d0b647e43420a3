"""Command lines that make no sense end with 3, before anything is asked, and say what is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.models import Agent
from tests.evaluation.ci.building import refused
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--agents nobody", "no agent 'nobody'"),
        ("--agents ,", "no agent named"),
        ("--dimensions charm", "allowed: adherence"),
        ("--window yesterday", "allowed: all, last:N"),
        ("--where build", "write tag=value"),
        ("--threshold 12", "a number from 0 to 9"),
        ("--threshold fluency=4 --dimensions adherence", "not among the dimensions measured"),
        ("--regression-delta 0", "--regression-delta 0: allowed: above 0"),
        ("--regression-delta few", "invalid float value"),
        ("--margin 10", "--margin 10: allowed"),
        ("--max-unscored half", "allowed: 0 to 1"),
        ("--max-unscored 2", "allowed: 0 to 1"),
        ("--repeats 0", "repeats 0: 1 to 20"),
        ("--samples 0", "at least 1"),
        ("--per-call 11", "per_call 11"),
        ("--by day", "invalid choice"),
        ("--by position --bins 5-1", "allowed: up to 12 stretches"),
        ("--by position --dimensions consistency", "--by position needs one of adherence"),
        ("--by position --baseline b.json", "not with a --baseline"),
        ("--baseline no-such.json", "no-such.json"),
        ("--transcript t.jsonl", "--transcript needs --personas"),
        ("--personas p", "--personas needs --transcript"),
        ("--personas p --transcript t --simulate s", "not both"),
        ("--personas no-such --transcript t", "--personas no-such"),
        ("--propositions no-such", "no such folder"),
        ("--map a=b", "--map is for --transcript"),
        ("--actor-model m", "--actor-model is for --simulate"),
        ("--simulate no-such.yaml", "no-such.yaml"),
        ("--simulate s.yaml --where build=1", "measures all that was simulated"),
        ("--dry-run --junit x.xml", "nothing to write"),
        ("--junit /no/such/folder/x.xml", "--junit /no/such/folder/x.xml"),
        ("--nonsense", "unrecognized arguments"),
    ],
)
def test_wrong_usage_exits_3_and_asks_nothing(two: Agent, llm_server: LLMServer, arguments: str, said: str) -> None:
    assert said in refused(*arguments.split())
    assert llm_server.calls == 0


def test_no_agents_at_all_is_wrong_usage() -> None:
    assert "there are no agents yet" in refused()


def test_a_broken_proposition_file_is_wrong_usage(two: Agent, tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "x.yaml").write_text("dimension: charm\n")

    assert "dimension" in refused("--propositions", str(tmp_path / "claims"))


def test_the_shell_sees_3_too() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "evaluate", "--threshold", "ten"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "sqlite:///:memory:"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert "--threshold 'ten': allowed: a number from 0 to 9" in done.stderr
