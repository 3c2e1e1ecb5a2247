"""The data of notification templates: `MESSAGE_TYPE` to validate a template, `template_value` to render it.

    {{ .Node.Name }} is {{ .State }} since {{ .LastTransition.Format "15:04" }}

The names are those of the Go controller. There, `.Profile` is a text, and was an object with `Current` and `Last` in
earlier versions; here it is a text that has both. Live Go objects are not available; a template that uses one gets an
error that says so. Messages about NodeMaintenances and MaintenanceNotices also have `.Message`, `.Event`, `.Kind`,
`.Name`, `.Phase`, `.Reason`, `.RequestedBy` and `.Blockers`.
"""

from haulout.compat import gotemplate
from haulout.compat.gotemplate.corev1_node import NODE
from haulout.compat.gotemplate.types import BOOL, STRING, Field, Kind, Method, Type, Value, list_of, pointer_to
from haulout.controllers.profiles.plugin import Message
from haulout.errors import TemplateError

_BLOCKER = Type(
    "Blocker",
    Kind.STRUCT,
    fields={
        "Kind": Field(STRING, lambda it: it.kind),
        "Object": Field(STRING, lambda it: it.object),
        "Reason": Field(STRING, lambda it: it.reason),
        "Remedy": Field(STRING, lambda it: it.remedy),
        "Pod": Field(STRING, lambda it: it.pod),
        "Workload": Field(STRING, lambda it: it.workload),
        "Since": Field(gotemplate.TIME, lambda it: it.since),
    },
    read=lambda it: it,
)
_GO_ONLY = ("Client", "Clientset", "Ctx", "Log", "Recorder")


class _ProfileName(str):
    """The name of the evaluated profile, with the profile of the last transition."""

    __slots__ = ("current_profile", "last_profile")
    current_profile: str
    last_profile: str

    @classmethod
    def of(cls, message: Message) -> "_ProfileName":
        name = cls(message.profile)
        name.current_profile, name.last_profile = message.current_profile, message.last_profile
        return name


PROFILE = Type(
    "string",
    Kind.STRING,
    methods={
        "Current": Method(STRING, lambda name: name.current_profile),
        "Last": Method(STRING, lambda name: name.last_profile),
    },
)
MESSAGE_TYPE = Type(
    "Message",
    Kind.STRUCT,
    fields={
        "Node": Field(pointer_to(NODE), lambda message: message.raw_node),
        "State": Field(STRING, lambda message: str(message.state)),
        "Profile": Field(PROFILE, _ProfileName.of),
        "InMaintenance": Field(BOOL, lambda message: message.is_in_maintenance),
        "LastTransition": Field(gotemplate.TIME, lambda message: message.last_transition),
        "LogDetails": Field(BOOL, lambda message: message.logs_details),
        "Message": Field(STRING, lambda message: message.text),
        "Event": Field(STRING, lambda message: "" if message.event is None else str(message.event.name)),
        "Kind": Field(STRING, lambda message: "Node" if message.involved is None else message.involved.kind),
        "Name": Field(STRING, lambda message: message.node if message.involved is None else message.involved.name),
        "Phase": Field(STRING, lambda message: "" if message.involved is None else message.involved.phase),
        "Reason": Field(STRING, lambda message: "" if message.involved is None else message.involved.reason),
        "RequestedBy": Field(STRING, lambda message: "" if message.involved is None else message.involved.requested_by),
        "Blockers": Field(
            list_of(_BLOCKER), lambda message: [] if message.involved is None else list(message.involved.blockers)
        ),
    },
    refused_names={
        name: f".{name} is a live object of the Go controller, which Haulout does not have; "
        ".Node, .State, .Profile, .InMaintenance, .LastTransition and .LogDetails can be used"
        for name in _GO_ONLY
    },
)


def template_value(message: Message) -> Value:
    """Return the template data of a message."""
    return Value(MESSAGE_TYPE, message)


def check_template(text: str, name: str = "message") -> tuple[TemplateError, ...]:
    """Return all errors in a template that can be found without a message."""
    try:
        template = gotemplate.parse(text, name)
    except TemplateError as error:
        return (error,)
    return gotemplate.check(template, MESSAGE_TYPE)
