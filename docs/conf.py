"""How the site is built: sphinx-build -W --keep-going docs docs/_build/html

No page needs a network, when it is built or when it is read. Folders that are made here, `PAGES`
and `MADE`, are not in the repository.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in the tests: the examples' networks are small

import sphinx_gallery.sorting  # noqa: E402

import combutab  # noqa: E402

project = "CombuTab"
author = "The CombuTab contributors"
copyright = author
version = release = combutab.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "sphinx_sitemap",
    "sphinx_llms_txt",
    # of docs/_ext
    "mathml",
    "made_pages",
]
exclude_patterns = ["_build", "_ext", "made"]
nitpicky = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

# ---- docstrings --------------------------------------------------------------------------------

autodoc_typehints = "none"  # numpydoc's sections have the types
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autosummary_generate = False  # docs/_ext/reference.py makes the pages
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "py:obj"  # `combutab.CombU` is a link where there is such a page

# ---- Markdown ----------------------------------------------------------------------------------

source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "config.cache"]

# ---- the gallery -------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": sphinx_gallery.sorting.FileNameSortKey,
    "thumbnail_size": (640, 448),
    "image_scrapers": ("made_pages.example_pictures",),
    "reset_modules": ("made_pages.remove_example_files",),
    "reset_modules_order": "both",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "backreferences_dir": None,
    "copyfile_regex": "",
}

# ---- the theme ---------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "CombuTab"
# The released version is at DOCS_URL; DOCS_VERSION=dev builds the site for its folder dev/
docs_url = os.environ.get("DOCS_URL", "http://localhost:8000/").rstrip("/") + "/"
site_version = os.environ.get("DOCS_VERSION", version)
folders = {
    each["version"]: each["folder"] for each in json.loads((DOCS / "versions.json").read_text())
}
html_baseurl = docs_url + folders[site_version]
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["made/extra"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_ext" / "search_scorer.js")
html_show_sourcelink = False
html_copy_source = True
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {
        "text": "CombuTab",
        "image_light": "_static/favicon.svg",
        "image_dark": "_static/favicon.svg",
        "alt_text": "",
    },
    "navbar_align": "left",
    "navbar_start": ["navbar-logo"],
    "navbar_end": ["version-switcher", "theme-switcher"],
    "switcher": {
        "json_url": docs_url + "switcher.json" if "DOCS_URL" in os.environ else "switcher.json",
        "version_match": site_version,
    },
    "check_switcher": False,
    "show_version_warning_banner": True,  # of the development version
    "navigation_with_keys": False,
    "navigation_depth": 2,
    "show_nav_level": 1,
    "header_links_before_dropdown": 5,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# They are in no section to navigate
alone = ("index", "install", "start", "choose", "faq", "gpu", "reports", "inside")
alone += ("changelog", "glossary", "project/*")
html_sidebars = {page: [] for page in (*alone, "search", "genindex")}
toc_object_entries_show_parents = "hide"

ogp_site_url = html_baseurl
ogp_social_cards = {"enable": False}  # a picture a page would take minutes
ogp_image = "_images/comparison.png"
sitemap_url_scheme = "{link}"
llms_txt_summary = (
    "CombuTab is a Python library: neural networks for tabular data with the scikit-learn API, "
    "comparisons of activation functions with significance tests, and synthetic tables."
)
llms_txt_exclude = ["results/*"]
copybutton_selector = "div.highlight:not(.output *) pre"  # code, not what it prints
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
