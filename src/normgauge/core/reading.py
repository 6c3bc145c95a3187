"""The result of a measurement: floats and strings, and their JSON form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, TypedDict

from normgauge.core.answers import unknown_name
from normgauge.core.bound import Evidence, Scope
from normgauge.core.checker import SCHEMA, digest, graph
from normgauge.core.errors import ReadingError
from normgauge.core.fields import Finite, Log, Log10, Share, Stored, Told, declared_fields, form_of
from normgauge.core.interval import LogInterval
from normgauge.core.multipliers import Multipliers
from normgauge.core.proof import Proof
from normgauge.core.refute import judged_reading
from normgauge.core.rounding import power_down, power_up
from normgauge.core.spelled import LN10
from normgauge.core.stored import read_items
from normgauge.core.version import __version__

THAN = "Than 2025"
FEW = 5  # samples of which a median says something
ASKED = {
    "lipschitz": "the constant lies between lower, which was found, and upper; evidence says how that is known",
    "to_dict": "to_json() gives it as a dict",
    "bound": "upper is the bound, log10_upper its decades",
    "log10_gain": "a reading has layers; layer(NAME).log10_gain is the gain of one",
}  # names people try first


@dataclass(frozen=True, slots=True)
class Finding(Stored):
    """A part of the model that has no bound, and why."""

    name: Annotated[str, Told("of the operation, or of the model")]
    why: Annotated[str, Told("in words")]


@dataclass(frozen=True, slots=True)
class Witness(Stored):
    """Where the largest slope was found, and the two lengths that show it: their quotient is the slope."""

    where: Annotated[str, Told("in words")]
    input_change: Annotated[Finite, Told("how far the input moved")]
    output_change: Annotated[
        Finite, Told("how far the output did, along the direction asked about and less its rounding error")
    ]


class Sigma(TypedDict):
    """Of a normalizer's √(variance + ε), over its channels, groups or samples."""

    min: Annotated[float, Told("the smallest")]
    rms: Annotated[float, Told("their root mean square")]
    max: Annotated[float, Told("the largest")]
    gamma_max: Annotated[float, Told("max \\|γ\\|")]
    eps: Annotated[float, Told("ε")]


class Sample(TypedDict, total=False):
    """What is known at one sample; its logarithms are decimal in memory too."""

    index: Annotated[int, Told("its place in the batch")]
    log10_lower: Annotated[
        Log10,
        Told(
            "the largest slope found: at it, in its ball, or for `global` by the search that began at it", varies=True
        ),
    ]
    log10_upper: Annotated[Log10 | None, Told("the bound, where it is per sample; `null` for `global`", minimised=True)]
    log10_refuted: Annotated[Log10 | None, Told("in a refuted reading what `log10_upper` was", absent=None)]
    picture: Annotated[
        str,
        Told("of the most sensitive ones, where the inputs are images: a PNG as a data URI", absent=None, varies=True),
    ]


class InverseSigma(TypedDict):
    """The product of 1/σ over the normalizers, by the σ of each that is taken."""

    min: Annotated[Log10, Told("Π 1/σ (smallest σ)")]
    rms: Annotated[Log10, Told("Π 1/σ (root mean square σ)")]
    max: Annotated[Log10, Told("Π 1/σ (largest σ)")]


class Published(TypedDict):
    """The papers' products of norms, decimal logarithms. They depend on the gauge."""

    log10_P_w: Annotated[Log10, Told("P_w = Π ‖W‖ (spectral norms)", source=(THAN, "Lemma 5"))]
    log10_P_w_frobenius: Annotated[
        Log10,
        Told("Π ‖W‖_F (Frobenius norms)", source=(THAN, "Lemma 5, with Frobenius norms in place of spectral ones")),
    ]
    log10_prod_l2: Annotated[
        Log10 | None,
        Told("Π ‖γ/σ‖₂, BatchNorm alone", source=(THAN, "Corollary 10 (1): its factor beside P_w, with γ")),
    ]
    log10_theorem9: Annotated[
        Log10 | None,
        Told(
            "P_w · Π bounds of normalizers' gains in the scope (not Theorem 9, which has those over all inputs)",
            source=(THAN, "Theorem 9's product, with gains of the scope in place of those over all inputs"),
        ),
    ]
    log10_theorem9_published: Annotated[
        Log10 | None,
        Told(
            "P_w · Π bounds of normalizers' gains over all inputs (Theorem 9)", source=(THAN, "Theorem 9"), absent=None
        ),
    ]
    log10_corollary10_1: Annotated[
        Log10 | None,
        Told(
            "P_w · Π ‖γ/σ‖₂, BatchNorm alone (Corollary 10.1)", source=(THAN, "Corollary 10 (1), with γ"), absent=None
        ),
    ]
    log10_corollary10_2: Annotated[
        Log10 | None,
        Told(
            "P_w · (largest ‖1/σ‖₂)^K, K BatchNorms alone, without γ (Corollary 10.2)",
            source=(THAN, "Corollary 10 (2)"),
        ),
    ]
    log10_corollary11: Annotated[
        Log10 | None,
        Told(
            "P_w · Π largest 1/σ of the scope, LayerNorm alone, without γ (not Corollary 11, which has √ε)",
            source=(THAN, "Corollary 11's product, with the σ of the scope in place of √ε: not as published"),
        ),
    ]
    log10_corollary11_published: Annotated[
        Log10 | None,
        Told("P_w · Π 1/√ε, LayerNorm alone, without γ (Corollary 11)", source=(THAN, "Corollary 11"), absent=None),
    ]
    log10_lemma3_sum: Annotated[
        Log10 | None,
        Told(
            "P_w · Π largest sum of 1/σ over the groups of one input in the scope, without γ (not Lemma 3, which has "
            "C/√ε)",
            source=(THAN, "Lemma 3's sum in Theorem 9, with the σ of the scope in place of √ε: not as published"),
        ),
    ]
    log10_lemma3_published: Annotated[
        Log10 | None,
        Told(
            "P_w · Π C/√ε, C groups in an input, without γ (Lemma 3)",
            source=(THAN, "Lemma 3, in Theorem 9"),
            absent=None,
        ),
    ]
    log10_prod_inv_sigma: Annotated[
        InverseSigma,
        Told(
            "Π1/σ_k over the normalizers, with the smallest (`min`), root mean square (`rms`) and largest (`max`) σ of "
            "each at the samples, whatever the scope; `min` gives the largest product",
            source=(THAN, "section 4.2, with Figure 2"),
        ),
    ]


