"""The networks of CTGAN and TVAE, M of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from combutab.core.rng import Stream, fold_in
from combutab.nn._chain import ChainPass
from combutab.nn._layers import (
    ActivationSpec,
    MaskMaker,
    StackedLinear,
    make_hidden,
)
from combutab.nn._network import (
    Context,
    LayeredNetwork,
    Member,
    check_proxy_norm,
    weight_generators,
)

# ---- The critic in adversarial training: frozen for the generator's step, and its penalty --------

_LEAST_SQUARE = 1e-36  # of the norm of a gradient


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Freeze the parameters of networks in a context, so that only inputs get gradients.

    Examples
    --------
    >>> from combutab.nn import Member
    >>> critic = StackedCritic(2, (4,), [Member(0, "relu")], pac=1)
    >>> with frozen(critic):
    ...     critic(torch.ones(1, 3, 2)).requires_grad
    False
    """
    parameters = [p for net in networks for p in net.parameters() if p.requires_grad]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def gradient_penalty(
    critic: StackedCritic,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    masks: Sequence[Tensor] | None = None,
    *,
    weight: float = 10.0,
) -> Tensor:
    """Gradient penalty of WGAN-GP: squared deviation of a critic's gradient norm from 1.

    Parameters
    ----------
    critic : StackedCritic
        The critics.
    real, fake : Tensor, (M, batch, n_inputs)
        Real and generated rows, which get no gradient.
    mix : Tensor, (M, batch / pac)
        Random numbers in [0, 1], for the point between fake (0) and real (1) rows at which the
        gradient of each group is computed.
    masks : sequence of Tensor, optional
        Dropout masks, as in ``StackedCritic.score``.
    weight : float, default=10.0
        Weight of the penalty, as in the paper.

    Returns
    -------
    Tensor, (M,)
        ``weight * mean((norm - 1)^2)`` over groups, where the norm is over all rows of a group. It
        is differentiable with respect to the parameters of the critic that are not frozen.

    References
    ----------
    Gulrajani et al. (2017), "Improved training of Wasserstein GANs", Eq. (3).

    Examples
    --------
    >>> from combutab.nn import Member
    >>> critic = StackedCritic(2, (), [Member(0, "relu")], pac=1)
    >>> slope = torch.linalg.vector_norm(critic.linears[0].weight)
    >>> rows = torch.zeros(1, 3, 2)
    >>> penalty = gradient_penalty(critic, rows, rows + 1, torch.rand(1, 3), weight=1.0)
    >>> bool((penalty - (slope - 1) ** 2).abs() < 1e-6)
    True
    """
    real, fake = critic.group(real.detach()), critic.group(fake.detach())
    between = torch.lerp(fake, real, mix.to(real.dtype).unsqueeze(-1))
    between.requires_grad_()
    with torch.enable_grad():
        score = critic.score(between, masks)
        (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True)
        # the square root has no slope at zero, so gradients of norm zero have no effect
        norms = gradient.square().sum(-1).clamp_min(_LEAST_SQUARE).sqrt()
        return weight * (norms - 1).square().mean(-1)


ORIGINAL = "original"  # the activation of the CTGAN paper, in place of a name
_SIGMA_START, _SIGMA_FLOOR = 0.1, 0.01


class BlockNetwork(LayeredNetwork):
    """Layers of given widths, one per block: the base class of the networks of CTGAN and TVAE.

    Parameters
    ----------
    n_inputs, n_outputs : int
    widths : sequence of int
        Widths of the blocks; may be empty.
    members : sequence of Member
        Sorted so that those of one activation are neighbours; ``activation="original"`` is the
        paper's. Their dropout is not used. Networks of different kinds have different
        initial weights for the same seed.
    normalization : {"none", "batch", "layer", "group", "rms", "pln", "pls"}
    proxy_norm : bool
        Wrap the activations in ProxyNorm, after layer or group normalisation.
    dtype, device
        Type and device of the parameters.

    Shape
    -----
    (M, batch, n_inputs) -> (M, batch, n_outputs)
    """

    _stream: Stream
    _original: ActivationSpec = "relu"  # of the paper

    @classmethod
    def linear_shapes(
        cls, n_inputs: int, widths: Sequence[int], n_outputs: int
    ) -> dict[str, tuple[int, int]]:
        """Return the shapes of the weights of a member's linear layers, by name."""
        shapes: dict[str, tuple[int, int]] = {}
        for i, width in enumerate((*widths, n_outputs)):
            shapes[f"linears.{i}.weight"] = (n_inputs, width)
            n_inputs = n_inputs + width if cls.residual else width
        return shapes

    def __init__(
        self,
        n_inputs: int,
        widths: Sequence[int],
        n_outputs: int,
        members: Sequence[Member],
        *,
        normalization: str = "none",
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(members)
        check_proxy_norm(proxy_norm, normalization)
        self.n_inputs, self.widths = n_inputs, tuple(widths)
        seeds = [fold_in(member.seed, self._stream) for member in self.members]
        generators = weight_generators(self.members, seeds)
        specs = [self._original if m.activation == ORIGINAL else m.activation for m in self.members]
        shapes = self.linear_shapes(n_inputs, widths, n_outputs).values()
        self.linears = nn.ModuleList(StackedLinear(*shape, generators) for shape in shapes)
        norms, slots = make_hidden(
            self.widths, specs, seeds, normalization=normalization, proxy_norm=proxy_norm
        )
        self.norms, self.activations = nn.ModuleList(norms), nn.ModuleList(slots)
        self._flatten(dtype, torch.device(device))

    def forward(self, x: Tensor) -> Any:
        return self.raw_outputs(x)

    def training_pass(self, context: Context = nullcontext) -> Callable[..., Tensor]:
        """``raw_outputs`` of training's steps, within a context (an autocast, say).

        On a CPU, without a context, it works in reused memory, and can be differentiated once.
        """
        if context is nullcontext and self.device.type == "cpu":
            return ChainPass(self.chain())
        return partial(self.raw_outputs, context=context)

    def raw_outputs(
        self,
        h: Tensor,
        masks: Sequence[Tensor] | None = None,
        *,
        context: Context = nullcontext,
    ) -> Tensor:
        """The last layer's outputs of (M, rows, n_inputs), with dropout masks of each block."""
        if not (self.training or torch.is_grad_enabled() or masks) and context is nullcontext:
            return self.chain(training=False).outputs(h)
        with context():
            return self._pass_layers(h, masks)


class StackedGenerator(BlockNetwork):
    """M generators of CTGAN, from noise and condition (concatenated) to the raw outputs of a row.

    Parameters are those of `BlockNetwork`. The paper uses the widths (256, 256), batch
    normalisation and ReLU.

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.4.

    Examples
    --------
    >>> net = StackedGenerator(8 + 3, (16, 16), 6, [Member(0, "original"), Member(0, "combu")])
    >>> net(torch.zeros(2, 5, 8 + 3)).shape
    torch.Size([2, 5, 6])
    """

    _stream, residual = Stream.GENERATOR, True


class StackedCritic(BlockNetwork):
    """M critics of CTGAN, which score groups of ``pac`` rows.

    Parameters
    ----------
    n_inputs : int
        Number of columns of a row and its condition.
    widths, members
        As in `BlockNetwork`; ``activation="original"`` is LeakyReLU(0.2).
    pac : int, default=10
        Number of rows that are scored together (PacGAN).
    dropout : float, default=0.5
        Dropout rate after every activation, for all members.
    **options
        Other parameters of `BlockNetwork`. Do not use batch normalisation: the gradient penalty
        would then depend on whole batches.

    Shape
    -----
    rows : (M, batch, n_inputs) -> (M, batch / pac), one score per ``pac`` neighbouring rows

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.4; Lin et al.
    (2018), "PacGAN".

    Examples
    --------
    >>> critic = StackedCritic(6, (16, 16), [Member(0, "original")], pac=5)
    >>> masks = critic.mask_maker().draw([1], n_rows=2)
    >>> critic(torch.zeros(1, 10, 6), masks).shape
    torch.Size([1, 2])
    """

    _stream, _original = Stream.CRITIC, staticmethod(lambda width: nn.LeakyReLU(0.2))

    def __init__(
        self,
        n_inputs: int,
        widths: Sequence[int],
        members: Sequence[Member],
        *,
        pac: int = 10,
        dropout: float = 0.5,
        **options: Any,
    ) -> None:
        if pac < 1:
            raise ValueError(f"pac must be at least 1, got {pac=}")
        super().__init__(pac * n_inputs, widths, 1, members, **options)
        self.pac, self.dropout = pac, dropout

    def mask_maker(self) -> MaskMaker:
        """Return the generator of dropout masks: ``draw(keys, n_rows=batch // pac)``."""
        rates = [self.dropout] * self.n_members
        return MaskMaker(self.widths, rates, device=self.device, dtype=self.dtype)

    def group(self, rows: Tensor) -> Tensor:
        """Concatenate each ``pac`` neighbouring rows.

        Shape
        -----
        (M, batch, n_inputs) -> (M, batch / pac, pac * n_inputs)

        Raises
        ------
        ValueError
            If ``pac`` does not divide the batch.
        """
        if rows.shape[1] % self.pac:
            raise ValueError(
                f"the critic judges {self.pac} rows at a time, got a batch of {rows.shape[1]}; "
                "take a batch size that pac divides"
            )
        return rows.reshape(rows.shape[0], -1, self.n_inputs)

    def score(self, groups: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Score the groups of ``group``.

        Shape
        -----
        groups : (M, n_groups, pac * n_inputs), masks : (M, n_groups, width) per block, or None
        for no dropout -> (M, n_groups)
        """
        return self.raw_outputs(groups, masks).squeeze(-1)

    def forward(self, rows: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        return self.score(self.group(rows), masks)


class StackedRowEncoder(BlockNetwork):
    """M encoders of TVAE, from a row to the mean and log variance of its latent distribution.

    Parameters are those of `BlockNetwork`; ``n_outputs`` is twice the number of latent dimensions.
    The paper uses the widths (128, 128), ReLU, and no normalisation.

    Shape
    -----
    rows : (M, batch, n_inputs) -> mean, log variance : (M, batch, n_outputs / 2) each

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.
    """

    _stream = Stream.ROW_ENCODER

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.raw_outputs(x).chunk(2, dim=-1)
        return mean, log_variance


class StackedRowDecoder(BlockNetwork):
    """M decoders of TVAE, from a latent vector to the raw outputs of a row.

    Each tanh value also has a learned standard deviation of at least 0.01.

    Parameters
    ----------
    n_inputs : int
        Number of latent dimensions.
    n_outputs, n_values : int
        Width of a row, and the number of its tanh values.
    widths, members, **options
        As in `BlockNetwork`. The paper uses those of `StackedRowEncoder`.

    Shape
    -----
    latent : (M, batch, n_inputs) -> raw : (M, batch, n_outputs), sigma : (M, 1, n_values)

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.
    """

    _stream = Stream.ROW_DECODER

    def __init__(
        self,
        n_inputs: int,
        widths: Sequence[int],
        n_outputs: int,
        members: Sequence[Member],
        *,
        n_values: int,
        **options: Any,
    ) -> None:
        super().__init__(n_inputs, widths, n_outputs, members, **options)
        # NOTE[DIFF]: the paper leaves open how a standard deviation stays positive. The floor
        # bounds the likelihood of a column that takes few values, which is unbounded otherwise.
        start = self.flat.values.new_full(
            (self.n_members, 1, n_values), _SIGMA_START - _SIGMA_FLOOR
        )
        self.log_sigma = nn.Parameter(start.log())
        self._flatten(self.dtype, self.device)  # once more, with these

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.raw_outputs(x), self.sigma

    @property
    def sigma(self) -> Tensor:
        """Standard deviations of the values, (M, 1, n_values)."""
        return self.log_sigma.exp() + _SIGMA_FLOOR
