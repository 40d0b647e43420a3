from django.urls import include, path
from rest_framework.routers import SimpleRouter

from evaluation.api.propositions import Propositions
from evaluation.api.runs import Evaluations, Scores
from evaluation.api.schedules import Schedules

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/propositions", Propositions, "proposition")
router.register("evaluations/schedules", Schedules)
router.register("evaluations", Evaluations)

urlpatterns = [
    path("evaluations/<int:pk>/scores/", Scores.as_view({"get": "list"}), name="evaluationrun-scores"),
    path("", include(router.urls)),
]
