"""A parsed request about a resource, which the parts of the API server pass to each other."""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.request_targets import Target
from haulout_sandbox.apiserver.selectors import Selection, selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    request: Request
    target: Target
    user: User
    query: Mapping[str, str]
    attempt: int  # how often the server has raised RetryLater for this request
    as_of: int | None  # for a stale server: the resource version that its reads return

    @property
    def selection(self) -> Selection:
        """Return the selection of the query's label and field selectors."""
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        return selection(self.target.kind, self.target.namespace, labels=labels, fields=fields)
