"""What leaves a network as it is: found, checked, and fixed in canonical scales.

graph: one run as ATen operations; operations: what is known about them.
labels, scales, products, rescaling: scales as unknowns, one linear equation for each operation and entry.
sites, shifts, shifting, centred: additions followed until something takes them off or back.
mixing, streams, rotating: invertible matrices between two matrices, rotations through a normalizer.
normed: weight and spectral normalization.
generators: families of moves; verify: each tried on the model.
find: symmetries(); canonical: canonical(); groups: scale-free groups for `normgauge.geometry.dynamics`.
"""

from normgauge.geometry.symmetry.canonical import Canonical, canonical
from normgauge.geometry.symmetry.find import scale_free, symmetries
from normgauge.geometry.symmetry.groups import ScaleFree

__all__ = ["Canonical", "ScaleFree", "canonical", "scale_free", "symmetries"]
