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
from agents.kit.text.wording import money, percentage
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.turn.orchestrator import run_turn
from agents.turn.pipeline import SendResult
from agents.turn.prompt import preview_prompt
from agents.turn.send_message import append, send_message, start_turn
from correction.demo import EXPERIMENT
from correction.gate.statistics import get_gate_statistics
from correction.interventions.models import InterventionLog
from correction.models import CorrectionLog, Outcome
from correction.repetition import check_repetition
from evaluation.models import is_heuristic
from evaluation.wording import judge_label

MEMBERS = ("michael", "dwight", "pam", "jim", "kevin", "phyllis")
EVERYTHING_OFF: dict[str, Any] = {
    "gate_mode": "off",
    "anti_convergence_enabled": False,
    "variety_intervention_enabled": False,
    "repetition_suppression_enabled": False,
}

UNCHECKED_MESSAGE = (
    "You will not believe what I just found under my desk, gang. A trophy! It has my name on it. I wrote my name on it."
)
MESSAGE_IN_VOICE = "Everybody, drop everything! I have decided that my office deserves the greatest party ever, and I am going to host it!"
DRAFT_OUT_OF_CHARACTER = "Please be advised that the quarterly summary has been submitted. No further action is needed."
SECOND_DRAFT = (
    "You guys, I finished my report and it is the best report ever written. I am so proud of me. Ask me how proud!"
)
DRAFTS_THAT_FAIL = (  # the second is the least bad: it is the one that has to be sent
    "Please be advised that the meeting has been scheduled. No further action is needed.",
    "Please note that my party, the best party ever, has been scheduled. No further action is needed, everybody!",
    "As per the attached, the agenda has been updated as planned. No action needed.",
)
AGREEING_MESSAGES = (  # each in their own words
    ("pam", "So I thought we could have the picnic on Friday, out behind the warehouse."),
    ("kevin", "Yes! I will bring the potato salad. The good one, not the one from last time."),
    ("phyllis", "Oh, that sounds lovely. Bob can lend us his folding chairs."),
    ("jim", "Works for me. Anything that gets us out of the conference room."),
)
REPEATING_MESSAGES = (
    ("phyllis", "Hey everyone, just wanted to say that the flowers are here."),
    ("phyllis", "Hey everyone, just wanted to ask about the cake."),
    ("phyllis", "Hey everyone, just wanted to say hello."),
    ("phyllis", "Hey everyone, just wanted to thank Kevin."),
    ("phyllis", "Hey everyone, just wanted to share my recipe."),
)

DEBATE_TOPIC = "Should the Monday meeting move to Friday afternoon?"
DEBATE_LINES = {  # seat by seat what the scripted actor says in the poll, in rounds 1 and 2: stance, confidence, position, reasoning
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

SWARM_AGENT = "kevin"
QUESTION_ABOUT_DOSE = "How much ibuprofen may I take?"
REPORT_OF_MEAL = "I ate two eggs"
QUESTION_ABOUT_SPEECH = "How did Michael end his speech at the picnic?"
# Offline the polisher cuts such openings, here out of what another person said.
DRAFT_WITH_QUOTE = "He said: “It was a good year. To sum up, I am the best boss.” Then he ate all my potato salad."
SWARM_TOPIC = "Demonstration of a swarm"
LATER_BUILD, EARLIER_BUILD = "41", "40"
EXPERIMENT_AGENTS = ("angela", "dwight", "jim", "kevin", "michael", "stanley")
EXPERIMENT_STEPS = 6

LONGEST_LINE = 96  # characters of a text shown on one line


def example_agents(slugs: Iterable[str]) -> dict[str, Agent]:
    """Return the active example agents of these slugs.

    Raises:
        LookupError: One is missing.
    """
    slugs_wanted = set(slugs)
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=slugs_wanted, is_active=True)}
    if missing := ", ".join(sorted(slugs_wanted - set(agents))):
        raise LookupError(f"the demonstration needs the active example agents {missing}: run `manage.py seed`")
    return agents


def gate_settings() -> dict[str, Any]:
    """Return the settings of a scene at the gate: every dimension that the configured judge can say something about.

    Self-consistency and fluency need an LLM: offline they would be unscored in every scene, as no draft says the same words again.
    """
    has_model = not is_heuristic(str(settings.JUDGE_MODEL))
    return {
        **EVERYTHING_OFF,
        "gate_mode": "enforce",
        "gate_adherence_enabled": True,
        "gate_consistency_enabled": has_model,
        "gate_fluency_enabled": has_model,
    }


