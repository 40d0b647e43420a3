"""What was measured before, so that it need not be measured again."""

from __future__ import annotations

from agents.models import Message
from evaluation.models import EvaluationRun
from evaluation.runs.planning import RunSpec, make_plan
from evaluation.runs.summary import failed_call
from evaluation.scorers.subjects import synthetic_only


def reusable(spec: RunSpec) -> EvaluationRun | None:
    """The newest completed run that judged just this; None when there is none, a call of it failed, or more was said since.

    A window that moves with the clock (``7d``) is measured again.
    """
    if spec.window.start is not None or spec.history.start is not None:
        return None
    runs = EvaluationRun.objects.select_related("agent", "channel").filter(spec_digest=make_plan(spec).spec_digest)
    run: EvaluationRun | None = runs.order_by("-pk").first()
    if run is None:
        return None
    if any(r.status != EvaluationRun.Status.COMPLETED or failed_call(r) for r in (run, *run.channel_runs.all())):
        return None
    since = Message.objects.filter(created_at__gt=run.created_at)
    if spec.channel is not None:
        since = since.filter(channel=spec.channel)
    else:
        kind = synthetic_only(spec.where, spec.simulated)
        own = Message.objects.filter(agent=spec.agent, **kind).order_by().values("channel")
        since = since.filter(channel__in=own, **kind)
    return None if since.exists() else run
