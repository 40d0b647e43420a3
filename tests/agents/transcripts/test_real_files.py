"""Public conversations, when a copy of them lies beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from agents.models import Agent
from tests.agents.transcripts.helpers import exported, run_json, write

DATA: Path = settings.BASE_DIR.parent / "shared" / "data"
pytestmark = [pytest.mark.django_db, pytest.mark.skipif(not DATA.is_dir(), reason="no public data beside the checkout")]


def test_a_group_session_with_its_personas(tmp_path: Path) -> None:
    agents = run_json("import_agents", DATA / "tinytroupe" / "session-1.personas.json")
    assert agents["created"] == 4
    assert run_json("import_agents", DATA / "tinytroupe" / "session-1.personas.json")["unchanged"] == 4
    report = run_json("import_transcript", DATA / "tinytroupe" / "session-1.jsonl")
    assert (report["format"], report["imported"], report["skipped"]) == ("jsonl", 78, 0)
    assert {name: entry["agent"] for name, entry in report["speakers"].items()} == {
        "USER": None, "Benjamin Carter": "benjamin-carter", "Benjamin Hall": "benjamin-hall", "Chloe Turner": "chloe-turner",
        "Clara Johnson": "clara-johnson",
    }  # fmt: skip
    assert "never more than two sentences at a time" in Agent.objects.get(slug="clara-johnson").system_prompt
    copy = exported("session-1")
    assert run_json("import_transcript", write(tmp_path, "copy.jsonl", copy))["imported"] == 0


@pytest.mark.parametrize(
    ("name", "form", "channels", "messages"),
    [
        ("01_openai_chat_messages.json", "openai", 1, 41),
        ("05_sharegpt_fastchat_ids.json", "sharegpt", 12, 48),
        ("11_hh_human_assistant_text.jsonl", "hh", 4, 30),
        ("12_inspect_evallog.json", "openai", 3, 6),
    ],
)
def test_public_transcripts(name: str, form: str, channels: int, messages: int) -> None:
    report = run_json("import_transcript", DATA / "transcripts" / name)
    assert (report["format"], len(report["channels"]), report["imported"]) == (form, channels, messages)
    assert run_json("import_transcript", DATA / "transcripts" / name)["duplicates"] == messages
