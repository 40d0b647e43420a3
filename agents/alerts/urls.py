from rest_framework.routers import SimpleRouter

from agents.alerts.api import Alerts

router = SimpleRouter(use_regex_path=False)
router.register("alerts", Alerts)

urlpatterns = router.urls
