"""How small epsilon has to be for the guarantee, in exact rational arithmetic.

A node is rebuilt before more than ``epsilon * s`` updates have passed through it, s its size when it was built.
``docs/guarantees.md`` proves that the tree is then feasible for (alpha, beta) after every update, for any number
of classes, if epsilon lies below :func:`epsilon_bound`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from raydt.errors import ConfigError


def epsilon_bound(alpha: float, beta: float, min_samples_split: int) -> Fraction:
    """Exclusive upper bound of the epsilons for which the guarantee is proven.

    Parameters
    ----------
    alpha, beta : float
        Between 0 and 1: Gini index from which a node must be split, and how far the gain of a split may stay
        behind the best one.
    min_samples_split : int
        k + 1: nodes with fewer examples are leaves.

    Returns
    -------
    Fraction
        min(1 / (k + 1), alpha / (4 + alpha), beta / (6 + beta)) of the exact values of the floats; 0 if alpha or
        beta is 0, where nothing is promised.
    """
    a, b = Fraction(alpha), Fraction(beta)
    return min(Fraction(1, min_samples_split), a / (4 + a), b / (6 + b))


def not_promised(epsilon: float, alpha: float, beta: float, min_samples_split: int) -> str:
    """Why nothing is promised for these options; empty if something is."""
    bound = epsilon_bound(alpha, beta, min_samples_split)
    if bound == 0:
        return f"{'alpha' if alpha == 0 else 'beta'} is 0, for which no epsilon carries a guarantee"
    if Fraction(epsilon) >= bound:
        return f"epsilon {epsilon:.6g} is not below {float(bound):.6g}, up to which the guarantee is proven"
    return ""


def auto_epsilon(alpha: float, beta: float, min_samples_split: int) -> float:
    """The largest float64 below :func:`epsilon_bound`.

    Raises
    ------
    ConfigError
        alpha or beta is 0: no epsilon above 0 carries a guarantee then.

    Examples
    --------
    >>> auto_epsilon(0.1, 0.2, 2)
    0.02439024390243902
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value <= 0:
            raise ConfigError(
                f"epsilon: auto needs {name} > 0: with {name} = 0 no epsilon carries a guarantee. "
                f"Set {name} above 0, or give epsilon a number."
            )
    bound = epsilon_bound(alpha, beta, min_samples_split)
    nearest = float(bound)
    return nearest if Fraction(nearest) < bound else math.nextafter(nearest, 0.0)
