"""Lay out a swarm as a lane: the message, its phases in order with what they did in one turn, the answer.

A turn shows the phases as they were then (`SwarmTurn.steps`), and those that its swarm has now and that were not asked. Without a turn
the lane shows the phases as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from agents.models import Message
from agents.swarm.models import Swarm, SwarmPhase, SwarmTurn
from agents.swarm.polish import executor_of
from agents.swarm.state import KINDS
from agents.swarm.summaries import why_no_summary
from agents.swarm.talk import Trace, trace_of

MOST_TURNS = 10  # to choose from, the newest
STAGES = {"pre": "calibration", "post": "polish"}  # stage of the turn whose counters belong to phases of a kind
DECISIONS = {"clarify": "asked back", "assume": "assumed", "cannot": "could not answer"}  # about a question back


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a turn.

    Attributes:
        outcome: ``read``, ``shown``, ``unchanged``, ``changed``, ``replaced``, ``refused`` or ``failed``. `why`: of the last three.
        before, after: The text that a polisher was given, and another one that it answered; empty where it answered none.
        milliseconds: None where they are not known.
    """

    outcome: str
    why: str = ""
    before: str = ""
    after: str = ""
    milliseconds: int | None = None


@dataclass(slots=True, kw_only=True)
class Box:
    """A phase in the lane.

    Attributes:
        phase: As it is now; None: it is deleted.
        version: Of the prompt that was used in the turn, or now.
        why_skipped: Empty where it was asked.
        call: That asked this phase alone; None where several phases shared one.
    """

    name: str
    order: int
    version: int
    phase: SwarmPhase | None = None
    why_skipped: str = ""
    call: Call | None = None


@dataclass(slots=True, kw_only=True)
class LaneStage:
    """The phases before the answer, of the answer, or after it.

    Attributes:
        shared: The call that asked all of them that were not skipped.
        counters: What the stage of the turn counted, without zeros.
    """

    kind: str
    boxes: list[Box] = field(default_factory=list)
    shared: Call | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return when its phases are asked."""
        return SwarmPhase.Phase(self.kind).label


@dataclass(slots=True, kw_only=True)
class Lane:
    """A swarm from message to answer.

    Attributes:
        turn: What is shown; None: the phases alone are.
        message: The person's, that is answered. `last_text`: what the swarm passed on; the gate may have had another one sent.
        earlier_refused: Polished texts of earlier drafts that were refused: phase, text, why.
        summary_failed: Why the conversation's newest summary was not made; empty where it was.
    """

    stages: list[LaneStage]
    turn: SwarmTurn | None = None
    trace: Trace | None = None
    message: Message | None = None
    last_text: str = ""
    earlier_refused: list[dict[str, str]] = field(default_factory=list)
    summary_failed: str = ""

    @property
    def register(self) -> list[tuple[str, str]]:
        """Return what the calibrators saw besides entries and texts: ``tone``, ``direct``."""
        calibration = self.trace.calibration if self.trace else {}
        texts = ("question", "cannot", "assumption", "heuristic")
        return [
            (name, str(value))
            for name, value in calibration.items()
            if not isinstance(value, list) and name not in texts
        ]

    @property
    def remembered(self) -> list[tuple[str, list[str]]]:
        """Return each kind of entry that the calibrators reported, with the words of its entries; not all need have entered the state."""
        calibration = self.trace.calibration if self.trace else {}
        return [(kind, [entry["quote"] for entry in calibration[kind]]) for kind in KINDS if calibration.get(kind)]

    @property
    def decision(self) -> str:
        """Return what was decided about asking back, in a word or two; empty where nothing was."""
        decided = self.trace.decision.get("kind", "") if self.trace else ""
        return DECISIONS.get(decided, "")


def lane_of_swarm(swarm: Swarm) -> Lane:
    """Return a swarm's phases as they are now."""
    stages = {kind: LaneStage(kind=kind) for kind in SwarmPhase.Phase.values}
    polishing_is_off = executor_of(swarm) == Swarm.Executor.OFF
    for phase in swarm.phases.all():
        why_skipped = ""
        if not phase.enabled:
            why_skipped = "switched off"
        elif phase.phase == SwarmPhase.Phase.POST and polishing_is_off:
            why_skipped = "polishing is off"
        stages[phase.phase].boxes.append(_box_of(phase, why_skipped))
    return Lane(stages=list(stages.values()))


