"""Lemmas 0.1 and 0.2, theorem 0.3, and the laws of appendix A, as functions that give networks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from combutab.constructions import _plan
from combutab.constructions._network import ConstructedNetwork
from combutab.constructions._plan import Plan, as_domain
from combutab.constructions._terms import Base, Powers, Terms, sum_of_products


def exp_network(domain: tuple[float, float]) -> ConstructedNetwork:
    """Network of exp(x): one hidden layer of an ELU and a ReLU unit.

    Lemma 0.1, ``exp(x) = (E(x - M) - R(x - M) + 1) exp(M)`` for x up to M. The absolute rounding
    error is about ``2**-53 * exp(M)``; see ``rounding_error``. Above M it stays at exp(M).

    Parameters
    ----------
    domain : (float, float)
        Lowest and highest x; the highest is the lemma's M.

    Returns
    -------
    ConstructedNetwork, (..., 1) -> (..., 1)

    Raises
    ------
    ValueError
        If exp(M) overflows: M is above 709.78.

    Examples
    --------
    >>> import torch
    >>> network = exp_network((-1, 2))
    >>> network(torch.tensor([[0.0], [1.0]], dtype=torch.float64)).flatten()
    tensor([1.0000, 2.7183], dtype=torch.float64, grad_fn=<ViewBackward0>)
    >>> exp_network((0, 1000))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: exp(z) for z in (0, 1000) overflows: ... narrow the domain, or ...
    """
    return ConstructedNetwork(_plan.exponential(_plan.identity(as_domain([domain]))), ["x0"])


def log_network(domain: tuple[float, float]) -> ConstructedNetwork:
    """Network of the natural logarithm: one hidden layer of one NLReLU unit.

    Lemma 0.2, corrected: ``ln x = N(x / delta - 1) + ln(delta)`` for x from delta on. (The paper
    multiplies by ln(delta) where it must add it.) Below delta it stays at ln(delta).

    Parameters
    ----------
    domain : (float, float)
        Lowest and highest x, positive; the lowest is the lemma's delta.

    Returns
    -------
    ConstructedNetwork, (..., 1) -> (..., 1)

    Raises
    ------
    ValueError
        If the domain reaches zero, or 1/delta or x/delta overflows.

    Examples
    --------
    >>> import torch
    >>> network = log_network((0.1, 10))
    >>> network(torch.tensor([[2.0], [10.0]], dtype=torch.float64)).flatten()
    tensor([0.6931, 2.3026], dtype=torch.float64, grad_fn=<ViewBackward0>)
    """
    return ConstructedNetwork(_plan.logarithm(_plan.identity(as_domain([domain]))), ["x0"])


def sin_network(domain: tuple[float, float]) -> ConstructedNetwork:
    """Network of sin(x): one hidden layer of one complex exponential, ``exp(i x)``.

    Lemma 0.1 along the imaginary axis, by Euler's formula: the absolute rounding error is about
    that of x, and the network equals sin(x) outside of the domain too.

    Parameters
    ----------
    domain : (float, float)
        Lowest and highest x.

    Returns
    -------
    ConstructedNetwork, (..., 1) -> (..., 1)

    Examples
    --------
    >>> import torch
    >>> network = sin_network((-7, 7))
    >>> network(torch.tensor([[torch.pi / 2], [7.0]], dtype=torch.float64)).flatten()
    tensor([1.0000, 0.6570], dtype=torch.float64, grad_fn=<ViewBackward0>)
    """
    return ConstructedNetwork(_plan.sines(_plan.identity(as_domain([domain]))), ["x0"])


def cos_network(domain: tuple[float, float]) -> ConstructedNetwork:
    """Network of cos(x), the other part of ``sin_network``'s exponential.

    Parameters
    ----------
    domain : (float, float)
        Lowest and highest x.

    Returns
    -------
    ConstructedNetwork, (..., 1) -> (..., 1)

    Examples
    --------
    >>> import torch
    >>> network = cos_network((-7, 7))
    >>> network(torch.tensor([[0.0], [torch.pi]], dtype=torch.float64)).flatten()
    tensor([ 1., -1.], dtype=torch.float64, grad_fn=<ViewBackward0>)
    """
    return ConstructedNetwork(_plan.cosines(_plan.identity(as_domain([domain]))), ["x0"])


def monomial_network(
    powers: Sequence[float], domain: Sequence[tuple[float, float]]
) -> ConstructedNetwork:
    """Network of ``prod_j x_j ** powers[j]``: logarithms, then an exponential.

    Parameters
    ----------
    powers : sequence of float
        One per input; they may be negative and fractional.
    domain : sequence of (float, float)
        Lowest and highest value of each input. An input that may be zero or negative
        needs whole powers: it is shifted to be positive and the power is expanded, with one
        additional unit per term.

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., 1)

    Raises
    ------
    ValueError
        If a power has no value on the domain, or weights overflow.

    Examples
    --------
    >>> import torch
    >>> network = monomial_network([0.5, 3], [(1, 9), (-2, 2)])
    >>> print(f"{network(torch.tensor([4.0, -2.0], dtype=torch.float64)).item():.12f}")
    -16.000000000000
    """
    return polynomial_network([1.0], [powers], domain)


def polynomial_network(
    coefficients: Sequence[float],
    powers: Sequence[Sequence[float]],
    domain: Sequence[tuple[float, float]],
) -> ConstructedNetwork:
    """Network of ``sum_i coefficients[i] * prod_j x_j ** powers[i][j]`` (theorem 0.3).

    Two hidden layers (Eq. 10): one NLReLU unit per variable, one ELU and one ReLU unit per term.

    NOTE[DIFF]: the theorem's domain has negative numbers, for which ln x is not defined; here they
    are shifted, and only their integer powers can be taken.

    Parameters
    ----------
    coefficients : sequence of float, (n_terms,)
    powers : sequence of sequences of float, (n_terms, n_inputs)
        Not necessarily whole, not necessarily positive.
    domain : sequence of (float, float), (n_inputs,)
        As in ``monomial_network``.

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., 1)

    Raises
    ------
    ValueError
        If the lengths do not agree, a power has no value on the domain, or weights overflow.

    Examples
    --------
    >>> import torch
    >>> network = polynomial_network([2, -1], [[0.5, 1], [0, -2]], [(1, 9), (1, 2)])
    >>> print(f"{network(torch.tensor([4.0, 2.0], dtype=torch.float64)).item():.12f}")
    7.750000000000
    >>> network.hidden_layer_sizes
    (2, 4)
    """
    ranges = as_domain(domain)
    rows = [tuple(float(p) for p in row) for row in powers]
    if len(coefficients) != len(rows) or any(len(row) != len(ranges) for row in rows):
        raise ValueError(
            f"powers must have a row for each of the {len(coefficients)} coefficients and a column "
            f"for each of the {len(ranges)} intervals of the domain, got rows of "
            f"{[len(row) for row in rows]}"
        )
    names = [f"x{j}" for j in range(len(ranges))]
    plan = _plan.identity(ranges)
    terms: Terms = {}
    for coefficient, row in zip(coefficients, rows, strict=True):
        terms[row] = terms.get(row, Fraction(0)) + Fraction(float(coefficient))
    return ConstructedNetwork(sum_of_products(_bases(plan, names), terms), names)


def linear_combination(
    networks: Sequence[ConstructedNetwork], coefficients: Sequence[float], bias: float = 0.0
) -> ConstructedNetwork:
    """Network of ``bias + sum_i coefficients[i] * networks[i](x)`` (lemmas .4 and .6, theorem .5).

    Shallow networks are deepened by ReLU units that hand their outputs on.

    Parameters
    ----------
    networks : sequence of ConstructedNetwork
        Of the same inputs, domain and number of outputs.
    coefficients : sequence of float
    bias : float, default=0.0

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., n_outputs)

    Raises
    ------
    ValueError
        If the networks do not fit together, or one was trained since it was made.

    Examples
    --------
    >>> import torch
    >>> exp, log = exp_network((1, 2)), log_network((1, 2))
    >>> network = linear_combination([exp, log], [1, -2], bias=0.5)
    >>> print(f"{network(torch.ones(1, dtype=torch.float64)).item():.12f}")
    3.218281828459
    """
    plans = _same_inputs(networks)
    widths = {len(plan.ranges) for plan in plans}
    if len(coefficients) != len(plans) or len(widths) != 1:
        raise ValueError(
            f"linear_combination needs a coefficient a network and networks of equally many "
            f"outputs, got {len(coefficients)} coefficients for {len(plans)} networks of "
            f"{sorted(widths)} outputs"
        )
    eye = np.eye(widths.pop())
    weight = np.concatenate([c * eye for c in coefficients], axis=1)
    plan = _plan.combine_outputs(_plan.stack(plans), weight, np.full(len(eye), float(bias)))
    return ConstructedNetwork(plan, networks[0].inputs)


def product(networks: Sequence[ConstructedNetwork]) -> ConstructedNetwork:
    """Network of the product of networks of one output, by logarithms and an exponential.

    Parameters
    ----------
    networks : sequence of ConstructedNetwork
        Of the same inputs and domain, of one output each. Those that may be zero or negative are
        shifted to be positive, and the product is multiplied out.

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., 1)

    Raises
    ------
    ValueError
        If the networks do not fit together, weights overflow, or one was trained.

    Examples
    --------
    >>> import torch
    >>> exp, log = exp_network((0.5, 2)), log_network((0.5, 2))
    >>> print(f"{product([exp, log])(torch.ones(1, dtype=torch.float64)).item():.9f}".strip("-"))
    0.000000000
    """
    plan = _plan.stack(_same_inputs(networks))
    if len(plan.ranges) != len(networks):
        raise ValueError("product needs networks of one output each")
    powers: Powers = (1.0,) * len(networks)
    names = [f"factor {i}" for i in range(len(networks))]
    return ConstructedNetwork(
        sum_of_products(_bases(plan, names), {powers: Fraction(1)}), networks[0].inputs
    )


def compose(outer: ConstructedNetwork, inner: Sequence[ConstructedNetwork]) -> ConstructedNetwork:
    """Network of ``outer(inner[0](x), inner[1](x), ...)`` (theorem .7).

    Parameters
    ----------
    outer : ConstructedNetwork
    inner : sequence of ConstructedNetwork
        Networks of the same inputs and domain. Their outputs, concatenated, are the inputs of
        ``outer``.

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., n_outputs of outer)

    Raises
    ------
    ValueError
        If the number of outputs is not the number of inputs of ``outer``, if the outputs may
        leave its domain, or if a network was trained after its construction.

    Examples
    --------
    >>> import torch
    >>> network = compose(log_network((1, 10)), [exp_network((0, 2))])  # ln(exp(x))
    >>> print(f"{network(torch.tensor([1.5], dtype=torch.float64)).item():.12f}")
    1.500000000000
    """
    plan = _plan.stack(_same_inputs(inner))
    if len(plan.ranges) != len(outer.domain):
        raise ValueError(
            f"outer has {len(outer.domain)} inputs, inner gives {len(plan.ranges)} outputs"
        )
    for i, ((low, high), (domain_low, domain_high)) in enumerate(
        zip(plan.ranges.tolist(), outer.domain, strict=True)
    ):
        room = 2**-46 * max(
            abs(low), abs(high), abs(domain_low), abs(domain_high)
        )  # ranges are rounded outwards
        if low < domain_low - room or high > domain_high + room:
            raise ValueError(
                f"output {i} of inner reaches from {low:.6g} to {high:.6g}, beyond the domain "
                f"({domain_low:.6g}, {domain_high:.6g}) of outer; make outer for that interval"
            )
    return ConstructedNetwork(_plan.compose_plans(outer.plan, plan), inner[0].inputs)


def _bases(plan: Plan, names: Sequence[str]) -> list[Base]:
    """The outputs of a plan, each as a base of powers."""
    bases = []
    for row, name in zip(np.eye(len(names)), names, strict=True):
        value = _plan.combine_outputs(plan, row, np.zeros(1))
        bases.append(Base(value, partial(_plan.logarithm, value), name))
    return bases


def _same_inputs(networks: Sequence[ConstructedNetwork]) -> list[Plan]:
    if not networks:
        raise ValueError("at least one network is needed, got none")
    first = networks[0]
    for following in networks[1:]:
        if following.domain != first.domain or following.inputs != first.inputs:
            raise ValueError(
                f"networks must have the same inputs and domain, got {first.extra_repr()} and "
                f"{following.extra_repr()}"
            )
    return [network.plan for network in networks]
