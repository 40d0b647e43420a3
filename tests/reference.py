"""Write the generated pages of docs/reference: ``python -m tests.reference``. They say what the code says, and nothing else."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DJANGO_OPTIONS = {"-h", "--version", "-v", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color"}
DJANGO_OPTIONS.add("--skip-checks")
NOTE = "<!-- made by `make docs` from the code; change it there -->"


def settings_page() -> str:
    """Every variable that is read from the environment, with its default."""
    from django.conf import settings

    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    defaults = dict(re.findall(r"^#([A-Z][A-Z0-9_]+)=(.*)$", example, re.MULTILINE))
    parts = [
        "Read from the environment and from a file `.env` beside `manage.py`. Any of them may come from a file: with "
        "`NAME_FILE=/run/secrets/name` that file is read. The console's page *Settings* shows the values in effect."
    ]
    for title, rows in import_module(settings.EFFECTIVE_SETTINGS.rpartition(".")[0]).known().items():
        parts.append(f"## {title}")
        parts.append(
            _table(
                ("Name", "Default", "Unit", "What it does"),
                (
                    (f"`{name}`", _code(defaults.get(name, "")), row.get("unit", ""), row["what"])
                    for name, row in rows.items()
                ),
            )
        )
    return _page("Settings", parts)


def commands_page() -> str:
    """Every command with its options."""
    from django.core.management import get_commands, load_command_class

    from agents.kit.capability import capabilities
    from agents.kit.commands import EXIT_CODES

    parts = [
        "All are `manage.py COMMAND`. Options are written out: an abbreviation is refused, with the option that was meant. "
        "Options of every Django command (`--verbosity`, `--traceback` …) are left out.",
        "## Exit codes",
        "The same mistake has the same code in every command.",
        _table(("Code", "Meaning"), [(str(code), _sentence(means)) for code, means in EXIT_CODES.items()]),
        "A build must go on at 0 alone: 2 and 3 say that nothing is known.",
    ]
    ours = {app.name for app in capabilities()}
    for name, app in sorted(get_commands().items()):
        if app in ours:
            parser = load_command_class(app, name).create_parser("manage.py", name)
            parts += [f"## {name}", _sentence(parser.description or ""), *_options(parser)]
    return _page("Commands", parts)


def _options(parser: argparse.ArgumentParser, title: str = "") -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog)
    actions = [a for a in parser._actions if not DJANGO_OPTIONS & set(a.option_strings) and a.help != argparse.SUPPRESS]
    subparsers = [a for a in actions if isinstance(a, argparse._SubParsersAction)]
    rows = [
        (_option(a), _sentence(formatter._expand_help(a) if a.help else "")) for a in actions if a not in subparsers
    ]
    if rows:
        yield _table((title or "Option", "Meaning"), rows)
    for action in subparsers:
        for name, sub in action.choices.items():
            yield f"### {parser.prog.removeprefix('manage.py ')} {name}"
            yield _sentence(
                sub.description or next((c.help for c in action._choices_actions if c.dest == name), "") or ""
            )
            yield from _options(sub)


def _option(action: argparse.Action) -> str:
    shown = ", ".join(f"`{text}`" for text in action.option_strings) or f"`{action.metavar or action.dest}`"
    if not action.option_strings or action.nargs == 0:
        return shown
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    return f"{shown} `{value if isinstance(value, str) else ' '.join(value)}`"


def api_page() -> str:
    """The routes of the API, by tag."""
    schema = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    by_tag: dict[str, list[Sequence[str]]] = defaultdict(list)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((f"`{method.upper()} {path}`", operation["summary"]))
    parts = [
        "Parameters, bodies and answers of each are at `/api/docs/` of your installation, and in the OpenAPI schema at "
        "`/api/schema/`. What holds for all of them is in [The HTTP API](api.md)."
    ]
    for tag, rows in sorted(by_tag.items()):
        parts += [f"## {tag}", _table(("Request", "What it does"), rows)]
    return _page("API routes", parts)


def propositions_page() -> str:
    """The fields of a proposition file."""
    from evaluation.propositions.rules import Rule
    from evaluation.propositions.schema import Cues, PropositionFile, PropositionSpec

    parts = [
        "A proposition file is YAML. [Write propositions](../how-to/write-propositions.md) shows how to write one."
    ]
    models = (
        ("The file", PropositionFile),
        ("A proposition", PropositionSpec),
        ("`rule`: exact, free", Rule),
        ("`cues`: for the offline judge", Cues),
    )
    for title, model in models:
        schema = model.model_json_schema()
        required = set(schema.get("required", ()))
        rows = [
            (
                f"`{name}`",
                _type(field),
                "required" if name in required else _code(field.get("default")),
                field.get("description", ""),
            )
            for name, field in schema["properties"].items()
        ]
        parts += [f"## {title}", _table(("Field", "Type", "Default", "Meaning"), rows)]
    return _page("Proposition files", parts)


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    kind = field.get("$ref", "").rpartition("/")[2] or str(field.get("type", "any"))
    bounds = [
        f"{sign} {field[key]:g}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if key in field
    ]
    return " ".join([{"string": "text", "boolean": "true or false"}.get(kind, kind), ", ".join(bounds)]).strip()


def correction_page() -> str:
    """What can be set of correction, for all agents and for each."""
    from correction.config.settings import MECHANISMS

    parts = [
        "Each is set for all agents or for one, in the console, with `manage.py configure AGENT NAME=VALUE` (`defaults` for all) or "
        "`PATCH /api/evaluations/config/AGENT/`. What an agent leaves empty it inherits from the defaults."
    ]
    heads = ("Setting", "Allowed", "Default", "Meaning")
    advanced: list[Sequence[str]] = []
    for mechanism in MECHANISMS:
        rows: list[Sequence[str]] = []
        for name, setting in mechanism.settings.items():
            default = "" if setting.built_in is None else f"`{setting.show(setting.built_in)}`"
            row = (f"`{name}`", setting.allowed, default, _sentence(setting.help))
            (advanced if setting.advanced else rows).append(row)
        if rows:
            parts += [f"## {_sentence(mechanism.label)}", _sentence(f"{mechanism.purpose}."), _table(heads, rows)]
    parts += ["## Advanced", "Few agents need one of these.", _table(heads, advanced)]
    return _page("Correction settings", parts)


def dimensions_page() -> str:
    """What is measured, with the propositions that are shipped for every agent."""
    from evaluation.dimensions import Dimension
    from evaluation.propositions.files import load_file

    parts = [
        "The propositions that are shipped for every agent. What each dimension means is in the [glossary](glossary.md#dimension), how "
        "it is judged in [How scores arise](../explanation/scores.md#from-a-message-to-a-number)."
    ]
    for dimension in Dimension.values:
        parts.append(f"## {dimension}")
        for level, name in (("evaluation", "_default"), ("action", "_default.action")):
            if (path := ROOT / "propositions" / dimension / f"{name}.yaml").exists():
                asked = load_file(path).propositions
                rows = [(f"`{one.id}`", f"{one.claim}{' (inverted)' if one.inverted else ''}") for one in asked]
                parts.append(_table((f"Shipped at {level} level", "The judge scores whether"), rows))
    return _page("Dimensions", parts)


def glossary_page() -> str:
    """The words of the product."""
    from agents.kit.console.help import glossary

    parts = ["One word, one meaning, in tables, commands, console and API."]
    for term in glossary():
        parts += [f"## {_sentence(term.name)}", _links_of_documents(term.text)]
    return _page("Glossary", parts)


def _links_of_documents(text: str) -> str:
    """Turn the links of a text of the console's help into links of the documents; those to pages of the console become plain text."""
    text = re.sub(r"\(term:([^)]*)\)", r"(#\1)", text)
    text = re.sub(r"\(doc:([^)#]*)(#[^)]*)?\)", r"(../\1.md\2)", text)
    text = re.sub(r" ?\[More\]\([a-z]+:[^)]*\)\.?", "", text)
    return re.sub(r"\[([^\]]+)\]\([a-z]+:[^)]*\)", r"\1", text)


def _page(title: str, parts: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", NOTE, *(part for part in parts if part)]) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: object) -> str:
    return " ".join(str(text).replace("|", "\\|").split()) or " "


def _code(value: object) -> str:
    return "" if value in (None, "") else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _sentence(text: str) -> str:
    text = " ".join(text.split()).replace("<", "&lt;")
    return text[:1].upper() + text[1:]


PAGES: dict[str, Callable[[], str]] = {
    "settings": settings_page,
    "commands": commands_page,
    "api-routes": api_page,
    "proposition-files": propositions_page,
    "correction-settings": correction_page,
    "dimensions": dimensions_page,
    "glossary": glossary_page,
}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    os.environ.setdefault("DEBUG", "1")
    import django

    django.setup()
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (folder / f"{name}.md").write_text(made(), encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}.md\n")


if __name__ == "__main__":
    main()