@dataclass(slots=True)
class Stage:
    """The two channels of one demonstration, with the example agents by slug."""

    channel: Channel
    picnic: Channel
    agents: dict[str, Agent]

    @classmethod
    def set_up(cls) -> Stage:
        """Make two synthetic channels, with the first number that no channel has yet; return the stage with them and its agents.

        Raises:
            LookupError: An example agent is missing.
        """
        agents = example_agents(MEMBERS)
        number = 1
        while Channel.objects.filter(slug__in=[f"demo-{number}", f"demo-{number}-picnic"]).exists():
            number += 1
        with transaction.atomic():
            channel = cls._new_channel(f"demo-{number}", agents)
            picnic = cls._new_channel(f"demo-{number}-picnic", agents)
        return cls(channel, picnic, agents)

    @staticmethod
    def _new_channel(slug: str, agents: dict[str, Agent]) -> Channel:
        """Make a synthetic channel with these members."""
        channel: Channel = Channel.objects.create(
            slug=slug, name=slug, synthetic=True, topic="Demonstration of correction"
        )
        ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in agents.values())
        return channel

    def add_messages(self, channel: Channel, lines: Iterable[tuple[str, str]]) -> None:
        """Add given messages to a conversation, as if they were sent before."""
        with transaction.atomic():
            for slug, text in lines:
                append(channel=channel, agent=self.agents[slug], text=text)

    def send_drafts(self, slug: str, drafts: Sequence[str], overrides: dict[str, Any]) -> list[SendResult]:
        """Send one draft after the other in one gate session, until one is sent; return the results, without drafts after that."""
        results: list[SendResult] = []
        for draft in drafts:
            result = send_message(
                agent=self.agents[slug],
                channel=self.channel,
                text=draft,
                overrides=overrides,
                session=results[-1].session if results else "",
            )
            results.append(result)
            if result.committed:
                break
        return results

    def take_turn(self, channel: Channel, slug: str, overrides: dict[str, Any]) -> Run:
        """Let an agent take a turn here and now."""
        run = start_turn(agent=self.agents[slug], channel=channel, overrides=overrides)
        return run_turn(run, owner=owner_name())


def show_correction(out: Any, *, again: bool = False) -> None:
    """Run the scenes of specification 000 in new channels and print what happened; where they ran before, say only where to find them.

    Args:
        again: Run them also where they ran before.

    Raises:
        LookupError: An example agent is missing.
    """
    channels = Channel.objects.filter(synthetic=True, slug__regex=r"^demo-[0-9]+$", gate_sessions__isnull=False)
    before = channels.order_by("-pk").first()  # the newest channel in which they ran
    if before is not None and not again:
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
    _print_sums(out, stage)


def _gate_scenes(out: Any, stage: Stage) -> None:
    """Send messages of michael without and with the gate, and print each draft with its verdict; without it, how many calls were made."""
    gate_on = gate_settings()
    calls_before = LLMCall.objects.count()
    _gate_scene(out, stage, "Everything off (the default)", (UNCHECKED_MESSAGE,), EVERYTHING_OFF)
    out.write(f"     {LLMCall.objects.count() - calls_before} model calls")
    _gate_scene(out, stage, "A message in character, gate on", (MESSAGE_IN_VOICE,), gate_on)
    title = "A draft out of character, and what the agent writes instead"
    _gate_scene(out, stage, title, (DRAFT_OUT_OF_CHARACTER, SECOND_DRAFT), gate_on)
    title = "Three drafts out of character: when all fail, the best of them is sent, not the last"
    _gate_scene(out, stage, title, DRAFTS_THAT_FAIL, gate_on)


def _gate_scene(out: Any, stage: Stage, title: str, drafts: Sequence[str], overrides: dict[str, Any]) -> None:
    """Send drafts of one message by michael, until one is sent, and print of each what the gate says and what becomes of it.

    Without a gate there are no verdicts to print.
    """
    out.write(f"\n   {title}")
    results = stage.send_drafts("michael", drafts, overrides)
    for number, result in enumerate(results, 1):
        out.write(f"     draft {number}   “{_short(drafts[number - 1])}”")
        for name, check in result.reports.get("gate", {}).get("dimensions", {}).items():
            mark = "✓" if check["passed"] else "✗"
            score = "not judged" if check["score"] is None else f"{check['score']:g}"
            out.write(f"       {mark} {name} {score}, needs {check['threshold']:g}: {_short(check['reasoning'])}")
        outcome = dict(Outcome.choices).get(result.outcome, result.outcome)
        quotation = f": “{_short(result.text)}”" if result.committed else ""
        out.write(f"     → {outcome}{quotation}")


