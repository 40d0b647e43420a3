"""Drafts files: loaded without being judged, made, added to, and never written over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.llm.ledger import totals
from agents.models import Agent
from evaluation.drafting.replacing import CannotWrite, replace_file
from evaluation.drafting.service import Drafted, draft_propositions
from evaluation.drafting.validation import Draft, Sieve
from evaluation.drafting.writing import parse, path_for, write_drafts
from evaluation.propositions.files import default_dimensions, load_file, propositions_for
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import HAND_WRITTEN, file_of, make_ada, proposal, reply
from tests.llm_server import LLMServer


# -- loading
def test_inactive_propositions_are_never_judged(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN)
    propositions.write("fluency/_default.yaml", 'propositions: [{id: x, claim: "x", active: false}]')
    file = load_file(path)

    assert [p.id for p in file.propositions] == ["kind"]
    assert [p.id for p in file.drafts] == ["short", "dry", "exact"]
    assert [p.id for p in propositions_for(agent_slug="ada", dimension="adherence")] == ["kind"]
    assert default_dimensions() == ("adherence",), "a dimension with drafts alone has nothing to measure"


def test_a_drafts_file_is_its_agents_even_without_saying_so(propositions: PropositionFolder) -> None:
    assert load_file(propositions.claims("adherence/ada.drafts.yaml", "x")).agent_id == "ada"


def test_what_was_rejected_cannot_be_active(propositions: PropositionFolder) -> None:
    path = propositions.claims("adherence/ada.yaml", "x", extra="rejected: true")

    with pytest.raises(Exception, match="rejected: true needs active: false"):
        load_file(path)


# -- writing


@pytest.mark.django_db
def test_drafts_are_written_with_a_header_and_read_back_as_they_were(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    odd = "is: \"dry\" # and \u00e9 \U0001f600 - {x}, [y] & *z !a %b @c `d` 'e' null, yes"
    llm_server.reply(**reply(proposal(f"{{{{agent_name}}}} {odd}", rule={"not_matches": "#\\w: '\"!{2,}"}), proposal()))
    found = draft_propositions(agent=make_ada())
    written = write_drafts(found, folder=propositions.path)

    assert written is not None
    assert (written.path, written.added, written.appended) == (file_of(propositions.path), 2, False)
    text = written.path.read_text()
    assert text.startswith("# Drafts of propositions about Ada Lund")
    assert "try_proposition" in text
    assert parse(text)[1]["propositions"] == [dict(d.entry) for d in found.drafts]
    file = load_file(written.path)
    assert (file.agent_id, file.propositions) == ("ada", ())
    assert [p.quote for p in file.drafts] == ["Sales talk makes you wince"] * 2
    assert [p.name for p in written.path.parent.iterdir()] == ["ada.drafts.yaml"]


@pytest.mark.django_db
@pytest.mark.parametrize("ending", ["", "\n", "\n\n# mine\n"])
def test_an_existing_file_is_only_added_to(llm_server: LLMServer, propositions: PropositionFolder, ending: str) -> None:
    path = propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN + ending)
    path.chmod(0o640)
    llm_server.reply(**reply(proposal()))
    written = write_drafts(draft_propositions(agent=make_ada()), folder=propositions.path)

    assert written is not None
    assert written.appended
    text = path.read_text()
    assert text.startswith((HAND_WRITTEN + ending).rstrip("\n"))
    assert "\n    - id: ada-sales-talk\n      active: false\n" in text
    assert [p.id for p in load_file(path).drafts] == ["short", "dry", "exact", "ada-sales-talk"]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text",
    [
        'propositions: [{id: x, claim: "x"}]\n',
        'propositions:\n  - {id: x, claim: "x"}\nfirst_n: 3\n',
        'propositions:\n  - {id: x, claim: "x"}\n...\n',
        'propositions:\n- id: x\n  claim: |\n    x',
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_added_to_is_left_alone(
    llm_server: LLMServer, propositions: PropositionFolder, text: str
) -> None:
    path = propositions.write("adherence/ada.drafts.yaml", text)
    llm_server.reply(**reply(proposal()))
    found = draft_propositions(agent=make_ada())

    with pytest.raises(CannotWrite, match="cannot be added to"):
        write_drafts(found, folder=propositions.path)
    assert path.read_text() == text


@pytest.mark.django_db
@given(claim=st.text(min_size=1, max_size=200), quote=st.text(max_size=60), phrase=st.text(min_size=1, max_size=40))
def test_whatever_a_model_writes_is_read_back_as_it_was_checked(
    tmp_path_factory: pytest.TempPathFactory, claim: str, quote: str, phrase: str
) -> None:
    agent = Agent(slug="ada", display_name=quote or "Ada", system_prompt="x")
    persona = f"two words {quote}"
    raw = proposal(f"{{{{agent_name}}}} {claim}", quote=f"two words {quote}", rule={"contains_none": [phrase]})
    found = [one for one in Sieve("ada", agent.display_name, persona).sift([raw], most=8) if isinstance(one, Draft)]
    outcome = Drafted(agent, claim, tuple(found), (), "", failed=False, spent=totals(work_id="none"))
    written = write_drafts(outcome, folder=tmp_path_factory.mktemp("drafts"))

    if written is not None:
        assert parse(written.path.read_bytes().decode())[1]["propositions"] == [dict(d.entry) for d in found]


@pytest.mark.parametrize("slug", ["", "../x", "a/b", ".hidden", ".."])
def test_a_slug_cannot_lead_out_of_the_folder(slug: str) -> None:
    with pytest.raises(CannotWrite, match="file name"):
        path_for(Path("somewhere"), slug)


# -- replacing
def test_a_file_that_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"theirs")

    with pytest.raises(CannotWrite, match="was changed meanwhile"):
        replace_file(path, b"ours", expected=b"as it was")
    with pytest.raises(CannotWrite, match="was changed meanwhile"):
        replace_file(path, b"ours", expected=None)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_leaves_the_next_one_s_half_written_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, half = tmp_path / "x.yaml", tmp_path / ".x.yaml.new"
    replace = Path.replace

    def replaced_and_begun_again(draft: Path, target: Path) -> Path:
        done = replace(draft, target)
        half.write_bytes(b"of the next writer")  # the moment the name is free
        return done

    monkeypatch.setattr(Path, "replace", replaced_and_begun_again)
    replace_file(path, b"ours", expected=None)

    assert path.read_bytes() == b"ours"
    assert half.read_bytes() == b"of the next writer"


def test_two_writers_take_turns_and_a_dead_one_holds_nobody_up(tmp_path: Path) -> None:
    path, half = tmp_path / "x.yaml", tmp_path / ".x.yaml.new"
    half.write_bytes(b"half")
    with pytest.raises(CannotWrite, match="is being written by somebody else"):
        replace_file(path, b"ours", expected=None)
    os.utime(half, (0, 0))
    replace_file(path, b"ours", expected=None)

    assert path.read_bytes() == b"ours"
    assert not half.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CannotWrite, match="cannot be written to: Permission denied"):
        replace_file(tmp_path / "x.yaml", b"ours", expected=None)


def test_what_the_system_refuses_is_said(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".yaml")
    with pytest.raises(CannotWrite, match="cannot be written to: File name too long"):
        replace_file(path, b"ours", expected=None)
    with pytest.raises(CannotWrite, match="cannot be written to"):
        replace_file(Path("/dev/null/x/y.yaml"), b"ours", expected=None)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_bytes(b"a")
    link.symlink_to(real)
    replace_file(link, b"b", expected=b"a")

    assert link.is_symlink()
    assert real.read_bytes() == b"b"
