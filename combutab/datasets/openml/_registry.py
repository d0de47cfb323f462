"""The eight OpenML data sets of the CombU paper's Table 4, and what is known of each.

OpenML itself could not be asked when this was written. Not verified: the versions (taken to be the
first), the exact column names and their order, the order of the rows, and which columns are
nominal beyond their number, which is the paper's. The ids agree with public code that loads these
sets by them. The checksums are of copies from the sources that OpenML's are said to come from (UCI,
StatLib, Weka, the book "Hands-On Machine Learning").
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Entry:
    """Hold the facts that a copy of a registered data set is checked against."""

    name: str
    openml_id: int
    version: int
    task: str
    target: str
    columns: tuple[str, ...]  # the features, in the order that X has them
    nominal: tuple[str, ...]
    n_rows: int
    checksum: str  # of the content, see content_checksum


_PHISHING = (
    *("having_IP_Address", "URL_Length", "Shortining_Service", "having_At_Symbol"),
    *("double_slash_redirecting", "Prefix_Suffix", "having_Sub_Domain", "SSLfinal_State"),
    *("Domain_registeration_length", "Favicon", "port", "HTTPS_token", "Request_URL"),
    *("URL_of_Anchor", "Links_in_tags", "SFH", "Submitting_to_email", "Abnormal_URL"),
    *("Redirect", "on_mouseover", "RightClick", "popUpWidnow", "Iframe", "age_of_domain"),
    *("DNSRecord", "web_traffic", "Page_Rank", "Google_Index", "Links_pointing_to_page"),
    "Statistical_report",
)
_ENTRIES = (
    Entry(
        name="california_housing",
        openml_id=43939,  # the copy with ocean_proximity; there are others of the same name
        version=1,
        task="regression",
        target="median_house_value",
        columns=(
            *("longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms"),
            *("population", "households", "median_income", "ocean_proximity"),
        ),
        nominal=("ocean_proximity",),
        n_rows=20640,
        checksum="50a8e54ef91f68b8587c0277d3e3815a27abc06d3807121c1a123f4e34c09f64",
    ),
    Entry(
        name="diabetes",
        openml_id=37,
        version=1,
        task="classification",
        target="class",
        columns=("preg", "plas", "pres", "skin", "insu", "mass", "pedi", "age"),
        nominal=(),
        n_rows=768,
        checksum="57f9019b24232981576f70adc9443444c1925890764d366e304a2c237be83bdb",
    ),
    Entry(
        name="boston",
        openml_id=531,
        version=1,
        task="regression",
        target="MEDV",
        columns=(
            *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX"),
            *("PTRATIO", "B", "LSTAT"),
        ),
        nominal=("CHAS", "RAD"),  # the paper counts these two among its 13 numeric ones as well
        n_rows=506,
        checksum="8a247d4cb5dc04f7607584aec9616399dacbc745cc21230d99574190f2705ba8",
    ),
    Entry(
        name="breast-w",
        openml_id=15,
        version=1,
        task="classification",
        target="Class",
        columns=(
            *("Clump_Thickness", "Cell_Size_Uniformity", "Cell_Shape_Uniformity"),
            *("Marginal_Adhesion", "Single_Epi_Cell_Size", "Bare_Nuclei", "Bland_Chromatin"),
            *("Normal_Nucleoli", "Mitoses"),
        ),
        nominal=(),
        n_rows=699,
        checksum="ebc67279ce73c284f18159044031030c780546691fe5b45e7bb70465cde2b67c",
    ),
    Entry(
        name="wine_quality",
        openml_id=287,
        version=1,
        task="regression",
        target="quality",
        columns=(
            *("fixed.acidity", "volatile.acidity", "citric.acid", "residual.sugar", "chlorides"),
            *("free.sulfur.dioxide", "total.sulfur.dioxide", "density", "pH", "sulphates"),
            "alcohol",
        ),
        nominal=(),
        n_rows=6497,
        checksum="d725fb20db0ea96684fe3e443006abb17e742a3012dba6547dec4adfdd3924fe",
    ),
    Entry(
        name="wdbc",
        openml_id=1510,
        version=1,
        task="classification",
        target="Class",
        columns=tuple(f"V{i}" for i in range(1, 31)),
        nominal=(),
        n_rows=569,
        checksum="b6e3698acb24680401a7c85ddad3c119bebf40d7f390c05b6ecdc1c04bf3c17a",
    ),
    Entry(
        name="PhishingWebsites",
        openml_id=4534,
        version=1,
        task="classification",
        target="Result",
        columns=_PHISHING,
        nominal=_PHISHING,
        n_rows=11055,
        checksum="04af529e31e93fedaff8e01d3f103083121cba4207785b188761a1358c2fcce0",
    ),
    Entry(
        name="autoMpg",
        openml_id=196,
        version=1,
        task="regression",
        target="class",
        columns=(
            *("cylinders", "displacement", "horsepower", "weight", "acceleration", "model"),
            "origin",
        ),
        nominal=("cylinders", "model", "origin"),
        n_rows=398,
        checksum="d6a369a05643d5977b40cd610edb8c4da0d01806fe77b47d0cf24f8e166a2547",
    ),
)
REGISTRY = {entry.name: entry for entry in _ENTRIES}


def list_openml() -> pd.DataFrame:
    """List the OpenML data sets that `load_openml` knows and checks: Table 4 of the CombU paper.

    Any other set on OpenML can be loaded too. The list could not be compared with OpenML itself:
    names and numbers are the paper's, ids are as public code has them, versions and checksums are
    not verified. Where a checksum is wrong, `load_openml` warns and goes on.

    Returns
    -------
    DataFrame, one row a data set
        ``name``, ``openml_id``, ``version``, ``task``, ``target``, ``n_rows``, ``n_numeric``,
        ``n_nominal``, ``nominal`` (column names, as text) and ``checksum`` (of the content).

    Examples
    --------
    >>> list_openml()[["name", "openml_id", "task", "n_rows", "n_numeric", "n_nominal"]]
                     name  openml_id            task  n_rows  n_numeric  n_nominal
    0  california_housing      43939      regression   20640          8          1
    1            diabetes         37  classification     768          8          0
    2              boston        531      regression     506         11          2
    3            breast-w         15  classification     699          9          0
    4        wine_quality        287      regression    6497         11          0
    5                wdbc       1510  classification     569         30          0
    6    PhishingWebsites       4534  classification   11055          0         30
    7             autoMpg        196      regression     398          4          3
    """
    return pd.DataFrame(
        [
            {
                "name": entry.name,
                "openml_id": entry.openml_id,
                "version": entry.version,
                "task": entry.task,
                "target": entry.target,
                "n_rows": entry.n_rows,
                "n_numeric": len(entry.columns) - len(entry.nominal),
                "n_nominal": len(entry.nominal),
                "nominal": ", ".join(entry.nominal),
                "checksum": entry.checksum,
            }
            for entry in _ENTRIES
        ]
    )
