"""Do the arithmetic of a reading again, trusting nothing: standard library only, nothing of normgauge is imported.

    python checker.py reading.json

A reading lists what every step of the network does to a slope (its `proof`). Here the totals are composed from that
once more and compared, the scope is held against how far each step's output moves in it, and the slope said to be found
against the two lengths that show it. The network is not needed and not seen: that a stored gain is the gain of the
layer's weights is not checked. Logarithms are decimal, as in the file. What else a reading says is checked by
consistency.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Part = Callable[[Row], Iterator[str]]
INF = math.inf
ROUNDING = 1e-9  # sums of a thousand float64 numbers below 1,000 err by less
CUT = 4.3e-5  # 1e-4 in natural logarithms: a slope above its bound by less is autograd's rounding, and is cut to it
NEUTRAL = 1e-8  # a step without a layer counts as 1; rules round such a constant up by 1e-9
SCHEMA = 2
VOID = ("refuted", "unknown")  # evidence with which no upper end is finite, whatever the proof adds up to
OTHERS = {  # files of normgauge without a proof to check, by fields that only they have
    "a certificate": {"delta", "rows"},
    "a curvature measurement": {"eigenvalues", "trace"},
    "a list of symmetries": {"groups", "looked_at"},
    "a list of ratios": {"laws", "meaning"},
    "a list of certified radii": {"attack", "classes"},
}
AGREEMENT = math.log10(0.9)  # a Jacobian counts where a difference quotient confirms nine tenths of it


def check(reading: Any, parts: Sequence[Part] | None = None) -> list[str]:
    """What is wrong with one reading, a sentence each; nothing where it holds together."""
    told = reading if isinstance(reading, dict) else {}
    for other in (name for name, keys in OTHERS.items() if keys <= told.keys()):
        return [f"expected a reading, got {other}, which stores no proof that could be checked"]
    version = told.get("normgauge", "0.1.0" if told.get("schema") == 1 else None)
    author = "something that is not normgauge" if version is None else f"normgauge {version}"
    if told.get("schema") == 1:
        return [
            f"it cannot be verified: {author} wrote it with schema 1, which ties no scope to its proof; measure again"
        ]
    if told.get("schema") != SCHEMA:
        return [f"expected a reading of schema {SCHEMA}, got schema {told.get('schema')!r} written by {author}"]
    if told.get("proof") is None:
        return [f"it cannot be verified: {author} stored no proof with it; measure again with a newer version"]
    wrong: list[str] = []
    for part in parts or (digest_matches, graph, sample_totals, scope_matches, witnessed_slope, refuted):
        before = len(wrong)
        try:
            wrong += part(reading)
        except KeyError as key:
            wrong += [] if any(f"{key}" in said for said in wrong) else [f"the field {key} is missing"]
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            wrong.append(f"a field of the wrong kind, {part.__name__}: {error}")
        if len(wrong) > before and part is graph:  # a broken graph cannot be followed
            break
    return wrong


def digest(reading: Mapping[str, Any]) -> str:
    """SHA-256 of what a reading says, however its JSON is laid out: keys in order, every number as a float64."""
    content = {key: value for key, value in reading.items() if key not in ("digest", "readings")}
    text = json.dumps(_floats(content), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _floats(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: value if type(value) in (float, str) else _floats(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [value if type(value) in (float, str) else _floats(value) for value in node]
    return float(node) if type(node) is int and abs(node) < 2**53 else node


def digest_matches(reading: Row) -> Iterator[str]:
    """The digest is that of the content. It is no signature: who edits a file can make a new one."""
    if reading["digest"] != digest(reading):
        yield "digest: it is not that of the content: the reading was edited after it was written"
    if reading["edited"] is not False:
        yield "edited: the reading was loaded from a file that had been edited, and written again"


def refuted(reading: Row) -> Iterator[str]:
    """A bound with a slope above it proves nothing."""
    if reading["evidence"] == "refuted":
        upper, lower = stored_number(reading, "log10_refuted"), stored_number(reading, "log10_lower")
        yield f"refuted: a slope was found above a bound (log10 of the bound {upper:.9g}, of the slope {lower:.9g})"


def join_decades(logs: list[float], disjoint: bool) -> float:
    """log of Σ 10^l, or of √Σ 10^2l where the parts are disjoint."""
    top, power = max(logs), 2 if disjoint else 1
    if len(logs) == 1 or math.isinf(top):
        return top
    return top + math.log10(math.fsum(10 ** (power * (log - top)) for log in logs)) / power


def decade_product(*logs: float) -> float:
    """log of a product; an infinite factor means "no bound" and stays, even against zero."""
    return INF if INF in logs else -INF if -INF in logs else math.fsum(logs)


def step_gains(step: Row, column: str, samples: int) -> list[list[float]]:
    """For each input of a step, its gain at each sample."""
    stored = [gain if isinstance(gain, list) else [gain] * samples for gain in step[f"log10_{column}"]]
    return [[stored_number({f"gain in the proof of {step['layer']}": x}) for x in gain] for gain in stored]


def compose_proof(proof: Row, column: str) -> list[float]:
    """The bound of the whole network at each sample: slope(output) = Σ gain·slope(input)."""
    slope = {source: [0.0] * proof["samples"] for source in proof["sources"]}
    for step in proof["steps"]:
        pairs = zip(step_gains(step, column, proof["samples"]), step["inputs"], strict=True)
        arms = [list(map(decade_product, gain, slope[value])) for gain, value in pairs]
        slope[step["output"]] = [join_decades(list(logs), step["disjoint"]) for logs in zip(*arms, strict=True)]
    return slope[proof["output"]]


def graph(reading: Row) -> Iterator[str]:
    """Each step reads what was made before it and makes something new; every layer leads on, and the output is made."""
    proof = reading["proof"]
    made, samples = set(proof["sources"]), proof["samples"]
    for place, step in enumerate(proof["steps"]):
        name = f"proof step {place} ({step['layer'] or 'no layer'})"
        if not step["inputs"] or set(step["inputs"]) - made:
            yield f"{name}: reads {step['inputs']}, of which not all were made before it"
        if step["output"] in made or type(step["output"]) is not int or type(step["disjoint"]) is not bool:
            yield f"{name}: output {step['output']!r} is no new number, or disjoint is {step['disjoint']!r}"
        made.add(step["output"])
        for column in (step["log10_folded"], step["log10_balanced"]):
            sizes = {len(gain) for gain in column if isinstance(gain, list)}
            if len(column) != len(step["inputs"]) or sizes - {samples}:
                yield f"{name}: expected one gain an input, each for all or for each of {samples} samples"
    read = {proof["output"], *(value for step in proof["steps"] for value in step["inputs"])}
    for name in {s["layer"] for s in proof["steps"]} - {s["layer"] for s in proof["steps"] if s["output"] in read}:
        yield f"layer {name}: leads nowhere"
    if proof["output"] not in made or not proof["sources"] or type(samples) is not int or samples < 1:
        yield f"proof: the output {proof['output']!r} is not made from a source, or {samples!r} is no count of samples"


def sample_totals(reading: Row) -> Iterator[str]:
    """A sample's balanced bound is the smaller of its two totals, the reading's that of the worst sample.

    The upper bound is that, or a smaller one by another method, which needs the weights to be checked.
    """
    folded, balanced = compose_proof(reading["proof"], "folded"), compose_proof(reading["proof"], "balanced")
    least, rows, void = (
        [min(pair) for pair in zip(folded, balanced, strict=True)],
        reading["samples"],
        reading["evidence"] in VOID,
    )
    upper, other = [INF] * len(least) if void else least, reading.get("method", "balanced") != "balanced" and not void
    yield from difference_sentence("log10_folded", stored_number(reading, "log10_folded"), INF if void else max(folded))
    if reading.get("log10_balanced") is not None:
        yield from difference_sentence("log10_balanced", stored_number(reading, "log10_balanced"), max(upper))
    yield from difference_sentence("log10_upper", stored_number(reading, "log10_upper"), max(upper), above=other)
    if reading["log10_refuted"] is not None:
        told = stored_number(reading, "log10_refuted")
        yield from difference_sentence("log10_refuted", told, max(least), above=reading.get("method") != "balanced")
    if len(rows) != len(upper) and 1 not in (len(rows), len(upper)):
        yield f"samples: {len(rows)} are listed, the proof has {len(upper)}"
    each = reading["scope"] != "global" and len(rows) == len(upper)
    for place, row in enumerate(rows):
        if row["index"] != place or (row["log10_upper"] is not None) != each:
            yield f"sample {place}: index {row['index']!r}, log10_upper {row['log10_upper']!r} cannot stand here"
        elif each:
            told = stored_number(row, "log10_upper")
            yield from difference_sentence(f"sample {place}: log10_upper", told, upper[place], above=other)
        if each and row.get("log10_refuted") is not None:
            told = stored_number(row, "log10_refuted")
            yield from difference_sentence(f"sample {place}: log10_refuted", told, least[place], above=True)
    if each and other:
        most = max(stored_number(row, "log10_upper") for row in rows)
        yield from difference_sentence("log10_upper against the samples", stored_number(reading, "log10_upper"), most)


def scope_reach(scope: str) -> float:
    """log of how far the input moves in a scope.

    Raises:
        ValueError: for what is no scope.
    """
    if scope in ("point", "global"):
        return INF if scope == "global" else -INF
    ball = re.fullmatch(r"ball:([0-9.e+-]+)", scope)
    if ball is None or not 0 < float(ball[1]) < INF:
        raise ValueError(f"scope: expected point, global or ball:RADIUS, got {scope!r:.40}")
    return math.log10(float(ball[1]))


def scope_matches(reading: Row) -> Iterator[str]:
    """The scope is that of the proof.

    The input moves as far as the scope says and each step's output no further than its layer's gain allows, exactly as
    far behind a linear map; and no gain exceeds what the same step has over all inputs, which for global is its gain.
    """
    proof, scope, layers = reading["proof"], reading["scope"], {layer["name"]: layer for layer in reading["layers"]}
    radius, everywhere = scope_reach(scope), scope == "global"
    if everywhere and proof["samples"] != 1:
        yield f"proof: {proof['samples']} samples side by side cannot stand in the scope global, which has no samples"
    moved: dict[int, float] = {}
    for source, log in zip(proof["sources"], proof["log10_radii"], strict=True):
        moved[source] = stored_number({f"radius of source {source}": log})
        yield from difference_sentence(f"scope {scope}: the radius of source {source}", moved[source], radius)
    first: set[str] = set()  # a further output of a layer may have a gain of its own
    for step in proof["steps"]:
        name, arrived = step["layer"], join_decades([moved[value] for value in step["inputs"]], step["disjoint"])
        moved[step["output"]] = stored = stored_number(step, "log10_radius")
        if not name:
            yield from difference_sentence("a step without a layer: log10_radius", stored, arrived, NEUTRAL, above=True)
        elif name in layers and name not in first:
            gain, most = stored_number(layers[name]["log10_gain"], "upper"), stored_number(step, "log10_everywhere")
            limit = decade_product(gain, arrived)
            exact = is_linear(layers[name], step) and not 300 < abs(limit) < INF  # beyond, float64 has no such size
            yield from difference_sentence(f"layer {name}: log10_radius", stored, limit, NEUTRAL, above=not exact)
            said = f"layer {name}: log10_gain against log10_everywhere in the scope {scope}"
            yield from difference_sentence(said, gain, most, NEUTRAL, above=not everywhere)
        first.add(name)


def is_linear(layer: Row, step: Row) -> bool:
    """Whether a layer is a linear map by a rule of normgauge's own: its output moves by its norm times its input."""
    return layer["log10_spectral"] is not None and len(step["inputs"]) == 1 and not layer["rule"].startswith("user.")


def witnessed_slope(reading: Row) -> Iterator[str]:
    """The largest slope: met at a listed sample, shown by two lengths, not above what is proved."""
    lower, witness = stored_number(reading, "log10_lower"), reading["witness"]
    lows = [stored_number(row, "log10_lower") for row in reading["samples"]]
    yield from difference_sentence("log10_lower against the largest of the samples", lower, max(lows), CUT)
    if witness is None:
        yield from difference_sentence("log10_lower without a witness", lower, -INF)
    elif lower > -INF:
        named = re.search(r"sample (\d+)$", witness["where"])
        if named is None or lows[int(named[1])] < max(lows):
            yield f"witness: {witness['where']!r} is not where the samples are steepest"
        run, rise = stored_number(witness, "input_change"), stored_number(witness, "output_change")
        slope = math.log10(rise) - math.log10(run) if run > 0 and rise > 0 else -INF
        if witness["where"].startswith("secant"):
            yield from difference_sentence("log10_lower against its secant", lower, slope, CUT)
        most = max(lower - AGREEMENT, stored_number(reading, "log10_upper"))  # at a kink it may be a steeper one
        if not lower + AGREEMENT - CUT <= slope <= most + CUT:
            yield f"witness: its two lengths are a slope of 10^{slope:.9g}, and log10_lower is {lower:.9g}"
    yield from difference_sentence("log10_lower", lower, stored_number(reading, "log10_upper"), 0, above=True)


