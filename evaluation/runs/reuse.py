"""Find what was measured before, so that it need not be measured again."""

from __future__ import annotations

from django.db.models import QuerySet

from agents.models import Message
from evaluation.models import EvaluationRun
from evaluation.runs.failures import failed_call
from evaluation.runs.planning import make_plan
from evaluation.runs.spec import RunSpec
from evaluation.scorers.selection import synthetic_only


def reusable(spec: RunSpec) -> EvaluationRun | None:
    """Return the newest run that asked for just this, if it can be used instead of a new one; else None.

    It can if it and the runs of its channels are completed without a failed call, and nothing was said since. What has a window or a
    history that moves with the clock (``7d``) is always measured again.
    """
    if spec.window.start is not None or spec.history.start is not None:
        return None
    runs = EvaluationRun.objects.select_related("agent", "channel").filter(spec_digest=make_plan(spec).spec_digest)
    run: EvaluationRun | None = runs.order_by("-pk").first()
    if run is None:
        return None
    for part in (run, *run.channel_runs.all()):
        if part.status != EvaluationRun.Status.COMPLETED or failed_call(part):
            return None
    if _messages_since(run, spec).exists():
        return None
    return run


def _messages_since(run: EvaluationRun, spec: RunSpec) -> QuerySet[Message]:
    """Return what was said since the run was made, in the channel, or in the channels in which the agent speaks."""
    later = Message.objects.filter(created_at__gt=run.created_at)
    if spec.channel is not None:
        return later.filter(channel=spec.channel)
    kind = synthetic_only(spec.where, spec.simulated)
    channels = Message.objects.filter(agent=spec.agent, **kind).order_by().values("channel")
    return later.filter(channel__in=channels, **kind)
