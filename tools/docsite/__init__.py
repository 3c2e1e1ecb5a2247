"""The documentation as a static site, which needs no server, no network and no build tools.

    python -m tools.docsite site

    navigation  the pages, in the order of docs/README.md
    urls        where a page or a file of the repository is on the site
    markdown    Markdown to HTML as the forge renders it, with links rewritten and code highlighted
    diagrams    draws Mermaid diagrams as SVG
    site        writes everything into a folder, and reports all errors at once
    figures     fills the tables of the page about sizing
    assets/     the style sheet and the script, which searches an index that is built here

The Markdown library is the one that `rich` depends on, so that nothing has to be installed for it. Files outside of
docs/ that a page links to, such as an example or the changelog, are part of the site, too.
"""
