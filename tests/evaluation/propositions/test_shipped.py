"""The proposition files that are shipped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from django.conf import settings as configured

from evaluation.propositions.files import DEFAULT, load_file, propositions_for
from evaluation.propositions.schema import PropositionFile


# -- what is shipped
def shipped() -> list[Path]:
    return sorted(Path(configured.PROPOSITIONS_DIR).rglob("*.yaml"))


def test_shipped_files_load_and_no_id_stands_twice() -> None:
    counts: Counter[str] = Counter()
    for path in shipped():
        result = load_file(path)
        counts.update(p.id for p in result.propositions)

        assert result.dimension == path.parent.name
        assert result.agent_id == path.stem.removesuffix(".action").replace("simulated_user", "simulated-user")
        assert result.level == ("action" if path.stem.endswith(".action") else "evaluation")
        assert all(p.recommendations or p.rule for p in result.propositions)
    assert [name for name, count in counts.items() if count > 1] == []


def test_only_adherence_is_shipped_with_personas_ac_6_0_9_ac_6_2_4_ac_6_3_5_ac_6_4_6_ac_6_6_5() -> None:
    personas = {(p.dimension, p.include_personas) for path in shipped() for p in load_file(path).propositions}

    assert ("adherence", True) in personas
    assert not personas & {(name, True) for name in ("consistency", "fluency", "convergence", "ideas_quantity")}


def test_channel_dimensions_are_shipped_as_environment_ac_6_4_5_ac_6_6_5() -> None:
    targets = {(p.dimension, p.target_type) for path in shipped() for p in load_file(path).propositions}

    assert {d for d, target in targets if target == "environment"} >= {"convergence", "ideas_quantity"}
    assert {d for d, target in targets if target == "agent"} >= {"adherence", "consistency", "fluency"}


SETS = (DEFAULT, "simulated_user")  # those of no example agent
AGENTS = [path.stem for path in shipped() if path.parent.name == "adherence" and not path.stem.startswith(SETS)]


def test_each_of_sixteen_agents_has_six_to_ten_propositions_of_its_own() -> None:
    assert len(AGENTS) == 16
    for slug in AGENTS:
        asked = propositions_for(agent_slug=slug, dimension="adherence", seeded=True)
        own = [p for p in asked if p.source.startswith(slug)]

        assert 6 <= len(own) <= 10
        assert any(p.inverted for p in own)
        assert all(p.rule or p.cues for p in own), "the offline judge needs something to go by"


def test_the_json_schema_for_editors_is_the_current_one() -> None:
    stored = json.loads((Path(configured.PROPOSITIONS_DIR) / "schema.json").read_text(encoding="utf-8"))

    assert stored == PropositionFile.model_json_schema(), (
        "manage.py check_propositions --schema > propositions/schema.json"
    )
