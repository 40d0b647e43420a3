from rest_framework.routers import SimpleRouter

from correction.interventions.api import InterventionLogs, Interventions

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/intervention-logs", InterventionLogs)
router.register("evaluations/interventions", Interventions)

urlpatterns = router.urls
