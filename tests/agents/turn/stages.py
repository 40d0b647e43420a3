"""Stages that tests put into `TURN_PIPELINE`. Like real ones they hold no state of a turn; `heard` notes what reached them."""

from __future__ import annotations

from django.db import transaction

from agents.kit import llm
from agents.models import Agent, MemoryPassage, Message, Run, RunStep
from agents.turn.orchestrator import cancel
from agents.turn.pipeline import Accept, Answer, Draft, Revise, Turn
from agents.turn.send_message import commit

heard: list[tuple[str, str]] = []
SESSION = "0b5e2f3c-0000-4000-8000-000000000001"


class Hint:
    """Adds a section to the prompt."""

    name = "hint"

    def prepare(self, turn: Turn) -> None:
        turn.add_section("Conversation Guidance", "Speak of ships.")
        turn.count(hints=1)


class Clarifier:
    """Answers in place of the model."""

    name = "clarifier"

    def prepare(self, turn: Turn) -> Draft:
        return Draft("Which of the two do you mean?", {"kind": "question"})


class Shouter:
    """Rewrites every draft."""

    name = "shouter"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        return Accept(Draft(draft.text.upper(), draft.payload), "shouted")


class Strict:
    """Sends back every draft that holds the word bad, and keeps the latest; finishing, it says that, unless the agent gave up."""

    name = "strict"

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        heard.append(("review", f"{turn.session}|{draft.text}"))
        if "bad" in draft.text:
            turn.reports["strict"] = draft.text
            return Revise("It holds the word bad.", session=SESSION, outcome="corrected")
        return Accept(draft, "passed_after_retry" if turn.session else "passed")

    def committed(self, turn: Turn, message: Message) -> None:
        MemoryPassage.objects.create(agent=turn.agent, text=f"logged: {message.text}")

    def finish(self, turn: Turn) -> None:
        heard.append(("finish", ",".join(turn.sessions.values())))
        if turn.abandoned or not turn.sessions:
            return
        for key in list(turn.sessions.values()):
            draft = Draft(str(turn.reports.get("strict", "bad")))
            commit(turn=turn, draft=draft, idempotency_key=f"best:{turn.run.pk if turn.run else ''}:{key}")


class NeverPleased:
    """Sends everything back."""

    name = "never_pleased"

    def review(self, turn: Turn, draft: Draft) -> Revise:
        return Revise("No.")


class Idle:
    """Has nothing to do, and says so; its `committed` must not be called."""

    name = "idle"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        turn.skip("off for this agent")
        return Accept(draft)

    def committed(self, turn: Turn, message: Message) -> None:
        heard.append(("committed", message.text))


class Broken:
    """Raises wherever it is asked; in `committed` by a statement that the database refuses."""

    name = "broken"

    def received(self, message: Message, agent: Agent) -> None:
        raise RuntimeError("received is broken")

    def prepare(self, turn: Turn) -> None:
        raise RuntimeError("prepare is broken")

    def review(self, turn: Turn, draft: Draft) -> Accept:
        raise RuntimeError("review is broken")

    def committed(self, turn: Turn, message: Message) -> None:
        Message.objects.create(channel=message.channel, position=message.position, agent=turn.agent, text="double")

    def finish(self, turn: Turn) -> None:
        raise RuntimeError("finish is broken")


class Required(Broken):
    """The same, but nothing may be said without it."""

    name = "anonymous"
    required = True
    prepare = None  # type: ignore[assignment]
    finish = None  # type: ignore[assignment]
    received = None  # type: ignore[assignment]


class RequiredLog:
    """Must be able to log what is said, and cannot."""

    name = "required_log"
    required = True

    def committed(self, turn: Turn, message: Message) -> None:
        raise RuntimeError("no log, no message")


class Ear:
    """Hears of what people say."""

    name = "ear"

    def received(self, message: Message, agent: Agent) -> None:
        heard.append((agent.slug, message.text))


class Empty:
    """Makes drafts that nobody can say."""

    name = "empty"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        return Accept(Draft(" \n"))


class Interrupting:
    """Ctrl-C while the prompt is prepared."""

    name = "interrupting"

    def prepare(self, turn: Turn) -> None:
        raise KeyboardInterrupt


class Cancelling:
    """Somebody cancels the turn while a draft is reviewed."""

    name = "cancelling"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        if turn.run is not None:
            cancel(turn.run)
        return Accept(draft)


class Stealing:
    """Another process takes the turn over while the prompt is prepared."""

    name = "stealing"

    def prepare(self, turn: Turn) -> None:
        Run.objects.filter(agent=turn.agent).update(lease_owner="another-host:1:a")


class StepTaker:
    """Somebody else records the second step of this turn."""

    name = "step_taker"

    def prepare(self, turn: Turn) -> None:
        assert turn.run is not None
        RunStep.objects.create(run=turn.run, number=2, kind="tool_call")


class Judged:
    """Asks a model about every draft before it is said."""

    name = "judged"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        _ask(draft.text)
        return Accept(draft)


class AskedAfterwards:
    """Asks a model as soon as the message is saved, before anybody else knows of it."""

    name = "asked_afterwards"

    def committed(self, turn: Turn, message: Message) -> None:
        transaction.on_commit(lambda: _ask(message.text))


def _ask(text: str) -> None:
    llm.complete(
        llm.LLMRequest(
            role="judge",
            task="check",
            system=(llm.Block("Is this good?"),),
            turns=(llm.Turn("user", (llm.Block(text),)),),
            label=llm.Label(purpose="test"),
        ),
        deadline=60,
    )


class Asking:
    """Asks for a position; the scripted actor says what the turn's overrides hold."""

    name = "asking"

    def prepare(self, turn: Turn) -> None:
        turn.wanted_answer = Answer("position", turn.overrides.get("says", {}))
        turn.transcript = []


class AskingInDetail(Asking):
    """The same, and sends back what is not confident."""

    name = "asking_in_detail"

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        return Accept(draft) if draft.payload["confidence"] >= 0.5 else Revise("Be more confident.")
