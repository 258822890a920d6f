#!/bin/sh
# The system parts that tests need, from Debian's packages where we may install them. Where we may
# not, the tests that need a part are skipped, named and counted at the end.
set -u
PATH="$PATH:/usr/games"
export DEBIAN_FRONTEND=noninteractive

missing=""
for program in stockfish; do
  command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  # shellcheck disable=SC2086 one argument per package is meant
  apt-get install -y -qq $missing >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq $missing >/dev/null 2>&1; }
fi
for program in $missing; do
  command -v "$program" >/dev/null 2>&1 ||
    echo "not installed, and not installable here:$program (apt install $program)" >&2
done
exit 0
