from django.urls import path

from evaluation.api.baselines import Baselines, BaselinesOfAgent, CompareWithBaseline
from evaluation.api.labels import Labels
from evaluation.api.propositions import Propositions
from evaluation.api.runs import CancelRun, ResumeRun, Run, Runs, RunScores
from evaluation.api.schedules import Alerts, Schedules

app_name = "evaluation"
urlpatterns = [
    path("", Runs.as_view(), name="runs"),
    path("<int:pk>/", Run.as_view(), name="run"),
    path("<int:pk>/scores/", RunScores.as_view(), name="run-scores"),
    path("<int:pk>/cancel/", CancelRun.as_view(), name="run-cancel"),
    path("<int:pk>/resume/", ResumeRun.as_view(), name="run-resume"),
    path("baselines/", Baselines.as_view(), name="baselines"),
    path("baselines/<slug:agent>/", BaselinesOfAgent.as_view(), name="baselines-of-agent"),
    path("baselines/<slug:agent>/compare/", CompareWithBaseline.as_view(), name="baseline-compare"),
    path("propositions/", Propositions.as_view(), name="propositions"),
    path("labels/", Labels.as_view(), name="labels"),
    path("schedules/", Schedules.as_view(), name="schedules"),
    path("alerts/", Alerts.as_view(), name="alerts"),
]
