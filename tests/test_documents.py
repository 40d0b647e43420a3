"""Every command of README and documents runs: each page's ``sh`` blocks in one shell, in their order, on the demo's database.

A block of another language with a ``title`` is a file that the page makes. A ``sh`` block whose title begins with ``Needs`` needs what
no test has (a key, another machine) and is listed in ``documents_outside.txt``. A comment with ``exits 1`` says that a command ends with
that code.

A ``text`` or ``json`` block without a title shows what the ``sh`` block before it printed, on stdout or stderr; several may follow one
``sh`` block. It is compared with what that block really prints:

* ``text``: the lines follow each other in the output. A line ``…`` stands for any lines left out, ``…`` in a line for any words.
  Figures are masked (8.1 is as good as 7.9, one date or id as another), and so is the width of gaps, rules and bars. Empty lines do not
  count. Before the first line and after the last one more may be printed.
* ``json``: the keys and values shown are in an answer that the block prints, which may have more keys and items. Numbers are masked. An
  ``…`` stands for items or keys left out, in a text for any words.

What is no output, such as a drawing, has another language (``plain``) or stands before the first ``sh`` block. The terminal of the page
is `WIDTH` columns wide. ``DEMO_DATABASE=FILE`` takes a database on which ``manage.py demo`` has run, which spares making it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.conf import settings

from tests import reference, zygote
from tests.machinery import answers, free_port, wait_until

ROOT = Path(settings.BASE_DIR)
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]*)"')
ENDS_WITH = re.compile(r"(?P<command>^.*?\S)\s+#[^\n]*\bexits (?P<code>[1-9])\b.*$", re.MULTILINE)
SERVER = "localhost:8000"
RECEIVER = "14318"  # the port of a server that a page starts; a free one takes its place
LONGEST = 600  # seconds of a page, on a machine that does much else
WIDTH = 100  # columns of the terminal in which a page is shown
END_OF_BLOCK = "-- end of block --"
OUTPUT = ("text", "json")  # the languages of what a page says is printed
LEFT_OUT = "…"


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
    if "DEMO_DATABASE" in os.environ:
        return Path(os.environ["DEMO_DATABASE"])
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
    return {**outer, "DATABASE_URL": f"sqlite:///{database}", "DEBUG": "1", "COLUMNS": str(WIDTH)}


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
    for made in (folder, programs):
        made.mkdir()
    address = tmp_path / "commands"
    (programs / "manage.py").write_text(CLIENT.format(python=sys.executable, address=address))
    (programs / "manage.py").chmod(0o755)
    (folder / ".venv").symlink_to(sys.prefix)  # whole: Python finds its packages by the file beside `bin`
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
        zygote.Popen(command, env=shell[1], cwd=ROOT, stdout=output, stderr=output, start_new_session=True) as running,
    ):
        try:
            wait_until(
                lambda: answers(f"http://{address}/healthz"),
                timeout=LONGEST,
                what=f"a server answers: {log.read_text()}",
            )
            yield address
        finally:
            running.terminate()


def run_page(page: str, folder: Path, given: dict[str, str], server: str) -> list[str]:
    """Run the commands of a page; return what each ``sh`` block that ran printed."""
    port = str(free_port())
    script = ["set -eo pipefail", "trap 'echo \"ended with $?: $BASH_COMMAND\" >&2' ERR"]
    for block in blocks(page):
        if block.title and block.language != "sh":
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text.replace(RECEIVER, port), encoding="utf-8")
        if block.language == "sh" and not is_outside(block):
            commands = ENDS_WITH.sub(r"\g<command> || [ $? = \g<code> ]", block.text)
            script.append(commands.replace(SERVER, server).replace(RECEIVER, port))
            script.append(f"echo '{END_OF_BLOCK}'")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, f"{page}\n{done.stdout[-6000:]}"
    return done.stdout.split(END_OF_BLOCK + "\n")


def shown_and_printed(page: str, printed: list[str]) -> Iterator[tuple[Block, str]]:
    """Yield each block that shows an output, with what the ``sh`` block before it printed."""
    rest = iter(printed)
    of_block: str | None = None
    for block in blocks(page):
        if block.language == "sh":
            of_block = None if is_outside(block) else next(rest)
        elif block.language in OUTPUT and not block.title and of_block is not None:
            yield block, of_block


def masked(line: str) -> str:
    """Return a line without figures, and without the width of gaps, rules and bars."""
    line = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "#", line)  # ids and digests
    line = re.sub(r"\d+(?:[.,:/-]?\d+)*", "#", line)  # numbers, dates, times
    line = re.sub(r"# (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b", "# Month", line)
    line = re.sub(r"[─━═]+", "─", line)
    line = re.sub(r"[▁▂▃▄▅▆▇█░▒▓]+", "█", line)
    return " ".join(line.split())


def pattern_of(shown: str) -> str:
    """Return the expression for a text of a page, masked, with anything where the page leaves something out."""
    pattern = ""
    for line in filter(None, map(masked, shown.splitlines())):
        if line == LEFT_OUT:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.split(LEFT_OUT)) + r"\n"
    return pattern


def masked_lines(text: str) -> str:
    return "".join(f"{line}\n" for line in map(masked, text.splitlines()) if line)


def text_is_printed(shown: str, printed: str) -> bool:
    """Whether the lines of a page's block are what was printed, but for what it leaves out."""
    return bool(re.search("^" + pattern_of(shown), masked_lines(printed), re.MULTILINE))


