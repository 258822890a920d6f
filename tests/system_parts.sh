#!/bin/sh
# The system parts that tests need, from Debian's packages where we may install them. Where we may
# not, the tests that need a part are skipped, named and counted at the end.
set -u
PATH="$PATH:/usr/games"
export DEBIAN_FRONTEND=noninteractive

package_of() {
  case "$1" in
    java) echo default-jre-headless ;;
    *) echo "$1" ;;
  esac
}

have() {
  command -v "$1" >/dev/null 2>&1 || return 1
  [ "$1" = java ] || return 0
  version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') # Kafka needs 17
  [ "${version:-0}" -ge 17 ]
}

missing=""
packages=""
for program in stockfish java kcat openssl chromium; do
  have "$program" && continue
  missing="$missing $program"
  packages="$packages $(package_of "$program")"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  # shellcheck disable=SC2086 one argument per package is meant
  apt-get install -y -qq $packages >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq $packages >/dev/null 2>&1; }
fi
for program in $missing; do
  have "$program" ||
    echo "not installed, and not installable here: $program (apt install $(package_of "$program"))" >&2
done
exit 0
