"""Bundles: an experiment in one zip, to publish or to analyse elsewhere: its report, what was said, and the judge's answers."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.llm.endpoints import ANSWERS, export_answers
from agents.models import Agent, Message
from evaluation.experiments.play import ExperimentRefused, evaluations
from evaluation.experiments.report import report
from evaluation.models import Experiment, ExperimentEnvironment

CONTENT, MESSAGES = "experiment.json", "messages.jsonl"


def write_bundle(experiment: Experiment, out: Path) -> int:
    """Write the bundle of an experiment that was judged; returns the number of the judge's answers in it.

    The zip holds ``experiment.json`` (scenario, personas, environments, report), ``messages.jsonl`` (a message a line) and
    ``answers.jsonl`` (the judge's, where `LLM_STORE_PAYLOADS` had them stored).

    Raises:
        ExperimentRefused: It is not finished.
        OSError: The file cannot be written.
    """
    runs = list(evaluations(experiment).filter(judge=experiment.judge).values_list("pk", "status"))
    if not runs or any(status != ExperimentEnvironment.Status.COMPLETED for _, status in runs):
        raise ExperimentRefused([f"experiment {experiment.pk} is {experiment.state}; allowed: one that was judged"])
    messages = (json.dumps(one, ensure_ascii=False, default=str) for one in _messages(experiment))
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / ANSWERS
        written = export_answers(answers, work_ids=[f"evaluation_run:{pk}" for pk, _ in runs])
        draft = out.with_name(out.name + ".part")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(CONTENT, json.dumps(_content(experiment), ensure_ascii=False, indent=1))
            archive.writestr(MESSAGES, "".join(f"{line}\n" for line in messages))
            if written:
                archive.write(answers, ANSWERS)
        draft.replace(out)
    return written


def _content(experiment: Experiment) -> dict[str, Any]:
    environments = list(experiment.environments.select_related("channel").order_by("pk"))
    agents = Agent.objects.in_bulk({pk for one in environments for pk in one.agents})
    return {
        "scenario": experiment.scenario,
        "report": report(experiment).model_dump(mode="json"),
        "agents": {agent.slug: agent.system_prompt for _, agent in sorted(agents.items())},
        "environments": [
            {name: getattr(one, name) for name in ("arm", "repeat", "number", "counters", "figures", "missing")}
            | {"channel": one.channel.slug, "agents": [agents[pk].slug for pk in one.agents if pk in agents]}
            for one in environments
        ],
    }


def _messages(experiment: Experiment) -> Iterator[Mapping[str, Any]]:
    said = Message.objects.filter(channel__in=experiment.environments.values("channel"))
    columns = ("channel__slug", "position", "agent__slug", "outsider", "text", "payload", "sent_at", "tags")
    yield from said.order_by("channel", "position").values(*columns).iterator()
