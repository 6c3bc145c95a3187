#!/usr/bin/env bash
# A gate for a pipeline: measure a network, check the reading, compare it with the one committed beside the code.
#
#   gate.sh MODEL BATCH COMMITTED.json NEW.json
#
# Exit code 3 when the proved upper bound exceeds 10^LIMIT or grew by more than GROWTH decades; 1 for a mistake, and for a
# committed reading that is missing, was edited or cannot be compared: other samples, scopes, settings or version of
# normgauge. ALLOW="samples version" holds the gate all the same. The gate judges what is proved, so no time goes into a
# search for steep slopes. NEW.json is written in any case: to accept a change, copy it over COMMITTED.json and commit
# that. The first time, before there is one, run it with FIRST=1. QUIET=1 leaves out the tables.
set -euo pipefail
model=${1:?MODEL, as in net.py:build} batch=${2:?BATCH, as in net.py:batch}
committed=${3:?COMMITTED.json} new=${4:?NEW.json}
scope=${SCOPE:-ball:0.1} limit=${LIMIT:-6} growth=${GROWTH:-0.3}
trap 'code=$?; [ "$code" = 0 ] && echo "gate.sh: passed" >&2 || echo "gate.sh: FAILED with exit code $code" >&2' EXIT

if [ "$committed" = "$new" ] || [ "$committed" -ef "$new" ]; then
    echo "COMMITTED and NEW are one file, $new, which would be overwritten: give the new reading another name" >&2
    exit 1
elif [ -n "${FIRST:-}" ] && [ -e "$committed" ]; then
    echo "FIRST=1, but there is a reading at $committed: leave FIRST out, or remove that" >&2
    exit 1
fi
if [ -n "${QUIET:-}" ]; then exec > /dev/null; fi
allowed=""
for word in ${ALLOW:-}; do allowed+=" --allow $word"; done

status=0
normgauge gauge "$model" --batch "$batch" --scope "$scope" --no-search --json "$new" --fail-above "$limit" || status=$?
if [ "$status" != 0 ] && [ "$status" != 3 ]; then exit "$status"; fi
normgauge verify "$new"
if [ -n "${FIRST:-}" ]; then
    echo "the first reading: commit $new as $committed" >&2
elif [ ! -f "$committed" ]; then
    echo "no reading at $committed: nothing to hold $new against. FIRST=1 if that is right" >&2
    exit 1
else
    grown=0
    # shellcheck disable=SC2086  # a list of words
    normgauge diff "$committed" "$new" --fail-above "$growth" $allowed || grown=$?
    if [ "$grown" != 0 ]; then status=$grown; fi
fi
exit "$status"
