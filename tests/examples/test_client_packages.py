"""The client packages as others install them, in front of a real server: gate, hand in, export spans, assert in a test."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from plumbline_client import Client, Refused, Unavailable

from tests.examples.test_clients import CLIENTS, GOOD, NODE, TOKEN, Server
from tests.machinery import missing, wait_until

PYTHON, TYPESCRIPT = CLIENTS / "python", CLIENTS / "typescript"
EDITOR = "insert into auth_user_groups (user_id, group_id) select 1, id from auth_group where name = 'Editor'"
BRIEF = """
dimension: adherence
agent_id: ada
propositions:
  - {id: ada-brief, claim: "{{agent_name}} says at most six words", rule: {max_words: 6}}
"""
SUITE = """
import pytest
from plumbline_client.pytest_plugin import Unjudged


def test_main(in_character):
    assert in_character("ada", transcript="main.jsonl", build="2", threshold=5)["status"] == "completed"
    in_character("ada", build="2")  # against the baseline

def test_messages(in_character):
    said = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "In the cabinet."}] * 12
    in_character("ada", transcript=said, build="4", dimensions=["adherence"], threshold=5)
    said[1]["content"] = "I would so love to help you find it in the cabinet!"
    with pytest.raises(AssertionError, match="below 5"):
        in_character("ada", transcript=said, build="5", dimensions=["adherence"], threshold=5)

def test_branch(in_character):
    in_character("ada", transcript="branch.jsonl", build="3", threshold={"adherence": 5})

def test_branch_against_the_baseline(in_character):
    in_character("ada", transcript="branch.jsonl")

def test_what_cannot_be_judged(in_character):
    with pytest.raises(Unjudged, match="consistency"):
        in_character("ada", build="2", dimensions=["adherence"], threshold={"consistency": 5})
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from a copy without a network."""
    if importlib.util.find_spec("flit_core") is None:
        missing("flit_core")
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(PYTHON, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed, to be put on the path of a process."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--target", str(folder), str(wheel))
    return folder


def pip(*arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        arguments[0],
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    done = subprocess.run([*command, *arguments[1:]], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Server]:
    """A server without a model and its worker; the token is an Editor's, and one agent has to be brief."""
    folder = tmp_path_factory.mktemp("packages")
    claims = folder / "claims" / "adherence"
    claims.mkdir(parents=True)
    (claims / "ada.yaml").write_text(BRIEF)
    database = Path(shutil.copy(migrated_file, folder / "db.sqlite3"))
    offline = {"JUDGE_BASE_URL": "", "JUDGE_MODEL": "offline:lexical-1", "ANTHROPIC_API_KEY": ""}
    running = Server(folder, database, PROPOSITION_DIRS=str(claims.parent), **offline)
    running.write(EDITOR)
    running.plumbline.start("worker", "manage.py", "work", "--poll", "0.2")
    ada = {"slug": "ada", "display_name": "Ada", "system_prompt": "You are Ada, a dry clerk."}
    client_of(running).http.request("POST", "/api/agents/", ada, seconds=30)
    yield running
    running.stop()


def client_of(server: Server) -> Client:
    return Client(f"http://127.0.0.1:{server.port}", TOKEN)


def environment(server: Server, **more: str) -> dict[str, str]:
    address = {"PLUMBLINE_URL": f"http://127.0.0.1:{server.port}", "PLUMBLINE_TOKEN": TOKEN}
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **address, **more}


def run(command: list[str], folder: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=200, check=False)


