from rest_framework.routers import SimpleRouter

from agents.debates.api import Debates

router = SimpleRouter(use_regex_path=False)
router.register("debates", Debates)

urlpatterns = router.urls
