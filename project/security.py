"""Settings of what keeps the web part safe: on unless ``DEBUG``."""

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE

from project.environment import DEBUG, env, flag

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not DEBUG
SESSION_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = flag("SECURE_SSL_REDIRECT", default=not DEBUG)
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=0 if DEBUG else 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not DEBUG
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if flag("TRUST_PROXY_HEADERS", default=False) else None
_directives = {
    "default-src": [SELF],
    "script-src": [SELF, UNSAFE_EVAL],  # the admin theme's Alpine evaluates attributes
    "style-src": [SELF, UNSAFE_INLINE],
    "img-src": [SELF, "data:"],
    "object-src": [NONE],
    "base-uri": [SELF],
    "form-action": [SELF],
    "frame-ancestors": [NONE],
}
CONTENT_SECURITY_POLICY = {} if DEBUG else {"DIRECTIVES": _directives}
