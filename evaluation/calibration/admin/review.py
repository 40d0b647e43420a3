"""Label sets in the review queue of those they are assigned to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from django.db.models import BigIntegerField, Exists, OuterRef, QuerySet
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import MOST_COUNTED, CountUpTo
from agents.kit.console.panels import facts
from agents.kit.console.review import ReviewKind, Waits, add_review, by_key, numbers
from agents.kit.models import ReviewItem
from evaluation.admin.display import dimension_badge, judged_by
from evaluation.calibration.admin.labels import ASSIGNED, LABELLING
from evaluation.calibration.labels import progress
from evaluation.calibration.models import DrawnScore, LabelSet, ScoreLabel


def assigned(request: HttpRequest) -> QuerySet[ReviewItem]:
    """Return what is assigned to the user to label, newest first."""
    return ReviewItem.objects.filter(kind=ASSIGNED, assigned_to=request.user.pk).order_by("-pk")


def to_label(request: HttpRequest) -> QuerySet[LabelSet]:
    """Return the sets assigned to the user in which judgements have no label of theirs, newest first."""
    keys = assigned(request).annotate(number=Cast("key", BigIntegerField())).values("number")[:MOST_COUNTED]
    label = ScoreLabel.objects.filter(
        evaluation_score=OuterRef("evaluation_score"), annotator=request.user.get_username(), withdrawn=False
    )
    left = DrawnScore.objects.filter(~Exists(label), label_set=OuterRef("pk"))
    return LabelSet.objects.filter(Exists(left), pk__in=keys).order_by("-pk")


def waiting_sets(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Return what waits of them; a set is about no agent."""
    if agent:
        return []
    rows = to_label(request)
    if keys is not None:
        rows = rows.filter(pk__in=numbers(keys))
    return [Waits(str(pk), at) for pk, at in rows.values_list("pk", "created_at")]


def _show_set(request: HttpRequest, label_set: LabelSet) -> SafeString:
    entries = progress([label_set])[label_set.pk]
    done = next((entry.labelled for entry in entries if entry.annotator == request.user.get_username()), 0)
    return facts(
        ("Judge", judged_by(label_set)),
        ("Dimension", dimension_badge(label_set.dimension)),
        ("Labelled by you", f"{done:,} of {label_set.drawn.count():,}"),
    )


add_review(
    ReviewKind(
        name=ASSIGNED,
        title="To label",
        one="label set to label",
        many="label sets to label",
        order=45,
        permissions=(LABELLING,),
        fills="label sets that are assigned to you.",
        waiting=waiting_sets,
        count=lambda request: CountUpTo(assigned(request)),
        counts_exactly=False,
        find=partial(by_key, LabelSet.objects.all()),
        line=lambda label_set: display.isolated(label_set.name),
        show=_show_set,
        url=lambda label_set: reverse("admin:calibration_labelset_label", args=[label_set.pk]),
        decisions=(),
    )
)