def _nudge_scene(out: Any, stage: Stage) -> None:
    """Have dwight answer where four agents agree with each other, and print whether he is nudged, and what he says."""
    stage.add_messages(stage.picnic, AGREEING_MESSAGES)
    run = stage.take_turn(stage.picnic, "dwight", {**EVERYTHING_OFF, "anti_convergence_enabled": True})
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
    """Print how far phyllis's last messages repeat each other, and what is added to her prompt; no turn is taken."""
    stage.add_messages(stage.channel, REPEATING_MESSAGES)
    phyllis = stage.agents["phyllis"]
    result = check_repetition(phyllis, channel=stage.channel)
    out.write("\n   Five messages that begin alike: the agent is shown what to avoid")
    out.write(
        f"     overlap   {percentage(result.overlap)} of the 3-grams recur (threshold {percentage(result.threshold)})"
    )
    overrides = {**EVERYTHING_OFF, "repetition_suppression_enabled": True}
    for section in preview_prompt(agent=phyllis, channel=stage.channel, overrides=overrides).sections:
        if section.stage == "repetition":
            out.write(f"     prompt    ### {section.heading}, added by the stage {section.stage}")
            for line in filter(str.strip, section.body.splitlines()):
                out.write(f"               {line}")
    out.write("     The scripted actor reads no prompt; with an LLM as actor the next message follows from it.")


def _print_sums(out: Any, stage: Stage) -> None:
    """Print what the gate did for michael in simulations so far, and what correction cost for all agents."""
    figures = get_gate_statistics(agent=stage.agents["michael"], synthetic=True)
    rate = ""
    if figures.original_success_rate is not None:
        rate = f" ({percentage(figures.original_success_rate)})"
    spent = totals(LLMCall.objects.filter(purpose__in=["gate", "intervention"]))
    out.write(
        f"\n   What the gate did for michael\n     {figures.total_actions} messages, {figures.original_pass_count} of "
        f"{figures.judged_count} judged first drafts passed{rate}, {figures.regeneration_count} further drafts, "
        f"{figures.forced_through_count} forced through\n"
        f"     correction of all agents so far: {spent.calls} judgements asked, {money(spent.cost_usd, spent.unpriced)}\n"
        "     manage.py costs --by dimension     and: Gate › Log in the console"
    )


def _short(text: str) -> str:
    """Return a text on one line, cut visibly."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def show_debate(out: Any, *, again: bool = False) -> None:
    """Have four example agents debate in the mode devils-advocate, from given lines, and print it; where they did before, only say where.

    Args:
        again: Play it also where it was played before.

    Raises:
        LookupError: An example agent is missing.
    """
    from agents.debates.debate import ask_rounds, play
    from agents.debates.models import Debate
    from agents.debates.report import exit_line, report, round_name, talking_lines
    from agents.debates.starting import start_debate

    before = Debate.objects.filter(topic=DEBATE_TOPIC, channel__synthetic=True).order_by("-pk").first()
    if before is not None and not again:
        out.write(f"Shown before: debate {before.pk}, see Debates in the console. --again plays it again.")
        return
    example_agents(DEBATE_LINES)
    script = _debate_script()
    debate = start_debate(
        topic=DEBATE_TOPIC, mode="devils-advocate", agents=list(DEBATE_LINES), rounds=2, script=script
    )
    result = report(play(ask_rounds(debate, None), owner=owner_name()))
    out.write(f"Debate {debate.pk}, devils-advocate: {DEBATE_TOPIC}")
    if is_heuristic(str(settings.ACTOR_MODEL)):
        out.write(f"Actor {settings.ACTOR_MODEL} says given lines; the figures below are computed from them.")
    for response in result.agent_responses:
        stance = str(response.stance or response.status)
        if response.confidence is not None:
            stance += f" {response.confidence:.2f}"
        text = _short(response.position or response.error)
        out.write(f"     {round_name(response.round):8} {response.agent:8} {stance:13} “{text}”")
        if response.violation:
            out.write(f"       ✗ {_short(response.violation)}")
    for line in talking_lines(result.decision.what_talking_changed):
        out.write(f"     {line}")
    groupthink = result.evidence.groupthink
    if groupthink is not None and groupthink.detected:
        out.write(f"     Warning: groupthink: {'; '.join(groupthink.indicators)}")
    out.write(f"     {exit_line(result) or f'It is {result.metadata.status}: {result.metadata.error}'}")
    out.write(f"     manage.py debate {debate.pk} --markdown     and: Debates in the console")


def _debate_script() -> dict[int, list[dict[str, Any]]]:
    """Return what the scripted actor answers, by the seat's number, one entry a round."""
    script = {}
    for seat, lines in enumerate(DEBATE_LINES.values(), 1):
        script[seat] = [
            {"stance": stance, "confidence": confidence, "position": position, "reasoning": reasoning, "text": position}
            for stance, confidence, position, reasoning in lines
        ]
    return script


