"""The gate for drafts of other programs: judged like an agent's own, logged apart. No message is sent and no agent is made.

A request may bring propositions for a persona that has no files here: the schema of the files, within bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import IntegrityError
from pydantic import ValidationError

from agents.llm.ledger import Totals, totals
from agents.models import Agent, LLMCall
from correction.config.settings import GATE_DIMENSIONS, ResolvedConfig, resolve_config, resolve_defaults
from correction.gate.check import Action, GateResult, check_action_quality, persona_of
from correction.gate.stage import GateSession, best_attempt, feedback, load_attempts, open_session, write
from correction.models import CorrectionLog
from evaluation.propositions.files import LoadedFile, dotted, in_words, location_of
from evaluation.propositions.schema import PropositionFile, PropositionSpec, resolve
from evaluation.scorers.subjects import Event

OWNER = ""  # no agent's slug and no file's: what is read here holds for no other agent
MOST_PROPOSITIONS = 20  # of all dimensions; each may need a call of its own
MOST_PHRASES = 200  # of all rules and cues; each is looked for in the draft
NO_REGEX = "regular expressions stand in files only; allowed here: phrases"


def read_propositions(data: Sequence[Any]) -> tuple[LoadedFile, ...]:
    """Files as a request sends them, each an object with ``dimension`` and ``propositions``; ``level`` is ``action`` unless given.

    Raises:
        ValueError: They break the schema or a bound; names the place and what is allowed.
    """
    files = [_read(number, one) for number, one in enumerate(data)]
    count = sum(len(file.propositions) for file in files)
    if count > MOST_PROPOSITIONS:
        raise ValueError(f"{count} propositions: allowed: at most {MOST_PROPOSITIONS} in all")
    phrases = sum(len(_phrases(one)) for one in data)
    if phrases > MOST_PHRASES:
        raise ValueError(f"{phrases} phrases: allowed: at most {MOST_PHRASES} in all rules and cues")
    return tuple(
        LoadedFile(
            Path("request"),
            file.dimension,
            OWNER,
            file.level,
            tuple(resolve(spec, file, f"propositions[{number}]") for spec in file.propositions if spec.active),
        )
        for number, file in enumerate(files)
    )


def _read(number: int, data: Any) -> PropositionFile:
    if not isinstance(data, Mapping):
        raise ValueError(f"[{number}]: allowed: an object with dimension and propositions")
    if data.get("agent_id") is not None:
        raise ValueError(f"[{number}].agent_id: leave it out; they are the persona's of this request")
    _phrases(data)
    try:
        file = PropositionFile.model_validate({"level": "action", **data})
    except ValidationError as error:
        item = dict(error.errors()[0])
        place, fields = location_of(item), ", ".join(PropositionFile.model_fields)
        fields = ", ".join(PropositionSpec.model_fields) if len(place) > 1 else fields
        raise ValueError(f"[{number}].{dotted(place)}: {in_words(item, [fields])}"[:500]) from None
    if file.dimension not in GATE_DIMENSIONS:
        raise ValueError(f"[{number}].dimension {file.dimension!r}: allowed of a draft: {', '.join(GATE_DIMENSIONS)}")
    return file


def _phrases(data: Mapping[Any, Any]) -> list[Any]:
    """The phrases of all rules and cues, before anything is compiled: that alone takes longer than the rest of the checks.

    Raises:
        ValueError: One is a regular expression.
    """
    rows, phrases = data.get("propositions"), []
    for row in rows if isinstance(rows, list) else ():
        rule, cues = (row.get("rule"), row.get("cues")) if isinstance(row, Mapping) else (None, None)
        if isinstance(rule, Mapping) and not {"matches", "not_matches"}.isdisjoint(rule):
            raise ValueError(NO_REGEX)
        for group in (rule, cues):
            values = group.values() if isinstance(group, Mapping) else ()
            phrases += [phrase for value in values if isinstance(value, list) for phrase in value]
    if any(isinstance(phrase, str) and phrase.startswith("/") for phrase in phrases):
        raise ValueError(NO_REGEX)
    return phrases


MOST_ATTEMPTS = 20  # at one message
UNNAMED = "The agent"
HERE = "this conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCheck:
    """What is to be checked.

    Attributes:
        agent: Who would say it, if it is an agent of ours: then its persona, propositions, configuration and budget hold. Else None, and
            `name` and `persona` (rendered) say who it is, and the defaults of the configuration hold.
        events: What happened before, oldest first; of a stimulus, whom it reached is filled in.
        dimensions: Empty: those that the configuration enables, or all where it enables none.
        thresholds: Lowest scores that pass, 0 to 9; of the others, the configuration's.
        rules: Whether rules and cues are checked (adherence); None as the configuration says, else yes.
        deadline: Seconds for judging; None: the configuration's, of which earlier attempts of the session used up some.
        session: That of an earlier attempt at the same message; empty for a first one.
        attempt: Which attempt this is, where no session says so.
    """

    draft: str
    agent: Agent | None = None
    name: str = ""
    persona: str = ""
    events: tuple[Event, ...] = ()
    dimensions: tuple[str, ...] = ()
    thresholds: Mapping[str, Decimal] = field(default_factory=dict)
    propositions: tuple[LoadedFile, ...] = ()
    rules: bool | None = None
    deadline: float | None = None
    session: str = ""
    attempt: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def speaker(self) -> str:
        """The name of who would say it."""
        if self.agent is not None:
            return self.agent.display_name
        return self.name or next((e.name for e in self.events if e.kind == "action" and e.name), UNNAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check.

    Attributes:
        left: Further attempts that the configuration grants.
        best: The attempt of the session with the highest scores; None where the draft passed.
    """

    log: CorrectionLog
    result: GateResult
    left: int
    best: int | None
    cost: Totals


