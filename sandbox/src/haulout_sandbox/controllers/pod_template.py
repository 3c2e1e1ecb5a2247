"""Pods created from templates: owner references, generated names and template hashes."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

import msgspec

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout_sandbox.controllers.objects import IntOrPercent, OwnedObject

# Kubernetes' alphabet for generated names and hashes: without vowels, so that no words result, and without ambiguous
# characters.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_PREFIX_LENGTH = 58
_HASH_LENGTH = 10


def controller_ref(owner: OwnedObject, resource: Resource[Any]) -> RawObject:
    """Return the controller ownerReference to `owner`."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(
    template: RawObject,
    *,
    name: str,
    namespace: str,
    owner: RawObject,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    finalizers: Sequence[str] = (),
) -> RawObject:
    """Return the pod that `template` describes, with further labels and fields."""
    template_metadata = template.get("metadata", {})
    metadata: RawObject = {
        "name": name,
        "namespace": namespace,
        "labels": {**template_metadata.get("labels", {}), **(labels or {})},
        "ownerReferences": [owner],
    }
    if template_metadata.get("annotations"):
        metadata["annotations"] = template_metadata["annotations"]
    if all_finalizers := [*template_metadata.get("finalizers", ()), *finalizers]:
        metadata["finalizers"] = all_finalizers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **(spec or {})}}


def generate_name(base: str, random: Random) -> str:
    """Return a random name that begins with `base`; collisions are unlikely."""
    return f"{base}-"[:_MAX_PREFIX_LENGTH] + "".join(random.choice(_NAME_ALPHABET) for _ in range(_SUFFIX_LENGTH))


def compute_hash(template: RawObject, *, collisions: int = 0) -> str:
    """Return a short hash of `template`, which also depends on the number of collisions so far."""
    content = msgspec.json.encode(template, order="sorted")
    number = int.from_bytes(hashlib.sha256(b"%d:%s" % (collisions, content)).digest())
    characters = []
    for _ in range(_HASH_LENGTH):
        number, index = divmod(number, len(_NAME_ALPHABET))
        characters.append(_NAME_ALPHABET[index])
    return "".join(characters)


@lru_cache(maxsize=1_024)  # a pass asks for the same few several times
def scaled_value(amount: IntOrPercent, total: int, *, round_up: bool) -> int:
    """Return `amount`, or that percentage of `total`.

    Return zero for an invalid value, which the real server refuses.
    """
    if isinstance(amount, int):
        return amount
    percent = amount.removesuffix("%")
    if percent == amount or not percent.isdecimal():
        return 0
    product = int(percent) * total
    return -(-product // 100) if round_up else product // 100
