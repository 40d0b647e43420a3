"""What answers show of tables: a `ModelSerializer` that only reads, and knows how rows are named and linked here."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

_NAMES = ("slug", "username", "name")  # a foreign key is shown by the first of these columns that its table has


class Row(serializers.ModelSerializer[Any]):
    """Only reads. A foreign key is shown by the slug or name of its row, else by its id.

    ``url`` leads to the row itself, ``X_url`` to the row of the foreign key ``X``, else to the route ``MODEL-X`` of the row.
    """

    def get_extra_kwargs(self) -> dict[str, Any]:
        extra = super().get_extra_kwargs()
        return {name: {**extra.get(name, {}), "read_only": True} for name in self.Meta.fields}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        model: type[Model] = self.Meta.model
        blank = {column.name for column in model._meta.fields if column.blank}
        for name, field in fields.items():
            field.read_only = field.read_only or field.required or field.default is not serializers.empty
            if isinstance(
                field, serializers.ChoiceField
            ):  # a field that only reads forgets it; the schema has to say it
                field.allow_blank = name in blank
        return fields

    def build_field(self, field_name: str, info: Any, model_class: type[Model], nested_depth: int) -> Any:
        what = field_name.removesuffix("_url")
        if field_name == "url" or (what != field_name and what not in info.forward_relations):
            view = f"{model_class._meta.model_name}-{'detail' if field_name == 'url' else what}"
            return serializers.HyperlinkedIdentityField, {"view_name": view, **_lookup(model_class)}
        if what != field_name:
            relation = info.forward_relations[what]
            kwargs = {"view_name": f"{relation.related_model._meta.model_name}-detail", "source": what}
            nullable = {"allow_null": True} if relation.model_field.null else {}
            return serializers.HyperlinkedRelatedField, {**kwargs, **nullable, **_lookup(relation.related_model)}
        return super().build_field(field_name, info, model_class, nested_depth)

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        field, kwargs = super().build_relational_field(field_name, relation_info)
        columns = {column.name for column in relation_info.related_model._meta.fields}
        for name in _NAMES:
            if name in columns:
                return serializers.SlugRelatedField, {
                    **{key: value for key, value in kwargs.items() if key != "view_name"},
                    "slug_field": name,
                }
        return field, kwargs


class AsRow:
    """Annotation of a field of a pydantic answer that holds a shown row: of which serializer."""

    def __init__(self, row: type[Row]) -> None:
        self.row = row

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {
            "x-row": getattr(self.row.Meta, "ref_name", self.row.__name__)
        }  # becomes a reference in `schema.tidied`


def _lookup(model: type[Model]) -> dict[str, str]:
    return {"lookup_field": "slug"} if any(column.name == "slug" for column in model._meta.fields) else {}


@extend_schema_field(OpenApiTypes.URI)
class QueryLink(serializers.ReadOnlyField):
    """A link to the list of a route, narrowed by a value of the row."""

    def __init__(self, view_name: str, parameter: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.view_name, self.parameter = view_name, parameter

    def to_representation(self, value: Any) -> str:
        return f"{reverse(self.view_name, request=self.context['request'])}?{self.parameter}={value}"