def json_values(text: str) -> list[Any]:
    """Return the JSON objects and lists that begin a line of a text."""
    values = []
    position = 0
    while match := re.compile(r"^[\[{]", re.MULTILINE).search(text, position):
        try:
            value, position = json.JSONDecoder().raw_decode(text, match.start())
            values.append(value)
        except json.JSONDecodeError:
            position = match.end()
    return values


def is_part_of(shown: Any, answer: Any) -> bool:
    """Whether an answer has the keys, items and texts that a page shows of it."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            name in answer and is_part_of(value, answer[name]) for name, value in shown.items()
        )
    if isinstance(shown, list):
        rest = iter(answer if isinstance(answer, list) else [])
        return isinstance(answer, list) and all(any(is_part_of(item, other) for other in rest) for item in shown)
    if isinstance(shown, str):
        return isinstance(answer, str) and bool(re.fullmatch(pattern_of(shown), masked_lines(answer)))
    if isinstance(shown, bool) or shown is None:
        return shown is answer
    return isinstance(answer, int | float) and not isinstance(answer, bool)


def json_is_printed(shown: str, printed: str) -> bool:
    """Whether each JSON value of a page's block is a part of one that was printed."""
    without_marks = re.sub(rf",?\s*{LEFT_OUT}\s*(?=[\]}}])", "", shown)
    answers = json_values(printed)
    values = json_values(without_marks)
    return bool(values) and all(any(is_part_of(value, answer) for answer in answers) for value in values)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if has_commands(page)])
def test_the_commands_of_a_page_run_in_their_order_and_print_what_it_shows(
    page: str, shell: tuple[Path, dict[str, str]], server: str
) -> None:
    printed = run_page(page, *shell, server)

    wrong = []
    for block, of_block in shown_and_printed(page, printed):
        compare = json_is_printed if block.language == "json" else text_is_printed
        if not compare(block.text, of_block):
            wrong.append(f"{page} shows\n\n{block.text}\nprinted was\n\n{of_block}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("Ada  8.1  −0.4 to +0.1", "Ada   7.93  −0.2 to +0.3", True),
        ("run 3 of 2026-11-30 by 0a1b2c3d, $0.0040", "run 17 of 2026-12-01 by 9f8e7d6c5b4a, $12.5", True),
        (" ──── ███ \n\nnext", "───────── ▇▇▃\nnext", True),
        ("first\nthird", "first\nsecond\nthird", False),
        ("first\n…\nthird", "note\nfirst\nsecond\nthird\nfourth", True),
        ("third\n…\nfirst", "first\nsecond\nthird", False),
        ("Ada: … drifted", "Ada: adherence fell and drifted", True),
        ("Ada: … drifted", "Ada: steady", False),
        ("drifted", "possibly drifted", False),
        ("fell by 3", "rose by 3", False),
        ("−0.4", "+0.4", False),
    ],
)
def test_a_shown_text_may_differ_in_figures_and_in_what_it_leaves_out(shown: str, printed: str, same: bool) -> None:
    assert text_is_printed(shown, printed) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ('{"verdict": "passed", "score": 8.1}', 'note\n{"id": 7, "score": 2, "verdict": "passed"}', True),
        ('{"verdict": "passed"}', '{"verdict": "rejected"}', False),
        ('{"verdict": "passed"}', "{}", False),
        ('{"items": [{"id": 3}, …], …}', '{"items": [{"id": 1}, {"id": 2}], "next": null}', True),
        ('{"items": [{"id": 3}]}', '{"items": []}', False),
        ('{"why": "below … 5"}', '{"why": "below the threshold 4"}', True),
        ('{"note": ""}', '{"note": "steady"}', False),
        ('{"done": true}', '{"done": 1}', False),
        ('{"mean": 3}', '{"mean": null}', False),
    ],
)
def test_a_shown_answer_may_leave_keys_out_and_differ_in_numbers(shown: str, printed: str, same: bool) -> None:
    assert json_is_printed(shown, printed) is same


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
