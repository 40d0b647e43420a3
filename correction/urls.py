from django.urls import include, path
from rest_framework.routers import SimpleRouter

from correction.api.config import Config, ConfigOfAgent
from correction.api.figures import Costs, GateFigures, GatePrecision
from correction.api.logs import CorrectionLogs, MarkResult
from correction.api.quality_checks import QualityChecks

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/correction-logs", CorrectionLogs)
router.register("quality-checks", QualityChecks, "quality-check")

urlpatterns = [
    path("evaluations/config/", Config.as_view({"get": "retrieve", "put": "update"}), name="config"),
    path(
        "evaluations/config/<slug:agent>/",
        ConfigOfAgent.as_view({"get": "retrieve", "put": "update", "patch": "partial_update"}),
        name="config-of-agent",
    ),
    path("evaluations/costs/", Costs.as_view({"get": "retrieve"}), name="costs"),
    path("evaluations/gate-statistics/", GateFigures.as_view({"get": "retrieve"}), name="gate-statistics"),
    path("evaluations/gate-precision/", GatePrecision.as_view({"get": "retrieve"}), name="gate-precision"),
    path(
        "evaluations/correction-logs/<int:pk>/results/<str:dimension>/mark/",
        MarkResult.as_view({"post": "mark"}),
        name="mark",
    ),
    path("", include(router.urls)),
]
