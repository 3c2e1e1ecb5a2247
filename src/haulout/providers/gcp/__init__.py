"""What Google Cloud says about maintenance: to each machine by its metadata server, and about all by the Compute API.

    readings    what documents say about a machine and what is planned for it. Pure
    joining     which notice that is about, and what follows when it is not said any more. Pure
    metadata    the source for `haulout agent`: what the metadata server tells its own machine, within seconds
    compute     the calls of the Compute API, as a protocol, and over plain HTTP
    tokens      as whom they are made: the metadata server, or a file; `token_response` reads what is answered
    federation  a token of somebody else is exchanged for one of Google's
    source      the source for the operator: all machines of a project that are nodes, every few minutes
    beginning   has a maintenance begin early, once its node is empty
    network     the way there over aiohttp; the agent has a leaner one
    settings    what is configured

Both sources give a maintenance the same name, so that it is one notice, whoever hears of it first. Nothing that
matters is kept here: what is needed to go on stands in the notices. No SDK is needed.
"""

SOURCE = "gcp"  # what `spec.source` of its notices says
