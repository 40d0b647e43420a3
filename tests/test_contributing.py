"""CONTRIBUTING.md names places that exist, and its recipes ("What do I touch?") work as they stand there."""

from __future__ import annotations

import ast
import json
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.without import ROOT, copy_checkout, run

RECIPES = ROOT / "tests/recipes"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
APPS = ("agents", "evaluation", "correction")
EXPLAIN = {"agents/kit/api/views.py"}  # is read, not edited


def places(text: str) -> list[str]:
    """The paths that a text names, as patterns: ``<app>/apps.py`` is ``*/apps.py``."""
    return [re.sub(r"<\w+>", "*", place).rstrip("/") for place in re.findall(r"`([\w<>.]+/[\w<>./-]*)`", text)]


def test_every_place_that_is_named_exists() -> None:
    missing, number = [], 0
    for line in CONTRIBUTING.splitlines():
        named = places(line)
        number += len(named)
        about = named[:1] if line.startswith("| `") else APPS  # in a row about an app, or of the files in any
        homes = [ROOT, *(ROOT / app for app in about)]
        missing += [place for place in named if not any([*home.glob(place)] for home in homes)]

    assert number > 50
    assert missing == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with its tables and the examples. The recipes do not disturb each other."""
    copy = copy_checkout(tmp_path_factory.mktemp("recipes"))
    run(copy, ["manage.py", "migrate", "-v0"])
    run(copy, ["manage.py", "seed"])
    return copy


class Recipe:
    """Rows of the table, followed in a copy: what is written must be named there, and all that is named must be written."""

    def __init__(self, copy: Path, *rows: str) -> None:
        self.copy = copy
        cells = [
            line.split(" | ") for line in CONTRIBUTING.splitlines() if line.startswith(tuple(f"| *{r}*" for r in rows))
        ]
        assert len(cells) == len(rows)
        self.by_hand = {place for _, new, edit, _ in cells for place in places(f"{new} {edit}")} - EXPLAIN
        self.generated = {place for *_, generated in cells for place in places(generated)}
        self.written: set[str] = set()
        self.before = self._contents()

    def put(self, name: str, place: str) -> None:
        """Copy a file from `tests/recipes`."""
        target = self.copy / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(RECIPES / name, target)
        self._note(place)

    def insert(self, place: str, lines: str, *, after: str) -> None:
        """Write lines into a file after the one that begins with `after`."""
        path = self.copy / place
        written = path.read_text(encoding="utf-8").splitlines(keepends=True)
        [number] = [number for number, line in enumerate(written, 1) if line.startswith(after)]
        written.insert(number, f"{lines}\n")
        path.write_text("".join(written), encoding="utf-8")
        self._note(place)

    def append(self, place: str, lines: str) -> None:
        with (self.copy / place).open("a", encoding="utf-8") as file:
            file.write(lines)
        self._note(place)

    def migrate(self, *labels: str) -> None:
        run(self.copy, ["manage.py", "makemigrations", "-v0", *labels])
        run(self.copy, ["manage.py", "migrate", "-v0"])

    def check(self) -> None:
        """Nothing that the rows name was left out, and what they call generated was."""
        now = self._contents()
        changed = {path for path in now if now[path] != self.before.get(path)}
        assert self.by_hand == self.written
        assert [pattern for pattern in self.generated if not any(fnmatch(path, pattern) for path in changed)] == []

    def _contents(self) -> dict[str, bytes]:
        paths = [path for pattern in self.generated for path in self.copy.glob(f"**/{pattern}")]
        return {str(path.relative_to(self.copy)): path.read_bytes() for path in paths}

    def _note(self, place: str) -> None:
        named = {pattern for pattern in self.by_hand if fnmatch(place, pattern)}
        assert named, f"{place} is not named in CONTRIBUTING.md"
        self.written |= named


CHECK_A_DRAFT = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
client = Client(headers={"host": "localhost"})
client.force_login(get_user_model().objects.create_superuser("gate"))
sent = {"agent": "michael", "draft": "one two three four five six seven eight nine ten eleven.", "dimensions": ["brevity"]}
print(client.post("/api/quality-checks/", sent, content_type="application/json").content.decode())
"""


