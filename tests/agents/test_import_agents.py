"""Personas in every format that import_agents reads."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from agents.personas.persona import TraitValue, save_persona
from tests.agents.transcripts.helpers import run_json, write

pytestmark = pytest.mark.django_db

OURS = """\
slug: mara
display_name: Mara Lind
title: Night porter
avatar_color: "#1d4ed8"
system_prompt: |
  You are Mara. You speak in short sentences.
traits:
  - {name: dry humour, description: "rarely smiles", sentiment: 0.5, strength: 0.8}
  - {name: Small talk, strength: 0}
memory_blocks:
  - {label: personality, value: Calm.}
sample_lines:
  - "Keys are on the hook."
"""


def card(**data: Any) -> dict[str, Any]:
    return {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Vex", **data}}


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, body in (*chunks, (b"IEND", b"")):
        parts.append(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(parts)


def text_chunk(keyword: bytes, value: Any) -> tuple[bytes, bytes]:
    return b"tEXt", keyword + b"\x00" + base64.b64encode(json.dumps(value).encode())


def test_aliases_are_imported_and_a_wrong_one_is_refused_by_field(tmp_path: Path) -> None:
    run_json("import_agents", write(tmp_path, "mara.yaml", OURS + "aliases: [The Owl, ' Mo ']\n"))
    assert Agent.objects.get().aliases == ["The Owl", "Mo"]

    with pytest.raises(
        CommandError, match=r"'aliases' is a list: Aliases are \['@mo'\]; allowed: a list of at most 20 names"
    ):
        call_command("import_agents", write(tmp_path, "mara.yaml", OURS + "aliases: ['@mo']\n"))


def test_our_yaml_gives_agent_traits_memory_lines_and_a_first_version(tmp_path: Path) -> None:
    report = run_json("import_agents", write(tmp_path, "mara.yaml", OURS))
    agent = Agent.objects.get()
    assert (agent.slug, agent.display_name, agent.title) == ("mara", "Mara Lind", "Night porter")
    assert agent.system_prompt == "You are Mara. You speak in short sentences."
    assert agent.sample_lines == ["Keys are on the hook."]
    assert list(agent.traits.values_list("name", "sentiment", "strength")) == [
        ("dry humour", 0.5, 0.8),
        ("Small talk", 0.0, 0.0),
    ]
    assert list(agent.memory_blocks.values_list("label", "value")) == [("personality", "Calm.")]
    assert agent.persona_versions.count() == 1
    assert report["agents"] == [{"slug": "mara", "display_name": "Mara Lind", "outcome": "created", "changed": []}]


def test_a_persona_that_a_person_edited_is_kept_unless_reset(tmp_path: Path) -> None:
    path = write(tmp_path, "mara.yaml", OURS)
    run_json("import_agents", path)
    agent = Agent.objects.get()
    agent.system_prompt = "You are Mara and you shout."
    save_persona(agent=agent, traits=[TraitValue("loud")], note="edited in the admin")
    err = io.StringIO()
    report = run_json("import_agents", path, stderr=err)
    assert report["kept_edited"] == 1
    assert "mara. --reset overwrites them" in err.getvalue()
    assert Agent.objects.get().system_prompt == "You are Mara and you shout."
    assert run_json("import_agents", path, reset=True)["updated"] == 1
    assert Agent.objects.get().system_prompt == "You are Mara. You speak in short sentences."


def test_a_dry_run_says_what_would_happen_and_changes_nothing(tmp_path: Path) -> None:
    path, out = write(tmp_path, "mara.yaml", OURS), io.StringIO()
    report = run_json("import_agents", path, dry_run=True)
    assert (report["created"], report["dry_run"]) == (1, True)
    call_command("import_agents", path, stdout=out, dry_run=True)
    assert all(text in out.getvalue() for text in ("Mara Lind", "created", "Dry run: nothing was changed."))
    assert not Agent.objects.exists()


def test_a_list_in_json_and_names_made_from_what_is_there(tmp_path: Path) -> None:
    people = [{"display_name": "Zoë Ärm", "system_prompt": "p"}, {"slug": "bo-lee", "system_prompt": "p"}]
    run_json("import_agents", write(tmp_path, "all.json", json.dumps(people)))
    assert set(Agent.objects.values_list("slug", "display_name")) == {("zoe-arm", "Zoë Ärm"), ("bo-lee", "Bo Lee")}


def test_a_folder_of_prompts_one_per_character(tmp_path: Path) -> None:
    write(tmp_path, "old_sailor.md", "Preface\n\n# Captain Ines #\nYou sail.\n\n## Voice\nSalty.\n")
    write(tmp_path, "cook.txt", "\ufeffYou cook.\x00")
    write(tmp_path, "README.md", "# How to\nNot a character.")
    write(tmp_path, ".hidden.md", "No.")
    write(tmp_path, "notes.csv", "a,b")
    run_json("import_agents", tmp_path)
    agents = {agent.slug: agent for agent in Agent.objects.all()}
    assert {slug: agent.display_name for slug, agent in agents.items()} == {
        "old_sailor": "Captain Ines",
        "cook": "Cook",
    }
    assert "## Voice\nSalty." in agents["old_sailor"].system_prompt
    assert agents["cook"].system_prompt == "You cook.\ufffd"


def test_a_folder_may_mix_formats_and_names_no_one_twice(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", OURS)
    write(tmp_path, "b.json", json.dumps(card(description="d")))
    assert run_json("import_agents", tmp_path)["created"] == 2
    write(tmp_path, "mara.md", "You are another Mara.")
    with pytest.raises(CommandError, match=r"mara.md: a second persona with the slug 'mara'; the first is in .*a.yaml"):
        call_command("import_agents", tmp_path)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_character_cards_of_every_version(tmp_path: Path, version: str) -> None:
    data = {
        "name": "Vex",
        "description": "{{char}} is a fox. <BOT> likes {{user}}.",
        "personality": "sly",
        "scenario": "A den.",
        "system_prompt": "{{original}}\nNever break character.",
        "creator_notes": "For tests.",
        "first_mes": "The den is dark.",
        "mes_example": "<START>\n{{user}}: Hello?\n{{char}}: Who asks, {{user}}?\nCome closer.\n<START>\n{{char}}: No.\n{{Char}}: No.\n",
    }
    complete = data if version == "1" else {"spec": f"chara_card_v{version}", "data": data}
    run_json("import_agents", write(tmp_path, "vex.json", json.dumps(complete)))
    agent = Agent.objects.get()
    assert (agent.slug, agent.description) == ("vex", "For tests.")
    assert agent.system_prompt == (
        "You are Vex.\n\nNever break character.\n\n## Description\nVex is a fox. Vex likes the user.\n\n"
        "## Personality\nsly\n\n## Scenario\nA den."
    )
    assert agent.sample_lines == ["Who asks, User?\nCome closer.", "No."]


def test_a_png_card_is_read_and_version_three_wins(tmp_path: Path) -> None:
    old, new = card(description="old"), card(description="new")
    chunks = ((b"IHDR", b"\x00" * 13), text_chunk(b"Comment", "x"), text_chunk(b"chara", old), text_chunk(b"ccv3", new))
    run_json("import_agents", write(tmp_path, "vex.png", png(*chunks)))
    assert "new" in Agent.objects.get().system_prompt


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GIF89a", "not a PNG file"),
        (png((b"IHDR", b"\x00" * 13)), "the PNG holds no character card"),
        (png((b"tEXt", b"chara\x00not base64 of json")), "does not hold base64 of JSON"),
        (png(text_chunk(b"chara", card(description="d")))[:40], "the PNG is damaged: a chunk of"),
        (png(text_chunk(b"chara", card(description="d")))[:-16] + b"\x00" * 16, "wrong checksum"),
        (png(text_chunk(b"chara", [1])), "does not hold a JSON object"),
    ],
)
def test_a_png_that_is_none_or_damaged_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(CommandError, match=f"vex.png: .*{reason}"):
        call_command("import_agents", write(tmp_path, "vex.png", data))


def test_tinytroupe_personas_keep_every_key_and_invent_no_traits(tmp_path: Path) -> None:
    persona = {
        "name": "Ann Lee",
        "age": 41,
        "country_of_residence": None,
        "occupation": {"title": "Baker", "organization": "Own shop"},
        "personality": {"traits": ["You are blunt."], "big_five": {"openness": "Low."}},
        "behaviors": {"routines": {"morning": ["Bakes.", "Sings."]}},
        "relationships": [{"name": "Bo", "description": "Your brother."}, {"name": "Cy", "since": 1999}],
        "other_facts": [],
        "likes_bread": True,
    }
    write(tmp_path, "one.agent.json", json.dumps({"type": "TinyPerson", "persona": persona, "mental_faculties": []}))
    run_json("import_agents", tmp_path / "one.agent.json")
    agent = Agent.objects.get()
    assert (agent.slug, agent.display_name, agent.title, agent.description) == (
        "ann-lee",
        "Ann Lee",
        "Baker",
        "Baker, 41",
    )
    assert not agent.traits.exists()
    assert agent.system_prompt == (
        "You are Ann Lee.\n\n## Age\n41\n\n## Country of residence\nnot specified\n\n"
        "## Occupation\n- Title: Baker\n- Organization: Own shop\n\n"
        "## Personality\n### Traits\n- You are blunt.\n### Big five\n- Openness: Low.\n\n"
        "## Behaviors\n### Routines\n#### Morning\n- Bakes.\n- Sings.\n\n"
        "## Relationships\n- Bo: Your brother.\n- Name: Cy; Since: 1999\n\n## Other facts\nnot specified\n\n## Likes bread\nyes"
    )
    listed = write(tmp_path, "all.json", json.dumps([{"agent": "Ann Lee", "persona": persona}]))
    assert run_json("import_agents", listed)["unchanged"] == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            OURS.replace("h: 0.8", "h: 1.8"),
            r"a.yaml: 'traits\[0\].strength' is 1.8: .* less than or equal to 1",
        ),
        (OURS.replace("Small talk", "DRY humour"), "'traits' is a list: name 'DRY humour' occurs twice"),
        (OURS.replace("title:", "titel:"), "unknown field 'titel'; allowed: slug, display_name, system_prompt"),
        ("display_name: X\n", "'system_prompt' is missing"),
        ("display_name: [1\n", "line [12]: not valid YAML"),
        ("- just text\n", "a persona is an object"),
        ("[]\n", "the file holds no persona"),
        ("!!python/object/apply:os.system [ls]\n", "not valid YAML"),
        (
            OURS.replace("value:", "values:"),
            r"unknown field 'memory_blocks\[0\].values'; allowed: label, value",
        ),
    ],
)
def test_errors_in_yaml_name_the_field_and_what_is_allowed(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_agents", write(tmp_path, "a.yaml", text))
    assert not Agent.objects.exists()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "a.json",
            '[{"slug": "a", "system_prompt": "p"},\n {"slug": "b", "system_prompt": 5}]',
            "persona 2: 'system_prompt' is 5",
        ),
        (
            "a.json",
            '{"type": "Fragment", "persona": {"age": 3}}',
            "'persona.name' is missing; a fragment is no persona",
        ),
        ("a.json", json.dumps(card(description="  ")), "the character card has no description"),
        ("a.json", '{"spec": "chara_card_v2", "data": {}}', "'data.name' of the character card is missing"),
        ("a.json", '{"slug": "a", "system_prompt": "p", "system_prompt": "q"}', "the key 'system_prompt' occurs twice"),
        pytest.param("a.md", "\0" * 64, "NUL bytes", id="NUL-md"),
        pytest.param("a.txt", "\0".join("You are A."), "NUL bytes", id="UTF-16-without-BOM"),
        ("a.exe", "x", "unknown kind of file '.exe'; allowed: .yaml"),
    ],
)
def test_what_is_wrong_in_other_files_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_agents", write(tmp_path, name, text))
    assert not Agent.objects.exists()
