"""What a swarm tells a chat in the terminal: what it did with a message, and why there may be nothing to tell (`agents.chat`)."""

from __future__ import annotations

from agents.chat import TurnReport
from agents.kit.models import owner_name
from agents.models import Agent, Channel, Run
from agents.swarm.models import SwarmTurn
from agents.swarm.summaries import summarise_now, why_no_summary
from agents.swarm.talk import trace_lines, trace_of


def report(agent: Agent, channel: Channel, run: Run) -> TurnReport:
    """Summarise older messages where it is time, and return what the agent's swarm did in the turn."""
    row = SwarmTurn.objects.filter(run=run).select_related("swarm").first()
    summarise_now(agent, channel, owner=owner_name())
    if row is None:
        return TurnReport()
    trace = trace_of(row)
    return TurnReport(trace=trace.model_dump(), lines=trace_lines(trace), summary_failed=why_no_summary(agent, channel))


def why_untraced(agent: Agent) -> str:
    """Say why there is nothing to trace; empty where a swarm takes part in the agent's turns."""
    if agent.swarms.filter(enabled=True).exists():
        return ""
    how = "assign one in the console (Agents › Swarms), or with PATCH /api/swarms/{id}/"
    return f"{agent.slug} has no swarm, so there is nothing to trace: {how}."
