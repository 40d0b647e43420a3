"""Who a judge really is: the server, the model that answered, and the prompts it was asked with."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent
from evaluation.judge import offline
from evaluation.judge.identity import JudgeIdentity, newest_identity, prompt_digest
from evaluation.models import EvaluationRun
from tests.evaluation.judging import entry
from tests.evaluation.measuring import measured
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def digest(judge: str = "m", method: str = "plumbline", *dimensions: str, double_check: bool = False) -> str:
    return prompt_digest(judge, method=method, double_check=double_check, dimensions=dimensions or ("adherence",))


def test_an_evaluation_knows_the_identity_of_its_judge(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.always(json={"p1": entry(4), "p2": entry(8)}, model="model-of-may")
    run = measured(ada).summary.run
    llm_server.always(json={"p1": entry(4), "p2": entry(8)}, model="model-of-june")
    before = newest_identity(judge=run.judge, procedure="plumbline", dimension="adherence")
    measured(ada, seed=1)

    newest = newest_identity(judge=run.judge, procedure="plumbline", dimension="adherence")

    assert before == JudgeIdentity(
        endpoint=llm_server.url, served_model="model-of-may", prompt_digest=digest(run.judge)
    )
    assert newest is not None
    assert newest == before.model_copy(update={"served_model": "model-of-june"})
    assert newest_identity(judge=run.judge, procedure="plumbline+hard", dimension="adherence") is None
    assert newest_identity(judge=run.judge, procedure="plumbline", dimension="fluency") is None


def test_the_offline_judge_answers_as_itself(ada: Agent, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    measured(ada)
    run = EvaluationRun.objects.get()

    assert (run.judge_endpoint, run.prompt_digest) == ("", digest("offline:lexical-1"))


def test_prompts_of_a_procedure_have_one_digest_whatever_is_judged() -> None:
    assert digest("m", "plumbline", "adherence") == digest("other", "plumbline", "fluency", "consistency")
    others = [
        digest("m", "tinytroupe"),
        digest("m", "plumbline", double_check=True),
        digest("m", "plumbline", "ideas_quantity"),
        digest("offline:lexical-1"),
    ]
    assert len({digest(), *others}) == 5


def test_other_rules_make_another_offline_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("offline:lexical-1")
    monkeypatch.setattr(offline, "RULES", (*offline.RULES, 1))

    assert digest("offline:lexical-1") != before
