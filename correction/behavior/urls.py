from rest_framework.routers import SimpleRouter

from correction.behavior.api import BehaviorRequests

router = SimpleRouter(use_regex_path=False)
router.register("behavior-requests", BehaviorRequests)

urlpatterns = router.urls
