"""Fitting to Parquet files that memory need not hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from sklearn.base import _fit_context

from combutab._sklearn_callbacks import fit_task
from combutab.generators._contract import Generator
from combutab.generators._records import NetworkT
from combutab.generators.training import ParquetSource, fit_generators
from combutab.preprocessing import Paths


class Streaming(Generator[NetworkT]):
    """A generator that is fitted to files."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_parquet(
        self,
        path: Paths,
        *,
        columns: Sequence[str] | None = None,
        discrete_columns: Any = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        memory_limit: int | str = "1GB",
        filesystem: Any = None,
    ) -> Self:
        """Learn the distribution of a table in Parquet files, which memory need not hold.

        It learns what `fit` learns of the DataFrame that pandas reads, to the same rows. Columns
        are learned one after another, each read whole; then rows are encoded part by part. Encoded
        they take eight bytes a number and four a discrete value, in memory or in a temporary file;
        training takes some eight bytes a row and member more, and CTGAN eight a discrete value.

        Parameters
        ----------
        path : path, or sequence of paths
            A Parquet file, a folder (all ``*.parquet`` in it and in its folders; those that are
            named ``column=value`` are columns too), a pattern (``"sales/2024-*.parquet"``), a URI
            (``"s3://bucket/folder"``), or several of these. All files have the same columns.
        columns : sequence of str, optional
            Those to learn; by default all.
        discrete_columns, checkpoint
            As in `fit`.
        memory_limit : int or str, default="1GB"
            Memory that encoded rows may take: bytes, or text such as ``"500MB"`` or ``"2GiB"``.
            More of them are kept in a temporary file. A GPU, or ``precision="float64"``, copies
            all of them.
        filesystem : FileSystem of pyarrow or fsspec, optional
            What the paths are on, where a URI does not say it.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            Without pyarrow (``pip install 'combutab[parquet]'``).
        FileNotFoundError
            If there is no such file, or none in the folder or of the pattern.
        ValueError
            As `fit` does; and if a file cannot be read or has other columns than the first: it
            names the file.
        OSError
            If the temporary file finds no room.
        KeyboardInterrupt
            As `fit` does.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np, pandas as pd
        >>> from combutab import TVAE
        >>> X = pd.DataFrame({"x": np.arange(200.0), "kind": ["a", "b"] * 100})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     X.to_parquet(f"{folder}/table.parquet", row_group_size=50)
        ...     model = TVAE(epochs=1, random_state=0).fit_parquet(folder)
        >>> model.sample(3).shape
        (3, 2)
        """
        self._check()
        source = ParquetSource(path, columns, memory_limit, filesystem)
        fit_generators([self], source, discrete_columns, checkpoint, partial(fit_task, self))
        return self
