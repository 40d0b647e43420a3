"""Suggestions: propositions that a model reads out of a persona, each with the persona's own words, until a person accepts or rejects it.

`suggest_for` asks the model, drops what cannot be quoted, is not valid or says nothing new, and `write_suggestions` adds the rest to a
YAML file as `active: false`. Nothing is repaired in a way that changes its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from django.conf import settings
from django.utils import timezone
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError

from agents.kit.llm import Block, Label, LLMRequest, Turn, complete
from agents.kit.llm.ledger import Totals, totals
from agents.kit.llm.requests import InvalidAnswer, describe_validation, object_schema
from agents.kit.llm.requests import short_line as shortened
from agents.kit.running import side_by_side
from agents.kit.text.fences import fence, new_nonce, one_line, render_prompt, safe_and_cut
from agents.kit.text.storable import storable
from agents.kit.text.tokens import tokenize
from agents.kit.text.voices import vocabulary
from agents.models import Agent
from agents.personas.persona import cut_persona, render_persona
from evaluation.budget import why_over_budget
from evaluation.dimensions import OF_PERSONA
from evaluation.drafting.editing import CannotSave, appended, as_file, decoded, parse, read_bytes, replace_file
from evaluation.models import is_heuristic
from evaluation.propositions.entries import free_id
from evaluation.propositions.files import DEFAULT, LoadedFile, applying, in_words, load_all, location_of
from evaluation.propositions.rules import Rule
from evaluation.propositions.schema import AGENT_NAME, Proposition, PropositionFile, PropositionSpec
from evaluation.wording import spent_json

PURPOSE = "drafting"
ENDING = ".suggestions.yaml"
MOST = 8  # suggestions for one persona
MOST_CUES = 40
LONGEST_PERSONA = 60_000  # characters
LONGEST_QUOTE = 500
FEWEST_WORDS = 2  # of a quote: "the" is in every persona and shows nothing
ALIKE = 0.75  # share of the words of two propositions that both have, from which they say the same
NEEDS_MODEL = (
    "suggestions need a model: set ANTHROPIC_API_KEY or JUDGE_MODEL, or name one with --model. "
    "Without a model, write propositions in the console (Quality › Propositions) or in a file of PROPOSITION_DIRS"
)


# -- what a model is asked
def _check_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a check of a rule, without limits: structured output knows few of them."""
    kind = Rule.model_json_schema()["properties"][name]["anyOf"][0]["type"]
    if kind == "array":
        return {"type": kind, "items": {"type": "string"}}
    return {"type": kind}


_TEXT_SCHEMA = {"type": "string"}
_TEXTS_SCHEMA = {"type": "array", "items": _TEXT_SCHEMA}
_SUGGESTION: dict[str, Any] = {
    "id": _TEXT_SCHEMA,
    "claim": _TEXT_SCHEMA,
    "inverted": {"type": "boolean"},
    "quote": _TEXT_SCHEMA,
    "rule": {
        "type": "object",
        "properties": {name: _check_schema(name) for name in Rule.model_fields},
        "required": [],
        "additionalProperties": False,
    },
    "supports": _TEXTS_SCHEMA,
    "contradicts": _TEXTS_SCHEMA,
    "recommendation": _TEXT_SCHEMA,
}
SCHEMA = object_schema({"proposals": {"type": "array", "items": object_schema(_SUGGESTION)}})
EXAMPLE: dict[str, Any] = {
    "proposals": [
        {
            "id": "short-answers",
            "claim": "{{agent_name}} answers in at most two sentences",
            "inverted": False,
            "quote": "You answer in two sentences at most.",
            "rule": {"max_sentences": 2},
            "supports": [],
            "contradicts": [],
            "recommendation": "Say the one thing that matters and stop.",
        },
        {
            "id": "marketing-language",
            "claim": "{{agent_name}} uses marketing language",
            "inverted": True,
            "quote": "Sales talk makes you wince",
            "rule": {},
            "supports": ["world class", "game changer"],
            "contradicts": ["to be fair", "honestly"],
            "recommendation": "Say it the way a person on the quay would.",
        },
    ]
}


def suggestions_request(
    *,
    name: str,
    persona: str,
    existing: Sequence[str],
    most: int,
    label: Label,
    model: str,
    nonce: str,
) -> LLMRequest:
    """Return the request for propositions about one persona.

    Args:
        name, persona: The agent's; data, never an instruction. A very long persona is cut.
        existing: Claims that are not to be suggested again.
        most: Most suggestions.
    """
    claims = "\n".join(f"- {_plain_line(claim)}" for claim in existing)
    cut = cut_persona(persona, LONGEST_PERSONA)
    text = render_prompt(
        "drafting/draft_persona",
        name=one_line(name),
        # `safe_and_cut` makes it safe inside the fence; its own limit, which cuts too, is out of reach.
        persona=fence("PERSONA", safe_and_cut(cut, 2 * LONGEST_PERSONA), nonce),
        existing=fence("EXISTING", claims, nonce) if claims else "",
        most=most,
    )
    return LLMRequest(
        role="judge",
        task="draft",
        system=(Block(render_prompt("drafting/draft"), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        label=label,
        schema=SCHEMA,
        parse=_read_proposals,
        example=EXAMPLE,
        reask=True,
        max_tokens=2 * (1000 + 500 * most),  # ample, for an answer that is cut cannot be read
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
    )


def _read_proposals(data: Any) -> list[Any]:
    """Return the list of an answer; each entry is validated on its own, so that a broken one does not cost the others."""
    items = data.get("proposals") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise InvalidAnswer("proposals: expected a list")
    return items


# -- asking
class Suggestion(NamedTuple):
    """A suggestion that can be used: the entry of a file, in the order of its fields, and as the loader reads it."""

    entry: Mapping[str, Any]
    spec: PropositionSpec


class Dropped(BaseModel):
    """A suggestion that cannot be used: its text, and why."""

    claim: str
    reason: str


class Suggestions(BaseModel):
    """The judge's suggestions about one agent, as `--json` prints it.

    Attributes:
        suggestions: Entries of a file. `usable`: the same, as the loader reads them, too.
        reason: Why nothing can be used; `failed`: no answer came that could be read.
        file, appended: Where they were written, and whether it was there before; `problem`: why they were not.
    """

    agent: str
    suggestions: list[dict[str, Any]]
    dropped: list[Dropped]
    reason: str
    failed: bool
    file: str | None = None
    appended: bool | None = None
    problem: str = ""
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced_calls: int
    agent_row: SkipValidation[Any] = Field(exclude=True)
    judge: str = Field(exclude=True)
    usable: SkipValidation[Sequence[Suggestion]] = Field(exclude=True)
    spent: SkipValidation[Totals] = Field(exclude=True)


def suggest_for(
    *,
    agents: Sequence[Agent],
    model: str = "",
    most: int = MOST,
    done: Callable[[], None] = lambda: None,
) -> list[Suggestions]:
    """Suggest rules, cues and anti-patterns from the personas of several agents, asked at the same time.

    What exists already, active, suggested or rejected, is not suggested again. Every call has its row in the ledger.

    Args:
        agents: Whose; the result has one entry for each, in their order.
        model: Overrides the configured judge.
        most: Most suggestions per agent, 1 to 50.
        done: Called after each agent, in any thread.

    Raises:
        ValueError: `most` makes no sense, or the judge is no model.
        PropositionError: Proposition files cannot be used, so that what exists is not known.
    """
    judge = model or str(settings.JUDGE_MODEL)
    if is_heuristic(judge):
        raise ValueError(NEEDS_MODEL)
    if not 1 <= most <= 50:
        raise ValueError(f"max {most}: 1 to 50")
    files = load_all()

    def suggest(agent: Agent) -> Suggestions:
        suggestions = _suggest_for_one(agent, judge, most, files)
        done()
        return suggestions

    return side_by_side([partial(suggest, agent) for agent in agents], settings.LLM_MAX_CONCURRENCY)


def _suggest_for_one(agent: Agent, judge: str, most: int, files: Sequence[LoadedFile]) -> Suggestions:
    """Ask the model about one agent and return what can be used of its answer; where it is not asked or fails, why.

    Args:
        files: All proposition files: ids in any of them are in use, claims in those about the agent are not suggested again.
    """
    nonce = new_nonce()
    work_id = f"{PURPOSE}:{agent.pk}:{nonce}"
    own_files = [file for file in applying(files, seeded=agent.seeded) if file.agent_id in (agent.slug, DEFAULT)]
    why_not = _why_not_asked(agent, judge, own_files)
    if why_not:
        return _build_suggestions(agent, judge, work_id, reason=why_not)
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    existing = _propositions_of(
        file for file in own_files if file.dimension == OF_PERSONA and file.level == "evaluation"
    )
    request = suggestions_request(
        name=agent.display_name,
        persona=persona,
        existing=[proposition.claim for proposition in existing],
        most=most,
        label=Label(purpose=PURPOSE, dimension=OF_PERSONA, agent_id=agent.pk, work_id=work_id),
        model=judge,
        nonce=nonce,
    )
    reply = complete(request, deadline=settings.LLM_EVALUATION_DEADLINE)
    if not reply.ok:
        return _build_suggestions(agent, judge, work_id, reason=f"{reply.status}: {reply.error}")
    sifted = sift(
        reply.value,
        slug=agent.slug,
        name=agent.display_name,
        persona=persona,
        existing=existing,
        in_use=[proposition.id for proposition in _propositions_of(files)],
        most=most,
    )
    return _build_suggestions(agent, judge, work_id, reason=sifted.why_nothing, sifted=sifted)


def _why_not_asked(agent: Agent, judge: str, own_files: Sequence[LoadedFile]) -> str:
    """Return why the model is not asked about an agent: a file of it is broken, or its budget is used up; empty when it is."""
    for file in own_files:
        if file.problems:
            return f"what it has cannot be read: {file.problems[0]}"
    return why_over_budget(agent, judge) or ""  # None: nothing is capped


def _propositions_of(files: Iterable[LoadedFile]) -> list[Proposition]:
    """Return the propositions of files, also those that are not judged."""
    propositions: list[Proposition] = []
    for file in files:
        propositions += file.propositions
        propositions += file.inactive
    return propositions


def _build_suggestions(
    agent: Agent, judge: str, work_id: str, *, reason: str, sifted: Sifted | None = None
) -> Suggestions:
    """Return what came of asking about an agent, with what its calls cost.

    Args:
        reason: Why nothing can be used; empty when something can.
        sifted: None: no answer came that could be read, so the result is `failed`.
    """
    spent = totals(work_id=work_id)
    usable = sifted.usable if sifted else []
    return Suggestions(
        agent=agent.slug,
        suggestions=[dict(suggestion.entry) for suggestion in usable],
        dropped=sifted.dropped if sifted else [],
        reason=reason,
        failed=sifted is None,
        **spent_json(spent),
        agent_row=agent,
        judge=judge,
        usable=usable,
        spent=spent,
    )


# -- what of an answer can be used
class Unusable(ValueError):
    """A suggestion that cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The answers of a model that can be used, and the others each with the reason against it."""

    usable: list[Suggestion]
    dropped: list[Dropped]

    @property
    def why_nothing(self) -> str:
        """Return why nothing can be used; empty when something can."""
        if self.usable:
            return ""
        return "nothing new that can be used" if self.dropped else "the model suggested nothing"


class _Answer(BaseModel):
    """One entry of an answer. What it says beyond this (a weight, that it is active) is ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    claim: str
    quote: str
    id: str = ""
    inverted: bool = False
    rule: Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)] = {}
    supports: Annotated[list[str], BeforeValidator(lambda value: [] if value is None else value)] = []
    contradicts: Annotated[list[str], BeforeValidator(lambda value: [] if value is None else value)] = []
    recommendation: str = ""


def sift(
    answers: Sequence[Any],
    *,
    slug: str,
    name: str,
    persona: str,
    existing: Iterable[Proposition] = (),
    in_use: Iterable[str] = (),
    most: int = MOST,
) -> Sifted:
    """Return what can be used of a model's answers, in their order, and the others each with the reason against it.

    Args:
        slug, name, persona: The agent's; each answer must quote the persona.
        existing: What an answer may not say again; nor may it say what an earlier answer does.
        in_use: Ids that a suggestion cannot have.
        most: Most that are used; those after them are dropped.
    """
    sifted = Sifted([], [])
    ids: set[str] = set(in_use)
    propositions: list[Proposition | PropositionSpec] = list(existing)
    for raw in answers:
        try:
            suggestion = _read_suggestion(storable(raw), slug, name, persona, ids)
            same = next((other.id for other in propositions if _says_the_same(suggestion.spec, other)), "")
            if same:
                raise Unusable(f"says the same as {same}")
            if len(sifted.usable) == most:
                raise Unusable(f"there are {most} suggestions already")
        except Unusable as problem:
            sifted.dropped.append(Dropped(claim=_claim_text(raw), reason=str(problem)))
        else:
            sifted.usable.append(suggestion)
            ids.add(suggestion.spec.id)
            propositions.append(suggestion.spec)
    return sifted


def _claim_text(raw: Any) -> str:
    """Return the claim of an answer, or what there is instead of one, for a person."""
    text = raw.get("claim") if isinstance(raw, dict) else raw
    return shortened(text if isinstance(text, str) else repr(text), 120)


def _read_suggestion(raw: Any, slug: str, name: str, persona: str, in_use: set[str]) -> Suggestion:
    """Return an answer as an entry of a file, inactive.

    Raises:
        Unusable: It has not the form asked for, its quote is not in the persona, it does not speak of the agent, or the loader of
            proposition files refuses it.
    """
    try:
        answer = _Answer.model_validate(raw)
    except ValidationError as error:
        raise Unusable(describe_validation(error)) from None
    problem = _quote_problem(answer.quote, persona)
    if problem:
        raise Unusable(problem)
    entry = _entry_of(answer, slug, name, in_use)
    try:
        file = PropositionFile.model_validate({"dimension": OF_PERSONA, "agent_id": slug, "propositions": [entry]})
    except ValidationError as error:
        first = dict(error.errors()[0])
        field = ".".join(str(part) for part in location_of(first)[2:])  # without ("propositions", 0)
        text = shortened(in_words(first, list(PropositionSpec.model_fields)), 200)
        raise Unusable(f"{field}: {text}" if field else text) from None
    return Suggestion(entry, file.propositions[0])


def _entry_of(answer: _Answer, slug: str, name: str, in_use: set[str]) -> dict[str, Any]:
    """Return the fields of an answer in the order of a file, inactive, with the agent's name replaced by ``{{agent_name}}``.

    Cues are left out where there is a rule, which excludes them.

    Raises:
        Unusable: The claim does not speak of the agent, or the rule is inverted or holds characters that cannot be seen.
    """
    claim = _plain_line(answer.claim)
    if name:
        claim = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", AGENT_NAME, claim)
    if AGENT_NAME not in claim:
        raise Unusable(f"the claim does not speak of {AGENT_NAME}")
    rule = _clean_rule(answer.rule)
    if rule and answer.inverted:
        raise Unusable("a rule says what must hold, it is not inverted")
    has_id = re.search(r"[a-zA-Z0-9]", answer.id)  # else an id is made of the claim
    entry: dict[str, Any] = {
        "id": free_id(slug, answer.id if has_id else claim, in_use=in_use),
        "active": False,
        "claim": claim,
    }
    if answer.inverted:
        entry["inverted"] = True
    advice = _plain_line(answer.recommendation)
    if advice:
        entry["recommendations_for_improvement"] = advice
    cues = _clean_cues(answer)
    if rule:
        entry["rule"] = rule
    elif cues:
        entry["cues"] = cues
    entry["source"] = _bare_quote(_plain_line(answer.quote))
    return entry


def _clean_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checks of a rule that check something (empty ones and ``false`` are left out), lists with plain texts.

    Raises:
        Unusable: One holds characters that cannot be seen.
    """
    checks: dict[str, Any] = {}
    for name, value in rule.items():
        if value in (None, False, "", []):
            continue
        if isinstance(value, str) and not value.isprintable():
            raise Unusable(f"rule.{name}: holds characters that cannot be seen")
        if isinstance(value, list):
            value = [_plain_line(member) if isinstance(member, str) else member for member in value]
        checks[name] = value
    return checks


def _clean_cues(answer: _Answer) -> dict[str, list[str]]:
    """Return the phrases for and against, those lists that are not empty."""
    cues = {"supports": _plain_phrases(answer.supports), "contradicts": _plain_phrases(answer.contradicts)}
    return {name: phrases for name, phrases in cues.items() if phrases}


def _plain_phrases(phrases: Sequence[str]) -> list[str]:
    """Return phrases as plain texts, each once, at most 40."""
    plain = dict.fromkeys(_plain_line(phrase) for phrase in phrases)
    return [phrase for phrase in plain if phrase][:MOST_CUES]


def _plain_line(text: str) -> str:
    """Return text on one line, safe to show in a prompt or page (see `safe_and_cut`, which also cuts a very long one)."""
    return " ".join(safe_and_cut(text).split())


# -- quotes
_LOOK_ALIKES = ("'\u2019\u2018", '"\u201c\u201d\u201e', "-\u2010\u2011\u2013\u2014")
_PATTERN_OF_CHARACTER = {character: f"[{re.escape(group)}]" for group in _LOOK_ALIKES for character in group}
_AROUND_A_QUOTE = ' \t\r\n"\u201c\u201d\u201e\u00ab\u00bb'


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Return where the quote stands in the text, as start and end; None where it does not.

    Case, white space and the shape of quotation marks and dashes do not matter, nor marks around the quote; every word does.
    """
    words = _bare_quote(quote).split()
    if not words:
        return None
    pattern = r"\s+".join(_word_pattern(word) for word in words)
    first_character = words[0][0]
    last_character = words[-1][-1]
    # Word boundaries mean something only in scripts with spaces between words.
    if first_character.isascii() and first_character.isalnum():
        pattern = "(?<![a-z0-9])" + pattern
    if last_character.isascii() and last_character.isalnum():
        pattern += "(?![a-z0-9])"
    match = re.search(pattern, text, re.IGNORECASE)
    return match.span() if match else None


def _word_pattern(word: str) -> str:
    return "".join(_PATTERN_OF_CHARACTER.get(character, re.escape(character)) for character in word)


def _quote_problem(quote: str, persona: str) -> str:
    """Return why a quote shows nothing: too long, too short, or not in the persona; empty when it does."""
    if len(quote) > LONGEST_QUOTE:
        return f"its quote is longer than {LONGEST_QUOTE} characters"
    if len(tokenize(_bare_quote(quote))) < FEWEST_WORDS:
        return f"its quote is shorter than {FEWEST_WORDS} words"
    if find_quote(quote, persona) is None:
        return "no such words in the persona"
    return ""


def _bare_quote(quote: str) -> str:
    """Return a quote on one line, without quotation marks around it and dots at its end."""
    return " ".join(quote.split()).strip(_AROUND_A_QUOTE).removesuffix("\u2026").removesuffix("...").strip()


# -- sameness
# What turns a proposition into its opposite: one and the anti-pattern of its opposite are the same.
_NEGATIONS = frozenset("no not never without avoid avoids doesn't don't isn't".split())  # noqa: SIM905 (words)


def _says_the_same(proposition: Proposition | PropositionSpec, other: Proposition | PropositionSpec) -> bool:
    """Return whether both have one and the same rule, or share three quarters of their words.

    Two rules are compared by their checks alone. Negations do not count, so one and the anti-pattern of its opposite are the same.
    """
    if proposition.rule and other.rule:
        return proposition.rule.checks() == other.rule.checks()
    words = _words_of(proposition)
    other_words = _words_of(other)
    if not words and not other_words:
        return False
    return len(words & other_words) / len(words | other_words) >= ALIKE


def _words_of(proposition: Proposition | PropositionSpec) -> frozenset[str]:
    return vocabulary([proposition.claim.replace(AGENT_NAME, " ")]) - _NEGATIONS


# -- storing
def path_for(folder: Path, slug: str) -> Path:
    """Return the file of an agent's suggestions.

    Raises:
        CannotSave: The slug is no file name.
    """
    if not slug or Path(slug).name != slug or slug.startswith("."):
        raise CannotSave(f"the agent's slug {slug!r} cannot be part of a file name")
    return folder / OF_PERSONA / f"{slug}{ENDING}"


def write_suggestions(suggestions: Suggestions, *, folder: Path) -> None:
    """Add suggestions about one agent to its file in `folder`; what is there already stays as it is, byte for byte.

    The path is noted in `suggestions.file`, and whether the file was there before in `appended`. Without usable ones nothing happens.

    Raises:
        CannotSave: The file cannot be added to, or is read-only, and nothing was written.
    """
    if not suggestions.usable:
        return
    agent: Agent = suggestions.agent_row
    path = path_for(folder, agent.slug)
    before = read_bytes(path)
    entries = [suggestion.entry for suggestion in suggestions.usable]
    comment = f"suggested on {timezone.localdate().isoformat()} by {_comment_text(suggestions.judge)}"
    if before is None:
        head = {"dimension": OF_PERSONA, "agent_id": agent.slug}
        content = _file_comment(agent, path, str(entries[0]["id"])) + as_file(head, entries, comment)
        # What is read back must be what was meant.
        if parse(content, path)["propositions"] != list(map(dict, entries)):
            raise CannotSave(f"{path}: the suggestions cannot be written as YAML")
    else:
        content = appended(decoded(before, path), entries, path, comment)
    replace_file(path, content.encode(), expected=before)
    suggestions.file = str(path)
    suggestions.appended = before is not None


def _file_comment(agent: Agent, path: Path, first_id: str) -> str:
    """Return the comment that a new file of suggestions begins with."""
    return f"""\
# Propositions about {_comment_text(agent.display_name)}, suggested from the persona. Nothing here is judged before you accept it.
#   accept   write `active: true` (or use the console: Measuring, Propositions)
#   reject   add `rejected: true`, so that it is not suggested again
#   try      manage.py try_proposition {_comment_text(str(path))}:{first_id} --agent {_comment_text(agent.slug)}
# `source` holds the words of the persona. The file is yours: later suggestions are only added to its end.
"""


def _comment_text(text: str) -> str:
    """Return text that stays inside of a comment."""
    return " ".join(safe_and_cut(text, 300).split())
