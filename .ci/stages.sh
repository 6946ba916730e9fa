# Sourced by the scripts of this folder that run stages. `stage NAME COMMAND…` prints the name and duration of a stage;
# the first failure ends the run. At the end, all lines that start with NOT RUN are printed again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never
# Nothing is built twice here, and the state of incremental builds takes gigabytes.
export CARGO_INCREMENTAL=0
# Without this, Python holds back its output when it is written to a pipe.
export PYTHONUNBUFFERED=1

output=$(mktemp)
# The stage that is running. A signal ends the run in the middle of it, and `report` then sees the status 0.
current=
trap report EXIT

stage() {
  local name=$1 started=$SECONDS
  current=$name
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" | tee -a "$output"
  printf '== %s: passed in %d s\n' "$name" $((SECONDS - started))
  current=
}

report() {
  local status=$? missing line
  local bar='################################################################################'
  missing=$(grep '^NOT RUN' "$output" | sort -u || true)
  rm -f "$output"
  if [ -n "$missing" ]; then
    printf '\n%s\n# %d of the checks did NOT RUN:\n#\n' "$bar" "$(wc -l <<<"$missing")"
    while IFS= read -r line; do printf '%s\n' "$line"; done <<<"$missing"
    printf '%s\n' "$bar"
    if [ -n "${GITHUB_ACTIONS:-}" ]; then
      while IFS= read -r line; do printf '::warning::%s\n' "$line"; done <<<"$missing"
    fi
  fi
  if [ "$status" -ne 0 ]; then
    printf '\n== %s: FAILED after %d s in total\n' "${current:-no stage}" "$SECONDS"
  elif [ -n "$current" ]; then
    printf '\n== %s: STOPPED after %d s in total\n' "$current" "$SECONDS"
  elif [ -n "$missing" ]; then
    printf '\nall stages passed in %d s, except for what did NOT RUN\n' "$SECONDS"
  else
    printf '\nall stages passed in %d s\n' "$SECONDS"
  fi
}
