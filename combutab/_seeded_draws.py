"""Random draws of code that asks torch's global generator, taken from a generator of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_WITH_GENERATOR = {
    "default": "generator",
    "low": "low_generator",
    "low_dtype": "low_generator_dtype",
    "Tensor": "Tensor_generator",
}


class SeededDraws(TorchDispatchMode):
    """A context in which this thread's draws from torch's global generators come from a seed.

    Global generators are neither read nor set, so other threads see nothing of it. A generator
    that the code passes itself is left alone.

    Parameters
    ----------
    seed : callable
        Gives the seed, an integer of up to 63 bits; called at the first draw, if there is one.

    Raises
    ------
    RuntimeError
        At an operation whose draws cannot be given a generator.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with SeededDraws(lambda: 7):
    ...     first = torch.nn.functional.dropout(torch.ones(100))
    >>> with SeededDraws(lambda: 7):
    ...     second = torch.nn.functional.dropout(torch.ones(100))
    >>> torch.equal(first, second), torch.equal(before, torch.get_rng_state())
    (True, True)
    """

    def __init__(self, seed: Callable[[], int]) -> None:
        super().__init__()
        self._seed = seed
        self._drawn: int | None = None
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = {k: v for k, v in (kwargs or {}).items() if (k, v) != ("generator", None)}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        if given.get("generator") is not None or given.get("dropout_p") == 0:
            return func(*args, **kwargs)
        if func is torch.ops.aten.native_dropout.default:
            return self._dropout(**given)
        if "generator" not in names:
            packet, overload = func.overloadpacket, _WITH_GENERATOR.get(func._overloadname, "")
            if overload not in packet.overloads():
                raise RuntimeError(
                    f"{func} draws random numbers that cannot be given a seed; draw them with "
                    "torch.rand or torch.randn"
                )
            func = getattr(packet, overload)
        # a generator may stand among the positional arguments
        args = args[: names.index("generator")] if "generator" in names else args
        return func(*args, **kwargs, generator=self._generator(given))

    def _generator(self, given: Mapping[str, Any]) -> torch.Generator:
        tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
        device = tensors[0].device if tensors else torch.device(given.get("device") or "cpu")
        if self._drawn is None:
            self._drawn = self._seed()
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._drawn)
        return self._generators[device]

    def _dropout(self, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False:
            return input.clone(), torch.ones_like(input, dtype=torch.bool)
        generator = self._generator({"input": input})
        mask = torch.empty_like(input).bernoulli_(1 - p, generator=generator).bool()
        return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask
