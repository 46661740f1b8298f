"""The documentation site: `python -m tools.site` builds it offline and refuses broken links and anchors."""
