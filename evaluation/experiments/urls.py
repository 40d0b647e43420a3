from rest_framework.routers import SimpleRouter

from evaluation.experiments.api import Experiments

router = SimpleRouter(use_regex_path=False)
router.register("experiments", Experiments)

urlpatterns = router.urls
