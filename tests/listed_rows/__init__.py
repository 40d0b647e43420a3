"""Rows for every list of the console, as many as wanted: for the tests that count queries and the bench that takes the time.

Each function makes `more` rows besides the `have` that are there, spread over the agents and channels that `people` made.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.listed_rows.cast import Cast as Cast
from tests.listed_rows.cast import people as people
from tests.listed_rows.of_agents import (
    agents,
    batches,
    calls,
    channels,
    groups,
    imports,
    messages,
    prices,
    runs,
    tokens,
    users,
    workers,
)
from tests.listed_rows.of_correction import (
    configurations,
    intervention_logs,
    interventions,
    logs,
    observed,
    requests,
)
from tests.listed_rows.of_evaluation import alerts, baselines, evaluations, label_sets, line_ups, schedules, scores

# By the label of the model a list is about. Proposition drafts have no rows: their page reads files.
MAKERS: dict[str, Callable[[Cast, int, int], None]] = {
    "auth.user": users,
    "auth.group": groups,
    "authtoken.tokenproxy": tokens,
    "agents.agent": agents,
    "agents.channel": channels,
    "agents.message": messages,
    "agents.run": runs,
    "agents.import": imports,
    "agents.llmcall": calls,
    "agents.llmbatch": batches,
    "agents.modelprice": prices,
    "agents.workerheartbeat": workers,
    "evaluation.evaluationrun": evaluations,
    "evaluation.evaluationscore": scores,
    "evaluation.baseline": baselines,
    "evaluation.evaluationschedule": schedules,
    "evaluation.driftalert": alerts,
    "evaluation.labelset": label_sets,
    "evaluation.lineuprun": line_ups,
    "correction.behaviorrequest": requests,
    "correction.agentevaluationconfig": configurations,
    "correction.intervention": interventions,
    "correction.interventionlog": intervention_logs,
    "correction.correctionlog": logs,
    "correction.observedmessage": observed,
}
