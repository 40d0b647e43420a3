"""Label sets in the review queue of those they are assigned to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import MOST_COUNTED
from agents.kit.console.panels import facts
from agents.kit.console.review import ReviewKind, Waits, add_review, by_key, numbers
from agents.kit.models import ReviewItem
from evaluation.admin.display import dimension_badge, judged_by
from evaluation.calibration.admin.labels import ASSIGNED, LABELLING
from evaluation.calibration.labels import progress
from evaluation.calibration.models import LabelSet


def label_sets(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Sets assigned to the user in which judgements have no label of theirs."""
    mine = ReviewItem.objects.filter(kind=ASSIGNED, assigned_to=request.user.pk).order_by("-pk")
    given = [key for key in mine.values_list("key", flat=True)[:MOST_COUNTED] if keys is None or key in keys]
    sets = [] if agent else list(LabelSet.objects.filter(pk__in=numbers(given)).order_by("-pk"))
    by_set = progress(sets)
    return [
        Waits(str(one.pk), one.created_at)
        for one in sets
        if not any(entry.annotator == request.user.get_username() and entry.done for entry in by_set[one.pk])
    ]


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
        waiting=label_sets,
        find=partial(by_key, LabelSet.objects.all()),
        line=lambda label_set: display.isolated(label_set.name),
        show=_show_set,
        url=lambda label_set: reverse("admin:calibration_labelset_label", args=[label_set.pk]),
        decisions=(),
    )
)
