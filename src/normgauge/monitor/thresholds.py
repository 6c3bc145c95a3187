"""Every threshold of the alarms, in one place.

Most are factors against the run's own level, so that they do not depend on the scale of weights or data. They were
tuned with ``benchmarks/faults.py`` on networks and seeds other than those it judges.
"""

from __future__ import annotations

SETTLED = 5  # readings before a level counts as known
MEMORY = 20  # readings over which a level forgets
QUIET = 20  # readings without a sign after which an incident is over
FOLDED_STEPS = 200  # steps after something new of an incident in which what else shows belongs to it
DATA_JUMP = 8.0  # factor between the size of a batch and that of the batches before
DATA_APART = 10  # most steps between two readings for a change between them to be a jump, whatever the loss says
DATA_LARGE, DATA_SMALL = 30.0, 1e-3  # root mean square of an input no network is made for, when it comes from the start
STILL_READINGS = 10  # readings in a row without any movement
MOMENTUM = 0.995  # momentum, or first beta, that averages over more than two hundred steps

# Level of ‖Δw‖ over η‖∇‖ of a plain SGD: 1 without momentum, at most 10 for steady gradients and momentum 0.9
MOMENTUM_INFERRED = 12.0

RATE_JUMP = 8.0  # factor between the learning rate and the largest one before
RATE_KEPT = 1.1  # factor in one step up to which it did not rise
RATE_RISES = 3  # rises of the learning rate close together that are a warm-up
RATE_GONE = 0.9e-3  # share of the largest learning rate that counts as nothing: three drops by ten are usual
RATE_GONE_STEPS, RATE_GONE_SHARE = 30, 0.25  # steps that this lasts, and share of those before: no schedule's last ones
TURN_FELT = 0.05  # median ‖Δw‖/‖w‖ of one step above which a loss that rises is the step's doing
TURN_EARLY = 0.3  # the same, summed over the first three readings, where the loss makes no progress after them
TURN_COLD, TURN_FROZEN = 0.4, 0.55  # the same in a transformer under Adam, without a gain in eight steps; and with one
TURN_STUCK = 0.15  # the same where a warm-up is missing, or the loss is a sum, and no progress is made at all
COLD_STEPS = 8  # losses after which a gain should show
TURN_GROSS = 0.3  # median ‖Δw‖/‖w‖ that no warm-up and no normalizer makes good
TURN_LOST = 1e-7  # median ‖Δw‖/‖w‖ with which nothing is learnt in any number of steps
TURN_NOTHING = 1e-3  # the longest of them, times the steps taken, with which nothing was learnt yet
GROWN = 3.0  # factor of the middle layer's norm against its start, where steps were not seen
WARM_STEPS = 100  # first steps in which trouble is put down to a missing warm-up
LOSS_BIG = 1e3  # a first loss this large comes from targets that were not scaled
DEEP = 8  # layers in a row that need a normalizer, or an initialization made for it
TURN = 0.65  # median ‖Δw‖/‖w‖ of the layers in one step, with w after it: the step is nearly as long as the weight was
TURN_PATH = 1.2  # the same ratio, summed over the last three readings
RATE_APART, TURN_APART = 30.0, 5.0  # factors of a layer's rate, and of its ‖Δw‖/‖w‖, against the other layers
TURN_JUMP = 5.0  # factor of the median ‖Δw‖/‖w‖ against its level, when the learning rate jumped as well
WIRING_READINGS = 5  # first readings in which the wiring is looked at
SCALE_LARGE, SCALE_SMALL = 50.0, 1 / 300  # root mean square of a layer's row norms against that of the other layers
SCALE_ODD = 10.0  # and factor against 1, where every usual initialization lies
SCALE_GREW = 5.0  # factor of a layer's norm against its own level, while the other layers keep theirs
SCALE_KEPT = 1.5  # factor within which a weight counts as unchanged
SIGMA_FACTOR = 30.0  # factor of σ/‖w‖ against its level
EPS_SHARE = 0.5  # share of ε in σ² + ε
EPS_USUAL = 1e-2  # no normalizer is usually given a larger ε
GAMMA_DEAD = 0.3  # ‖γ‖ against its level
GAMMA_JUMP = 0.7  # ‖Δγ‖ of one step against the level of ‖γ‖
GAMMA_SHRUNK = 0.6  # ‖γ‖ against its start, for all normalizers of a network
GAMMA_DECAY = 4e-3  # share of γ, or of all weights, that weight decay takes in one step
DECAY_GROSS = 0.1  # the same of all weights, which leaves nothing of them, whatever the loss does
GAMMA_TOUCHED = 0.9  # their norm against its start, where the optimizer is known to take that share
STATISTICS = 6.0  # factor between the running σ² and that of the batch
STATISTICS_STEPS = 4.0  # steps times momentum that the running statistics need to arrive
STATISTICS_READINGS = 4  # readings in a row that must disagree, while they are on their way
STATISTICS_FROZEN = 1  # the same for a normalizer that uses them although the network trains
STATISTICS_STILL = 20  # readings in a row that do not move the running statistics at all

