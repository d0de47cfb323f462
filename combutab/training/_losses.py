"""Loss functions: raw network outputs and targets -> one loss per row, and predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

# ---- Loss functions: raw network outputs and targets -> one loss a row, and their predictions ----

_TINY = 1e-300  # instead of a sum of no weights
HUBER_DELTA = 1.0  # in standard deviations of the target, since targets are standardised


def _log_mean(logs: Tensor) -> Tensor:  # (M, B, n_heads, n_outputs) -> (M, B, n_outputs)
    return torch.logsumexp(logs, 2) - math.log(logs.shape[2])


@lru_cache(maxsize=8)
def _constant_tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor that is copied to the device once: a step does not wait for the host."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


@dataclass(frozen=True)
class Loss:
    """Base class of the losses; subclasses define ``rows``, and ``point`` if it is not ``raw``.

    ``n_per_target`` raw outputs belong to one target: 1, the number of quantiles, or 2 (mean and
    log variance).
    """

    n_per_target: int = 1
    scaling: str = "standard"  # of the target: "standard", or "mean" where its zero has a meaning

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        """(M, B, n_outputs), targets of the batch -> (M, B)."""
        raise TypeError(f"{type(self).__name__} defines no loss")

    def unsmoothed(self) -> Loss:
        """Return the loss without label smoothing, for evaluation."""
        return self

    def slopes(self, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return ``rows`` and their derivatives with respect to ``raw``; None to use autograd.

        A formula needs a few operations. Autograd needs dozens, which in a small network cost as
        much as a layer. ``raw`` may be overwritten.
        """
        return None

    def point(self, raw: Tensor) -> Tensor:
        """(..., n_outputs) -> the point prediction that a score compares with y."""
        return raw

    def widths(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Expected sizes of residuals below and above the prediction, up to a common factor.

        Shape
        -----
        (n_networks, n, n_outputs) -> (n, n_targets) and (n, n_targets)
        """
        ones = torch.ones_like(self.point(raw)[0])
        return ones, ones

    def average(self, raw: Tensor, n_heads: int) -> Tensor:
        """Return the raw outputs whose prediction is the average prediction of the heads.

        Shape
        -----
        (M, B * n_heads, n_outputs) -> (M, B, n_outputs)
        """
        return raw if n_heads == 1 else self._average(raw.unflatten(1, (-1, n_heads)))

    def _average(self, raw: Tensor) -> Tensor:  # (M, B, n_heads, n_outputs)
        return raw.mean(2)

    def metric(self, raw: Tensor, y: Tensor) -> Tensor:
        """(M, B, n_outputs), targets -> (M, B): absolute errors, or 1 for a right class, else 0."""
        return (self.point(raw) - y).abs().mean(-1)

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        """(..., n_outputs) -> (..., k): quantities whose ensemble mean determines the loss."""
        return raw

    def rows_of_average(self, average: Tensor, y: Tensor) -> Tensor:
        """Return ``rows`` of an ensemble, from the mean of its members' ``averaged``."""
        return self.rows(average, y)


@dataclass(frozen=True)
class SquaredError(Loss):
    """Half the squared error, as in scikit-learn."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return (raw - y).square().mean(-1) * 0.5

    def slopes(self, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        error, n_targets = raw.sub_(y), raw.shape[-1]
        if n_targets == 1:
            return error.squeeze(-1).square().mul_(0.5), error
        norms = torch.linalg.vector_norm(error, dim=-1)  # with no temporary as large as error
        return norms.square_().mul_(0.5 / n_targets), error.div_(n_targets)


@dataclass(frozen=True)
class AbsoluteError(Loss):
    """The absolute error; its minimiser is the conditional median."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return (raw - y).abs().mean(-1)


@dataclass(frozen=True)
class Huber(Loss):
    """Squared near zero, linear beyond one standard deviation of the target."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(raw, y, reduction="none", delta=HUBER_DELTA).mean(-1)


@dataclass(frozen=True)
class Poisson(Loss):
    """Half the Poisson deviance with a log link, as in scikit-learn; y >= 0."""

    scaling: str = "mean"

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return (torch.exp(raw) - y * raw + torch.xlogy(y, y) - y).mean(-1)

    def point(self, raw: Tensor) -> Tensor:
        return torch.exp(raw)

    def widths(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        deviation = self.point(raw).mean(0).sqrt()  # the variance is proportional to the mean
        return deviation, deviation

    def _average(self, raw: Tensor) -> Tensor:
        return _log_mean(raw)

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        return torch.exp(raw)

    def rows_of_average(self, average: Tensor, y: Tensor) -> Tensor:
        return self.rows(_log(average), y)


@dataclass(frozen=True)
class Pinball(Loss):
    """Quantile (pinball) loss, averaged over quantiles; outputs are (target, quantile) pairs.

    Raw quantiles may cross. Training uses them unchanged; predictions, averages and scores use them
    rearranged (sorted), as in Chernozhukov et al. (2010).
    """

    quantiles: tuple[float, ...] = (0.5,)

    def _pairs(self, raw: Tensor) -> Tensor:  # (..., T * Q) -> (..., T, Q)
        return raw.unflatten(-1, (-1, len(self.quantiles)))

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        q = _constant_tensor(self.quantiles, raw.dtype, raw.device)
        error = y.unsqueeze(-1) - self._pairs(raw)
        return torch.maximum(q * error, (q - 1) * error).mean((-1, -2))

    def rearranged(self, raw: Tensor) -> Tensor:  # (..., T * Q) -> (..., T, Q)
        """Sort the quantiles of each network in increasing order."""
        return torch.sort(self._pairs(raw), -1).values

    @property
    def _middle(self) -> int:
        """Position of the quantile that is predicted."""
        distance = [abs(q - 0.5) for q in self.quantiles]
        return distance.index(min(distance))

    def point(self, raw: Tensor) -> Tensor:
        return self.rearranged(raw)[..., self._middle]

    def widths(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        if not 0 < self._middle < len(self.quantiles) - 1:  # no quantile on one side
            return super().widths(raw)
        values = self.rearranged(raw).mean(0)
        middle = values[..., self._middle]
        return middle - values[..., 0], values[..., -1] - middle

    def average(self, raw: Tensor, n_heads: int) -> Tensor:
        return super().average(self.rearranged(raw).flatten(-2), n_heads)

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        return self.rearranged(raw).flatten(-2)


@dataclass(frozen=True)
class GaussianNLL(Loss):
    """Gaussian negative log likelihood without its constant; outputs are (target, 2) pairs.

    A pair is a mean and a log variance, which is bounded smoothly below by ``min_log_variance``.
    """

    n_per_target: int = 2
    min_log_variance: float = -14.0  # a standard deviation of 0.1 % of the target's

    def moments(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """(..., T * 2) -> mean and log variance, each (..., T)."""
        pairs = raw.unflatten(-1, (-1, 2))
        # a smooth floor: where the data can be interpolated the likelihood has no maximum
        floor = self.min_log_variance
        return pairs[..., 0], floor + F.softplus(pairs[..., 1] - floor)

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return self._nll(*self.moments(raw), y)

    def _nll(self, mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
        nll = 0.5 * (log_variance + (y - mean).square() * torch.exp(-log_variance))
        return nll.mean(-1)

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        mean, log_variance = self.moments(raw)  # a mixture's moments are those of its parts
        return torch.stack([mean, torch.exp(log_variance) + mean.square()], -1)

    def rows_of_average(self, average: Tensor, y: Tensor) -> Tensor:
        mean, square = average.unbind(-1)
        variance = (square - mean.square()).clamp_min(math.exp(self.min_log_variance))
        return self._nll(mean, variance.log(), y)

    def point(self, raw: Tensor) -> Tensor:
        return self.moments(raw)[0]

    def mixture(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the equal mixture of the networks' normals.

        Shape
        -----
        (n_networks, n, n_outputs) -> (n, n_targets) and (n, n_targets)
        """
        mean, log_variance = self.moments(raw)
        centre = mean.mean(0)
        variance = (torch.exp(log_variance) + (mean - centre).square()).mean(0)
        return centre, variance.sqrt()

    def widths(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        deviation = self.mixture(raw.float())[1].to(raw)  # ONNX runtimes lack a Softplus of float64
        return deviation, deviation

    def _average(self, raw: Tensor) -> Tensor:
        """The mean and variance of the heads' mixture."""
        mean, log_variance = self.moments(raw)
        centre = mean.mean(2)
        variance = (torch.exp(log_variance) + (mean - centre.unsqueeze(2)).square()).mean(2)
        log_variance = torch.log(variance)
        above = (log_variance - self.min_log_variance).clamp_min(torch.finfo(raw.dtype).tiny)
        inverse = log_variance + torch.log(-torch.expm1(-above))  # of ``moments``' softplus
        return torch.stack([centre, inverse], -1).flatten(-2)


@dataclass(frozen=True)
class Classification(Loss):
    """Base class of losses of labels; an ensemble averages probabilities of the true labels."""

    label_smoothing: float = 0.0

    def unsmoothed(self) -> Loss:
        return replace(self, label_smoothing=0.0)

    def rows_of_average(self, average: Tensor, y: Tensor) -> Tensor:
        return -_log(average).sum(-1)


@dataclass(frozen=True)
class MaskedLoss(Loss):
    """A loss of targets with missing cells (NaN), which have no part in it.

    All other cells have the same weight: the loss of a row is that of a row whose missing targets
    are predicted without error.
    """

    loss: Loss = field(default_factory=Loss)

    @classmethod
    def of(cls, loss: Loss) -> MaskedLoss:
        """Ignore missing cells in a loss."""
        return cls(loss.n_per_target, loss.scaling, loss)

    def _cells(self, values: Tensor) -> Tensor:  # (..., T * k) -> (..., T, k)
        return values.unflatten(-1, (-1, self.n_per_target))

    def _reduced(self, losses: Tensor, y: Tensor) -> Tensor:  # (..., T) -> (...)
        cells = losses * ~y.isnan()
        return cells.sum(-1) if isinstance(self.loss, Classification) else cells.mean(-1)

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        losses = self.loss.rows(self._cells(raw), y.nan_to_num(0.0).unsqueeze(-1))
        return self._reduced(losses, y)

    def unsmoothed(self) -> Loss:
        return replace(self, loss=self.loss.unsmoothed())

    def point(self, raw: Tensor) -> Tensor:
        return self.loss.point(raw)

    def average(self, raw: Tensor, n_heads: int) -> Tensor:
        return self.loss.average(raw, n_heads)

    def metric(self, raw: Tensor, y: Tensor) -> Tensor:
        cells = self.loss.metric(self._cells(raw), y.nan_to_num(0.0).unsqueeze(-1))
        if isinstance(self.loss, Classification):
            return ((cells > 0) | y.isnan()).all(-1).to(raw.dtype)
        return self._reduced(cells, y)

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        return self.loss.averaged(self._cells(raw), y.nan_to_num(0.0).unsqueeze(-1))

    def rows_of_average(self, average: Tensor, y: Tensor) -> Tensor:
        losses = self.loss.rows_of_average(average, y.nan_to_num(0.0).unsqueeze(-1))
        return self._reduced(losses, y)


@dataclass(frozen=True)
class CrossEntropy(Classification):
    """Softmax cross-entropy; y holds class numbers, (M, B) int64."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        log_p = F.log_softmax(raw, dim=-1)
        nll = -log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        if self.label_smoothing:
            nll = nll.lerp(-log_p.mean(-1), self.label_smoothing)
        return nll

    def slopes(self, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        log_p, labels = F.log_softmax(raw, dim=-1), y.unsqueeze(-1)
        nll, slope = -log_p.gather(-1, labels).squeeze(-1), log_p.exp()
        slope.scatter_(-1, labels, slope.gather(-1, labels) - (1 - self.label_smoothing))
        if self.label_smoothing:
            nll = nll.lerp(-log_p.mean(-1), self.label_smoothing)
            slope.sub_(self.label_smoothing / raw.shape[-1])
        return nll, slope

    def point(self, raw: Tensor) -> Tensor:
        return raw.argmax(-1)

    def _average(self, raw: Tensor) -> Tensor:
        return _log_mean(F.log_softmax(raw, -1))

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(raw, -1).gather(-1, y.unsqueeze(-1))

    def metric(self, raw: Tensor, y: Tensor) -> Tensor:
        return (self.point(raw) == y).to(raw.dtype)


@dataclass(frozen=True)
class BinaryCrossEntropy(Classification):
    """Logistic loss of one or several independent labels, summed; y is (M, B, L) of 0 and 1."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(raw, self._smoothed(y), reduction="none").sum(-1)

    def slopes(self, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        return self.rows(raw, y), torch.sigmoid(raw).sub_(self._smoothed(y))

    def _smoothed(self, y: Tensor) -> Tensor:
        if not self.label_smoothing:
            return y
        return y * (1 - self.label_smoothing) + 0.5 * self.label_smoothing

    def point(self, raw: Tensor) -> Tensor:
        return raw > 0

    def _average(self, raw: Tensor) -> Tensor:  # the logit of the mean probability
        return _log_mean(F.logsigmoid(raw)) - _log_mean(F.logsigmoid(-raw))

    def averaged(self, raw: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(torch.where(y > 0.5, raw, -raw))

    def metric(self, raw: Tensor, y: Tensor) -> Tensor:
        return (self.point(raw) == y.bool()).all(-1).to(raw.dtype)


def _log(values: Tensor) -> Tensor:
    """Logarithms, finite ones of zeros too."""
    return values.clamp_min(torch.finfo(values.dtype).tiny).log()


def accuracy(predicted: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Weighted share of rows with every label right: (M, B[, L]) -> (M,) float64."""
    right = (predicted == y.to(predicted.dtype)) | y.isnan()
    if right.ndim == 3:
        right = right.all(-1)
    w = weight.to(torch.float64)
    return (right * w).sum(-1) / w.sum(-1)


def r2(predicted: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Weighted coefficient of determination, mean over targets: (M, B, T) -> (M,) float64.

    Missing targets have no weight.
    """
    y, w = y.to(torch.float64), weight.to(torch.float64).unsqueeze(-1)
    w, y = w * ~y.isnan(), y.nan_to_num(0.0)
    residual = (w * (y - predicted.to(torch.float64)).square()).sum(1)
    mean = (w * y).sum(1, keepdim=True) / w.sum(1, keepdim=True).clamp_min(_TINY)
    total = (w * (y - mean).square()).sum(1)
    score = 1 - residual / total
    # scikit-learn's convention for a constant y: 1 if it is predicted exactly, else 0
    constant = total == 0
    score = torch.where(constant, (residual == 0).to(score.dtype), score)
    return score.mean(-1)


REGRESSION_LOSSES: dict[str, type[Loss]] = {
    "squared_error": SquaredError,
    "absolute_error": AbsoluteError,
    "huber": Huber,
    "poisson": Poisson,
    "quantile": Pinball,
    "gaussian_nll": GaussianNLL,
}
"""Loss classes by their names in the regressors' parameter ``loss``."""


def make_regression_loss(name: str, quantiles: Sequence[float]) -> Loss:
    """Make the Loss of a regressor's ``loss``; ``quantiles`` is for ``"quantile"`` only."""
    if name == "quantile":
        return Pinball(n_per_target=len(quantiles), quantiles=tuple(quantiles))
    return REGRESSION_LOSSES[name]()


# ---- Temperature scaling: the factor of raw outputs that suits held-out rows best ----------------

_STEPS = (1.0, 0.5, 0.25, 0.12, 0.06)  # of the factor's logarithm: factors from 1/7 to 7


def best_factors(losses: Callable[[Tensor], Tensor], raw: Tensor, weight: Tensor) -> Tensor:
    """Find the factor (one over the temperature) of each member's raw outputs, by calibration.

    The factor minimises the sum of the rows' losses, with weights scaled to a mean of 1, plus half
    the square of its logarithm. Without the second term it would grow without bound for a few rows
    that are all predicted correctly. The loss of one head's logits is convex in the factor, so that
    a search with decreasing steps finds it, between 1/7 and 7.

    Parameters
    ----------
    losses : callable
        Raw outputs, (M, n, n_outputs) -> losses of the rows, (M, n).
    raw : Tensor, (M, n, n_outputs)
    weight : Tensor, (M, n)

    Returns
    -------
    Tensor, (M,) float64

    References
    ----------
    Guo et al. (2017), "On calibration of modern neural networks". Berta et al. (2025),
    "Rethinking early stopping: refine, then calibrate", which compares epochs after calibration.

    >>> from combutab.training import CrossEntropy
    >>> y = torch.tensor([[0, 1]])  # which the outputs take for one class, and are too sure of
    >>> raw = torch.tensor([[[9.0, 0.0], [9.0, 0.0]]])
    >>> best_factors(lambda r: CrossEntropy().rows(r, y), raw, torch.ones(1, 2)).item() < 0.3
    True
    """
    return _search_factors(losses, raw, weight, None)[0]


def subset_factors(
    losses: Callable[[Tensor], Tensor], raw: Tensor, weight: Tensor, subsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the factors of `best_factors`, and those of subsets of the rows.

    A subset's factor is the best of those that the search for all rows has tried, so that subsets
    cost next to nothing.

    Shape
    -----
    raw (M, n, n_outputs), weight (M, n), subsets (M, n, K) float64 of 0 and 1 -> factors (M,),
    and for the subsets factors (M, K) and mean losses (M, K), all float64
    """
    factors, subset_factors, losses_of_subsets = _search_factors(losses, raw, weight, subsets)
    return factors, subset_factors, losses_of_subsets


def _search_factors(
    losses: Callable[[Tensor], Tensor], raw: Tensor, weight: Tensor, subsets: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    weight = weight.to(torch.float64)
    weight = weight * ((weight > 0).sum(1) / weight.sum(1)).unsqueeze(1)  # at any scale
    if subsets is None:
        subsets = weight.new_empty(*weight.shape, 0)

    def costs(log_factor: Tensor) -> tuple[Tensor, Tensor]:  # (M,) -> (M,), (M, K)
        scaled = raw * log_factor.exp().to(raw)[:, None, None]
        of_rows = losses(scaled).to(torch.float64) * weight
        penalty = 0.5 * log_factor.square()
        return of_rows.sum(1) + penalty, subset_sums(of_rows, subsets) + penalty.unsqueeze(1)

    best = torch.zeros(len(raw), dtype=torch.float64, device=raw.device)
    lowest, subset_lowest = costs(best)
    subset_best = torch.zeros_like(subset_lowest)
    for step in _STEPS:
        for moved in (best - step, best + step):
            cost, subset_cost = costs(moved)
            best = torch.where(cost < lowest, moved, best)
            lowest = torch.minimum(cost, lowest)
            subset_best = torch.where(subset_cost < subset_lowest, moved.unsqueeze(1), subset_best)
            subset_lowest = torch.minimum(subset_cost, subset_lowest)
    means = (subset_lowest - 0.5 * subset_best.square()) / subset_sums(weight, subsets)
    return best.exp(), subset_best.exp(), means


def subset_sums(values: Tensor, subsets: Tensor) -> Tensor:
    """Sum values (M, n) over each of the subsets (M, n, K), which hold 0 and 1: (M, K)."""
    return (values.to(subsets.dtype).unsqueeze(1) @ subsets).squeeze(1)
