"""The pictures of docs/pictures, taken from the running product.

    python -m tools.pictures docs/pictures            # all of them: make pictures
    python -m tools.pictures docs/pictures clusters   # those of one cluster: fleet, clusters, large

    sandbox   starts `haulout run --sandbox` as a process, and ends it
    browser   drives chromium, and takes the pictures
    fleet     the pages about nodes, from the scenario fleet.yaml with the profiles of maintenance.yaml
    clusters  the page of a hub, from the included scenario hub
    large     5,000 nodes, from large.yaml

Nothing is drawn or edited: what is on a picture is what the operator reports at that moment. A picture is taken once a
condition of the page holds, such as a node that is recovering, and not after a fixed time.
"""
