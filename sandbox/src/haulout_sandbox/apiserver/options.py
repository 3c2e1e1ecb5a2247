"""What a request says beside its object: the options of creates, updates, patches and deletes, checked."""

import re
from collections.abc import Mapping

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.bodies import delete_options, media_type
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.paths import is_true, parameters
from haulout_sandbox.apiserver.status import bad_request, invalid

_LONGEST_MANAGER = 128
_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VALIDATIONS = ("Ignore", "Warn", "Strict")
_POLICIES = ("Foreground", "Background", "Orphan")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def check_write(request: Request) -> None:
    """Refuse a create, update or patch whose options make no sense."""
    query, problems = parameters(request), []
    applies = request.method == "PATCH" and media_type(request.content_type) == APPLY_PATCH
    if applies and not query.get("fieldManager"):
        problems.append(fields.required("fieldManager", "is required for apply patch"))
    if not applies and "force" in query:
        problems.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    if len(query.get("fieldManager", "").encode()) > _LONGEST_MANAGER:
        problems.append(fields.too_long("fieldManager", _LONGEST_MANAGER))
    problems += _dry_run_problems([value for name, value in request.query if name == "dryRun"])
    if wanted := query.get("fieldValidation", ""):
        problems += [] if wanted in _VALIDATIONS else [fields.not_supported("fieldValidation", wanted, _VALIDATIONS)]
    _refuse(_KINDS[request.method], problems)


def deletion(request: Request) -> JsonObject:
    """Return the options of a delete, from its body or, if that is empty, from its query."""
    query = parameters(request)
    if request.body:
        options = delete_options(request.body, request.content_type)
    else:
        options = {"dryRun": [value for name, value in request.query if name == "dryRun"]}
        if "gracePeriodSeconds" in query:
            options["gracePeriodSeconds"] = number(query, "gracePeriodSeconds")
        if "propagationPolicy" in query:
            options["propagationPolicy"] = query["propagationPolicy"]
        if "orphanDependents" in query:
            options["orphanDependents"] = is_true(query, "orphanDependents")
    check_deletion(options)
    return {name: value for name, value in options.items() if value not in (None, [])}


def check_deletion(options: JsonObject) -> None:
    """Refuse options of a delete that make no sense."""
    policy, problems = options.get("propagationPolicy"), _dry_run_problems(options.get("dryRun") or [])
    if policy is not None and options.get("orphanDependents") is not None:
        problems.append(fields.forbidden("propagationPolicy", "may not be set together with orphanDependents"))
    if policy is not None and policy not in _POLICIES:
        problems.append(fields.not_supported("propagationPolicy", policy, _POLICIES))
    _refuse("DeleteOptions", problems)


def number(query: Mapping[str, str], name: str) -> int:
    """Return a parameter that is a number; 0 if it is not there."""
    text = query.get(name)
    if text is None:
        return 0
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"the parameter {name} is no number: {fields.quoted(text)}")
    return int(text)


def _dry_run_problems(values: list[str]) -> list[JsonObject]:
    return [fields.not_supported("dryRun", values, ("All",))] if set(values) - {"All"} else []


def _refuse(kind: str, problems: list[JsonObject]) -> None:
    if problems:
        raise invalid("meta.k8s.io", kind, "", problems)
