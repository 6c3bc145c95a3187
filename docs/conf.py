"""How Sphinx builds the documentation: `make docs-html`."""

from __future__ import annotations

from normgauge.core.version import __version__

project = "normgauge"
author = "the normgauge authors"
copyright = "the normgauge authors, Apache-2.0"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "jupyter_execute", "tutorials/figures"]
myst_heading_anchors = 3
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures are those of torch and of rooms without a page
highlight_language = "none"  # a block without a language is output, not code

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
python_use_unqualified_type_names = True

nb_execution_mode = "force"  # a tutorial is what it prints today
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_merge_streams = True

html_theme = "furo"
html_title = f"normgauge {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
