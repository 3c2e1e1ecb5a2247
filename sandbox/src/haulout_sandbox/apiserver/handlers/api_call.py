"""A request about a resource, taken apart: what the parts of the server hand to each other."""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.request_targets import Target
from haulout_sandbox.apiserver.selectors import Selection, selection
from haulout_sandbox.apiserver.serializer.decoder import FeatureDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request about a resource, taken apart."""

    request: Request
    target: Target
    user: User
    query: Mapping[str, str]
    attempt: int  # how often the server has already said NotYet
    as_of: int | None  # a stale server: the revision its reads show
    feature_decoder: FeatureDecoder  # what the server reads of an object that others do not know

    @property
    def selection(self) -> Selection:
        """Return what the selectors of the query select."""
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        return selection(self.target.kind, self.target.namespace, labels=labels, fields=fields)
