from rest_framework.routers import SimpleRouter

from .api import Remarks

router = SimpleRouter(use_regex_path=False)
router.register("remarks", Remarks)

urlpatterns = router.urls
