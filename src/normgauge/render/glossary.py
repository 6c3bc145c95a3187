"""Every term of the page, in a sentence or two."""

from __future__ import annotations

TERMS = (
    ("at most, upper", "A factor no slope in the scope exceeds. The number to quote is the balanced bound."),
    ("at least, lower, found", "The largest slope met on actual inputs. The network has it; it may have larger ones."),
    ("gap", "The distance between found and upper, in decades. The truth lies inside it."),
    ("decade", "A factor of ten. All tables count in decades: 2 means a factor of 100, -1 a tenth."),
    ("gain", "How much one layer alone can stretch a small change of its input, anywhere in the scope."),
    ("cumulative, layer by layer", "The bound from the network's input to a layer's output when every layer's gain is "
     "taken alone: gains multiply in a chain and add where branches meet."),
    ("folded", "The bound when linear maps are taken together with the normalizers beside them, which is less than "
     "one after the other. In the table: a layer's share of it."),
    ("balanced", "The folded bound, minimised over the rescalings of hidden values that leave the function alone. In "
     "the table: a layer's share in the solution found; only the total is unique."),
    ("gauge", "A way to write the same function down with other weights, such as larger weights before a BatchNorm "
     "with a larger σ. What depends on the gauge is no property of the network."),
    ("published products", "Products of norms and of 1/σ as the literature states them. They depend on the gauge."),
    ("reached", "How much the steepest direction found at a sample had grown by a layer's output: observed."),
    ("slack", "What a layer's gain allows over what the layer did to that direction. The layer with the most slack "
     "owns the gap."),
    ("scope", "Where an upper bound holds. point: at the samples and nowhere else. ball:R: for all inputs within R of "
     "a sample. global: for all inputs."),
    ("sigma, σ", "What a normalizer divides by: √(variance + ε), one for each channel, group or row."),
    ("eps, ε", "The small constant under that root. It keeps σ at √ε or more, so it caps a normalizer's gain."),
    ("γ", "A normalizer's own weights, by which it multiplies after the division."),
    ("proved", "Follows from the rules for all inputs of the scope, in exact arithmetic on the stored weights."),
    ("on the same path", "The model looks at its data to decide what to do; the bound holds where they take the path "
     "that was traced."),
    ("computed", "Holds up to the rounding of float64, which is not enclosed."),
    ("estimated", "A proof was possible only in part; the notes say why."),
    ("observed", "Met on actual inputs: true there, and no statement about other inputs."),
    ("refuted", "A slope was found above a bound: the bound is wrong and taken back, and no upper end is left."),
    ("unknown", "A step has no bound, or the trace is not what the model does: nothing is proved. The step is named."),
    ("unbounded", "A step that provably has no finite gain in the scope."),
    ("no bound found", "A step for which no finite gain was found, where one may exist."),
    ("rule, claim", "The formula a layer's gain comes from, and the number of the statement it rests on."),
)  # fmt: skip
