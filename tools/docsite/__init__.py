"""The documentation as a site: static pages that need no server, no network and no build tools.

    python -m tools.docsite site

    contents    what there is to read, in the order of docs/README.md
    targets     where a page or a file of the repository is on the site
    rendering   Markdown to HTML, as the forge shows it; links are followed while they are written
    highlight   the colours of code
    building    all of it into a folder, with everything that is wrong told at once
    assets/     the style and the script, which searches an index that is made here

Markdown is rendered by the library that `rich` brings along, so that nothing has to be installed for it. What a page
of docs/ links to outside of docs/, as an example or the changelog, is on the site, too.
"""
