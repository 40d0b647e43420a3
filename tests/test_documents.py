"""Every command of README and documents runs: each page's ``sh`` blocks in one shell, in their order, on the demo's database.

A block of another language with a ``title`` is a file that the page makes. A ``sh`` block whose title begins with ``Needs`` needs what
no test has (a key, another machine) and is listed in ``documents_outside.txt``. A comment with ``exits 1`` says that a command ends with
that code.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from django.conf import settings

from tests import reference, zygote
from tests.machinery import answers, free_port, wait_until

ROOT = Path(settings.BASE_DIR)
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]*)"')
ENDS_WITH = re.compile(r"(?P<command>^.*?\S)\s+#[^\n]*\bexits (?P<code>[1-9])\b.*$", re.MULTILINE)
SERVER = "localhost:8000"
LONGEST = 120  # seconds of a page


class Block(NamedTuple):
    language: str
    title: str
    text: str


def pages() -> list[str]:
    """The README and all documents but the generated ones, by path."""
    documents = (path for path in (ROOT / "docs").rglob("*.md") if "made by `make docs`" not in path.read_text())
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in documents)]


def blocks(page: str) -> Iterator[Block]:
    for match in FENCE.finditer((ROOT / page).read_text(encoding="utf-8")):
        info = match["info"].strip()
        title = TITLE.search(info)
        lines = [line.removeprefix(match["indent"]) for line in match["body"].splitlines()]
        yield Block(info.partition(" ")[0], title[1] if title else "", "\n".join(lines) + "\n")


def is_outside(block: Block) -> bool:
    return block.language == "sh" and block.title.startswith("Needs ")


def has_commands(page: str) -> bool:
    return any(block.language == "sh" and not is_outside(block) for block in blocks(page))


@pytest.fixture(scope="session")
def demo_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database after ``manage.py demo`` and all its scenes, made once for all processes of the tests."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    made, file = folder / "demo.made", folder / "demo.sqlite3"
    with (folder / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for words in (["demo"], ["demo", "--scene", "all"]):
                run = manage(file, *words)
                assert run.returncode == 0, run.stderr
            made.touch()
    return file


def environment(database: Path) -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {**outer, "DATABASE_URL": f"sqlite:///{database}", "DEBUG": "1"}


def manage(database: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "manage.py"), *words]
    return zygote.run(command, env=environment(database), cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)


# The shell's ``manage.py``: it hands its words, its environment and its streams to the socket {address}, and ends as the command does.
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
end = socket.socket(socket.AF_UNIX)
end.connect("{address}")
order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
end.sendmsg([len(order).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
end.sendall(order)
sys.exit(int(end.recv(20)))
"""


class Commands(socketserver.ThreadingUnixStreamServer):
    """Runs the commands of a page in processes that start fast."""

    daemon_threads, block_on_close = True, False


class Command(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        (words, given, folder), streams = zygote._receive(self.request)
        command = [sys.executable, str(ROOT / "manage.py"), *words]
        with STARTING:
            process = zygote.Popen(
                command, env=given, cwd=folder, stdin=streams[0], stdout=streams[1], stderr=streams[2]
            )
        for stream in streams:
            os.close(stream)
        self.request.sendall(str(process.wait()).encode())


STARTING = threading.Lock()


@pytest.fixture
def shell(demo_database: Path, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder to work in and an environment in which ``manage.py`` and ``.venv/bin/python manage.py`` are this checkout's."""
    database, folder, programs = tmp_path / "page.sqlite3", tmp_path / "work", tmp_path / "bin"
    shutil.copy(demo_database, database)
    for made in (folder, programs, folder / ".venv"):
        made.mkdir()
    address = tmp_path / "commands"
    (programs / "manage.py").write_text(CLIENT.format(python=sys.executable, address=address))
    (programs / "manage.py").chmod(0o755)
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / "manage.py").symlink_to(ROOT / "manage.py")
    (folder / "docs").symlink_to(ROOT / "docs")
    given = environment(database)
    with Commands(str(address), Command) as commands:
        threading.Thread(target=commands.serve_forever, daemon=True).start()
        yield folder, {**given, "PATH": f"{programs}:{Path(sys.executable).parent}:{given['PATH']}"}
        commands.shutdown()


@pytest.fixture
def server(shell: tuple[Path, dict[str, str]], request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the console and its worker for a page that asks one; started as the README says."""
    if not any(SERVER in block.text for block in blocks(request.getfixturevalue("page")) if not is_outside(block)):
        yield SERVER
        return
    address = f"localhost:{free_port()}"
    command = [sys.executable, str(ROOT / "manage.py"), "serve", "--port", address.partition(":")[2]]
    log = shell[0].parent / "server.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=shell[1], cwd=ROOT, stdout=output, stderr=output) as running,
    ):
        try:
            wait_until(
                lambda: answers(f"http://{address}/healthz"), timeout=60, what=f"a server answers: {log.read_text()}"
            )
            yield address
        finally:
            running.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if has_commands(page)])
def test_the_commands_of_a_page_run_in_their_order(page: str, shell: tuple[Path, dict[str, str]], server: str) -> None:
    folder, given = shell
    script = ["set -eo pipefail", "trap 'echo \"ended with $?: $BASH_COMMAND\" >&2' ERR"]
    for block in blocks(page):
        if block.title and block.language != "sh":
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
        if block.language == "sh" and not is_outside(block):
            script.append(ENDS_WITH.sub(r"\g<command> || [ $? = \g<code> ]", block.text).replace(SERVER, server))
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, f"{page}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_what_needs_the_outside_is_listed() -> None:
    listed = (ROOT / "tests" / "documents_outside.txt").read_text().splitlines()
    assert listed == [f"{page}: {block.title}" for page in pages() for block in blocks(page) if is_outside(block)]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_server(tmp_path: Path) -> None:
    # Not `--quiet`, which hides warnings from `--strict`.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done.stderr
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src="https?:|<link[^>]+stylesheet[^>]+href="https?:""")
    asking = [str(page) for page in tmp_path.rglob("*.html") if loaded.search(page.read_text(encoding="utf-8"))]
    assert not asking


def test_the_generated_pages_say_what_the_code_says() -> None:
    for name, made in reference.PAGES.items():
        written = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert written == made(), f"{name}: `make docs` renews it"


def test_every_line_of_the_security_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^ *def (test_\w+)", sources, re.MULTILINE))
    lines = [line for line in page.splitlines() if line.startswith("| ") and "| test |" not in line]

    assert len(lines) > 25
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line.split(" | ")[-1])
        assert named, line
        assert set(named) <= there, line


@pytest.mark.slow
def test_the_test_on_the_page_of_builds_passes_on_its_own_files(tmp_path: Path) -> None:
    for block in blocks("docs/how-to/fail-a-build.md"):
        if block.language in ("json", "markdown", "yaml", "python") and not block.title.startswith(".github"):
            file = tmp_path / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)

    run = zygote.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider", "test_personas.py"],
        cwd=tmp_path, env=environment(tmp_path / "none.sqlite3") | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=LONGEST,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout
