"""The networks of CTGAN and TVAE, M of each at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from combutab.activations.kernels import Identity, ReLU
from combutab.core.rng import Stream, fold_in
from combutab.nn._activation import ActivationSpec, StackedActivation
from combutab.nn._chain import Chain
from combutab.nn._layers import MaskMaker, StackedLinear, StackedNorm
from combutab.nn._stack import Member, StackedNetwork, check_proxy_norm
from combutab.nn._stages import (
    KernelStage,
    add_weight_gradient,
    affine,
    input_gradient,
    parameters_of,
    product,
)

# ---- The gradients of WGAN-GP's penalty, written out around the layers of a chain ----------------

_LEAST_NORM = 1e-30  # of a gradient: that of a norm of zero is taken as zero, as autograd does


class PenaltyPass:
    """Adds the penalty's gradients to those that a chain's backward pass has set.

    With h_0 the input of a row, a_l = h_l W_l + b_l, h_{l+1} = T_l(a_l) (normalisation, activation
    and dropout mask) and the score h_L w + b, the gradient of the score is g = u_0 W_0', where
    u_l = T_l'(a_l)' v_{l+1}, v_l = u_l W_l' and v_L = w. The penalty f(g) is differentiated in the
    other direction: with G = f'(g), dW_0 = G' u_0, du_0 = G W_0, dv_{l+1} = T_l'(a_l) du_l, and so
    on, as if G were a row of inputs. What T'' adds to the gradient of a_l goes down through the
    layers once more. Layers that multiply by a slope of each unit do so here too; of all others
    T_l' and T_l'' are autograd's.

    Parameters
    ----------
    chain : Chain
        Of a critic: a single output, not residual.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    @torch.no_grad()
    def add_gradients(self, x: Tensor, masks: Sequence[Tensor], weight: float) -> Tensor:
        """Add the gradients of the penalty at rows x, and return it, (M,).

        Parameters
        ----------
        x : Tensor, (M, n, n_inputs)
        masks : sequence of Tensor, (M, n, width), one a hidden layer
        weight : float
            Of the penalty.
        """
        chain, n = self._chain, x.shape[1]
        layers: list[_Pass] = []
        inputs = [x]
        for i, mask in enumerate(masks):
            place = partial(chain.scratch, f"penalty a{i}", *mask.shape)
            a = affine(inputs[-1], chain.weights[i], chain.biases[i], place)
            kind = _Slopes if chain.layers[i].scales else _Autograd
            layers.append(kind(chain, i, a, mask))
            inputs.append(layers[-1].result)
        # down: the gradient of the score by x
        us: list[Tensor] = []
        v = chain.weights[-1].transpose(1, 2).expand(-1, n, -1)
        for i in reversed(range(len(layers))):
            us.append(layers[i].pull(v))
            place = partial(chain.scratch, f"penalty v{i}", *inputs[i].shape)
            v = input_gradient(us[-1], chain.weights[i], place)
        us.reverse()
        norms = torch.linalg.vector_norm(v, dim=2)
        penalty = weight * (norms - 1).square().mean(1)
        factor = (norms - 1).div_(norms.clamp_min(_LEAST_NORM)).mul_(2 * weight / n)
        # up: through the gradient's own computation
        down = v * factor.unsqueeze(2)
        for i, layer in enumerate(layers):
            add_weight_gradient(down, us[i], chain.weight_grads[i])
            place = partial(chain.scratch, f"penalty du{i}", *us[i].shape)
            down = layer.push(product(down, chain.weights[i], place))
        chain.weight_grads[-1].add_(down.sum(1).unsqueeze(2))
        # down again: what reached the layers' inputs through T''
        grad: Tensor | None = None
        for i in reversed(range(len(layers))):
            grad = layers[i].back(grad)
            if grad is None:
                continue
            add_weight_gradient(inputs[i], grad, chain.weight_grads[i])
            chain.bias_grads[i].add_(grad.sum(1, keepdim=True))
            if i:
                place = partial(chain.scratch, f"penalty g{i}", *inputs[i].shape)
                grad = input_gradient(grad, chain.weights[i], place)
        return penalty


class _Pass(ABC):
    """A layer on its way down, up and down again."""

    result: Tensor  # T(a)

    @abstractmethod
    def pull(self, v: Tensor) -> Tensor:
        """u = T'(a)' v."""

    @abstractmethod
    def push(self, du: Tensor) -> Tensor:
        """dv = T'(a) du; what T'' gives a is kept for ``back``."""

    @abstractmethod
    def back(self, grad: Tensor | None) -> Tensor | None:
        """The gradient by a, given that by the result; None is zero."""


class _Slopes(_Pass):
    """A layer of single units without parameters: T' is a factor of each unit."""

    def __init__(self, chain: Chain, i: int, a: Tensor, mask: Tensor) -> None:
        layer, self._i, self._scratch = chain.layers[i], i, chain.scratch
        self._slot, self._mask, self._a = chain.slots[i], mask, a
        self._curved = not all(_is_straight(part) for _, _, part in layer.parts)
        y = self._scratch(f"penalty y{i}", *a.shape)
        layer.activate(a, y)
        self.result = torch.mul(y, mask, out=self._memory("h"))
        self._slope = self._memory("s").copy_(mask)
        layer.derive(self._slope)

    def _memory(self, name: str) -> Tensor:
        return self._scratch(f"penalty {name}{self._i}", *self._a.shape)

    def pull(self, v: Tensor) -> Tensor:
        self._v = v
        return torch.mul(v, self._slope, out=self._memory("u"))

    def push(self, du: Tensor) -> Tensor:
        self._du = du
        return torch.mul(du, self._slope, out=self._memory("dv"))

    def back(self, grad: Tensor | None) -> Tensor | None:
        grad = None if grad is None else grad.mul_(self._slope)
        if not self._curved:
            return grad
        with torch.enable_grad():
            a = self._a.detach().requires_grad_()
            (u,) = torch.autograd.grad(self._slot(a), a, self._mask * self._v, create_graph=True)
            if not u.requires_grad:  # a slope that does not change has no derivative
                return grad
            (own,) = torch.autograd.grad(u, a, self._du)
        return own if grad is None else own.add_(grad)


def _is_straight(stage: object) -> bool:
    return isinstance(stage, KernelStage) and isinstance(stage.kernel, ReLU | Identity)


class _Autograd(_Pass):
    """Any other layer."""

    def __init__(self, chain: Chain, i: int, a: Tensor, mask: Tensor) -> None:
        modules = nn.ModuleList([chain.norms[i], chain.slots[i]])
        owned = parameters_of(modules, chain.at)
        self._parameters = [parameter for parameter, _ in owned]
        self._places = [place for _, place in owned]
        with torch.enable_grad():
            self._a = a.detach().requires_grad_()
            self._h = chain.slots[i](chain.norms[i](self._a.clone())) * mask
        self.result = self._h.detach()

    def pull(self, v: Tensor) -> Tensor:
        with torch.enable_grad():
            self._v = v.detach().requires_grad_()
            (self._u,) = torch.autograd.grad(self._h, self._a, self._v, create_graph=True)
        return self._u.detach()

    def push(self, du: Tensor) -> Tensor:
        found = self._gradients(self._u, [self._v, self._a], du)
        dv, self._own = found
        return torch.zeros_like(self._v) if dv is None else dv

    def back(self, grad: Tensor | None) -> Tensor | None:
        if grad is None:
            return self._own
        (by_a,) = self._gradients(self._h, [self._a], grad)
        if by_a is None or self._own is None:
            return self._own if by_a is None else by_a
        return by_a + self._own

    def _gradients(self, of: Tensor, by: Sequence[Tensor], upstream: Tensor) -> list[Tensor | None]:
        """Compute gradients by some tensors; those by parameters are added to their places."""
        if not of.requires_grad:
            return [None] * len(by)
        found = torch.autograd.grad(
            of, [*by, *self._parameters], upstream, allow_unused=True, retain_graph=True
        )
        for place, value in zip(self._places, found[len(by) :], strict=True):
            if value is not None:
                place.add_(value)
        return list(found[: len(by)])


# ---- The critic in adversarial training: frozen for the generator's step, and its gradient
# penalty


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Hold the networks' parameters constant: gradients pass through to inputs only.

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
    """WGAN-GP's penalty on how far the norm of a critic's gradient is from 1.

    Parameters
    ----------
    critic : StackedCritic
    real, fake : Tensor, (M, batch, n_inputs)
        Neither receives a gradient.
    mix : Tensor, (M, batch / pac)
        Uniform on [0, 1]: where between fake (0) and real (1) rows each group's gradient is taken.
    masks : sequence of Tensor, optional
        Dropout masks, as of ``StackedCritic.score``.
    weight : float
        Of the penalty; the paper's is 10.

    Returns
    -------
    Tensor, (M,)
        ``weight * mean((norm - 1)^2)`` over groups, the norm being over all rows of a group;
        differentiable by the critic's parameters, except by those that are frozen.

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
        norms = torch.linalg.vector_norm(gradient, dim=-1)
        return weight * (norms - 1).square().mean(-1)


ORIGINAL = "original"  # the activation of the CTGAN paper, in place of a name
_SIGMA_START, _SIGMA_FLOOR = 0.1, 0.01


def _leaky_relu(width: int) -> nn.Module:
    return nn.LeakyReLU(0.2)


class BlockNetwork(StackedNetwork):
    """Blocks of linear, normalisation, activation (and dropout masks); linear at the end.

    A residual network's block passes on its input beside its output, concatenated.
    """

    _stream: Stream
    _original: ActivationSpec = "relu"  # of the paper
    residual = False

    @classmethod
    def linear_shapes(
        cls, n_inputs: int, widths: Sequence[int], n_outputs: int
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights of linear layers, by name."""
        shapes: dict[str, tuple[int, ...]] = {}
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
        normalization: str,
        proxy_norm: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(members)
        check_proxy_norm(proxy_norm, normalization)
        self.widths, self.normalization = tuple(widths), normalization
        seeds = [fold_in(member.seed, self._stream) for member in self.members]
        weights = [fold_in(seed, Stream.WEIGHTS) for seed in seeds]
        generators = [torch.Generator().manual_seed(key >> 1) for key in weights]
        specs = [self._original if m.activation == ORIGINAL else m.activation for m in self.members]
        self.linears, self.norms = nn.ModuleList(), nn.ModuleList()
        self.activations = nn.ModuleList()
        for i, width in enumerate(self.widths):
            self.linears.append(StackedLinear(n_inputs, width, generators, dtype=dtype))
            self.norms.append(
                nn.Identity()
                if normalization == "none"
                else StackedNorm(
                    normalization, width, self.n_members, affine=not proxy_norm, dtype=dtype
                )
            )
            self.activations.append(
                StackedActivation(
                    specs,
                    width,
                    [fold_in(seed, Stream.ACTIVATION, i) >> 1 for seed in seeds],
                    proxy_norm=proxy_norm,
                    dtype=dtype,
                )
            )
            n_inputs = n_inputs + width if self.residual else width
        self.linears.append(StackedLinear(n_inputs, n_outputs, generators, dtype=dtype))

    def _finish(self, dtype: torch.dtype, device: torch.device | str) -> None:
        self.to(device)
        self._flatten(dtype, torch.device(device))

    def chain(self, *, training: bool = True) -> Chain:
        """Forward and backward passes in memory of their own; for predictions alone without."""
        return Chain(
            [cast(StackedLinear, linear) for linear in self.linears],
            list(self.norms),
            [cast(StackedActivation, slot) for slot in self.activations],
            self.flat if training else None,
            residual=self.residual,
        )

    def _through(self, h: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        if not (self.training or torch.is_grad_enabled() or masks):
            return self.chain(training=False).outputs(h)
        layers = zip(self.linears, self.norms, self.activations, strict=False)
        for i, (linear, norm, activation) in enumerate(layers):
            out = activation(norm(linear(h)))
            if masks is not None:
                out = out * masks[i]
            h = torch.cat([h, out], dim=-1) if self.residual else out
        return self.linears[-1](h)


class StackedGenerator(BlockNetwork):
    """M of CTGAN's generators: noise and condition to the raw outputs of a row.

    Parameters
    ----------
    n_noise, n_condition, n_outputs : int
        ``n_condition`` may be 0; ``n_outputs`` is the width of a row.
    widths : sequence of int
        Of the residual blocks; the paper's are (256, 256). May be empty.
    members : sequence of Member
        Sorted so that those of one activation are neighbours; ``activation="original"`` is the
        paper's ReLU. Their dropout is not used. A member's seed gives its networks of every
        kind weights of their own.
    normalization : {"batch", "none", "layer", "group", "rms", "pln", "pls"}
        The paper's is batch normalisation.
    proxy_norm : bool
        Wrap the activations in ProxyNorm, after layer or group normalisation.
    dtype, device
        Of the parameters.

    Shape
    -----
    noise : (M, batch, n_noise), condition : (M, batch, n_condition) -> (M, batch, n_outputs)

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.4.

    Examples
    --------
    >>> net = StackedGenerator(8, 3, 6, (16, 16), [Member(0, "original"), Member(0, "combu")])
    >>> net(torch.zeros(2, 5, 8), torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 6])
    """

    _stream, residual = Stream.GENERATOR, True

    def __init__(
        self,
        n_noise: int,
        n_condition: int,
        n_outputs: int,
        widths: Sequence[int],
        members: Sequence[Member],
        *,
        normalization: str = "batch",
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        n_inputs = n_noise + n_condition
        super().__init__(n_inputs, widths, n_outputs, members, normalization, proxy_norm, dtype)
        self.n_noise, self.n_condition = n_noise, n_condition
        self._finish(dtype, device)

    def forward(self, noise: Tensor, condition: Tensor | None = None) -> Tensor:
        return self._through(noise if condition is None else torch.cat([noise, condition], -1))


class StackedCritic(BlockNetwork):
    """M of CTGAN's critics, each of which judges ``pac`` rows together.

    Parameters
    ----------
    n_inputs : int
        Columns of a row and of its condition together.
    widths, members, normalization, proxy_norm, dtype, device
        As of ``StackedGenerator``; ``activation="original"`` is LeakyReLU(0.2). The default is
        no normalisation: batch statistics would make the gradient penalty one of whole batches.
    pac : int
        Rows that are judged together (PacGAN).
    dropout : float
        After every activation, for all members.

    Shape
    -----
    rows : (M, batch, n_inputs) -> (M, batch / pac), neighbouring rows being judged together

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

    _stream, _original = Stream.CRITIC, staticmethod(_leaky_relu)

    def __init__(
        self,
        n_inputs: int,
        widths: Sequence[int],
        members: Sequence[Member],
        *,
        pac: int = 10,
        dropout: float = 0.5,
        normalization: str = "none",
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if pac < 1:
            raise ValueError(f"pac must be at least 1, got {pac=}")
        super().__init__(pac * n_inputs, widths, 1, members, normalization, proxy_norm, dtype)
        self.n_inputs, self.pac, self.dropout = n_inputs, pac, dropout
        self._finish(dtype, device)

    def mask_maker(self) -> MaskMaker:
        """Draws dropout masks for groups of rows: ``draw(keys, n_rows=batch // pac)``."""
        rates = [self.dropout] * self.n_members
        return MaskMaker(self.widths, rates, device=self.device, dtype=self.dtype)

    def group(self, rows: Tensor) -> Tensor:
        """Put ``pac`` neighbouring rows side by side.

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
        return rows.reshape(rows.shape[0], -1, self.pac * self.n_inputs)

    def score(self, groups: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Judge groups that ``group`` made.

        Shape
        -----
        groups : (M, n_groups, pac * n_inputs), masks : (M, n_groups, width) a block, or None
        for no dropout -> (M, n_groups)
        """
        return self._through(groups, masks).squeeze(-1)

    def forward(self, rows: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        return self.score(self.group(rows), masks)


class StackedRowEncoder(BlockNetwork):
    """M of TVAE's encoders: a row to the mean and log variance of its latent normal.

    Parameters
    ----------
    n_inputs, n_latent : int
    widths, members, normalization, proxy_norm, dtype, device
        As of ``StackedGenerator``; the paper's have widths (128, 128), ReLU, no normalisation.

    Shape
    -----
    rows : (M, batch, n_inputs) -> mean, log variance : (M, batch, n_latent) each

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.
    """

    _stream = Stream.ROW_ENCODER

    def __init__(
        self,
        n_inputs: int,
        widths: Sequence[int],
        n_latent: int,
        members: Sequence[Member],
        *,
        normalization: str = "none",
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(n_inputs, widths, 2 * n_latent, members, normalization, proxy_norm, dtype)
        self._finish(dtype, device)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self._through(rows).chunk(2, dim=-1)
        return mean, log_variance


class StackedRowDecoder(BlockNetwork):
    """M of TVAE's decoders: a latent vector to the raw outputs of a row.

    Beside them it has a standard deviation for each tanh value, a parameter, at least 0.01.

    Parameters
    ----------
    n_latent, n_outputs, n_values : int
        ``n_outputs`` is the width of a row, of which ``n_values`` are tanh values.
    widths, members, normalization, proxy_norm, dtype, device
        As of ``StackedGenerator``; the paper's have widths (128, 128), ReLU, no normalisation.

    Shape
    -----
    latent : (M, batch, n_latent) -> raw : (M, batch, n_outputs), sigma : (M, 1, n_values)

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.
    """

    _stream = Stream.ROW_DECODER

    def __init__(
        self,
        n_latent: int,
        widths: Sequence[int],
        n_outputs: int,
        n_values: int,
        members: Sequence[Member],
        *,
        normalization: str = "none",
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(n_latent, widths, n_outputs, members, normalization, proxy_norm, dtype)
        self.n_latent = n_latent
        # NOTE[DIFF]: the paper leaves open how a standard deviation stays positive. The floor
        # bounds the likelihood of a column that takes few values, which is unbounded otherwise.
        start = torch.full((self.n_members, 1, n_values), _SIGMA_START - _SIGMA_FLOOR, dtype=dtype)
        self.log_sigma, self.sigma_floor = nn.Parameter(start.log()), _SIGMA_FLOOR
        self._finish(dtype, device)

    def forward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        return self._through(latent), self.log_sigma.exp() + self.sigma_floor
