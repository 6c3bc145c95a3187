"""Every threshold of the advice, in one place, each with its reason. Decades are decimal logarithms."""

DRIFT = (
    3.0  # decades a signal may fade or grow on its way: shallow plain networks with default weights lose 2 and train
)
EVEN = 3  # weight layers a drift must be spread over; fewer is one outlying layer, not a missing normalizer
PLACE_EVERY = (
    1.0  # decades between advised normalizers: σ = 0.1 lies well above √ε = 0.003, so each can undo its stretch
)
OVERFLOW = 15.0  # decades a signal may grow in front of one normalizer: its square must stay below float32's 10^38
OUTLIER_WEIGHT = 1.5  # decades above its siblings: trained layers of one shape lie within a factor of 10
DOMINATES = 0.3  # decades by which one branch must exceed the other at a sum: from twice on it drowns it
LOUD = 1.0  # decades by which the signal must stay raised behind an outlying layer; else later layers undo it (a gauge)
TINY_SIGMA = 1.5  # decades below the median: channels and samples of trained networks lie within a factor of 10
EPSILON_SHARE = 0.5  # share of the groups with σ² ≤ ε: from half on, the normalizer mostly does not normalize
STALE_VARIANCE = 1.0  # decades between running and seen variance; sixteen samples err by a factor of 2 at most
STALE_MEAN = 3.0  # running σ between running and seen mean: a mean of sixteen samples errs by 0.25
STALE_SHARE = 0.3  # share of the channels off; single channels may be off by chance
STALE_VALUES = 8  # values a channel needs before its variance says anything
DEAD_GAIN = 1e-3  # |γ| times the next layer's column: a thousandth of a usual channel passes nothing that counts
DEAD_SHARE = 0.9  # share of the channels; networks prune half of them without harm
OUTLIER_GAIN = 30.0  # times the median channel; trained gains lie within a factor of 5
OUTLIER_FEW = 0.05  # share of the channels that may stand out together; more is a spread, not an outlier
DEAD_UNITS = 0.95  # share of units that are 0 for every sample; half is usual for a ReLU on a small batch
GROWN_STREAM = 3.0  # decades from the first to the last sum: those of trained transformers grow a hundredfold
NOTHING = -30.0  # decades: stands for a signal that does not move at all, so that differences stay finite
