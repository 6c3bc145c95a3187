#!/usr/bin/env bash
# A gate for a pipeline: measure a network, check the reading, compare it with the one committed beside the code.
#
#   gate.sh MODEL BATCH COMMITTED.json NEW.json
#
# Exit code 3 when the proved upper bound exceeds 10^LIMIT or grew by more than GROWTH decades; 1 for a mistake. The gate
# judges what is proved, so no time goes into a search for steep slopes. NEW.json is written in any case: to accept a
# change, copy it over COMMITTED.json and commit that.
set -euo pipefail
model=${1:?MODEL, as in net.py:build} batch=${2:?BATCH, as in net.py:batch}
committed=${3:?COMMITTED.json} new=${4:?NEW.json}
scope=${SCOPE:-ball:0.1} limit=${LIMIT:-6} growth=${GROWTH:-0.3}

status=0
normgauge gauge "$model" --batch "$batch" --scope "$scope" --no-search --json "$new" --fail-above "$limit" || status=$?
if [ "$status" != 0 ] && [ "$status" != 3 ]; then exit "$status"; fi
normgauge verify "$new"
if [ ! -f "$committed" ]; then
    echo "no reading at $committed yet: commit $new there" >&2
    exit "$status"
fi
normgauge diff "$committed" "$new" --fail-above "$growth" || status=$?
exit "$status"
