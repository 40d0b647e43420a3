"""The laboratory that is asked for: one request, from which command, page and route are made (`agents.kit.use_cases`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from django.db.models import Count
from pydantic import AfterValidator, Field, ValidationInfo

from agents.bodies import the_channel
from agents.kit.bodies import ABSENT, OneOf, Reads, Refused, is_local
from agents.kit.text.fences import fault_of, one_line, render_prompt
from agents.kit.use_cases import FieldDisplay, FromFile
from agents.models import Agent, Channel, Message, PersonaVersion
from agents.models.conversations import UnknownAgent, find_agent
from evaluation.dimensions import CHANNEL_DIMENSIONS, OF_PERSONA, Dimension
from evaluation.experiments.asking import rules_of
from evaluation.experiments.control_questions import MOST_ASKS, ControlQuestion, load_questions
from evaluation.experiments.models import Experiment
from evaluation.experiments.request import ModelsRequest
from evaluation.experiments.scenario import (
    MOST_ARMS,
    MOST_REPEATS,
    MOST_REPLAYED,
    MOST_STEPS,
    Arm,
    LabPlan,
    Measured,
    Scenario,
    Step,
)
from evaluation.experiments.starting import start_experiment
from evaluation.propositions.files import YamlProblems
from evaluation.simulation.situations import SPEAKER, load_situations

CONTROL = "control"
MEASURED = tuple(name for name in Dimension.values if name not in CHANNEL_DIMENSIONS)
MOST_YAML = 100_000  # characters
MOST_PROPOSITIONS_NAMED = 20  # in a refusal
ALLOWED_ARMS = (
    "gate=enforce, gate=observe, gate=off, reminder, reminder=TEXT, reminder-every=TURNS, reminder-every=TURNS:TEXT, "
    "persona=VERSION (on the command line also a file)"
)
DEFAULT_ARMS = "reminder\ngate=enforce"
SHIPPED = "shipped"
NONE = "none"


def _check_arms(text: str, info: ValidationInfo) -> str:
    """Refuse arms that cannot be read; files only where a person at this machine names them."""
    arms = _lines(text)
    if not 1 <= len(arms) < MOST_ARMS:
        raise ValueError(f"{len(arms)} arms; allowed: 1 to {MOST_ARMS - 1}, one a line, beside the control")
    for line in arms:
        kind, _, value = line.partition("=")
        problem = _problem_of_arm(kind, value, may_be_file=is_local(info))
        if problem:
            raise ValueError(f"{line[:80]!r}: {problem}; allowed: {ALLOWED_ARMS}")
    return text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _problem_of_arm(kind: str, value: str, *, may_be_file: bool) -> str:
    """Return what is wrong with an arm, as far as it shows without the agent; empty when nothing is."""
    if kind == "gate":
        return "" if value in ("enforce", "observe", "off") else "no mode of the gate"
    if kind == "reminder":
        return ""
    if kind == "reminder-every":
        turns = value.partition(":")[0]
        return "" if turns.isdecimal() and 1 <= int(turns) <= MOST_STEPS else f"write 1 to {MOST_STEPS} turns"
    if kind == "persona":
        if value.isdecimal():
            return ""
        return "" if may_be_file and Path(value).is_file() else "no number of a persona's version"
    return "unknown repair"


def why_not_forked(channel: Channel) -> str:
    """Return why a conversation is none of which repairs are tried; empty where it is one."""
    if channel.synthetic:
        return f"channel {channel.slug!r} is a simulation; allowed: real conversations"
    if channel.kind == Channel.Kind.DEBATE:
        return f"channel {channel.slug!r} is a debate; allowed: other conversations"
    return ""


def _real_conversation(slug: str) -> Channel:
    """Return the channel of this slug.

    Raises:
        LookupError: There is none, or its conversation is not forked.
    """
    channel = the_channel(slug)
    why_not = why_not_forked(channel)
    if why_not:
        raise LookupError(why_not)
    return channel


Conversation = Annotated[
    Channel,
    Reads(_real_conversation, "the slug of a real conversation", maxLength=120),
    FieldDisplay(option="channel", label="Conversation", metavar="CHANNEL"),
]


class LabRequest(ModelsRequest):
    """A conversation that is forked, and the repairs that are tried on the forks."""

    channel: Conversation = Field(description="slug of the conversation that is forked; it is only read")
    at: Annotated[int, FieldDisplay(label="At message")] = Field(
        ABSENT, ge=1, lt=2**63, description="position of the last message that the forks share (default: the last one)"
    )
    agent: str = Field(
        "", max_length=200, description="slug of the agent that is measured (default: the one who says most there)"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of what is drawn (default: 0)")
    arms: Annotated[
        str, AfterValidator(_check_arms), FieldDisplay(option="--arm", label="Repairs, one a line", is_long=True)
    ] = Field(
        DEFAULT_ARMS,
        max_length=20_000,
        validate_default=True,
        description=f"what is tried, beside a control that stays as it is: {ALLOWED_ARMS}",
    )
    turns: Annotated[int, FieldDisplay(label="Turns on each fork")] = Field(
        20, ge=1, le=MOST_STEPS, description=f"turns of the agent on each fork, 1 to {MOST_STEPS} (default: 20)"
    )
    repeats: Annotated[int, FieldDisplay(label="Forks of each arm")] = Field(
        5, ge=1, le=MOST_REPEATS, description=f"forks of each arm, 1 to {MOST_REPEATS}; a verdict takes 2 (default: 5)"
    )
    dimensions: Annotated[
        list[Annotated[str, OneOf(*MEASURED)]],
        FieldDisplay(choices=lambda: [(name, Dimension(name).label) for name in MEASURED]),
    ] = Field([OF_PERSONA], min_length=1, description=f"what is scored (default: {OF_PERSONA})")
    ask: Annotated[str, OneOf(SHIPPED, NONE), FieldDisplay(label="Control questions")] = Field(
        SHIPPED, description=f"{SHIPPED}: the 25 that come with Plumbline; {NONE}: ask no control questions"
    )
    questions: Annotated[
        list[ControlQuestion],
        FromFile(load_questions, longest=MOST_YAML, refusal=YamlProblems),
        FieldDisplay(label="Control questions of your own"),
    ] = Field([], description="ask these instead: YAML as docs/how-to/lab.md describes it")
    asks: int = Field(
        2, ge=1, le=MOST_ASKS, description=f"how often each question is asked on a fork, 1 to {MOST_ASKS} (default: 2)"
    )

    def scenario(self) -> Scenario:
        """Return the laboratory as a scenario.

        Raises:
            Refused: There is no such message or agent, or an arm names a version that is not there.
        """
        position = self._position()
        agent = self._agent(position)
        questions = self.questions
        if not questions and self.ask == SHIPPED:
            questions = load_questions()
        _refuse_unknown_propositions(questions, agent)
        return Scenario(
            name="lab",
            title=f"Repairs of {agent.display_name} in {self.channel.name} at message {position}"[:200],
            cast=[agent.slug],
            environments=1,
            agents=1,
            steps=_steps(self.channel, agent, position, self.turns),
            facilitator=SPEAKER,  # no person's name, which an erasure would not find here
            start_from=f"{self.channel.slug}@{position}",
            arms=[Arm(name=CONTROL), *self._arms(agent)],
            dimensions=[Measured(id=Dimension(name)) for name in self.dimensions],
            repeats=self.repeats,
            seed=self.seed,
            lab=LabPlan(questions=questions, asks=self.asks),
        )

    def _position(self) -> int:
        """Return the position of the last message that the forks share.

        Raises:
            Refused: There is no message there.
        """
        messages = Message.objects.filter(channel=self.channel)
        last = messages.order_by("-position").values_list("position", flat=True).first()
        if last is None:
            raise Refused({"channel": f"channel {self.channel.slug!r} has no messages; allowed: one that has some"})
        if not self.at:  # left out
            return last
        if not messages.filter(position=self.at).exists():
            raise Refused({"at": f"at {self.at}: there is no such message; allowed: positions up to {last}"})
        return self.at

    def _agent(self, position: int) -> Agent:
        """Return the agent that is measured: the one that is named, else the one who says most up to the fork.

        Raises:
            Refused: There is none.
        """
        if self.agent:
            try:
                return find_agent(self.agent)
            except UnknownAgent as error:
                raise Refused({"agent": f"agent: {error}"}) from None
        messages = Message.objects.filter(channel=self.channel, position__lte=position, agent__isnull=False).order_by()
        most = messages.values_list("agent").annotate(n=Count("pk")).order_by("-n", "agent").first()
        if most is None:
            raise Refused(
                {
                    "agent": f"agent: none says anything in {self.channel.slug!r} up to message {position}; allowed: a slug"
                }
            )
        return Agent.objects.get(pk=most[0])

    def _arms(self, agent: Agent) -> Iterator[Arm]:
        """Yield the repairs; of those with the same name the later ones are numbered.

        Raises:
            Refused: A version of the persona is not there, or a file cannot be read as one.
        """
        names: set[str] = {CONTROL}
        for line in _lines(self.arms):
            kind, _, value = line.partition("=")
            arm = _arm(kind, value, agent)
            name = arm.name
            number = 1
            while name in names:
                number += 1
                name = f"{arm.name}-{number}"
            names.add(name)
            label = arm.label if number == 1 else f"{arm.label} ({number})"
            yield arm.model_copy(update={"name": name, "label": label})


def _refuse_unknown_propositions(questions: Sequence[ControlQuestion], agent: Agent) -> None:
    """Refuse questions that name a proposition by which the agent is not measured.

    Raises:
        Refused: With the question, the name, and the first names that are allowed.
    """
    rules = rules_of(agent)
    for question in questions:
        if question.proposition and question.proposition not in rules:
            allowed = ", ".join(sorted(rules)[:MOST_PROPOSITIONS_NAMED]) or "none, for it has no propositions"
            raise Refused(
                {
                    "questions": f"questions: {question.id}: {agent.slug} has no proposition {question.proposition!r}; allowed: {allowed}"
                }
            )


def _arm(kind: str, value: str, agent: Agent) -> Arm:
    """Return a repair as an arm of a scenario; see `ALLOWED_ARMS`."""
    if kind == "gate":
        return Arm(name=f"gate-{value}", label=f"gate={value}", overrides={"gate_mode": value})
    if kind == "persona":
        return Arm(
            name="persona", label=_persona_label(value), overrides={"system_prompt": _persona_text(value, agent)}
        )
    every = 0
    text = value
    if kind == "reminder-every":
        turns, _, text = value.partition(":")
        every = int(turns)
    text = text.strip() or render_prompt("experiments/reminder", name=one_line(agent.display_name))
    fault = fault_of(text) if len(text) <= 4_000 else "the text is too long; allowed: at most 4,000 characters"
    if fault:
        raise Refused({"arms": f"arms: {kind}: {fault}"})
    label = f"a reminder every {every} turns" if every else "a reminder"
    return Arm(name="reminder", label=label, reminder=text, reminder_every=every)


def _persona_label(value: str) -> str:
    return f"persona={value}" if value.isdecimal() else f"persona={Path(value).name}"[:80]


def _persona_text(value: str, agent: Agent) -> str:
    """Return the system prompt of a version of the agent's persona, or of a file; its traits stay as they are.

    Raises:
        Refused: There is no such version, or the file holds no text.
    """
    if value.isdecimal():
        version = PersonaVersion.objects.filter(agent=agent, number=int(value[:9])).first()
        if version is None:
            numbers = PersonaVersion.objects.filter(agent=agent).order_by("number").values_list("number", flat=True)
            allowed = ", ".join(map(str, numbers[:20])) or "none yet"
            raise Refused({"arms": f"arms: persona={value}: {agent.slug} has no such version; allowed: {allowed}"})
        return str(version.system_prompt)
    try:
        text = Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused({"arms": f"arms: persona={value}: {error}; allowed: a text file"}) from None
    fault = fault_of(text)
    if fault:
        raise Refused({"arms": f"arms: persona={value}: {fault}"})
    return text


def _steps(channel: Channel, agent: Agent, position: int, turns: int) -> list[Step]:
    """Return what is said before each turn: what others really said after the fork, then lines of our situations.

    What was said between two turns of the agent is one step. If the last message before the fork is not the agent's, the first turn
    answers it, and nothing is said before it.
    """
    steps = list(_replayed_steps(channel, agent, position, turns))
    lines = [line for situation in load_situations() for line in situation.lines]
    scripted = [Step(says=lines[number % len(lines)][:4_000]) for number in range(turns - len(steps))]
    return steps + scripted


def _replayed_steps(channel: Channel, agent: Agent, position: int, turns: int) -> Iterator[Step]:
    at_fork = Message.objects.filter(channel=channel, position=position).values_list("agent", flat=True).first()
    waiting: list[int] = []
    number = 0
    if at_fork != agent.pk:
        yield Step()
        number = 1
    later = Message.objects.filter(channel=channel, position__gt=position).order_by("position")
    for later_position, author in later.values_list("position", "agent")[: turns * MOST_REPLAYED]:
        if number >= turns:
            return
        if author != agent.pk:
            waiting.append(later_position)
            continue
        if waiting:
            yield Step(replays=waiting[-MOST_REPLAYED:])
            number += 1
            waiting = []
    if waiting and number < turns:
        yield Step(replays=waiting[-MOST_REPLAYED:])


def request_lab(request: LabRequest, *, user: Any = None) -> Experiment:
    """Store the laboratory; workers fork the conversation, play on and judge. The conversation itself is only read.

    Raises:
        Refused: It cannot be played here; says which field is wrong and what is allowed.
    """
    return start_experiment(request.scenario(), **request.models, user=user)
