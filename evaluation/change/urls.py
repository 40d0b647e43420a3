from rest_framework.routers import SimpleRouter

from evaluation.change.api import Alerts, Baselines, Changes

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/baselines", Baselines)
router.register("evaluations/alerts", Alerts)
router.register("changes", Changes)

urlpatterns = router.urls
