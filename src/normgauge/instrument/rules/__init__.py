"""What a layer does to a slope: every family on one screen, and the types a rule of one's own needs."""

from normgauge.instrument.rules import (
    activation,
    affine,
    attention,
    combine,
    conv,
    embedding,
    fourier,
    norm_batch,
    norm_layer,
    pooling,
    projection,
    recognise,
    response,
    scalar,
    shape,
    softmax,
    stochastic,
)
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.rules.registry import Registry
from normgauge.instrument.trace.step import Step

REGISTRY = Registry.merge(
    affine.rules,
    conv.rules,
    pooling.rules,
    projection.rules,
    softmax.rules,
    stochastic.rules,
    embedding.rules,
    activation.rules,
    norm_batch.rules,
    norm_layer.rules,
    shape.rules,
    combine.rules,
    attention.rules,
    recognise.rules,
    fourier.rules,
    scalar.rules,
    response.rules,
)

__all__ = ["REGISTRY", "Context", "Flow", "Gain", "Registry", "Step", "Transfer"]