def show_swarm(out: Any, *, again: bool = False) -> None:
    """Send an example agent three messages while it has swarms, and print what these did; where that was done before, only say where.

    The swarms it had before are given back, also after an error.

    Args:
        again: Show it also where it was shown before.

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
    agent = example_agents([SWARM_AGENT])[SWARM_AGENT]
    swarms_before = list(agent.swarms.all())
    channel = begin_chat(agent)
    Channel.objects.filter(pk=channel.pk).update(topic=SWARM_TOPIC)
    assign_swarms(agent=agent, swarms=[ensure_default_swarm(), *ensure_food_swarms()])
    try:
        answers = [
            exchange(agent, channel, text, overrides=EVERYTHING_OFF) for text in (QUESTION_ABOUT_DOSE, REPORT_OF_MEAL)
        ]
        with transaction.atomic():
            question = append(channel=channel, outsider=PERSON, text=QUESTION_ABOUT_SPEECH)
        sent = send_message(
            agent=agent, channel=channel, text=DRAFT_WITH_QUOTE, trigger=question, overrides=EVERYTHING_OFF
        )
    finally:
        assign_swarms(agent=agent, swarms=swarms_before)
    out.write(
        f"{agent.display_name} has the swarms personality, macro and tmwya for three messages, in channel {channel.slug}."
    )
    for answer in answers:
        out.write(f"\n   > {answer.message}")
        _write_answer(out, agent, answer.replies, answer.lines)
    out.write(f"\n   > {QUESTION_ABOUT_SPEECH}")
    out.write(
        "     (We gave this draft. Offline the polisher cuts “To sum up”, here out of a quote; a guard refuses that.)"
    )
    swarm_turn = SwarmTurn.objects.filter(message=sent.message).select_related("swarm").first()
    _write_answer(out, agent, [sent.text], trace_lines(trace_of(swarm_turn)) if swarm_turn is not None else [])
    out.write(
        f"     manage.py chat {SWARM_AGENT} --trace     and: Agents › Swarms in the console; {SWARM_AGENT} has none now"
    )


def _write_answer(out: Any, agent: Agent, replies: Iterable[str], trace: Iterable[str]) -> None:
    """Print an agent's replies to a message, and what its swarms did."""
    for reply in replies:
        out.write(f"     {agent.display_name}: “{_short(reply)}”")
    for line in trace:
        out.write(f"       {_short(line)}")


def show_experiment(out: Any, *, again: bool = False) -> None:
    """Play recorded lines of two builds with and without the gate, by exact rules, and print the report; where it was, only say where.

    Each agent says what it said in build 41. Where the gate sends that back, it falls back on its first line of build 40. The judge is
    always the offline one, and so costs nothing.

    Args:
        again: Play it also where it was played before.

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
    steps = _recorded_steps(example_agents(EXPERIMENT_AGENTS))
    gate = {"stages": ["gate"], "gate_mode": "enforce", "gate_rules_enabled": True, "max_correction_attempts": 1}
    scenario = Scenario.model_validate(
        {
            "name": EXPERIMENT,
            "title": "Recorded lines of build 41, with and without the gate by exact rules; what is sent back becomes a line of build 40",
            "cast": list(EXPERIMENT_AGENTS),
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


def _recorded_steps(agents: dict[str, Agent]) -> list[dict[str, Any]]:
    """Return what each agent says step by step: its line of the later build, then as a second draft one of the earlier build."""
    later = {slug: _recorded_lines(agent, LATER_BUILD) for slug, agent in agents.items()}
    earlier = {slug: _recorded_lines(agent, EARLIER_BUILD) for slug, agent in agents.items()}
    steps = []
    for step in range(EXPERIMENT_STEPS):
        lines = {slug: [*later[slug][step : step + 1], earlier[slug][0]] for slug in EXPERIMENT_AGENTS}
        steps.append({"lines": lines})
    return steps


def _recorded_lines(agent: Agent, build: str) -> list[str]:
    """Return what an agent really said in a build, oldest first."""
    messages = Message.objects.filter(agent=agent, synthetic=False, tags__build=build)
    return list(messages.order_by("pk").values_list("text", flat=True))