def check_quality(check: QualityCheck) -> Checked:
    """Judge a draft of another program and log it. What cannot be judged passes, and says why. No transaction may be open here.

    Raises:
        SessionRefused: The session cannot be continued; names the value and why.
    """
    session = _session(check)
    number = session.next_number if check.session else check.attempt
    config = resolve_config(check.agent) if check.agent is not None else resolve_defaults()
    result = _judge(check, config, session)
    left = max(0, config["max_correction_attempts"] - number + 1)
    log = _write(check, session, number, result, left)
    return Checked(
        log=log,
        result=result,
        left=left,
        best=None if result.passed else best_attempt([*session.attempts, log]).attempt,
        cost=totals(LLMCall.objects.filter(pk__in=result.calls)),
    )


def _session(check: QualityCheck) -> GateSession:
    if not check.session:
        return GateSession()

    def problem(last: CorrectionLog) -> str:
        other_name = last.agent_id is None and last.speaker != check.speaker[:120]
        if other_name or last.agent_id != (check.agent.pk if check.agent is not None else None):
            return "belongs to a message of another speaker; leave it out to begin a new message"
        full = last.attempt >= MOST_ATTEMPTS
        return f"has {last.attempt} attempts; leave it out to begin a new message" if full else ""

    attempts = load_attempts(session=check.session, source=CorrectionLog.Source.EXTERNAL)
    return open_session(check.session, attempts, problem=problem)


def _judge(check: QualityCheck, config: ResolvedConfig, session: GateSession) -> GateResult:
    agent, name, rules = check.agent, check.speaker, check.rules
    chosen = {*check.dimensions, *(file.dimension for file in check.propositions)}
    if not chosen and not config.gate_dimensions:
        chosen = set(GATE_DIMENSIONS)
    if rules is None:
        rules = bool(config["gate_rules_enabled"]) or config.provenance["gate_rules_enabled"] == "built-in"
    left = float(config["gate_total_deadline_seconds"]) - session.spent_seconds
    action = Action(
        text=check.draft,
        agent_name=name,
        agent_slug=agent.slug if agent is not None else OWNER,
        seeded=agent is not None and agent.seeded,
        persona=persona_of(agent, None) if agent is not None else check.persona,
        events=tuple(e if e.kind == "action" else replace(e, name=name) for e in check.events),
        channel_name=HERE,
    )
    return check_action_quality(
        agent=agent,
        config=config,
        work_id=f"gate_session:{session.id}",
        deadline=check.deadline or min(float(config["gate_deadline_seconds"]), left),
        action=lambda propositions: action,
        dimensions=[d for d in GATE_DIMENSIONS if d in chosen],
        thresholds=check.thresholds,
        own=check.propositions,
        rules=rules,
    )


def _write(check: QualityCheck, session: GateSession, number: int, result: GateResult, left: int) -> CorrectionLog:
    agent, speaker, sent_back = check.agent, check.speaker[:120], ""
    versions = agent.persona_versions.order_by("-number").values_list("pk", flat=True) if agent is not None else None
    if not result.passed:
        sent_back = feedback(draft=check.draft, result=result, attempt=number, left=left, external=True)
    log = result.log(
        session=session.id,
        attempt=number,
        source=CorrectionLog.Source.EXTERNAL,
        feedback=sent_back,
        agent=agent,
        speaker="" if agent is not None else speaker,
        persona_version_id=versions.first() if versions is not None else None,
        original_text=check.draft,
        judged_text=check.draft,
        tags=dict(check.tags),
    )
    try:
        return write(log)
    except IntegrityError:
        if agent is None or Agent.objects.filter(pk=agent.pk).exists():
            raise
        # The agent was deleted while its draft was judged; what was spent is logged all the same.
        log.agent, log.persona_version, log.speaker = None, None, speaker
        return write(log)
