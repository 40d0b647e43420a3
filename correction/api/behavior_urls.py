from django.urls import path

from correction.api.behavior_effect import RequestEffect
from correction.api.behavior_requests import (
    ApplyRequest,
    BehaviorRequestDetail,
    BehaviorRequests,
    RejectRequest,
    RetryRequest,
    RevertRequest,
)

app_name = "behavior"
urlpatterns = [
    path("", BehaviorRequests.as_view(), name="requests"),
    path("<int:pk>/", BehaviorRequestDetail.as_view(), name="request"),
    path("<int:pk>/apply/", ApplyRequest.as_view(), name="apply"),
    path("<int:pk>/reject/", RejectRequest.as_view(), name="reject"),
    path("<int:pk>/revert/", RevertRequest.as_view(), name="revert"),
    path("<int:pk>/retry/", RetryRequest.as_view(), name="retry"),
    path("<int:pk>/effect/", RequestEffect.as_view(), name="effect"),
]