def stored_number(row: Row, key: str = "", null: float | None = None) -> float:
    """A stored number, the only one of its row where no key is given; null only where it stands for ``null``.

    Raises:
        ValueError: for anything else: infinities are texts, and NaN and true are no numbers.
    """
    name, value = (key, row[key]) if key else next(iter(row.items()))
    if value is None and null is not None:
        return null
    if value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value)):
        return float(value)
    raise ValueError(f"{row.get('name', '')} {name}: expected a number, got {value!r:.40}".strip())


def difference_sentence(
    what: str, stored: float, again: float, within: float = ROUNDING, *, above: bool = False
) -> Iterator[str]:
    """A sentence where two numbers are not the same, or, with ``above``, the first is larger."""
    size = min(max(1, abs(again)), 1e6)
    if stored != again and (stored > again + within * size or not (above or stored >= again - within * size)):
        yield f"{what}: stored {stored:.9g}, {'at most' if above else 'recomputed'} {again:.9g}"


def parse_text(text: str) -> Any:
    """Return what the text of a JSON file holds.

    Raises:
        ValueError: when it is no JSON.
    """
    if not text.strip():
        raise ValueError("the file is empty")
    if re.search(r"^(<{7}|>{7})( |$)", text, re.MULTILINE):
        raise ValueError("a merge conflict is in it: keep one of the two sides, as a whole")
    twice: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> Row:
        found = dict(pairs)
        twice.extend(key for key in found if len(pairs) > len(found) and [name for name, _ in pairs].count(key) > 1)
        return found

    try:  # a bare word is no number: it will be named
        data = json.loads(text, parse_constant=lambda word: f"the bare word {word}", object_pairs_hook=table)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"no JSON: {error}; was the file cut?") from None
    if twice:
        raise ValueError(f"{json.dumps(twice[0]):.40} stands twice in one object: was the file edited?")
    return data


