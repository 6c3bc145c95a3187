"""What leaves a network as it is: found, checked, and fixed in canonical scales.

graph: one run as ATen operations; operations: what is known about them.
torus, scales, rescaling: scales as unknowns, one linear equation for each operation and entry.
shifts, shifting: additions followed until something takes them off or back.
mixing, rotating: invertible matrices between two matrices, rotations through a normalizer.
normed, spectral: weight and spectral normalization; recurrent: recurrent layers and their two biases.
generators: families of moves; verify: each tried on the model.
find: symmetries(); canonical: canonical(); groups: scale-free groups for `normgauge.dynamics`.
"""

from normgauge.symmetry.canonical import Canonical, canonical
from normgauge.symmetry.find import scale_free, symmetries
from normgauge.symmetry.groups import ScaleFree

__all__ = ["Canonical", "ScaleFree", "canonical", "scale_free", "symmetries"]
