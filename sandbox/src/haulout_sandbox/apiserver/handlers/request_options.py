"""Decoding and validation of CreateOptions, UpdateOptions, PatchOptions and DeleteOptions."""

import re
from collections.abc import Mapping

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import field_errors
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.server_side_apply import APPLY_PATCH
from haulout_sandbox.apiserver.request_paths import is_true, query_parameters
from haulout_sandbox.apiserver.serializer.request_body import decode_delete_options, media_type
from haulout_sandbox.apiserver.status import bad_request, invalid, quote

_MAX_MANAGER_LENGTH = 128
_OPTIONS_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_FIELD_VALIDATIONS = ("Ignore", "Warn", "Strict")
_PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def check_write_options(request: Request) -> None:
    """Refuse a create, update or patch with invalid options."""
    query, problems = query_parameters(request), []
    is_apply = request.method == "PATCH" and media_type(request.content_type) == APPLY_PATCH
    if is_apply and not query.get("fieldManager"):
        problems.append(field_errors.required("fieldManager", "is required for apply patch"))
    if not is_apply and "force" in query:
        problems.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    if len(query.get("fieldManager", "").encode()) > _MAX_MANAGER_LENGTH:
        problems.append(field_errors.too_long("fieldManager", _MAX_MANAGER_LENGTH))
    problems += _dry_run_problems([value for name, value in request.query if name == "dryRun"])
    if field_validation := query.get("fieldValidation", ""):
        problems += (
            []
            if field_validation in _FIELD_VALIDATIONS
            else [field_errors.not_supported("fieldValidation", field_validation, _FIELD_VALIDATIONS)]
        )
    _raise_if_invalid(_OPTIONS_KINDS[request.method], problems)


def delete_options(request: Request) -> JsonObject:
    """Return the DeleteOptions from the body or, if that is empty, from the query."""
    query = query_parameters(request)
    if request.body:
        options = decode_delete_options(request.body, request.content_type)
    else:
        options = {"dryRun": [value for name, value in request.query if name == "dryRun"]}
        if "gracePeriodSeconds" in query:
            options["gracePeriodSeconds"] = integer_parameter(query, "gracePeriodSeconds")
        if "propagationPolicy" in query:
            options["propagationPolicy"] = query["propagationPolicy"]
        if "orphanDependents" in query:
            options["orphanDependents"] = is_true(query, "orphanDependents")
    check_delete_options(options)
    return {name: value for name, value in options.items() if value not in (None, [])}


def check_delete_options(options: JsonObject) -> None:
    policy, problems = options.get("propagationPolicy"), _dry_run_problems(options.get("dryRun") or [])
    if policy is not None and options.get("orphanDependents") is not None:
        problems.append(field_errors.forbidden("propagationPolicy", "may not be set together with orphanDependents"))
    if policy is not None and policy not in _PROPAGATION_POLICIES:
        problems.append(field_errors.not_supported("propagationPolicy", policy, _PROPAGATION_POLICIES))
    _raise_if_invalid("DeleteOptions", problems)


def integer_parameter(query: Mapping[str, str], name: str) -> int:
    """Return an integer parameter, or 0 if it is absent."""
    text = query.get(name)
    if text is None:
        return 0
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"the parameter {name} is no number: {quote(text)}")
    return int(text)


def _dry_run_problems(values: list[str]) -> list[JsonObject]:
    return [field_errors.not_supported("dryRun", values, ("All",))] if set(values) - {"All"} else []


def _raise_if_invalid(kind: str, problems: list[JsonObject]) -> None:
    if problems:
        raise invalid("meta.k8s.io", kind, "", problems)