def lane_of_turn(turn: SwarmTurn) -> Lane:
    """Return what the phases did in a turn. Its messages' texts are among it: show it only to those who may read them."""
    ids = [phase_entry["id"] for step in turn.steps for phase_entry in step["phases"]]
    phases = SwarmPhase.objects.filter(Q(swarm=turn.swarm_id) | Q(pk__in=ids))
    phase_by_id = {phase.pk: phase for phase in phases.order_by("order", "pk")}
    stages = [_stage_of_turn(turn, kind, phase_by_id) for kind in SwarmPhase.Phase.values]
    refused = [step for step in turn.steps if step["outcome"] == "refused"]
    last_text = turn.polished or turn.draft
    return Lane(
        stages=stages,
        turn=turn,
        trace=trace_of(turn),
        message=_message_answered(turn),
        last_text=last_text,
        # The last draft's are at the end.
        earlier_refused=turn.rejected[: max(len(turn.rejected) - len(refused), 0)],
        summary_failed=why_no_summary(turn.agent, turn.channel),
    )


def _stage_of_turn(turn: SwarmTurn, kind: str, phase_by_id: Mapping[int, SwarmPhase]) -> LaneStage:
    """Return what the phases of a kind did in a turn, in their order; those that were not asked say why."""
    stage = LaneStage(kind=kind, counters=_counters(turn, kind))
    asked_ids: set[int] = set()
    text = turn.draft
    for step in turn.steps:
        if step["kind"] != kind:
            continue
        call = Call(
            outcome=step["outcome"],
            why=step["why"],
            before=text if kind == SwarmPhase.Phase.POST else "",
            after=step["text"],
            milliseconds=turn.milliseconds.get(step["call"]),
        )
        boxes = [_box_of_step(phase_entry, phase_by_id) for phase_entry in step["phases"]]
        if call.outcome == "skipped":
            for box in boxes:
                box.why_skipped = call.why
        elif kind == SwarmPhase.Phase.POST and len(boxes) == 1:
            boxes[0].call = call
        else:
            stage.shared = call
        if call.outcome in ("changed", "replaced"):
            text = call.after
        stage.boxes += boxes
        asked_ids.update(phase_entry["id"] for phase_entry in step["phases"])
    was_asked = bool(stage.boxes)
    was_given = all(step["kind"] == "post" for step in turn.steps)
    for phase in phase_by_id.values():
        if phase.phase == kind and phase.swarm_id == turn.swarm_id and phase.pk not in asked_ids:
            stage.boxes.append(_box_of(phase, _why_not_asked(phase, was_asked=was_asked, was_given=was_given)))
    stage.boxes.sort(key=lambda box: box.order)
    return stage


def _why_not_asked(phase: SwarmPhase, *, was_asked: bool, was_given: bool) -> str:
    """Return why a phase that the swarm has now was not asked in a turn.

    Args:
        was_asked: Whether others of its kind were. `was_given`: whether the turn began with a draft that was given to it.
    """
    if not phase.enabled:
        return "switched off"
    if was_asked:
        return "not asked in this turn: it was added or switched on later, or another swarm of the agent had the voice"
    if phase.phase == SwarmPhase.Phase.POST:
        return "no draft was polished in this turn"
    if was_given:
        return "the draft was given, so nothing was asked before it"
    return "not asked in this turn"


def _box_of(phase: SwarmPhase, why_skipped: str) -> Box:
    return Box(name=phase.name, order=phase.order, version=phase.version, phase=phase, why_skipped=why_skipped)


def _box_of_step(phase_entry: Mapping[str, Any], phase_by_id: Mapping[int, SwarmPhase]) -> Box:
    """Return the box of a phase as it was in a turn."""
    return Box(
        name=phase_entry["name"],
        order=phase_entry["order"],
        version=phase_entry["version"],
        phase=phase_by_id.get(phase_entry["id"]),
    )


def _counters(turn: SwarmTurn, kind: str) -> dict[str, int]:
    """Return what a stage counted in a turn, its phases together, without zeros; nothing of a turn whose run is not stored."""
    trace: Iterable[Mapping[str, Any]] = turn.run.trace if turn.run else ()
    total = Counter[str]()
    for entry in trace:
        if entry["stage"] == STAGES.get(kind):
            total.update(entry.get("counters", {}))
    return {name: number for name, number in total.items() if number}


def _message_answered(turn: SwarmTurn) -> Message | None:
    """Return the message that started the turn, else the last one of a person before the answer; None where neither is known."""
    if turn.run is not None and turn.run.trigger is not None:
        return turn.run.trigger
    if turn.message is None:
        return None
    earlier = Message.objects.filter(
        channel=turn.channel_id, position__lt=turn.message.position, agent=None
    ).select_related("user")
    newest: Message | None = earlier.order_by("-position").first()
    return newest
