from rest_framework.routers import SimpleRouter

from evaluation.calibration.api import Labels

router = SimpleRouter(use_regex_path=False)
router.register("evaluations/labels", Labels)

urlpatterns = router.urls
