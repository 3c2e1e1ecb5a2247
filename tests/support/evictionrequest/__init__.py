"""The controllers that Kubernetes plans for EvictionRequests (KEP-4563), which drains may use instead of evictions.

1.37 has the API behind a feature gate, but no controllers yet. `definitions` serves the kinds in any cluster.
"""

from support.evictionrequest.controller import EvictionRequestController
from support.evictionrequest.imperative_evictor import ImperativeEvictor

EVICTION_REQUEST_CONTROLLERS = (EvictionRequestController, ImperativeEvictor)

__all__ = ["EVICTION_REQUEST_CONTROLLERS", "EvictionRequestController", "ImperativeEvictor"]
