"""``combutab fit`` and ``combutab predict``: estimators of tables in files.

Used by the commands alone, which import the modules by name.
"""

__all__: list[str] = []
