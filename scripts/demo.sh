#!/usr/bin/env bash
# Trains a small Llama on real English text, sharded over two processes, and
# lets it write a few lines.
#
#   scripts/demo.sh              the King James Bible (Debian's bible-kjv)
#   scripts/demo.sh my.txt       a text of yours, 200 kB or more
#   scripts/demo.sh my.txt train.seconds=600     keys of configs/demo.toml
#   scripts/demo.sh --fit        a model of 1.1 billion parameters in 8 GB, for
#                                20 steps of half a minute (configs/fit-1b.toml)
#
# Installs and builds what is missing, then trains for 150 seconds.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
text="$root/build/demo/text.txt"

fail() {
  echo "demo.sh: $*" >&2
  exit 1
}

# apt-get as root, or with sudo.
apt_get() {
  if [ "$(id -u)" -eq 0 ]; then
    apt-get "$@" > /dev/null
  else
    sudo apt-get "$@" > /dev/null
  fi
}

install_bible() {
  apt_get install -y -qq --no-install-recommends bible-kjv 2> /dev/null ||
    { apt_get update -qq && apt_get install -y -qq bible-kjv; } ||
    fail "cannot install bible-kjv. Install it as root (apt-get install" \
      "bible-kjv), or name a text: scripts/demo.sh my.txt"
}

# The Bible as flowing text: a verse a line, without "Ge1:1 " before it.
write_bible() {
  command -v bible > /dev/null || install_bible
  mkdir -p "$(dirname "$text")"
  bible -f gen1:1-rev22:21 | sed -E 's/^[[:alnum:]]+:[0-9]+ //' > "$text.part"
  [ "$(wc -c < "$text.part")" -gt 4000000 ] ||
    fail "'bible -f gen1:1-rev22:21' printed less than the whole text."
  mv "$text.part" "$text"
}

config=configs/demo.toml
if [ "${1-}" = --fit ]; then
  config=configs/fit-1b.toml
  shift
fi

override=()
if [ $# -gt 0 ] && [[ "$1" != *=* ]]; then
  [ -r "$1" ] || fail "cannot read '$1'. Name a text file."
  override=("data.path=$(realpath -- "$1")")
  shift
fi

"$root/scripts/build.sh"
if [ ${#override[@]} -eq 0 ] && [ ! -s "$text" ]; then
  write_bible
fi

cd "$root"
exec build/bin/accordion train "$config" --nproc 2 \
  "${override[@]}" "$@"
