"""The ``ctgan`` package's own CTGAN and TVAE with other activations."""

from __future__ import annotations

import inspect
from functools import partial
from types import FunctionType
from typing import Any

from torch import nn

from combutab.activations import make_activation
from combutab.nn import ActivationSpec, check_activation

_WIDTH = 256  # that the activation is tried at


def patch_ctgan(model_or_class: Any, activation: ActivationSpec = "combu") -> Any:
    """Give the ``ctgan`` package's CTGAN or TVAE another activation at every hidden layer.

    This is the experiment of the CombU paper: the networks and the training of that package, with
    other activations. Use it as a baseline for `CTGAN` and `TVAE` of this library, which are faster
    and more correct.

    Every ``nn.ReLU`` and ``nn.LeakyReLU`` is replaced: in CTGAN those after the batch normalisation
    of the generator's residual layers and between the layers of the critic, in TVAE those after
    every hidden layer of the encoder and the decoder. Batch normalisation, dropout, and the tanh,
    softmax and Gumbel-softmax of the outputs stay. The modules act on ``(batch, width)``.

    The package and the given class are not changed. The result is a subclass whose ``fit`` replaces
    the modules when they are built. It can be pickled, saved and loaded if both libraries are
    installed.

    Parameters
    ----------
    model_or_class : class or instance
        ``ctgan.CTGAN``, ``ctgan.TVAE``, a subclass, or an unfitted model of one of them.
    activation : str or callable, default="combu"
        A name in ``combutab.ACTIVATIONS``, or a callable ``width -> nn.Module``. The callable must
        be picklable to save or pickle the model.

    Returns
    -------
    class or instance
        A subclass for a class; a new model with the same settings for a model.

    Raises
    ------
    ImportError
        If ``ctgan`` is not installed.
    TypeError
        If it is not a class or model of ``ctgan``, or ``activation`` does not return a module.
    ValueError
        If the activation is unknown, or is not twice differentiable (CTGAN's gradient penalty
        requires it), or if the model is fitted.

    References
    ----------
    "CombU: a combined unit activation for fitting mathematical expressions with neural
    networks", the experiments on generators.

    Examples
    --------
    With a table that has a discrete column ``city``::

        model = patch_ctgan(ctgan.CTGAN(epochs=10), activation="combu")
        model.fit(table, ["city"])
    """
    try:
        import ctgan
    except ModuleNotFoundError as error:
        raise ImportError("patch_ctgan needs ctgan: pip install sdv ctgan") from error
    cls = model_or_class if isinstance(model_or_class, type) else type(model_or_class)
    if not issubclass(cls, ctgan.CTGAN | ctgan.TVAE):
        raise TypeError(
            "model_or_class must be ctgan.CTGAN or ctgan.TVAE, a subclass or an unfitted model, "
            f"got {model_or_class!r}; the models of combutab have activation= themselves"
        )
    check_activation(activation, _WIDTH, twice=issubclass(cls, ctgan.CTGAN))
    cls = getattr(cls, "_unpatched", cls)
    patched = _patched_class(cls, activation)
    if isinstance(model_or_class, type):
        return patched
    if any(isinstance(value, nn.Module) for value in vars(model_or_class).values()):
        raise ValueError(
            f"this {cls.__name__} has been fitted, its networks are built and trained; patch a new "
            "one, or the class"
        )
    model = patched.__new__(patched)  # copy.copy fails for the package's unfitted TVAE
    vars(model).update(vars(model_or_class))
    return model


def _patched_class(cls: Any, activation: ActivationSpec) -> Any:
    """Derive a class that builds its networks with the activation."""
    from ctgan.synthesizers.base import random_state

    # a subclass's own fit comes before ours, which comes before the package's
    owner = next(c for c in cls.__mro__ if "fit" in vars(c) and c.__module__.startswith("ctgan."))
    fit = inspect.getclosurevars(owner.fit).nonlocals.get("function", owner.fit)  # undecorated
    builders = {
        name: partial(_build_network, value, activation)
        for name, value in fit.__globals__.items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == fit.__module__
    }
    if not builders:
        raise RuntimeError(
            f"{owner.__name__}.fit of this version of ctgan builds no networks of its own module; "
            "patch_ctgan knows version 0.12"
        )
    # The same code with other networks: nobody else's change, not for a while, in no thread.
    names = {**fit.__globals__, **builders}
    rebound = FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)
    rebound.__kwdefaults__ = fit.__kwdefaults__
    namespace = {
        "fit": random_state(rebound),
        "__reduce__": lambda self: (_restore, (cls, activation), self.__getstate__()),
        "__module__": __name__,
        "__doc__": f"{owner.__name__} of ctgan with {activation!r} at every hidden layer.",
        "_unpatched": cls,
    }
    patched = type(f"Patched{owner.__name__}", (owner,), namespace)
    return patched if cls is owner else type(f"Patched{cls.__name__}", (cls, patched), {})


def _restore(cls: Any, activation: ActivationSpec) -> Any:
    """Make an empty model, for pickle."""
    patched = _patched_class(cls, activation)
    return patched.__new__(patched)


def _build_network(
    network: type[nn.Module], activation: ActivationSpec, *args: Any, **kwargs: Any
) -> nn.Module:
    """Build a network, then replace its activations."""
    built = network(*args, **kwargs)
    for parent in list(built.modules()):
        width = None
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                width = child.out_features
            elif isinstance(child, nn.ReLU | nn.LeakyReLU):
                assert width is not None, f"the width of {name} in {built} is not known"
                setattr(parent, name, make_activation(activation, width))
    return built