@pytest.mark.slow
def test_a_message_dimension_is_measured_by_rule_and_checked_at_the_gate(copy: Path) -> None:
    recipe = Recipe(copy, "a dimension of measurement", "one of these dimensions at the gate")
    recipe.put("brevity.py", "evaluation/scorers/brevity.py")
    recipe.put("brevity.yaml", "propositions/brevity/_default.yaml")
    recipe.put("brevity.action.yaml", "propositions/brevity/_default.action.yaml")
    dimensions, scorers = "evaluation/dimensions.py", "evaluation/scorers/__init__.py"
    recipe.insert(dimensions, '    BREVITY = "brevity", "Brevity"', after="    IDEAS_QUANTITY =")
    kind = '    Dimension.BREVITY: Kind(judged_by="message", takes_rules=True, has_gate=True),'
    recipe.insert(dimensions, kind, after="    Dimension.IDEAS_QUANTITY:")
    recipe.insert(scorers, "from evaluation.scorers import brevity", after="from evaluation.scorers import")
    recipe.insert(scorers, "    Dimension.BREVITY: brevity,", after="    Dimension.FLUENCY:")
    recipe.insert("correction/gate/quality_check.py", "    brevity: Threshold = ABSENT", after="    fluency: Threshold")
    recipe.migrate()
    (copy / "propositions/schema.json").write_text(run(copy, ["manage.py", "check_propositions", "--schema"]))
    recipe.check()

    words = ["evaluate", "--agents", "michael", "--dimensions", "brevity", "--json"]
    report = json.loads(run(copy, ["manage.py", *words], codes=(0, 1, 2)))
    checked = json.loads(run(copy, ["-c", CHECK_A_DRAFT]))

    [measured] = report["runs"]
    judgements = measured["observations"]["brevity"]["default-brevity-two-sentences"]["scores"].values()
    assert (measured["status"], measured["dimensions"]["brevity"]["scored"]) == ("completed", 20)
    assert set(judgements) == {0, 9}  # kept by some messages, broken by others
    assert (checked["verdict"], checked["dimensions"]["brevity"]["judge"]) == ("rejected", "rule")


INTERVIEW = """

@register
class Interview(Mode):
    name = "interview"
    title = "Interview"
    about = "Each in turn answers the one before, and asks the next."
    order = "seats"
"""


@pytest.mark.slow
def test_a_mode_of_debates_is_played(copy: Path) -> None:
    recipe = Recipe(copy, "a debate mode")
    recipe.put("interview.md", "agents/debates/templates/prompts/debates/interview.md")
    recipe.append("agents/debates/modes.py", INTERVIEW)
    recipe.check()

    words = ["debate", "Should we move?", "--mode", "interview", "--agents", "michael,dwight,pam", "--rounds", "1"]
    debate = json.loads(run(copy, ["manage.py", *words, "--json"]))

    answers = [(said["round"], said["agent"], said["status"]) for said in debate["agent_responses"]]
    assert (debate["metadata"]["mode"], debate["metadata"]["status"]) == ("interview", "completed")
    assert answers[3:] == [(1, "michael", "answered"), (1, "dwight", "answered"), (1, "pam", "answered")]


@pytest.mark.slow
def test_a_format_of_transcripts_is_recognised_and_read(copy: Path) -> None:
    readers = "agents/transcripts/readers"
    recipe = Recipe(copy, "a format of transcripts")
    recipe.put("minutes.py", f"{readers}/minutes.py")
    line = "from agents.transcripts.readers.minutes import is_minutes, read_minutes"
    recipe.insert(f"{readers}/__init__.py", line, after="from agents.transcripts.readers.langsmith")
    line = '    "minutes": Format("Minutes of meetings", read_minutes, is_minutes),'
    recipe.insert(f"{readers}/__init__.py", line, after='    "otel": Format')
    example = (RECIPES / "minutes.json").read_text(encoding="utf-8")
    section = f"\n## `minutes`\n\n```json\n{example}```\n"
    recipe.insert(
        "docs/reference/transcript-files.md", section, after="What your program, a simulation or a spreadsheet writes"
    )
    recipe.check()

    words = ["import_transcript", f"{RECIPES / 'minutes.json'}", "--json"]
    report = json.loads(run(copy, ["manage.py", *words]))

    assert (report["format"], report["channels"], report["imported"]) == ("minutes", ["quay"], 2)
    assert report["speakers"]["michael"] == {"agent": "michael", "messages": 1}


