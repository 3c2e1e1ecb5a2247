"""Whether the caller can read any of the forms that the server answers in.

The sandbox speaks JSON, and calls the other forms of the real server known: whoever accepts only those gets JSON, too.
"""

from haulout_sandbox.apiserver.bodies import YAML
from haulout_sandbox.apiserver.protobuf import MEDIA_TYPE
from haulout_sandbox.apiserver.status import JSON, Refused, failure

_KNOWN = (JSON, YAML, MEDIA_TYPE)
_ANYTHING = ("", "*/*", "application/*")
_STREAMS = tuple(f"{media_type};stream=watch" for media_type in (JSON, MEDIA_TYPE))


def check_accepted(accept: str, *, lists: bool) -> None:
    """Refuse with 406 whoever wants something else; `lists` if a watch might have been meant."""
    if not accept or accept.startswith(JSON):
        return
    wanted = [clause.partition(";")[0].strip().lower() for clause in accept.split(",")]
    if any(it in _KNOWN or (it in _ANYTHING and accept.strip(";, ")) for it in wanted):
        return
    forms = ", ".join((*_KNOWN, *(_STREAMS if lists else ())))
    said = f"406: Not Acceptable\n\nAvailable representations: {forms}"
    raise Refused(failure(406, "NotAcceptable", said, {}))
