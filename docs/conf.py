"""How Sphinx builds the documentation: `make docs-html`."""

from __future__ import annotations

from normgauge.core.version import __version__

project = "normgauge"
author = "the normgauge authors"
copyright = "the normgauge authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
nitpicky = True
highlight_language = "none"  # a block without a language is output, not code

html_theme = "furo"
html_title = f"normgauge {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
