"""Composite layers: sums and concatenations of paths, and side paths; and stored tensors for later layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clustersim.workloads.kinds.call import InputLayer, Layer, LayerCall, Shape, chain
from clustersim.workloads.kinds.normalization import Activation, NormLayer
from clustersim.workloads.operators import Operator, Stream

Path = tuple[Layer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Consecutive layers that count as one."""

    layers: Path

    @property
    def output(self) -> Shape:
        """That of the last."""
        return self.layers[-1].output

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the operators of all."""
        return chain(self.layers, call)


def _fork(call: LayerCall, shape: Shape, n_paths: int) -> Operator:
    """Return where paths part: backward, the gradients of all are added up, two at a time or in one kernel."""
    passes = 3.0 * (n_paths - 1) if call.numerics.kernels == "eager" else n_paths + 1.0
    adds = (Stream(passes * call.stored_bytes(shape), launches=n_paths - 1 if call.numerics.kernels == "eager" else 1),)
    return Operator(name="fork", phases={"input_gradient": adds if call.input_gradient else ()})


def _beside(paths: Sequence[Path], call: LayerCall) -> tuple[Operator, ...]:
    """Return the operators of paths with the same input, which only the first path stores."""
    first, *others = (path for path in paths if path)
    rest = (operator for path in others for operator in chain(path, replace(call, input_kept=True)))
    return (*chain(first, call), *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualPath(InputLayer):
    """A path added to its input, or to a shortcut of it."""

    layers: Path
    shortcut: Path
    """Empty where the input itself is added."""
    activated: bool

    @property
    def output(self) -> Shape:
        """That of either path."""
        return self.layers[-1].output

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return both paths and their sum.

        An eager sum reads two tensors and writes one, and an activation follows. Kernels that fuse do both at once; behind a
        normalisation the sum costs no more than one read forward, and backward one write of the gradient that the shortcut needs.
        """
        paths = _beside((self.layers, self.shortcut), call)
        return (_fork(call, self.input, 2), *paths, *self._sum(call))

    def _sum(self, call: LayerCall) -> tuple[Operator, ...]:
        size_bytes = call.stored_bytes(self.output)
        inner = replace(call, input_gradient=True)
        if call.numerics.kernels == "eager":
            add = Operator(name="add", phases={"forward": (Stream(3.0 * size_bytes),)})
            return (add, *(Activation(input=self.output).operators(inner) if self.activated else ()))
        if _ends_in_norm(self.layers):
            kernel = Stream(size_bytes, launches=0)
            return (Operator(name="add", phases={"forward": (kernel,), "input_gradient": (kernel,)}),)
        backward = (Stream(3.0 * size_bytes),) if self.activated else ()
        return (Operator(name="add", phases={"forward": (Stream(3.0 * size_bytes),), "input_gradient": backward}),)


def _ends_in_norm(path: Path) -> bool:
    last = path[-1]
    return _ends_in_norm(last.layers) if isinstance(last, Chain) else isinstance(last, NormLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenation(InputLayer):
    """Paths from one input, concatenated channel by channel."""

    paths: tuple[Path, ...]
    """An empty one passes the input on."""

    @property
    def output(self) -> Shape:
        """All channels."""
        shapes = [path[-1].output if path else self.input for path in self.paths]
        return sum(shape[0] for shape in shapes), *shapes[0][1:]

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return all paths, and the copy of their results; backward the gradient is copied into parts again."""
        copy = Stream(2.0 * call.stored_bytes(self.output))
        joined = Operator(name="concatenation", phases={"forward": (copy,), "input_gradient": (copy,)})
        return (_fork(call, self.input, len(self.paths)), *_beside(self.paths, call), joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auxiliary(InputLayer):
    """Layers aside, such as a second classifier that trains the first half of a model; what follows reads their input."""

    layers: Path

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the side layers; the next layer stores their input."""
        return (_fork(call, self.input, 2), *chain(self.layers, replace(call, input_kept=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The same numbers in another shape, a name for them, or a further input of the model: nothing to do."""

    output: Shape

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return none."""
        del call
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(InputLayer):
    """Features stored earlier, concatenated with those of the input."""

    kept: Shape

    @property
    def output(self) -> Shape:
        """Features of both."""
        return (*self.input[:-1], self.input[-1] + self.kept[-1])

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the copy; backward, the part of the stored tensor is added to its gradient."""
        copy = Stream(2.0 * call.stored_bytes(self.output))
        added = Stream(3.0 * call.stored_bytes(self.kept))
        return (Operator(name="join", phases={"forward": (copy,), "input_gradient": (copy, added)}),)