ASK = """
import django
django.setup()
from agents.kit.llm import Block, Label, LLMRequest, Turn, complete
from agents.kit.llm.ledger import totals
turns = (Turn("user", (Block("Hello?"),)),)
asked = LLMRequest(role="actor", task="any", system=(), turns=turns, label=Label(purpose="a test", work_id="echo"))
reply = complete(asked, deadline=5)
print(reply.status, reply.provider, reply.text, totals(work_id="echo").calls)
"""


@pytest.mark.slow
def test_a_provider_answers(copy: Path) -> None:
    recipe = Recipe(copy, "a provider of models")
    recipe.put("echo.py", "agents/kit/llm/providers/echo.py")
    recipe.check()

    assert run(copy, ["-c", ASK], ACTOR_MODEL="echo:Fog.") == "ok echo Fog. 1\n"


READ = """
import django, json
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from agents.kit.registry import erasures
from agents.models import Agent
from agents.remarks.models import Remark
Remark.objects.create(agent=Agent.objects.get(slug="michael"), text="He declares bankruptcy.")
client = Client(headers={"host": "localhost"})
client.force_login(get_user_model().objects.create_superuser("ada"))
paths = [reverse("admin:index"), *(reverse(f"admin:remarks_remark_{name}") for name in ("changelist", "help"))]
paths += [reverse("admin:remarks_remark_export", args=["csv"]), "/api/remarks/?agent=michael", "/api/"]
pages = [client.get(path) for path in paths]
texts = [b"".join(page).decode() for page in pages]
erased = [rule.names for rule in erasures() if rule.of is Remark]
print(json.dumps({"status": [page.status_code for page in pages], "pages": texts, "erased": erased}))
"""


@pytest.mark.slow
def test_an_app_with_a_table_has_pages_export_erasure_and_a_route(copy: Path) -> None:
    table = "a table with list, help page, export and erasure"
    recipe = Recipe(copy, "a Django app", table, "an API resource")
    for name in ("__init__.py", "apps.py", "models.py", "help/remark.md", "tables.py", "api.py", "urls.py"):
        recipe.put(f"remarks/{name}", f"agents/remarks/{name}")
    recipe.insert("project/settings.py", '    "agents.remarks",', after='    "agents.alerts",')
    recipe.migrate("remarks")
    recipe.check()

    read = json.loads(run(copy, ["-c", READ]))

    home, rows, explained, exported, answered, routes = read["pages"]
    assert set(read["status"]) == {200}
    assert "Remarks" in home
    assert "He declares bankruptcy." in rows
    assert "A remark is what somebody noticed about an" in explained
    assert "michael,He declares bankruptcy." in exported
    assert json.loads(answered)["results"][0]["text"] == "He declares bankruptcy."
    assert "/api/remarks/" in routes
    assert read["erased"] == [["text"]]


def imported(name: str, seen: set[str]) -> set[str]:
    """All modules that a module of the tests imports, also through others of them; those of a package are taken together."""
    if name in seen:
        return set()
    seen.add(name)
    path = ROOT.joinpath(*name.split("."))
    files = [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
    found: set[str] = set()
    for file in (file for file in files if file.is_file()):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    for module in sorted(found):
        if module.startswith("tests."):
            found |= imported(module, seen)
    return found


def test_what_make_runs_is_installed_by_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z0-9-]+):([^\n#]*)##[^\n]*\n((?:\t[^\n]*\n)+)", makefile, flags=re.MULTILINE)
    lacking = []
    for target, needs, recipe in rules:
        for module in re.findall(r"-m (tests\.\w+)", recipe):
            if "pytest" in imported(module, set()) and ".dev" not in needs:
                lacking.append(target)

    assert len(rules) > 10
    assert "pytest" in imported("tests.bench", set())
    assert lacking == []