LOSS_EARLY = 40  # first losses: in these, one that rises is taken at its word
LOSS_LONG = 64  # losses over which a fall shows that the noise of a few hides
LOSS_WINDOW = 8  # losses in a row that must be high later on: a spike that recovers is none
LOSS_RISEN = 2.0  # factor against the first loss
LOSS_RELAPSED = 5.0  # factor against the best mean, where that is at least half the first loss
LOSS_SUSPECT = 1.5  # factor above which the next step is read
LOSS_BACK = 1.1  # factor against the loss before a leap within which it has come back
LOSS_GAIN, LOSS_FELT = 0.05, 0.05  # parts of the first loss that count as a gain, and as a loss off its best
LOSS_LEFT = 0.2  # part of the first loss down to which a run has still a way to go
LOSS_HARM = 0.2  # part of the first loss by which it rises where steps are too long
LOSS_JOLTED = 0.3  # part of the mean before a jump of the rate by which losses after it are higher
LOSS_FAR = 100.0  # factor against the largest of the first losses, where some are below 0
STUCK_STEPS, LOSS_STUCK = 60, 0.97  # losses after which the mean should be below this share of the first ones
MODE_STEPS = 3  # steps in a row in eval mode
START_READINGS = 2  # readings that must show what is wrong with the flow of gradients
BARE_READINGS, BARE_STEPS = 4, 10  # readings in a row, and steps, in which a layer has no gradient or update
BARE_ROW, BARE_ASKS = 6, 18  # steps one after the other among them, and readings asked for to see these, in all
THAW_STEPS = 40  # the same for a layer whose learning rate is 0, as where layers are thawed one by one
GATED = 4  # at least one sigmoid for so many tanh, or the other way round, are those of gates
SQUASHED = 8  # sigmoids or tanh in the pass of a network that makes no progress at all
VANISHED = 1e-3  # gradients of the first layers against the last ones
FADED = 1e-2  # the same through sigmoids where the loss makes no progress
STATISTICS_MOMENTUM = 0.97  # momentum of running statistics that keeps next to nothing
# Share of half a unit in the last place below which most of the weights stay where they are: for steps of Adam, whose
# length is known, and for steps that are estimated from one gradient
ROUNDED, ROUNDED_GUESS = 1.0, 0.5
COUPLED, COUPLED_LEFT = 0.1, 0.4  # decay over the loss's gradient within Adam, and what is left of the weights
UNEVEN = 3.0  # times what guessing evenly costs, and nats above it, that the first loss is remarkable
HALF_LEAST = 5.9604645e-08  # smallest positive number of float16

# Factor of the mean of some losses in a row against their level, and how many usual spreads above it
LOSS_JUMP, LOSS_SPREAD = 1.3, 3.5

# And at least this part of the loss the run began with: a loss that is nearly zero doubles for no reason
LOSS_MATERIAL = 0.1

LOSS_HIGH, LOSS_HIGH_SPREAD = 1.15, 2.0  # the same two limits for each single loss
LOSS_READINGS = 4  # high losses in a row before the labels are blamed

# Most steps between readings for the labels to be blamed: in more, the network may have changed and come back
LOSS_APART = 2

LOSS_STEADY = 3.0  # factor within which the network's own numbers must stay for the labels to be the cause

# Factor of ‖w‖‖∇‖ against its level, and of its share of the network's
GRADIENT_EXPLODED, GRADIENT_VANISHED = 1e3, 1e-5

GRADIENT_SURGED = 100.0  # factor of the norm of all gradients within one step, over the largest of the last ones
GRADIENT_ALIKE = 10.0  # between the factors of all layers below which none of them is named
GRADIENT_READINGS = 3  # odd readings in a row before an alarm
CAPACITY_DECADES = 0.5  # decades by which the folded product grows, for each layer in it, within ``MEMORY`` readings

# First readings that are left out: folded gains are found by iterations that take as long to arrive
CAPACITY_READINGS = 30

CAPACITY_STEPS = 200  # steps over which growth is looked at
EFFECTIVE_RATE = 1e3  # factor of η/‖w‖² at the same η against its level at the start
LOGIT_SATURATED = 60.0  # attention logits between which a softmax leaves nothing to share
LOGIT_HIGH, LOGIT_GREW = 25.0, 8.0  # the same for logits that grew, and the factor against their start
STREAM_GREW = 30.0  # factor of the residual stream from the second normalizer to the last, or against its start
STREAM_DEEP, STREAM_FACTOR = 10.0, 1.4  # the same with depth before anything was learnt, and the middle one of a block
SUMS = 6  # sums, and layers, of a stream without normalizers
HALF_LIMIT = 65504.0  # largest number of float16
HUGE = 1e19  # norm of a weight whose square float32 cannot hold: what it makes of one sample is no fault of that one
HALF_ROOM = 8.0  # a σ closer than this factor to the limit: a few σ out, activations overflow
SKIPPED = 10  # steps in a row that a gradient scaler may skip