OPTIONS = form_of(Mapping[str, str | bool | Finite | None])
PRODUCTS = form_of(Mapping[str, Mapping[str, Log10] | Log10 | None])  # of versions to come too
SOURCES = {
    item.key: {"paper": item.told.source[0], "number": item.told.source[1]}
    for item in declared_fields(Published)
    if item.told.source
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecord(Stored):
    """One layer's numbers. Every ``log_…`` field is a natural logarithm, or None where it does not apply."""

    name: Annotated[
        str,
        Told(
            "module path; module path and function for a functional step; `#2` and so on for a second run of the same"
        ),
    ]
    kind: Annotated[str, Told("class or function name")]
    rule: Annotated[
        str, Told("id of the rule, as `normgauge rules` lists it; `none` without one; `user.NAME` for a user's")
    ]
    claim: Annotated[str | None, Told("id of the published claim the rule rests on, or `null`")] = None
    depth: Annotated[int, Told("position in the order of execution")]
    gain: Annotated[
        LogInterval,
        Told(
            "the step's own constant in the scope, largest over the samples: an enclosure with `lower` and `upper`; "
            '`lower` is `"-inf"` where none is known',
            key="log10_gain",
        ),
    ]
    log_gain_reaching: Annotated[
        Log | None,
        Told(
            "of a normalizer of rows, the gain over those that reach the measured output at the samples, where others, "
            "such as padding, decide `log10_gain`; observed, no part of the bound, and `null` elsewhere",
            absent=None,
        ),
    ] = None
    log_folded: Annotated[Log | None, Told("its share in the folded bound")] = None
    log_balanced: Annotated[
        Log | None, Told("its share in the balanced bound; not unique, only the total is", varies=True)
    ] = None
    log_cumulative: Annotated[
        Log | None, Told("bound from the network's input to this step's output, nothing folded")
    ] = None
    log_reached: Annotated[
        Log | None,
        Told(
            "how much a direction had grown by this step's output: the steepest one found at the samples, in a ball "
            "or `global` the one at the sample where the search for slopes began; observed, and `null` "
            "where no direction could be followed or its change may be rounding",
            absent=None,
            varies=True,
        ),
    ] = None
    log_to_output: Annotated[
        Log | None, Told("bound from this step's output to the network's output, nothing folded")
    ] = None
    log_weight_lipschitz: Annotated[
        Log | None,
        Told(
            "bound on the slope of the network's output in this layer's weights at the weights it has, for one sample; "
            "of no constant over all weights: behind it a LayerNorm's slope is 1/c times as large at c times the "
            'weights. `"inf"` where its input is unbounded in the scope, `null` without weights'
        ),
    ] = None
    log_spectral: Annotated[
        LogInterval | None,
        Told(
            "enclosure of the operator norm of the weights as they are applied, with `lower` and `upper`; `null` "
            "without weights"
        ),
    ] = None
    log_frobenius: Annotated[Log | None, Told("Frobenius norm of the weights")] = None
    log_slack: Annotated[
        Log | None,
        Told(
            "what the gain allows over what the step did along the direction of `log10_reached`; in a chain these add "
            "up to how far `log10_balanced` lies above what the network did to it. `null` where no direction could be "
            "followed",
            varies=True,
        ),
    ] = None
    sigma: Annotated[
        Annotated[Mapping[str, float], Sigma] | None,
        Told(
            "for a normalizer, of √(variance + ε) at the samples, whatever the scope: over its channels, groups or "
            "samples that reach the output, see below"
        ),
    ] = None
    note: Annotated[str, Told("what a reader should know, such as a σ at the ε floor; empty otherwise")] = ""
    worked: Annotated[
        str,
        Told(
            "the rule's formula with this layer's numbers put in; empty where the rule does not spell it out",
            absent="",
            varies=True,
        ),
    ] = ""

    @property
    def log_stretch(self) -> float:
        """A bound on how the layer stretches a change that goes on to the output: its gain, over rows that reach it."""
        return self.gain.hi if self.log_gain_reaching is None else self.log_gain_reaching

    @property
    def log_slack_reaching(self) -> float:
        """The slack without what rows that do not reach the output add to the gain; 0 where nothing was followed."""
        beyond = 0.0 if self.log_gain_reaching is None else self.gain.hi - self.log_gain_reaching
        return max((self.log_slack or 0.0) - beyond, 0.0)

    @property
    def log10_gain(self) -> tuple[float, float]:
        """The two ends of the layer's gain, in decades."""
        return self.gain.lo / LN10, self.gain.hi / LN10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Stored):
    """One measurement of one network in one scope. Upper, folded and lower are natural logarithms."""

    schema: ClassVar[
        Annotated[
            int,
            Told(
                f"{SCHEMA}. A reader should refuse numbers it does not know; `Reading.load` still takes 1, which has "
                "fewer fields"
            ),
        ]
    ] = SCHEMA
    version: Annotated[
        str,
        Told(
            "version that measured it; readings of version 0.1 do not have it",
            key="normgauge",
            absent="0.1.0",
            varies=True,
        ),
    ] = __version__
    model: Annotated[str, Told("class name of the network")]
    mode: Annotated[str, Told("`eval`, or `train`: the map of the whole batch with its own statistics")]
    scope: Annotated[Scope, Told("where the upper bound holds: `point`, `ball:R` or `global`")]
    evidence: Annotated[Evidence, Told("how the upper bound is known, see [below](#evidence)")]
    failure_probability: Annotated[
        Share, Told("of a proof that has a random start, 0 where none is part of it", since=2, absent=0.0)
    ] = 0.0
    path_dependent: Annotated[
        bool,
        Told(
            "the model read its data, as an `if` on a tensor does, or a second run took another path: the bound is "
            "proved if the data take the path that was traced. In the scope `global` there is then no bound",
            since=2,
            absent=False,
        ),
    ] = False
    log_upper: Annotated[
        Log,
        Told(
            'the smallest bound found, the number to quote; `method` says how. `"inf"`: no bound, see `evidence`, '
            '`unknown`, `unbounded` and `no_bound`. `"-inf"`: the output does not move',
            minimised=True,
        ),
    ]
    log_balanced: Annotated[
        Log | None,
        Told(
            "the bound from the layers' gains, minimised over rescalings that change nothing: the capacity that does "
            "not depend on the gauge, and what `proof` adds up to; never below `log10_upper`",
            absent=None,
            minimised=True,
        ),
    ] = None
    method: Annotated[
        str,
        Told(
            "what gave `log10_upper`: `balanced`, `jacobian` (its norm at the samples), `open units` (the slopes "
            "that the scope leaves open, with multipliers), `loop` (all slopes open, one weighted norm) or, in a "
            "ball, `everywhere` (one of these two over all inputs)",
            absent="balanced",
        ),
    ] = "balanced"
    log_folded: Annotated[Log, Told("the bound before balancing; never below `log10_balanced`")]
    log_lower: Annotated[Log, Told('the largest slope found in the scope; `"-inf"` where none was', varies=True)]
    log_refuted: Annotated[
        Log | None,
        Told(
            'the upper bound that a slope was found above, `null` where none was; `log10_upper` is then `"inf"` and '
            "`log10_lower` the slope",
            since=2,
            absent=None,
        ),
    ] = None
    unknown: Annotated[
        tuple[Finding, ...],
        Told(
            "parts of which nothing is known, each with a `name` and a `why`: operations without a rule, a trace whose "
            "second run differed; not empty means `evidence` is `unknown` and the upper bound infinite"
        ),
    ] = ()
    unbounded: Annotated[
        tuple[Finding, ...],
        Told(
            "operations that provably have no finite constant in the scope, in the same form; a proof, and no reason "
            "for doubt"
        ),
    ] = ()
    no_bound: Annotated[
        tuple[Finding, ...],
        Told(
            "operations for which no finite bound was found, where one may exist, and a path that depends on the data "
            "in the scope `global`; in the same form, `evidence` is `unknown` and the upper bound infinite",
            since=2,
            absent=(),
        ),
    ] = ()
    published: Annotated[
        Mapping[str, Any],
        PRODUCTS,
        Told("gauge-dependent products, see [below](#published-quantities)"),
    ] = field(default_factory=dict)
    published_sources: ClassVar[
        Annotated[
            Mapping[str, Mapping[str, str]],
            Told("for each of them the `paper` that states it, and its `number` there", absent=None),
        ]
    ] = SOURCES
    layers: Annotated[
        tuple[LayerRecord, ...],
        Told(
            "one object a step, in order of execution, see [below](#layers); steps that only move entries about are "
            "left out"
        ),
    ] = ()
    samples: Annotated[
        tuple[Annotated[Mapping[str, Any], Sample], ...],
        Told("one object a sample, see [below](#samples); one in all when samples influence each other"),
    ] = ()
    together: Annotated[
        bool,
        Told("the samples influence each other, and the whole batch is measured as one point", since=2, absent=False),
    ] = False
    precision: Annotated[
        str,
        Told(
            "the floating-point type the model was traced in: `float64`, or its own where it does not run in that",
            since=2,
            absent="",
        ),
    ] = "float64"
    options: Annotated[
        Mapping[str, Any],
        OPTIONS,
        Told(
            "what else was asked for, to measure it again: `input`, `output` (the name given; `null` where none was "
            "chosen, which a [gate](compare.md#a-gate) refuses where there are several), `balance`, `search`, "
            "`width`, `effort`",
            since=2,
            absent={},
        ),
    ] = field(default_factory=dict)
    loss: Annotated[
        Mapping[str, Log10],
        Told(
            "constants of usual losses in the input: upper bound times the loss's own constant for one sample. Keys: "
            "`cross_entropy`, `softmax_l1`, `l1_sum`, `huber_sum_delta_1`, `bce_with_logits_sum`, "
            "`bce_with_logits_mean`. The first two are of one softmax, and absent where a sample's output has several "
            "axes (tokens, pixels). Which of them makes sense for the model is the reader's business",
            key="log10_loss",
            minimised=True,
        ),
    ] = field(default_factory=dict)
    displacement: Annotated[
        Log | None,
        Told(
            "ball only: the output moves by at most this much while the input stays in the ball",
            key="log10_displacement",
            minimised=True,
        ),
    ] = None
    gauges: Annotated[tuple[str, ...], Told("the rescalings the bound was minimised over, in words", varies=True)] = ()
    notes: Annotated[tuple[str, ...], Told("assumptions and warnings, in words", varies=True)] = ()
    input_name: Annotated[str, Told("name of the measured input", key="input")] = "input"
    seconds: Annotated[
        Mapping[str, Finite],
        Told(
            "CPU seconds of each part: `trace` (once for all scopes), `rules`, `balance`, `local`, `lower`", varies=True
        ),
    ] = field(default_factory=dict)
    witness: Annotated[
        Witness | None,
        Told(
            "where the largest slope was found and the two lengths that show it, see [below](#witness); `null` where "
            "none was found",
            absent=None,
            varies=True,
        ),
    ] = None
    rules: Annotated[
        Mapping[str, Mapping[str, str]],
        Told("for each rule that was used, by its id, its `formula`, where it `holds` and its `source`", absent={}),
    ] = field(default_factory=dict)
    proof: Annotated[
        Proof | None,
        Told(
            "the arithmetic from the gains to the totals, see [below](#proof); `null` in readings of version 0.1",
            absent=None,
        ),
    ] = None
    multipliers: Annotated[
        tuple[Multipliers, ...],
        Told(
            "what `log10_upper` was proved with by the methods `open units`, `loop` and `everywhere`, see "
            "[below](#multipliers); `verify --model --batch` proves it again with them",
            absent=(),
            varies=True,
        ),
    ] = ()
    channel_weights: Annotated[
        tuple[Multipliers, ...],
        Told(
            "what `log10_balanced` was proved with, in the form of `multipliers`: natural logarithms of the weights of "
            "the channels that are free, as `sample` 0; none where no weights gained anything. In a ball those of the "
            "bound at the samples stand as `sample` 1: gains rest on how far values move, measured with them. "
            "`verify --model --batch` proves it again with both",
            absent=(),
            varies=True,
        ),
    ] = ()
    weights: Annotated[
        str,
        Told(
            "`sha256:` and the SHA-256 of all parameters and buffers, by the order of their names: for each its name, "
            "type and shape as `NAME torch.DTYPE (SHAPE)` and a line feed, then its bytes. Empty where a tensor has "
            "none to read",
            key="weights_digest",
            since=2,
            absent="",
            varies=True,
        ),
    ] = ""
    batch: Annotated[
        str,
        Told(
            "`sha256:` and the SHA-256 of the measured input, as `weights_digest` has it of a tensor named `batch`, in "
            "float64 where it is not whole numbers: readings with the same one were made on the same samples. Empty "
            "where it has no bytes to read, and in readings of older versions",
            key="batch_digest",
            absent="",
            varies=True,
        ),
    ] = ""
    edited: Annotated[
        bool,
        Told(
            "the reading was loaded from a file whose content was not what its digest says, and written again",
            since=2,
            absent=False,
            varies=True,
        ),
    ] = False
    verdict: ClassVar[
        Annotated[
            str,
            Told(
                "the sentences that terminal and page begin with: what is proved, what was found; made from the "
                "numbers when the reading is written",
                absent="",
                varies=True,
            ),
        ]
    ] = ""
    digest: ClassVar[
        Annotated[
            str,
            Told(
                "`sha256:` and the SHA-256 of everything else in this object but `readings`: as JSON with sorted keys, "
                "no blanks, other characters than ASCII escaped, and every number as Python prints a float. It shows "
                "that a file was edited. It is no signature: whoever edits a file can make a new one",
                since=2,
                absent="",
                varies=True,
            ),
        ]
    ] = ""  # made when the reading is written
    undigested: bool = False  # read from a file of schema 1, which has no digest: nothing shows an edit; not stored

    @property
    def log_capacity(self) -> float:
        """The balanced bound, which layers' gains add up to; readings of older versions have no other."""
        return self.log_upper if self.log_balanced is None else self.log_balanced

    @property
    def upper(self) -> float:
        """No slope in the scope is larger, if ``evidence`` is proved; infinite without a bound, or beyond float64."""
        return power_up(self.log_upper)

    @property
    def lower(self) -> float:
        """The largest slope found: the network has it, and may have larger ones. 0 where none was found."""
        return power_down(self.log_lower)

    def __float__(self) -> float:
        """The number to quote: `upper`."""
        return self.upper

    @property
    def log10_upper(self) -> float:
        """The upper bound in decades."""
        return self.log_upper / LN10

    @property
    def log10_balanced(self) -> float:
        """The balanced bound in decades: the capacity that does not depend on the gauge."""
        return self.log_capacity / LN10

    @property
    def log10_folded(self) -> float:
        """The bound before balancing, in decades."""
        return self.log_folded / LN10

    @property
    def log10_lower(self) -> float:
        """The largest slope found, in decades."""
        return self.log_lower / LN10

    @property
    def certain(self) -> bool:
        """Whether the upper bound is proved without a condition: no chance of failure, no path to be kept."""
        return self.evidence is Evidence.PROVED and not self.path_dependent and self.failure_probability == 0

    @property
    def gap(self) -> float:
        """Decades between upper and lower bound."""
        if math.isinf(self.log_upper) or math.isinf(self.log_lower):
            return 0.0 if self.log_upper == self.log_lower else math.inf
        return (self.log_upper - self.log_lower) / LN10

    @property
    def sample_ends(self) -> tuple[LogInterval, ...]:
        """At the samples, the slope of each between what was found and its bound; empty in a larger scope."""
        sure = self.evidence in (Evidence.PROVED, Evidence.COMPUTED)
        known = [[row.get(f"log10_{end}") for end in ("lower", "upper")] for row in self.samples]
        ends = [(low, high if sure else math.inf) for low, high in known if low is not None and high is not None]
        if self.scope.kind != "point" or len(ends) < len(known):
            return ()
        return tuple(LogInterval(low * LN10, max(low, high) * LN10) for low, high in ends)

    @property
    @Told(
        "at five samples or more, what encloses their median slope: the medians of `log10_lower` and of `log10_upper` "
        "over `samples`; of an even number the mean of the middle two, which is the geometric mean of the factors. "
        "`null` elsewhere",
        absent=None,
        varies=True,
    )
    def log_median(self) -> LogInterval | None:
        """The median slope of five samples or more, between the medians of both ends; None elsewhere.

        Of an even number it is the geometric mean of the middle two slopes.
        """
        ends = self.sample_ends
        return LogInterval(median(e.lo for e in ends), median(e.hi for e in ends)) if len(ends) >= FEW else None

    @property
    def products(self) -> dict[str, float | None]:
        """The published quantities by plain names, such as "P_w" and "prod_inv_sigma, rms", in decades; or None."""
        found: dict[str, float | None] = {}
        for key, value in self.published.items():
            name = key.removeprefix("log10_")
            found |= {f"{name}, {end}": v for end, v in value.items()} if isinstance(value, Mapping) else {name: value}
        return found

    def layer(self, name: str) -> LayerRecord:
        """The record of the layer called ``name``.

        Raises:
            ReadingError: when there is none.
        """
        for record in self.layers:
            if record.name == name:
                return record
        known = ", ".join(r.name for r in self.layers[:8])
        raise ReadingError(f"no layer {name!r} in this reading; it has {len(self.layers)}: {known}, ...")

    def __getitem__(self, name: str) -> LayerRecord:
        """The record of the layer called ``name``, as `layer` gives it."""
        return self.layer(name)

    __iter__ = None  # layers are in `layers`; without this Python would ask for the layer 0

    if not TYPE_CHECKING:  # a checker knows which names there are

        def __getattr__(self, name: str) -> NoReturn:
            names = [key for key in dir(type(self)) if not key.startswith("_")]
            raise AttributeError(unknown_name("a reading", name, names, ASKED))

    def gap_owner(self) -> LayerRecord | None:
        """The layer whose gain, over rows that reach the output, is furthest beyond what it did to one direction.

        That is the steepest one found at the samples; in a ball or everywhere it is that of the sample where the search
        began, and another layer may have the slack where a steeper slope was found.
        """
        scored = [record for record in self.layers if record.log_slack is not None]
        return max(scored, key=lambda record: record.log_slack_reaching, default=None)

    def __str__(self) -> str:
        from normgauge.render.console import reading_text

        return reading_text(self)

    def _repr_html_(self) -> str:
        from normgauge.render.panel import reading_notebook

        return reading_notebook(self)

    def explain(self, name: str) -> str:
        """Everything known about the layer called ``name``, in words.

        Raises:
            ReadingError: when there is no such layer.
        """
        from normgauge.render.explain import explain

        return explain(self, name)

    def to_json(self) -> dict[str, Any]:
        """The reading as the JSON contract has it."""
        from normgauge.render.verdict import verdict_line

        data = {**Stored.to_json(self), "verdict": verdict_line(self)}
        return {**data, "digest": digest(data)}

    @classmethod
    def from_json(cls, data: Any) -> Reading:
        """Rebuild a reading; the inverse of `to_json`. One of schema 1 says less, and its evidence is taken over.

        No version wrote fields of schema 2 under schema 1: where they stand there, the file was edited.

        Raises:
            ReadingError: for another schema, a field that is missing or of the wrong kind, which is named, and a proof
                that cannot be followed.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        old = schema == 1 and schema is not True
        if not old and schema != SCHEMA:
            raise ReadingError(
                f"expected a reading of schema 1 or {SCHEMA}, got schema {schema!r} written by {_writer(data)}; "
                f"open it with that version, or measure again with normgauge {__version__}"
            )
        reading = super(Reading, cls).from_json(data)
        for sentence in graph(data) if reading.proof is not None else ():
            raise ReadingError(f"the reading's proof cannot be followed: {sentence}; was the file edited?")
        stale = not LATER.isdisjoint(data) if old else data["digest"] != digest(data)
        return judged_reading(dataclasses.replace(reading, edited=reading.edited or stale, undigested=old))

    @classmethod
    def load(cls, path: str | Path) -> Reading:
        """Read what `save` wrote, or the first of several readings in one file.

        Raises:
            ReadingError: for a file that cannot be read or is no reading.
        """
        return cls.from_json(read_items(path)[0])


LATER = frozenset(item.key for item in declared_fields(Reading) if item.told.since > 1)


def _writer(data: Any) -> str:
    version = data.get("normgauge") if isinstance(data, Mapping) else None
    return f"normgauge {version}" if isinstance(version, str) else "something that is not normgauge, or a cut file"
