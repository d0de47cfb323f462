"""Arrays of other libraries, as numpy would hold them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def as_numpy(X: Any, name: str = "X") -> Any:
    """Bring a tensor of torch, or an array of the array API's standard, to numpy.

    Anything else is given back. Tensors may be on any device, and need gradients.

    Raises
    ------
    TypeError
        If numpy cannot read it: a sparse tensor, or an array of another library on a GPU.

    Examples
    --------
    >>> import torch
    >>> as_numpy(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    array([1., 2.], dtype=float32)
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.Tensor):
        if X.layout != torch.strided:
            raise TypeError(
                f"{name} is a sparse tensor of torch ({X.layout}); pass {name}.to_dense(), or a "
                "sparse matrix of scipy"
            )
        X = X.detach().cpu()
        return (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    if isinstance(X, np.ndarray) or not hasattr(X, "__array_namespace__"):
        return X
    try:
        return np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} is an array of {type(X).__module__.partition('.')[0]} that numpy cannot read "
            f"({error}); move it to the CPU, or pass a numpy array"
        ) from error