def examples(readme: Path, language: str) -> str:
    """The blocks of a README that are one program."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", readme.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks, readme
    return "\n".join(blocks)


def test_the_wheel_is_typed_needs_nothing_and_says_how_it_is_used(wheel: Path, installed: Path) -> None:
    (found,) = distributions(name="plumbline-client", path=[str(installed)])
    assert not found.requires
    assert {entry.group for entry in found.entry_points} == {"pytest11"}
    assert "Check a draft" in found.read_text("METADATA")  # type: ignore[operator]
    assert "plumbline_client/py.typed" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.slow
def test_the_examples_of_the_python_package_gate_and_hand_in(server: Server, installed: Path, tmp_path: Path) -> None:
    program = examples(PYTHON / "README.md", "python") + "\nprint(check.verdict, counts['imported'], text)"
    done = run([sys.executable, "-c", program], tmp_path, environment(server, PYTHONPATH=str(installed)))
    assert done.stdout.strip() == f"passed 1 {GOOD}", done.stderr
    assert server.rows("select text from messages where external_id = 'm-1'") == [(GOOD,)]


@pytest.mark.slow
def test_the_examples_of_the_javascript_package_gate_and_hand_in(server: Server) -> None:
    program = examples(TYPESCRIPT / "README.md", "js") + "\nconsole.log(check.verdict, counts.imported, text)"
    (server.javascript / "readme.mjs").write_text(program)
    done = run([NODE, "readme.mjs"], server.javascript, environment(server))
    assert done.stdout.strip() == f"passed 1 {GOOD}", done.stderr
    assert server.rows("select text from messages where external_id = 'm-2'") == [(GOOD,)]


@pytest.mark.slow
def test_the_javascript_packages_own_tests_pass(server: Server) -> None:
    done = run([NODE, "--test", "client.test.js"], TYPESCRIPT, environment(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# skipped 0$|ℹ skipped 0$", done.stdout, re.MULTILINE), done.stdout


def test_the_types_of_the_javascript_package_name_what_it_has() -> None:
    code, types = ((TYPESCRIPT / name).read_text() for name in ("index.js", "index.d.ts"))
    exported = re.compile(r"^export class (\w+)", re.MULTILINE)
    assert exported.findall(code) == exported.findall(types)
    methods = set(re.findall(r"^  (?:async |static )*([a-z]\w+)\(", code, re.MULTILINE))
    assert methods == set(re.findall(r"^  (?:static )?([a-z]\w+)\(", types, re.MULTILINE))
    package = json.loads((TYPESCRIPT / "package.json").read_text())
    assert all((TYPESCRIPT / name).is_file() for name in package["files"])
    assert "dependencies" not in package


@pytest.mark.slow
def test_a_test_of_another_suite_asserts_over_http_that_an_agent_is_in_character(
    server: Server, installed: Path, tmp_path: Path
) -> None:
    said(tmp_path / "main.jsonl", [f"No, number {n}." for n in range(12)])
    said(tmp_path / "branch.jsonl", [f"Yes of course, I would love to help with number {n}!" for n in range(12)])
    client = client_of(server)
    client.ingest_transcript((tmp_path / "main.jsonl").read_text(), channel="main", tags={"build": "1"})
    baseline = {"agent": "ada", "where": {"build": "1"}}
    client.http.request("POST", "/api/evaluations/baselines/", baseline, seconds=30)
    wait_until(lambda: bool(server.rows("select 1 from baselines")), timeout=60, what="there is a baseline")
    (tmp_path / "test_personas.py").write_text(SUITE)
    (tmp_path / "ci").mkdir()
    shutil.copy(tmp_path / "main.jsonl", tmp_path / "ci" / "conversation.jsonl")
    (tmp_path / "test_readme.py").write_text(examples(PYTHON / "README.md", 'python title="test_personas.py"'))

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:django",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
    ]
    done = run(
        [*command, "test_personas.py", "test_readme.py"], tmp_path, environment(server, PYTHONPATH=str(installed))
    )

    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))
    assert failed == {"test_branch", "test_branch_against_the_baseline"}
    assert "ada-brief" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


def said(path: Path, texts: list[str]) -> None:
    lines = [{"channel": "chat", "agent": "ada", "role": "agent", "text": text} for text in texts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_opentelemetrys_exporter_sends_spans_with_the_environment_of_the_client(server: Server, tmp_path: Path) -> None:
    program = """
import json
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
with provider.get_tracer("test").start_as_current_span("chat m") as span:
    span.set_attribute("gen_ai.operation.name", "chat")
    span.set_attribute("gen_ai.conversation.id", "traced")
    spoken = [{"role": "assistant", "parts": [{"type": "text", "content": "From a span."}]}]
    span.set_attribute("gen_ai.output.messages", json.dumps(spoken))
