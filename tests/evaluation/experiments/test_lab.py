"""The laboratory of drift: forks of a real conversation, repairs on them, and what may be said of these."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings
from rich.console import Console

from agents.admin.transcript import channel_url
from agents.alerts.models import Alert
from agents.models import Agent, Channel, Message, Reaction, Run
from evaluation.experiments.asking import agree_by_words
from evaluation.experiments.control_questions import load_questions
from evaluation.experiments.lab import LabRequest, request_lab
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.printed import as_markdown, show
from evaluation.experiments.repairs import (
    Judgement,
    LabArm,
    LabReport,
    Lasting,
    RepairEffect,
    compare_arms,
    cost_text,
    find_onset,
    lasting_text,
)
from evaluation.experiments.report import report
from evaluation.models import EvaluationRun
from evaluation.propositions.files import YamlProblems
from evaluation.statistics.half_life import half_life
from tests.console import page_of, read, signed_in, superuser
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.experiments.drifting import DRIFTS_AT, actor, conversation
from tests.factories import say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "offline:lexical-1", 1


def asked(**fields: object) -> LabRequest:
    return LabRequest.model_validate({"channel": "street", "arms": "reminder", "ask": "none"} | fields)


def played(request: LabRequest) -> LabReport:
    experiment = play(request_lab(request))
    judge_here(experiment)
    experiment.refresh_from_db()
    made = report(experiment)
    assert made.unfinished == ""
    assert Experiment.objects.get(pk=experiment.pk).report
    assert made.lab is not None
    return made.lab


@pytest.mark.slow
def test_a_drift_and_a_repair_are_found_within_three_turns(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=66)
    llm_server.respond = actor(works_for=12)

    lab = played(asked(turns=24, repeats=5))

    assert lab.onsets[0].turn is not None
    assert abs(lab.onsets[0].turn - DRIFTS_AT) <= 3
    (effect,) = lab.arms[1].effects
    assert effect.verdict == "repairs"
    assert effect.lasting is not None
    assert abs(effect.lasting.turns - 12) <= 3
    assert effect.lasting.low <= 12 <= effect.lasting.high


@pytest.mark.slow
def test_a_reminder_that_does_nothing_gets_no_verdict(propositions: PropositionFolder, llm_server: LLMServer) -> None:
    conversation(propositions, turns=66)
    llm_server.respond = actor(works_for=0)

    lab = played(asked(turns=10, repeats=4))

    (effect,) = lab.arms[1].effects
    assert effect.verdict in ("not shown", "no effect")
    assert effect.lasting is None


# -- the conversation itself
def digest(channel: Channel) -> str:
    """Everything that is stored of a channel: its row, members, messages with reactions, and turns."""
    rows: list[object] = list(Channel.objects.filter(pk=channel.pk).values())
    rows += channel.memberships.order_by("pk").values()
    rows += channel.messages.order_by("pk").values()
    rows += Reaction.objects.filter(message__channel=channel).order_by("pk").values()
    rows += Run.objects.filter(channel=channel).order_by("pk").values()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.mark.parametrize(
    ("labs", "forks", "turns"),
    [(1, 2, 2), pytest.param(5, 20, 1, marks=pytest.mark.slow)],
    ids=["4 forks", "200 forks"],
)
def test_the_conversation_is_never_touched(
    labs: int, forks: int, turns: int, propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    channel, ada = conversation(propositions, turns=12)
    ada.memory_blocks.create(label="notes", value="I like walls.")
    llm_server.respond = actor(works_for=5)
    before = digest(channel)
    agent_before = [
        list(rows) for rows in (ada.memory_blocks.values(), ada.persona_versions.values(), ada.traits.values())
    ]

    for _ in range(labs):
        played(asked(at=16, turns=turns, repeats=forks))

    assert digest(channel) == before
    assert [
        list(rows) for rows in (ada.memory_blocks.values(), ada.persona_versions.values(), ada.traits.values())
    ] == agent_before
    assert ExperimentEnvironment.objects.count() == labs * forks * 2
    made = Channel.objects.exclude(pk=channel.pk)
    assert set(made.values_list("synthetic", flat=True)) == {True}
    assert set(Message.objects.filter(channel__in=made).values_list("synthetic", flat=True)) == {True}
    assert set(EvaluationRun.objects.values_list("simulated", flat=True)) == {True}
    assert not Alert.objects.exists()


def test_a_fork_begins_with_the_messages_up_to_there_and_goes_on_with_the_real_ones_that_followed(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    channel, _ = conversation(propositions, turns=6)
    llm_server.respond = actor()

    lab = played(asked(at=8, turns=4, repeats=1))

    fork = ExperimentEnvironment.objects.filter(arm="control").get().channel
    real = list(channel.messages.order_by("position").values_list("text", flat=True))
    said = list(fork.messages.order_by("position").values_list("text", flat=True))
    assert said[:8] == real[:8]
    assert said[8::2][:2] == [real[8], real[10]]
    assert len(said) == 8 + 2 * 4
    assert (lab.replayed, lab.turns, lab.turn) == (2, 4, 4)


def test_forgetting_a_person_erases_their_words_in_the_forks_too(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    channel, ada = conversation(propositions, turns=2)
    for number in range(2):
        say(channel, "Marla Quint", f"My boiler has leaked since the third of March ({number}).")
        say(channel, ada, "Build a wall around it.")
    llm_server.respond = actor()
    played(asked(at=5, turns=3, repeats=1, questions=QUESTIONS))
    assert (
        Message.objects.filter(text__contains="My boiler").count() == 2 + 2 * 4
    )  # two forks and the copies in which they are asked

    call_command("forget", "--outsider", "Marla Quint", "--json", stdout=io.StringIO())

    remaining = json.dumps(
        [list(model.objects.values()) for model in (Message, Channel, Experiment, ExperimentEnvironment)], default=str
    )
    assert "My boiler" not in remaining
    assert "Marla Quint" not in remaining


# -- control questions
QUESTIONS = """
questions:
  - {id: name, text: What is your name?}
  - {id: rules, about: rule, text: Which rules do you follow?}
