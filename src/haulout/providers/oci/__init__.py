"""Oracle Cloud Infrastructure: maintenance of instances, from a stream of events and from the Compute API.

reading     pure: what a message, or an entry of a list, says
cloud       which calls there are, and what to make of their errors
occurrences pure: which notice a message is about, and in which order messages count
consumer    follows the stream: every event becomes a notice, and only then is its offset committed
reconciler  asks Compute every few minutes: what the stream lost, moved or never told
source      both together, and how to ask for another time
settings    environment variables, as those of the OCI Node Maintenance Handler
handler     pure: what the OCI Node Maintenance Handler has left in a cluster
sdk         the calls, by Oracle's SDK
"""

SOURCE = "oci"  # what `spec.source` of its notices says