provider.shutdown()
"""
    given = environment(server) | client_of(server).otlp_environment(agent="ada")
    done = run([sys.executable, "-c", program], tmp_path, given)
    assert done.returncode == 0, done.stderr
    stored = server.rows(
        "select text, agents.slug from messages join agents on agents.id = agent_id where text = 'From a span.'"
    )
    assert stored == [("From a span.", "ada")], done.stderr


class Stub:
    """A server that gives the answers it was told, in their order, and remembers the requests."""

    def __init__(self, *answers: tuple[int, dict[str, str], Any]) -> None:
        self.answers, self.keys = list(answers), list[str]()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                stub.keys.append(self.headers["Idempotency-Key"])
                status, headers, body = stub.answers.pop(0)
                content = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.client = Client(f"http://127.0.0.1:{self.http.server_port}", TOKEN)


INGESTED = {"received": 1, "imported": 1, "duplicates": 0, "sampled_out": 0, "observed": 0, "notes": []}
MESSAGE = {"external_id": "m-1", "outsider": "Ada", "text": "Noted."}
AGAIN = {"Retry-After": "0"}


def test_what_is_handed_in_is_sent_again_with_the_same_key_when_the_server_says_so() -> None:
    running = {"detail": "still running"}
    stub = Stub((503, AGAIN, {}), (429, AGAIN, {}), (409, {}, running), (200, {}, INGESTED))
    assert stub.client.ingest([MESSAGE], channel="shop-floor")["imported"] == 1
    assert len(stub.keys) == 4
    assert len(set(stub.keys)) == 1


def test_many_messages_go_in_batches_that_the_server_takes() -> None:
    stub = Stub(*[(200, {}, INGESTED)] * 3)
    assert stub.client.ingest([MESSAGE] * 2001)["received"] == 3
    assert len(set(stub.keys)) == 3


def test_what_the_server_refuses_is_not_sent_again_and_names_the_field() -> None:
    problem = {"detail": "the body is wrong", "errors": {"channel": ["allowed: a slug"]}}
    stub = Stub((400, {}, problem))
    with pytest.raises(Refused, match="channel: allowed: a slug") as raised:
        stub.client.ingest([MESSAGE])
    assert raised.value.status == 400
    assert stub.answers == []


def test_what_the_server_refuses_is_said_once() -> None:
    why = "there is no agent 'mikael'; did you mean michael?"
    stub = Stub((400, {}, {"detail": why, "errors": {"agent": [why]}}))
    with pytest.raises(Refused) as raised:
        stub.client.ingest([MESSAGE])
    assert (str(raised.value), raised.value.errors) == (f"400 {why}", {"agent": [why]})


def test_a_server_that_stays_away_is_given_up_in_time() -> None:
    stub = Stub((503, {"Retry-After": "3600"}, {"detail": "the database is away"}))
    with pytest.raises(Unavailable, match="the database is away"):
        stub.client.ingest([MESSAGE], seconds=5)


@pytest.mark.parametrize(
    ("answer", "is_refused"),
    [
        ((503, {}, {}), False),
        ((502, {}, "a proxy's page"), False),
        ((401, {}, {"detail": "Invalid token."}), True),
        ((302, {"Location": "http://127.0.0.1:9/elsewhere"}, {}), True),
        ((200, {}, ["not", "Plumbline"]), True),
    ],
)
def test_a_draft_that_nobody_could_check_is_let_through(
    answer: tuple[int, dict[str, str], Any], is_refused: bool
) -> None:
    check = Stub(answer).client.check("Noted.", persona="You are Ada.")
    assert (check.verdict, check.refused) == ("unchecked", is_refused)
    assert check.reason


def test_where_no_draft_passes_the_best_is_returned_with_the_verdict() -> None:
    rejected = {
        "verdict": "rejected",
        "fully_judged": True,
        "outcome": "corrected",
        "feedback": "Again.",
        "session": "s",
    }
    first = {**rejected, "attempt": 1, "attempts_left": 1, "best_attempt": 1}
    last = {**rejected, "attempt": 2, "attempts_left": 0, "best_attempt": 1}
    stub = Stub((200, {}, first), (200, {}, last))
    text, check = stub.client.gate(lambda feedback: feedback or "The first.", agent="ada")
    assert (text, check.verdict) == ("The first.", "rejected")


def test_the_token_is_in_no_error_and_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("http://127.0.0.1:9", TOKEN)
    with pytest.raises(Unavailable) as away:
        client.ingest([MESSAGE], seconds=0.1)
    with pytest.raises(ValueError, match="allowed") as unreadable:
        Client("http://127.0.0.1:9", f"{TOKEN}\n")
    with pytest.raises(ValueError, match="allowed") as address:
        Client(f"http://me:{TOKEN}@127.0.0.1:9", TOKEN)
    monkeypatch.delenv("PLUMBLINE_URL", raising=False)
    with pytest.raises(ValueError, match="PLUMBLINE_URL is not set"):
        Client.from_environment()
    shown = [repr(client), str(client), *(repr(raised.value) for raised in (away, unreadable, address))]
    assert [text for text in shown if TOKEN in text] == []


def test_a_check_needs_exactly_one_who_would_say_it() -> None:
    client = Client("http://127.0.0.1:9", TOKEN)
    with pytest.raises(ValueError, match="exactly one"):
        client.check("Noted.")
    with pytest.raises(ValueError, match="exactly one"):
        client.check("Noted.", persona="You are Ada.", agent="ada")
