#!/usr/bin/env bash
# Builds the accordion command: build/bin/accordion.
#
#   scripts/build.sh [ARGUMENTS FOR CMAKE]
#
#   scripts/build.sh -DACCORDION_TORCH=PREFIX     a LibTorch of your own
#   scripts/build.sh -DACCORDION_TESTS=ON         with the tests
#
# ACCORDION_JOBS sets how many files are compiled at a time.
set -euo pipefail
[ -n "${HOME-}" ] || unset HOME # an empty one leads ccache astray

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# A file that includes LibTorch takes the compiler up to this much.
mib_per_job=1600

# Free memory in MiB, that of the container where it has less. Cached file
# contents give way.
free_mib() {
  local free limit used cached
  free="$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)"
  limit="$(cat /sys/fs/cgroup/memory.max 2> /dev/null || echo max)"
  if [ "$limit" != max ]; then
    used="$(cat /sys/fs/cgroup/memory.current)"
    cached="$(awk '/^(in)?active_file / { sum += $2 } END { print sum + 0 }' \
      /sys/fs/cgroup/memory.stat)"
    limit=$(((limit - used + cached) / 1024 / 1024))
    free=$((limit < free ? limit : free))
  fi
  echo "$free"
}

num_jobs() {
  local cores memory
  cores="$(nproc)"
  memory=$(($(free_mib) / mib_per_job))
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

deps=()
for argument in "$@"; do
  case "$argument" in
    -DACCORDION_TORCH=*) export ACCORDION_TORCH="${argument#*=}" ;;
    -DACCORDION_TESTS=ON) deps=(tests) ;;
  esac
done
"$root/scripts/deps.sh" "${deps[@]}"

options=(
  -G Ninja
  -DACCORDION_TESTS=OFF -DACCORDION_BENCHMARKS=OFF -DACCORDION_EXAMPLES=OFF
  -DACCORDION_TORCH="${ACCORDION_TORCH:-$root/.deps/libtorch/torch}"
)
if command -v ccache > /dev/null; then
  # Without these ccache does not keep what uses a precompiled header.
  export CCACHE_SLOPPINESS=pch_defines,time_macros
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake -S "$root" -B "$root/build" "${options[@]}" "$@" --log-level=WARNING
cmake --build "$root/build" --parallel "${ACCORDION_JOBS:-$(num_jobs)}"
