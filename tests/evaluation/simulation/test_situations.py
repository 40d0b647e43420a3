"""Files of situations: ours, and a team's with whatever is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.propositions.files import YamlProblems
from evaluation.simulation.situations import load_situations, situations_digest
from tests.evaluation.simulation.acting import situation


def written(folder: Path, text: str) -> Path:
    path = folder / "ours.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(YamlProblems) as caught:
        load_situations(path)
    return str(caught.value)


def test_ten_situations_are_shipped_ac_6_5_2() -> None:
    result = load_situations()

    assert len(result) == len({situation.id for situation in result}) == 10
    assert all(1 <= len(situation.lines) <= 4 for situation in result)
    assert all(situation.description for situation in result)


def test_a_teams_file_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "situations:\n  - {id: refund, speaker: '  A  customer ', lines: [' Where is my money? ', そうですか]}\n",
    )

    assert load_situations(path) == (situation("refund", "Where is my money?", "そうですか", speaker="A customer"),)


@pytest.mark.parametrize(
    ("text", "line", "field", "message"),
    [
        ("situations: []", 1, "situations", "at least 1 item"),
        
        
        
        
        ("situations:\n  - id: a\n    lines: [x, 7]", 3, "situations[0].lines[1]", "should be a valid string (got 7)"),
        ("situations:\n  - id: a\n    lines: [' ']", 3, "situations[0].lines[0]", "empty; allowed: text that is not"),
        ('situations:\n  - id: a\n    lines: ["\\0"]', 3, "situations[0].lines[0]", "holds a NUL character"),
        ("situations:\n  - id: A b\n    lines: [x]", 2, "situations[0].id", "should match pattern '^[a-z0-9]"),
        ("situations:\n  - {id: a, lines: [x]}\n  - {id: a, lines: [y]}", 1, "situations", "'a' stands twice"),
        ("situations:\n  - id: a\n    lines: [x]\n    mood: 3", 4, "situations[0].mood", "allowed: id, description, speaker"),
        
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_line_field_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, field: str, message: str
) -> None:
    path = written(tmp_path, text)

    words = complaint(path)

    assert f"{path}:{line}: {field}: " in words
    assert message in words


def test_what_the_agent_hears_makes_the_digest_and_nothing_else_does() -> None:
    base = situation("a", "x")

    assert situations_digest([base]) == situations_digest([situation("a", "x", description="new words")])
    assert situations_digest([base]) != situations_digest([situation("a", "y")])
    assert situations_digest([base]) != situations_digest([situation("a", "x", speaker="Zed")])
