"""Time of one kernel of inference: weights or a cache read, products done, activations passed, and a floor."""

from __future__ import annotations

from math import sqrt

from clustersim.hardware.serving_constants import KernelConstants


def kernel_s(
    constants: KernelConstants,
    *,
    read_s: float,
    compute_s: float,
    activation_s: float = 0.0,
    cast_elements: float = 0.0,
) -> float:
    r"""Return the time of a kernel inside a graph, in seconds.

    .. math:: t = t_0 + \left[\left(\frac{r}{s}\right)^4 + \left(\frac{c}{e}\right)^4\right]^{1/4} + w a + q n + p \sqrt{r}

    Reading and computing overlap, but not perfectly where they take as long: the fourth root of fourth powers is the larger of the two
    where they differ, and a fifth more where they do not. ``p sqrt(r)`` is bandwidth that kernels of middling size do not reach.

    Parameters
    ----------
    read_s
        Time to read weights or a cache at the full bandwidth of the memory.
    compute_s
        Time of the products at the dense peak.
    activation_s
        Time to move the activations once at full bandwidth.
    cast_elements
        Elements that are cast before the product.
    """
    read = read_s / constants.bandwidth_fraction
    compute = compute_s / constants.peak_fraction
    read, compute = read * read, compute * compute
    overlapped_s = sqrt(sqrt(read * read + compute * compute))
    moved_s = constants.activation_passes * activation_s + constants.cast_s * cast_elements
    return constants.floor_s + overlapped_s + moved_s + constants.spread * sqrt(read_s)
