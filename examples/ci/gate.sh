#!/usr/bin/env bash
# A gate for a pipeline: measure a network, check the reading, compare it with the one committed beside the code.
#
#   gate.sh MODEL BATCH COMMITTED.json NEW.json
#
# What went wrong worst is the exit code:
#   4  a slope was found above a bound of the new reading: the bound is wrong
#   3  the proved upper bound exceeds 10^LIMIT, or grew by more than GROWTH decades, whatever else is wrong
#   1  a mistake; a reading, new or committed, that does not hold together; other weights when MODEL is built again (random
#      ones, perhaps); a committed reading that is missing, was edited or cannot be compared: other samples, scopes,
#      settings or version of normgauge; a bound that holds only where the data take the path traced, since the model has
#      an `if` on them; a bound of one of several outputs or inputs of which none was chosen. ALLOW="samples version path"
#      holds the gate all the same
# OUTPUT=logits chooses what is judged of a model that returns several, INPUT=input_ids of one that takes several; the
# others are not looked at. A gate for each is a COMMITTED reading for each.
# MODEL is built and measured twice, since weights may be held where no digest finds them.
# The gate judges what is proved, so no time goes into a search for steep slopes. NEW.json is written wherever the network
# could be measured, and is not there else: to accept a change, copy it over COMMITTED.json and commit that. The first
# time, before there is one, run it with FIRST=1. QUIET=1 leaves out the tables.
set -euo pipefail
model=${1:?MODEL, as in net.py:build} batch=${2:?BATCH, as in net.py:batch}
committed=${3:?COMMITTED.json} new=${4:?NEW.json}
scope=${SCOPE:-ball:0.1} limit=${LIMIT:-2} growth=${GROWTH:-0.3}
trap 'code=$?; [ "$code" = 0 ] && echo "gate.sh: passed" >&2 || echo "gate.sh: FAILED with exit code $code" >&2' EXIT

if [ "$committed" = "$new" ] || [ "$committed" -ef "$new" ]; then
    echo "COMMITTED and NEW are one file, $new, which would be overwritten: give the new reading another name" >&2
    exit 1
fi
case ${FIRST:=} in
"" | 0) FIRST="" ;;
1) ;;
*) echo "FIRST=$FIRST: expected 1 before there is a committed reading, else nothing" >&2 && exit 1 ;;
esac
rm -f "$new"  # one of an earlier run would be taken for that of this network
if [ -n "${FIRST:-}" ] && [ -e "$committed" ]; then
    echo "FIRST=1, but there is a reading at $committed: leave FIRST out, or remove that" >&2
    exit 1
fi
if [ -n "${QUIET:-}" ]; then exec > /dev/null; fi
words=${ALLOW:-} allowed="" alone=""
for word in ${words//,/ }; do
    allowed+=" --allow $word"
    case $word in inputs | outputs | path) alone+=" --allow $word" ;; esac  # of a bound that is not compared
done
# shellcheck disable=SC2086  # a list of words
if ! normgauge diff --fail-above "$growth" $allowed --help > /dev/null; then  # reads what stands before --help
    echo "GROWTH=$growth${words:+ ALLOW=\"$words\"}: expected decades, as in 0.3, and words as in \"samples version\"" >&2
    exit 1
fi

status=0
worse() {  # takes an exit code into the status, where 4 comes before 3 and 3 before any other
    if [ "$status" = 0 ] || [ "$1" = 4 ] || { [ "$1" = 3 ] && [ "$status" != 4 ]; }; then status=$1; fi
}
verified() {  # what is wrong is said with QUIET=1 too
    local told
    if told=$(normgauge verify "$@"); then echo "$told"; else echo "$told" >&2 && return 1; fi
}
here() {  # what can be allowed is said as this script takes it
    { "$@" 2>&1 >&3 | sed -e 's/llow it: --allow \(.*\)$/llow it: ALLOW="\1"/' -e 's/ --allow / /g' \
        -e 's/: --output NAME/: OUTPUT=NAME/' -e 's/: --input NAME/: INPUT=NAME/' >&2; } 3>&1
}

# shellcheck disable=SC2086  # a list of words
here normgauge gauge "$model" --batch "$batch" --scope "$scope" --no-search --json "$new" --fail-above "$limit" $alone \
    ${OUTPUT:+--output "$OUTPUT"} ${INPUT:+--input "$INPUT"} || worse $?
if [ "$status" = 4 ] || [ ! -f "$new" ]; then exit "$status"; fi
if ! verified "$new" --model "$model" --batch "$batch"; then
    echo "$new is not verified. If the weights are others when $model is built again, load them from a file" >&2
    worse 1
fi
if [ -n "${FIRST:-}" ]; then
    if [ "$status" != 1 ]; then echo "the first reading: commit $new as $committed" >&2; fi
elif [ ! -f "$committed" ]; then
    echo "no reading at $committed: nothing to hold $new against. FIRST=1 if that is right" >&2
    worse 1
elif ! verified "$committed"; then
    echo "$committed is not verified, and no growth is told of it: commit a reading that is" >&2
    worse 1
else
    # shellcheck disable=SC2086  # a list of words
    here normgauge diff "$committed" "$new" --fail-above "$growth" $allowed || worse $?
fi
exit "$status"