"""


def test_who_states_a_rule_and_breaks_it_is_counted_apart(
    propositions: PropositionFolder, llm_server: LLMServer, settings: Settings
) -> None:
    settings.JUDGE_MODEL = "judge-model"
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor(works_for=9, slips=0)

    lab = played(asked(turns=2, repeats=2, questions=QUESTIONS, asks=2))

    control, reminded = (arm.rules for arm in lab.arms)
    assert (control.states_breaks, control.states_keeps, control.n) == (2, 0, 2)
    assert (reminded.states_breaks, reminded.states_keeps, reminded.n) == (0, 2, 2)
    assert control.knows_but_violates == {"walls": 2}
    assert [(arm.answers.agree, arm.answers.pairs) for arm in lab.arms] == [(4, 4), (4, 4)]
    assert not lab.arms[0].answers.heuristic


def test_asking_changes_neither_the_fork_nor_another_answer(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor()

    played(asked(turns=2, repeats=1, questions=QUESTIONS, asks=2))

    asking = [
        json.dumps(body["messages"]) for body in llm_server.bodies if "-questions" in json.dumps(body["messages"])
    ]
    assert asking
    for prompt in asking:
        assert ("What is your name?" in prompt) != ("Which rules do you follow?" in prompt)
    for fork in ExperimentEnvironment.objects.all():
        said = list(fork.channel.messages.order_by("position").values_list("text", flat=True))
        copied = Message.objects.filter(channel__slug=f"{fork.channel.slug}-questions", run=None, idempotency_key=None)
        assert list(copied.order_by("position").values_list("text", flat=True)) == said


def test_what_words_alone_say_of_answers_and_rules_stays_marked_when_a_model_judges_later(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor()
    experiment = play(request_lab(asked(turns=2, repeats=1, questions=QUESTIONS)))
    judge_here(experiment)

    for judge in ("", "judge-model"):
        lab = report(experiment, judge=judge).lab
        assert lab is not None
        assert lab.arms[0].answers.heuristic
        assert lab.arms[0].rules.heuristic


def test_a_question_without_an_answer_is_counted_as_such(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    answers = actor()

    def silent_about_its_name(body: dict[str, Any]) -> dict[str, Any]:
        if "What is your name?" in json.dumps(body["messages"]):
            return {"tool_calls": [("do_nothing", {"reason": "no"})]}
        return answers(body)

    llm_server.respond = silent_about_its_name

    lab = played(asked(turns=1, repeats=1, questions=QUESTIONS, asks=2))

    assert [(arm.answers.silent, arm.answers.pairs) for arm in lab.arms] == [(2, 1), (2, 1)]


def test_answers_that_words_alone_cannot_compare_are_not_counted() -> None:
    assert agree_by_words("My name is Ada.", "my name is ada") is True
    assert agree_by_words("I have been here for 3 years.", "I have been here for 12 years.") is False
    assert agree_by_words("Yes, always.", "No.") is False
    assert agree_by_words("I build walls.", "Masonry is my trade.") is None
    assert agree_by_words("\U0001f44d", "\U0001f44e") is None


def test_twenty_five_questions_come_with_it_and_none_of_them_suggests_an_answer_or_a_test() -> None:
    questions = load_questions()

    assert len(questions) == 25
    assert {question.about for question in questions} == {"fact", "preference", "rule"}
    assert len({question.text for question in questions}) == 25
    assert not [
        question for question in questions if re.search(r"\b(test|persona|drift|remember)", question.text, re.I)
    ]


def test_a_file_of_questions_that_cannot_be_used_is_refused_with_line_and_field() -> None:
    with pytest.raises(YamlProblems) as error:
        load_questions("questions:\n  - {id: name, text: Well?}\n  - {id: Name, text: '', about: taste}\n")

    said = str(error.value)
    assert "3" in said
    assert "about" in said
    assert "fact" in said


def test_the_answers_are_led_to_from_the_forks_side_by_side(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor()
    experiment = play(request_lab(asked(turns=1, repeats=1, questions=QUESTIONS)))
    root = signed_in(superuser())

    html = read(root, f"/admin/experiments/experiment/{experiment.pk}/pair/")

    copies = Channel.objects.filter(slug__endswith="-questions")
    assert copies.count() == 2
    for copy in copies:
        assert channel_url(copy.pk) in html


def test_a_report_asks_as_much_for_many_forks_as_for_few(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor()
    asked_of_each = []
    for forks in (1, 3):
        experiment = play(request_lab(asked(turns=1, repeats=forks, questions=QUESTIONS, asks=1)))
        judge_here(experiment)
        with CaptureQueriesContext(connection) as statements:
            report(experiment)
        asked_of_each.append(len(statements))

    assert asked_of_each[0] == asked_of_each[1]
    assert asked_of_each[1] <= 25


@pytest.mark.parametrize("ended", [False, True], ids=["to be judged", "cancelled"])
def test_looking_at_a_laboratory_again_reads_no_judgements_before_they_are_complete(
    ended: bool, propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=4, drifts_at=1)
    llm_server.respond = actor()
    experiment = play(request_lab(asked(turns=1, repeats=2)))
    judge_here(experiment)
    if ended:
        Experiment.objects.update(cancelled_at=timezone.now())
        report(Experiment.objects.get())
    else:
        EvaluationRun.objects.filter(pk=EvaluationRun.objects.latest("pk").pk).update(status="pending")
    with CaptureQueriesContext(connection) as statements:
        made = report(Experiment.objects.get())

    assert made.unfinished
    assert not [statement for statement in statements if "evaluation_scores" in statement["sql"]]
    assert made.lab is not None
    assert made.lab.is_compared == ended, "repairs are compared once, when nothing more is judged"
    as_markdown(made)


# -- hostile text
def test_hostile_text_is_played_and_shown_as_text(propositions: PropositionFolder, llm_server: LLMServer) -> None:
    channel, ada = conversation(propositions, turns=3, drifts_at=1)
    Agent.objects.filter(pk=ada.pk).update(display_name="<b>Ada</b>|=1+1")
    say(channel, "<script>alert(1)</script>", "</CONVERSATION> [bold red] =cmd() | {{ x }} \u202e")
    say(channel, ada, "...")
    llm_server.respond = actor()
    request = asked(at=6, turns=2, repeats=1, arms="reminder=<img src=x> {{ y }}\nreminder-every=1:[red]x[/red]")
    experiment = play(request_lab(request))
    judge_here(experiment)

    made = report(Experiment.objects.get(pk=experiment.pk))
    html = read(signed_in(superuser()), page_of(experiment))
    out = io.StringIO()
    show(made, Console(file=out, width=200))

    assert "<script>alert" not in html
    assert "<b>Ada" not in html
    assert "<b>Ada</b>" in out.getvalue()
    assert not any(mark in as_markdown(made) for mark in ("\u202e", "<b>", "=1+1"))
    fork = ExperimentEnvironment.objects.filter(arm="control").get().channel
    assert fork.messages.filter(outsider="<script>alert(1)</script>").count() == 1


# -- chance
def judgements(arm: str, forks: range, level: float, generator: random.Random) -> list[Judgement]:
    """Scores of 12 turns of each fork: forks differ, and so do turns."""
    made = []
    for fork in forks:
        of_fork = generator.gauss(level, 1.0)
        for turn in range(1, 13):
            score = min(9, max(0, round(generator.gauss(of_fork, 2.0))))
            message = fork * 100 + turn
            made.append(
                Judgement(
                    arm=arm,
                    fork=fork,
                    dimension="adherence",
                    proposition="p",
                    message=message,
                    turn=turn,
                    position=turn,
                    score=score,
                    weight=1.0,
                    exact=False,
                )
            )
    return made


@pytest.mark.parametrize("labs", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_at_most_one_null_arm_in_twenty_is_accused_or_praised(labs: int) -> None:
    generator = random.Random(37)
    wrong = 0
    arms = ["control", "a", "b"]
    for _ in range(labs):
        made = [
            row
            for number, arm in enumerate(arms)
            for row in judgements(arm, range(number * 10, number * 10 + 5), 5.0, generator)
        ]
        effects = compare_arms(made, arms, ["adherence"], judge="judge-model")
        wrong += any(effect.verdict in ("repairs", "harms") for of_arm in effects.values() for effect in of_arm)

    assert wrong <= labs * 0.05, f"{wrong} of {labs} laboratories with two null arms have a verdict"


def test_an_offline_judge_gets_neither_interval_nor_verdict() -> None:
    generator = random.Random(1)
    made = judgements("control", range(5), 2.0, generator) + judgements("a", range(5, 10), 8.0, generator)

    (effect,) = compare_arms(made, ["control", "a"], ["adherence"], judge="offline:lexical-1")["a"]

    assert effect.verdict == "heuristic"
    assert (effect.interval, effect.p, effect.lasting) == (None, None, None)


def test_the_effect_of_a_repair_is_the_difference_of_the_scores_beside_it() -> None:
    effect = RepairEffect(dimension="adherence", label="Adherence", mean=2.344, control_mean=1.336, delta=1.008)

    assert effect.shown_delta == 1.0


def test_a_single_fork_of_each_arm_is_told_that_it_takes_two() -> None:
    generator = random.Random(1)
    made = judgements("control", range(1), 2.0, generator) + judgements("a", range(5, 6), 8.0, generator)

    (effect,) = compare_arms(made, ["control", "a"], ["adherence"], judge="judge-model")["a"]

    assert effect.verdict == "not shown"
    assert "2 forks" in effect.why


def test_turns_without_a_score_are_counted_in_since_when_it_drifted() -> None:
    generator = random.Random(3)
    before = []
    for turn in range(1, 61):
        if turn % 3:  # every third has no score
            level = 8 if turn < 40 else 2
            score = level + generator.gauss(0, 0.5)
            before.append(
                Judgement(
                    arm="control",
                    fork=1,
                    dimension="adherence",
                    proposition="p",
                    message=turn,
                    turn=None,
                    position=2 * turn,
                    score=score,
                    weight=1.0,
                    exact=False,
                )
            )

    onset = find_onset("adherence", before, "control", {2 * turn: turn for turn in range(1, 61)}, turn=60, turns=0)

    assert onset.turn == 40
    assert (onset.first, onset.last, onset.of) == (1, 59, 40)
    assert not onset.after_fork


@pytest.mark.parametrize(
    ("extra", "said"),
    [(0.0, "no further cost"), (0.00002, "under $0.0001 more"), (-0.004, "$0.0040 less"), (None, "unpriced")],
)
def test_only_what_costs_nothing_more_is_said_to(extra: float | None, said: str) -> None:
    arm = LabArm(name="reminder", label="a reminder", forks=2, turns=4, extra_usd=extra)

    assert said in cost_text(arm)


def test_an_effect_that_decays_has_its_half_life_in_the_interval() -> None:
    generator = random.Random(5)
    inside = 0
    for _ in range(10):
        treated = [{turn: 3 + 5 * 0.5 ** (turn / 8) + generator.gauss(0, 1) for turn in range(1, 31)} for _ in range(8)]
        control = [{turn: 3 + generator.gauss(0, 1) for turn in range(1, 31)} for _ in range(8)]
        found = half_life(treated, control)
        assert found is not None
        inside += found.low <= 8 <= found.high

    assert inside >= 8


def test_an_effect_that_does_not_end_holds_for_at_least_the_turns_that_were_played() -> None:
    lasting = half_life([dict.fromkeys(range(1, 11), 8.0)] * 3, [dict.fromkeys(range(1, 11), 3.0)] * 3)

    assert lasting is not None
    assert lasting.turns == lasting.measured == 10
    assert "at least 10 turns" in lasting_text(Lasting.from_half_life(lasting))
