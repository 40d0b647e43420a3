"""The page "What is this?" of each model, and help for fields whose model gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.db.models import Field
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.views.decorators.http import require_safe

from agents.handbook import markup
from agents.handbook.fields import fields_of
from agents.handbook.links import where_for
from agents.handbook.texts import field_help, help_of

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.contrib.admin.options import BaseModelAdmin

    _Admin = ModelAdmin[Any]
    _Base = BaseModelAdmin[Any]
else:
    _Admin = _Base = object


class FieldHelp(_Base):
    """Forms whose fields say in ``fields.yaml`` what their models do not."""

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        form_field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if form_field is not None and not form_field.help_text:
            form_field.help_text = field_help(self.model, db_field.name)
        return form_field


class Helped(FieldHelp, _Admin):
    """An admin class with a help page, for whoever may view the model."""

    @property
    def help_url(self) -> str:
        """Where the help page is; the header of the model's pages links to it."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_help") if help_of(self.model) else ""

    def get_urls(self) -> list[URLPattern]:
        view = require_safe(self.admin_site.admin_view(self.help_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_help"
        return [path("help/", view, name=name), *super().get_urls()]

    def help_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        text = help_of(self.model)
        if not text:
            raise Http404
        intro, mark, rest = text.partition("\n## ")
        context = {
            "intro": markup.render(intro, lambda link: where_for(request, link)),
            "fields": fields_of(self.model),
            "rest": markup.render(f"## {rest}" if mark else "", lambda link: where_for(request, link)),
            "list_url": where_for(request, f"list:{self.model._meta.label}"),
            "help_page": True,
        }
        title = str(self.opts.verbose_name_plural)
        return self.page(request, "admin/help/model.html", f"{capfirst(title)}: what is this?", **context)  # type: ignore[attr-defined,no-any-return]