def file_problem(data: Any) -> str:
    """What is wrong with a file of several readings as a whole, in one sentence; empty where nothing is.

    Its own fields, where it has any of a reading, repeat the first of its readings: both places are read by someone.
    """
    if isinstance(data, list):
        return "expected an object, got a list; several readings stand in an object under readings"
    if not isinstance(data, dict) or "readings" not in data:
        return ""
    if not isinstance(data["readings"], list) or not data["readings"]:
        return f"readings: expected a list of at least one reading, got {json.dumps(data['readings']):.40}"
    first = data["readings"][0] if isinstance(data["readings"][0], dict) else {}
    if data.get("schema") != (wanted := first.get("schema", SCHEMA)):
        return f"schema: expected {wanted} at the top of the file, got {json.dumps(data.get('schema')):.40}"
    if not first.keys() & data.keys() - {"schema"}:
        return ""  # a collection: nothing is repeated
    for key in dict.fromkeys((*first, *(key for key in data if key != "readings"))):
        if key not in data or key not in first:
            return f"{key}: missing {'at the top of the file' if key in first else 'in the first of its readings'}"
        if data[key] != first[key]:
            top, own = (f" ({value!r})" * isinstance(value, str | int | float) for value in (data[key], first[key]))
            return f"{key}: not the same at the top of the file{top} and in the first of its readings{own}"
    return ""


def readings_of(data: Any) -> list[tuple[str, Any]]:
    """The readings of a file, each with its scope to begin a sentence with: one, or several under ``readings``."""
    if not isinstance(data, dict) or not isinstance(data.get("readings"), list):
        return [("", data)]
    return [(f"{item.get('scope')}: " if isinstance(item, dict) else "", item) for item in data["readings"]]


def check_file(data: Any, each: Callable[[Any], list[str]] = check) -> list[str]:
    """What is wrong with a file, a sentence each: the file as a whole, and ``each`` of its readings."""
    whole = file_problem(data)
    return [whole] * bool(whole) + [label + said for label, item in readings_of(data) for said in each(item)]


def main() -> int:
    """Check the files named on the command line: 0 and a line each, or 1 and what is wrong."""
    failed = 0
    for name in sys.argv[1:]:
        try:
            wrong = check_file(parse_text(Path(name).read_text("utf-8")))
        except (OSError, ValueError) as error:
            wrong = [f"expected a JSON file with readings: {error.strerror if isinstance(error, OSError) else error}"]
        print("\n".join(f"{name}: {sentence}" for sentence in wrong or ["verified, without the weights"]))
        failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
