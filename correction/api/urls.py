from django.urls import path

from correction.api.config import Config, ConfigOfAgent
from correction.api.figures import Costs, GateFigures, GatePrecision
from correction.api.interventions import InterventionDetail, InterventionLogDetail, InterventionLogs, Interventions
from correction.api.logs import CorrectionLogDetail, CorrectionLogs, MarkResult

app_name = "correction"
urlpatterns = [
    path("config/", Config.as_view(), name="config"),
    path("config/<slug:agent>/", ConfigOfAgent.as_view(), name="config-of-agent"),
    path("costs/", Costs.as_view(), name="costs"),
    path("gate-statistics/", GateFigures.as_view(), name="gate-statistics"),
    path("gate-precision/", GatePrecision.as_view(), name="gate-precision"),
    path("correction-logs/", CorrectionLogs.as_view(), name="logs"),
    path("correction-logs/<int:pk>/", CorrectionLogDetail.as_view(), name="log"),
    path("correction-logs/<int:pk>/results/<str:dimension>/mark/", MarkResult.as_view(), name="mark"),
    path("intervention-logs/", InterventionLogs.as_view(), name="intervention-logs"),
    path("intervention-logs/<int:pk>/", InterventionLogDetail.as_view(), name="intervention-log"),
    path("interventions/", Interventions.as_view(), name="interventions"),
    path("interventions/<slug:slug>/", InterventionDetail.as_view(), name="intervention"),
]
