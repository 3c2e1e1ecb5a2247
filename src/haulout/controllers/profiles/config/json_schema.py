"""The JSON schema of a `maintenance.yaml`, for completion and validation in editors."""

import json
from collections.abc import Mapping
from typing import Any

from haulout.controllers.profiles.config.layout import FileLayout, InstanceLayout, NotificationLayout, ScheduleLayout
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import schema


def schema_text(registries: Registries) -> str:
    """Return the schema as text."""
    return json.dumps(file_schema(registries), indent=2, ensure_ascii=False) + "\n"


def file_schema(registries: Registries) -> dict[str, Any]:
    """Return the schema of a file that may use these plugins."""
    found = schema(FileLayout)
    notification = _with_plugin_types(schema(NotificationLayout), registries.notifications)
    notification["properties"]["schedule"] = _with_plugin_types(schema(ScheduleLayout), registries.schedules)
    found["properties"]["instances"] = {
        "type": ["object", "null"],
        "properties": {
            "check": _list_of(_with_plugin_types(schema(InstanceLayout), registries.checks)),
            "notify": _list_of(notification),
            "trigger": _list_of(_with_plugin_types(schema(InstanceLayout), registries.triggers)),
        },
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "maintenance.yaml", **found}


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": items}


def _with_plugin_types(layout: dict[str, Any], plugins: Mapping[str, type]) -> dict[str, Any]:
    layout["properties"]["type"] = {"enum": sorted(plugins)}
    layout["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}},
            "then": {"properties": {"config": schema(cls)}},
        }
        for name, cls in sorted(plugins.items())
    ]
    return layout
