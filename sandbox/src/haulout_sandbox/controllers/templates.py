"""Pods made from templates, and the names and marks that tell where they come from."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

import msgspec

from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers.objects import IntOrPercent, Owned

# Kubernetes' alphabet for generated names and hashes: no vowels, so that no words come out, and nothing ambiguous.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_PREFIX = 58
_HASH_LENGTH = 10


def reference(owner: Owned, resource: Resource[Any]) -> RawObject:
    """Return the ownerReference by which `owner` manages something."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(
    template: RawObject,
    *,
    name: str,
    namespace: str,
    owner: RawObject,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    finalizers: Sequence[str] = (),
) -> RawObject:
    """Return a pod as `template` describes it, with further labels and fields."""
    meta = template.get("metadata", {})
    metadata: RawObject = {
        "name": name,
        "namespace": namespace,
        "labels": {**meta.get("labels", {}), **(labels or {})},
        "ownerReferences": [owner],
    }
    if meta.get("annotations"):
        metadata["annotations"] = meta["annotations"]
    if all_finalizers := [*meta.get("finalizers", ()), *finalizers]:
        metadata["finalizers"] = all_finalizers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **(spec or {})}}


def generated_name(base: str, random: Random) -> str:
    """Return a name that begins with `base`, and that nobody is likely to have."""
    return f"{base}-"[:_LONGEST_PREFIX] + "".join(random.choice(_LETTERS) for _ in range(_SUFFIX_LENGTH))


def fingerprint(template: RawObject, *, collisions: int = 0) -> str:
    """Return a short hash of `template`, another one for each number of collisions so far."""
    content = msgspec.json.encode(template, order="sorted")
    number = int.from_bytes(hashlib.sha256(b"%d:%s" % (collisions, content)).digest())
    letters = []
    for _ in range(_HASH_LENGTH):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


@lru_cache(maxsize=1_024)  # at each look the same few are asked for several times
def share(amount: IntOrPercent, total: int, *, round_up: bool) -> int:
    """Return `amount`, or that part of `total` if it is a percentage.

    What is neither counts as nothing: the real server refuses such values.
    """
    if isinstance(amount, int):
        return amount
    percent = amount.removesuffix("%")
    if percent == amount or not percent.isdecimal():
        return 0
    product = int(percent) * total
    return -(-product // 100) if round_up else product // 100
