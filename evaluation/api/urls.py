from django.urls import include, path
from rest_framework.routers import SimpleRouter

from evaluation.api.baselines import Baselines
from evaluation.api.experiments import Experiments
from evaluation.api.labels import Labels
from evaluation.api.propositions import Propositions
from evaluation.api.runs import Evaluations, Scores
from evaluation.api.schedules import Alerts, Schedules

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/baselines", Baselines)
router.register("evaluations/propositions", Propositions, "proposition")
router.register("evaluations/labels", Labels)
router.register("evaluations/schedules", Schedules)
router.register("evaluations/alerts", Alerts)
router.register("evaluations", Evaluations)
router.register("experiments", Experiments)

urlpatterns = [
    path("evaluations/<int:pk>/scores/", Scores.as_view({"get": "list"}), name="evaluationrun-scores"),
    path("", include(router.urls)),
]
