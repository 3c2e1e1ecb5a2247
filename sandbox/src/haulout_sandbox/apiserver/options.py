"""What a request says beside its object: the options of creates, updates, patches and deletes, checked.

The rules and words are those of `apimachinery/pkg/apis/meta/v1/validation`.
"""

import re
from collections.abc import Mapping
from typing import Any

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.bodies import delete_options, media_type
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.paths import is_true, parameters
from haulout_sandbox.apiserver.status import bad_request, invalid

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"

_LONGEST_MANAGER = 128
_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_POLICIES = ("Foreground", "Background", "Orphan")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def check_write(request: Request) -> None:
    """Refuse a create, update or patch whose options make no sense."""
    query = parameters(request)
    problems: list[JsonObject] = []
    if request.method == "PATCH":
        applies = media_type(request.content_type) == APPLY_PATCH
        if applies and not query.get("fieldManager"):
            problems.append(fields.required("fieldManager", "is required for apply patch"))
        if not applies and "force" in query:
            problems.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    manager = query.get("fieldManager", "")
    problems += _manager_problems(manager)
    problems += _dry_run_problems([value for name, value in request.query if name == "dryRun"])
    if (wanted := query.get("fieldValidation", "")) not in ("", IGNORE, STRICT, WARN):
        problems.append(fields.not_supported("fieldValidation", wanted, ("", IGNORE, STRICT, WARN)))
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
    _refuse("DeleteOptions", _deletion_problems(options))


def number(query: Mapping[str, str], name: str) -> int:
    """Return a parameter that is a number; 0 if it is not there."""
    text = query.get(name)
    if text is None:
        return 0
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"strconv.ParseInt: parsing {fields.quoted(text)}: invalid syntax")
    if not _SMALLEST <= int(text[:30]) <= _LARGEST:
        raise bad_request(f"strconv.ParseInt: parsing {fields.quoted(text)}: value out of range")
    return int(text)


def _deletion_problems(options: JsonObject) -> list[JsonObject]:
    policy, problems = options.get("propagationPolicy"), []
    if policy is not None and options.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(fields.invalid("propagationPolicy", policy, why))
    if policy is not None and policy not in _POLICIES:
        problems.append(fields.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return problems + _dry_run_problems(options.get("dryRun") or [])


def _dry_run_problems(values: list[Any]) -> list[JsonObject]:
    return [fields.not_supported("dryRun", values, ("All",))] if set(values) - {"All"} else []


def _manager_problems(manager: str) -> list[JsonObject]:
    problems = [fields.too_long("fieldManager", _LONGEST_MANAGER)] if len(manager.encode()) > _LONGEST_MANAGER else []
    at = 0
    for letter in manager:
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {at})"
            problems.append(fields.invalid("fieldManager", manager, why))
        at += len(letter.encode())
    return problems


def _refuse(kind: str, problems: list[JsonObject]) -> None:
    if problems:
        raise invalid("meta.k8s.io", kind, "", problems)
