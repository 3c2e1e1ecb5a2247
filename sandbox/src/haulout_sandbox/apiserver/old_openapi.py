"""OpenAPI v2, as far as kubectl needs it: that there is a document.

kubectl leaves validation to the server for all but a `kind: List`, of which it looks at each item with this document
first, and skips what that does not know. It knows nothing here: the items are validated when they are sent.
"""

from haulout.kube.transport import Response
from haulout_sandbox.apiserver.status import JSON, answer

PATH = "/openapi/v2"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_SWAGGER, _INFO = 1, 2  # fields of the document
_TITLE, _VERSION = 1, 2  # fields of its info
_BYTES = 2  # how texts and messages lie on the wire
_TITLED = "Kubernetes"


def document(version: str, *, accept: str) -> Response:
    """Return the document, in the form that is asked for."""
    if "protobuf" not in accept:
        told = {"title": _TITLED, "version": version}
        return answer(200, {"swagger": "2.0", "info": told, "paths": {}, "definitions": {}}, content_type=JSON)
    info = _field(_TITLE, _TITLED.encode()) + _field(_VERSION, version.encode())
    return Response(200, {"content-type": PROTOBUF}, _field(_SWAGGER, b"2.0") + _field(_INFO, info))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of less than 128 bytes."""
    return bytes((number << 3 | _BYTES, len(content))) + content
