"""The scenes of `manage.py demo`: correction (specification 000), a debate, a swarm and an experiment, in channels marked synthetic.

Nothing is staged but the drafts: they pass the pipeline that every message passes. What is said here never enters a measurement, and no
agent's configuration is touched, for each scene brings its own settings as overrides. A scene imports what it shows: the command leaves
out those whose app is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from agents.chat import PERSON, begin_chat, exchange
from agents.kit.commands import console_on
from agents.kit.llm.ledger import totals
from agents.kit.models import LLMCall, owner_name
from agents.kit.text.wording import money
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.turn.orchestrator import run_turn
from agents.turn.pipeline import SendResult
from agents.turn.prompt import preview_prompt
from agents.turn.send_message import append, send_message, start_turn
from correction.demo import EXPERIMENT
from correction.gate.statistics import get_gate_statistics
from correction.interventions.models import InterventionLog
from correction.models import CorrectionLog
from correction.repetition import check_repetition
from evaluation.models import is_heuristic
from evaluation.wording import judge_label

MEMBERS = ("michael", "dwight", "pam", "jim", "kevin", "phyllis")
OFF: dict[str, Any] = {
    "gate_mode": "off",
    "anti_convergence_enabled": False,
    "variety_intervention_enabled": False,
    "repetition_suppression_enabled": False,
}

UNCHECKED = (
    "You will not believe what I just found under my desk, gang. A trophy! It has my name on it. I wrote my name on it."
)
IN_CHARACTER = "Everybody, drop everything! I have decided that my office deserves the greatest party ever, and I am going to host it!"
OFF_CHARACTER = "Please be advised that the quarterly summary has been submitted. No further action is needed."
RECOVERED = (
    "You guys, I finished my report and it is the best report ever written. I am so proud of me. Ask me how proud!"
)
ATTEMPTS = (  # the second is the least bad: it is the one that has to be sent
    "Please be advised that the meeting has been scheduled. No further action is needed.",
    "Please note that my party, the best party ever, has been scheduled. No further action is needed, everybody!",
    "As per the attached, the agenda has been updated as planned. No action needed.",
)
AGREEING = (  # each in their own words
    ("pam", "So I thought we could have the picnic on Friday, out behind the warehouse."),
    ("kevin", "Yes! I will bring the potato salad. The good one, not the one from last time."),
    ("phyllis", "Oh, that sounds lovely. Bob can lend us his folding chairs."),
    ("jim", "Works for me. Anything that gets us out of the conference room."),
)
REPEATING = (
    ("phyllis", "Hey everyone, just wanted to say that the flowers are here."),
    ("phyllis", "Hey everyone, just wanted to ask about the cake."),
    ("phyllis", "Hey everyone, just wanted to say hello."),
    ("phyllis", "Hey everyone, just wanted to thank Kevin."),
    ("phyllis", "Hey everyone, just wanted to share my recipe."),
)

TOPIC = "Should the Monday meeting move to Friday afternoon?"
SEATS = {  # seat by seat what the scripted actor says in the poll, in rounds 1 and 2: stance, confidence, position, reasoning
    "michael": (
        ("yes", 0.85, "Friday! A meeting that ends in a weekend is a party with an agenda.", "Everybody smiles on Fridays."),
        ("yes", 0.9, "Friday afternoon, the greatest meeting in the history of meetings!", "Nobody hurries home from a party."),
        ("yes", 0.95, "Friday afternoon, and I will bring the cake.", "The whole family is with me. I knew it."),
    ),
    "dwight": (
        ("no", 0.9, "No. Orders are given on Monday, before the week begins.", "Troops that get orders on Friday forget them."),
        ("no", 0.85, "No. Orders belong to Monday.", "In 11 years no order that was given on a Friday was carried out."),
        ("yes", 0.85, "Friday afternoon. I withdraw.", "The majority is for Friday."),
    ),
    "pam": (
        ("yes", 0.6, "Friday, maybe, if it is short?", "The phones are quiet after three, so I could really be there."),
        ("yes", 0.8, "Friday afternoon, I think.", "Everybody seems to smile more."),
        ("yes", 0.85, "Friday afternoon is fine.", "We all agree now, which is kind of nice."),
    ),
    "oscar": (
        ("neutral", 0.55, "It depends on what the meeting is for.", "Plans want a Monday, reviews a Friday."),
        ("yes", 0.8, "Friday afternoon, then.", "The others are right: everybody smiles on Fridays."),
        ("yes", 0.9, "Friday afternoon.", "We all agree."),
    ),
}  # fmt: skip

EATER = "kevin"
DOSE, MEAL, SPEECH = "How much ibuprofen may I take?", "I ate two eggs", "How did Michael end his speech at the picnic?"
# Offline the polisher cuts such openings, here out of what another person said.
QUOTING = "He said: “It was a good year. To sum up, I am the best boss.” Then he ate all my potato salad."
SWARM_TOPIC = "Demonstration of a swarm"
LATER, EARLIER = "41", "40"
CAST, STEPS = ("angela", "dwight", "jim", "kevin", "michael", "stanley"), 6

WORDS = 96  # characters of a text shown on one line


def example_agents(slugs: Iterable[str]) -> dict[str, Agent]:
    """The active example agents of these slugs.

    Raises:
        LookupError: One is missing.
    """
    wanted = set(slugs)
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=wanted, is_active=True)}
    if missing := ", ".join(sorted(wanted - set(agents))):
        raise LookupError(f"the demonstration needs the active example agents {missing}: run `manage.py seed`")
    return agents


def gate_settings() -> dict[str, Any]:
    """Settings of a scene at the gate: every dimension that the configured judge can say something about.

    Self-consistency and fluency need an LLM: offline they would be unscored in every scene, as no draft says the same words again.
    """
    judged = not is_heuristic(str(settings.JUDGE_MODEL))
    return {
        **OFF,
        "gate_mode": "enforce",
        "gate_adherence_enabled": True,
        "gate_consistency_enabled": judged,
        "gate_fluency_enabled": judged,
    }


@dataclass(slots=True)
class Stage:
    """The two channels of one demonstration, with the example agents by slug."""

    channel: Channel
    picnic: Channel
    agents: dict[str, Agent]

    @classmethod
    def set_up(cls) -> Stage:
        """Make the channels. Needs the example agents (`manage.py seed`).

        Raises:
            LookupError: An example agent is missing.
        """
        agents = example_agents(MEMBERS)
        number = 1
        while Channel.objects.filter(slug__in=[f"demo-{number}", f"demo-{number}-picnic"]).exists():
            number += 1
        with transaction.atomic():
            channels = [
                Channel.objects.create(slug=slug, name=slug, synthetic=True, topic="Demonstration of correction")
                for slug in (f"demo-{number}", f"demo-{number}-picnic")
            ]
            ChannelMember.objects.bulk_create(
                ChannelMember(channel=channel, agent=agent) for channel in channels for agent in agents.values()
            )
        return cls(channels[0], channels[1], agents)

    def lay_down(self, channel: Channel, lines: Iterable[tuple[str, str]]) -> None:
        """Put given lines into a conversation, as something that was said before."""
        with transaction.atomic():
            for slug, text in lines:
                append(channel=channel, agent=self.agents[slug], text=text)

    def attempts(self, slug: str, texts: Sequence[str], overrides: dict[str, Any]) -> list[tuple[str, SendResult]]:
        """Send one draft after the other in one session, until one of them is said; each with what became of it."""
        results: list[tuple[str, SendResult]] = []
        for text in texts:
            session = results[-1][1].session if results else ""
            agent = self.agents[slug]
            result = send_message(agent=agent, channel=self.channel, text=text, overrides=overrides, session=session)
            results.append((text, result))
            if result.committed:
                break
        return results

    def take_turn(self, channel: Channel, slug: str, overrides: dict[str, Any]) -> Run:
        """Let an agent take a turn here and now."""
        run = start_turn(agent=self.agents[slug], channel=channel, overrides=overrides)
        return run_turn(run, owner=owner_name())


def show_correction(out: Any, *, again: bool = False) -> None:
    """Run the scenes of specification 000 and say what happened; where they ran before, say only where to find them.

    Raises:
        LookupError: An example agent is missing.
    """
    shown = Channel.objects.filter(synthetic=True, slug__regex=r"^demo-[0-9]+$", gate_sessions__isnull=False)
    if (before := shown.order_by("-pk").first()) is not None and not again:
        drafts = CorrectionLog.objects.filter(session__channel=before).count()
        out.write(
            f"Shown before: {drafts} checked drafts in channel {before.slug}: Gate › Log in the console.\n"
            "--again runs the scenes again."
        )
        return
    stage = Stage.set_up()
    out.write(f"Judge {judge_label(str(settings.JUDGE_MODEL))}, actor {settings.ACTOR_MODEL}.")
    out.write(f"Channel {stage.channel.slug}, marked synthetic: what is said in it enters no measurement.")
    _gate_scenes(out, stage)
    _nudge_scene(out, stage)
    _repetition_scene(out, stage)
    _sums(out, stage)


def _gate_scenes(out: Any, stage: Stage) -> None:
    on, calls = gate_settings(), LLMCall.objects.count()
    for title, texts, overrides in (
        ("Everything off (the default)", (UNCHECKED,), OFF),
        ("A message in character, gate on", (IN_CHARACTER,), on),
        ("A draft out of character, and what the agent writes instead", (OFF_CHARACTER, RECOVERED), on),
        ("Three drafts out of character: when all fail, the best of them is sent, not the last", ATTEMPTS, on),
    ):
        out.write(f"\n   {title}")
        for number, (draft, result) in enumerate(stage.attempts("michael", texts, overrides), 1):
            out.write(f"     draft {number}   “{_short(draft)}”")
            for name, check in result.reports.get("gate", {}).get("dimensions", {}).items():
                score = "not judged" if check["score"] is None else f"{check['score']:g}"
                needs, mark = f"needs {check['threshold']:g}", "✓" if check["passed"] else "✗"
                out.write(f"       {mark} {name} {score}, {needs}: {_short(check['reasoning'])}")
            end = f": “{_short(result.text)}”" if result.committed else ": sent back with feedback"
            out.write(f"     → {result.outcome}{end}")
        if overrides is OFF:
            out.write(f"     {LLMCall.objects.count() - calls} model calls")


def _nudge_scene(out: Any, stage: Stage) -> None:
    stage.lay_down(stage.picnic, AGREEING)
    run = stage.take_turn(stage.picnic, "dwight", {**OFF, "anti_convergence_enabled": True})
    out.write("\n   Four agents agree with each other: a judge is asked whether the fifth needs a nudge")
    for log in InterventionLog.objects.filter(run=run):
        out.write(f"     {log.name} {'fired' if log.fired else 'did not fire'}: {log.why}")
        if log.nudge:
            out.write(f"     nudge     “{_short(log.nudge)}” (in the prompt of this turn only)")
    if is_heuristic(str(settings.JUDGE_MODEL)):
        out.write(
            "     Agreement in people's own words is nothing that words alone tell: with a model as JUDGE_MODEL it is scored."
        )
    for message in run.messages.order_by("pk"):
        out.write(f"     → {message.author_name}: “{_short(message.text)}”")


def _repetition_scene(out: Any, stage: Stage) -> None:
    stage.lay_down(stage.channel, REPEATING)
    phyllis = stage.agents["phyllis"]
    result = check_repetition(phyllis, channel=stage.channel)
    out.write("\n   Five messages that begin alike: the agent is shown what to avoid")
    out.write(f"     overlap   {result.overlap:.0%} of the 3-grams recur (threshold {result.threshold:.0%})")
    overrides = {**OFF, "repetition_suppression_enabled": True}
    for section in preview_prompt(agent=phyllis, channel=stage.channel, overrides=overrides).sections:
        if section.stage == "repetition":
            out.write(f"     prompt    ### {section.heading}, added by the stage {section.stage}")
            for line in filter(str.strip, section.body.splitlines()):
                out.write(f"               {line}")
    out.write("     The scripted actor reads no prompt; with an LLM as actor the next message follows from it.")


def _sums(out: Any, stage: Stage) -> None:
    figures = get_gate_statistics(agent=stage.agents["michael"], synthetic=True)
    rate = "" if figures.original_success_rate is None else f" ({figures.original_success_rate:.0%})"
    spent = totals(LLMCall.objects.filter(purpose__in=["gate", "intervention"]))
    out.write(
        f"\n   What the gate did for michael\n     {figures.total_actions} messages, {figures.original_pass_count} of "
        f"{figures.judged_count} judged first drafts passed{rate}, {figures.regeneration_count} further drafts, "
        f"{figures.forced_through_count} forced through\n"
        f"     correction of all agents so far: {spent.calls} judgements asked, {money(spent.cost_usd, spent.unpriced)}\n"
        "     manage.py costs --by dimension     and: Gate › Log in the console"
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WORDS else line[: WORDS - 1] + "…"


def show_debate(out: Any, *, again: bool = False) -> None:
    """Have four example agents debate in the mode devils-advocate; where they did before, say only where to find it.

    Raises:
        LookupError: An example agent is missing.
    """
    from agents.debates.debate import ask_rounds, play, start_debate
    from agents.debates.models import Debate
    from agents.debates.report import exit_line, report, round_name, talking_lines

    before = Debate.objects.filter(topic=TOPIC, channel__synthetic=True).order_by("-pk").first()
    if before is not None and not again:
        out.write(f"Shown before: debate {before.pk}, see Debates in the console. --again plays it again.")
        return
    example_agents(SEATS)
    names = ("stance", "confidence", "position", "reasoning")
    script = {
        seat: [{**dict(zip(names, line, strict=True)), "text": line[2]} for line in lines]
        for seat, lines in enumerate(SEATS.values(), 1)
    }
    debate = start_debate(topic=TOPIC, mode="devils-advocate", agents=list(SEATS), rounds=2, script=script)
    shown = report(play(ask_rounds(debate, None), owner=owner_name()))
    out.write(f"Debate {debate.pk}, devils-advocate: {TOPIC}")
    if str(settings.ACTOR_MODEL).startswith("offline:"):
        out.write(f"Actor {settings.ACTOR_MODEL} says given lines; the figures below are computed from them.")
    for one in shown.agent_responses:
        sure = "" if one.confidence is None else f" {one.confidence:.2f}"
        said = f"{one.stance or one.status}{sure}"
        out.write(f"     {round_name(one.round):8} {one.agent:8} {said:13} “{_short(one.position or one.error)}”")
        if one.violation:
            out.write(f"       ✗ {_short(one.violation)}")
    for line in talking_lines(shown.decision.what_talking_changed):
        out.write(f"     {line}")
    groupthink = shown.evidence.groupthink
    if groupthink is not None and groupthink.detected:
        out.write(f"     Warning: groupthink: {'; '.join(groupthink.indicators)}")
    out.write(f"     {exit_line(shown) or f'It is {shown.metadata.status}: {shown.metadata.error}'}")
    out.write(f"     manage.py debate {debate.pk} --markdown     and: Debates in the console")


def show_swarm(out: Any, *, again: bool = False) -> None:
    """Send an example agent three messages while it has a swarm; where that was done before, say only where to find it.

    Raises:
        LookupError: The example agent is missing.
    """
    from agents.swarm.assign import assign_swarms
    from agents.swarm.food import ensure_food_swarms
    from agents.swarm.models import SwarmTurn
    from agents.swarm.phases import ensure_default_swarm
    from agents.swarm.talk import trace_lines, trace_of

    before = SwarmTurn.objects.filter(channel__synthetic=True, channel__topic=SWARM_TOPIC).order_by("-pk").first()
    if before is not None and not again:
        out.write(
            f"Shown before: channel {before.channel.slug}, see More › Logs › Swarm turns in the console. --again shows it again."
        )
        return
    agent = example_agents([EATER])[EATER]
    had, channel = list(agent.swarms.all()), begin_chat(agent)
    Channel.objects.filter(pk=channel.pk).update(topic=SWARM_TOPIC)
    assign_swarms(agent=agent, swarms=[ensure_default_swarm(), *ensure_food_swarms()])
    try:
        done = [exchange(agent, channel, text, overrides=OFF) for text in (DOSE, MEAL)]
        with transaction.atomic():
            asked = append(channel=channel, outsider=PERSON, text=SPEECH)
        sent = send_message(agent=agent, channel=channel, text=QUOTING, trigger=asked, overrides=OFF)
    finally:
        assign_swarms(agent=agent, swarms=had)
    out.write(
        f"{agent.display_name} has the swarms personality, macro and tmwya for three messages, in channel {channel.slug}."
    )
    last = SwarmTurn.objects.filter(message=sent.message).select_related("swarm").first()
    said = [(one.message, one.replies, one.lines) for one in done]
    for message, replies, lines in [
        *said,
        (SPEECH, [sent.text], trace_lines(trace_of(last)) if last is not None else []),
    ]:
        out.write(f"\n   > {message}")
        if message == SPEECH:
            out.write(
                "     (We gave this draft. Offline the polisher cuts “To sum up”, here out of a quote; a guard refuses that.)"
            )
        for reply in replies:
            out.write(f"     {agent.display_name}: “{_short(reply)}”")
        for line in lines:
            out.write(f"       {_short(line)}")
    out.write(f"     manage.py chat {EATER} --trace     and: Agents › Swarms in the console; {EATER} has none now")


def show_experiment(out: Any, *, again: bool = False) -> None:
    """Play recorded lines of two builds with and without the gate, by exact rules; where that was done before, say only where to find it.

    Each agent says what it said in build 41. Where the gate sends that back, it falls back on its first line of build 40.

    Raises:
        LookupError: An example agent is missing.
    """
    from evaluation.experiments.measuring import judge_here
    from evaluation.experiments.models import Experiment
    from evaluation.experiments.play import play
    from evaluation.experiments.printed import show
    from evaluation.experiments.report import report
    from evaluation.experiments.scenario import Scenario
    from evaluation.experiments.starting import start_experiment

    before = Experiment.objects.filter(name=EXPERIMENT).order_by("-pk").first()
    if before is not None and before.report and not again:
        out.write(
            f"Shown before: experiment {before.pk}. manage.py experiment report {before.pk}; --again plays it again."
        )
        return
    said = {
        (slug, build): list(
            Message.objects.filter(agent=agent, synthetic=False, tags__build=build)
            .order_by("pk")
            .values_list("text", flat=True)
        )
        for slug, agent in example_agents(CAST).items()
        for build in (LATER, EARLIER)
    }
    steps = [
        {"lines": {slug: [*said[slug, LATER][step : step + 1], said[slug, EARLIER][0]] for slug in CAST}}
        for step in range(STEPS)
    ]
    gate = {"stages": ["gate"], "gate_mode": "enforce", "gate_rules_enabled": True, "max_correction_attempts": 1}
    scenario = Scenario.model_validate(
        {
            "name": EXPERIMENT,
            "title": "Recorded lines of build 41, with and without the gate by exact rules; what is sent back becomes a line of build 40",
            "cast": list(CAST),
            "environments": 3,
            "agents": 2,
            "steps": steps,
            "arms": [
                {"name": "without", "overrides": {"stages": []}},
                {"name": "gate", "overrides": gate, "treatment": ["gate"]},
            ],
            "dimensions": [{"id": "adherence"}],
        }
    )
    script = {"judge": "offline:lexical-1", "actor_model": "offline:scripted-1"}
    experiment = play(start_experiment(scenario, **script))
    judge_here(experiment)
    experiment.refresh_from_db()
    show(report(experiment), console_on(out))
    out.write("  3 conversations are too few for a verdict; manage.py experiment run gate-on-off plays enough.")
    out.write(
        f"  manage.py experiment report {experiment.pk} --format markdown     and: Quality › Experiments in the console"
    )
