#!/usr/bin/env bash
# Builds everything and runs all tests; the last lines are ctest's.
#
#   scripts/test.sh [ARGUMENTS FOR CMAKE]
#
# What needs no LibTorch is built three times more, with clang and with
# sanitizers (see CMakePresets.json), and its tests are run on those too. What
# parses files is fed by libFuzzer, for two minutes.
set -euo pipefail
[ -n "${HOME-}" ] || unset HOME

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

minutes() { printf '%d min %02d s' $((SECONDS / 60)) $((SECONDS % 60)); }

# The thread sanitizer cannot live with all address layouts of newer kernels.
fixed_layout=()
if setarch --addr-no-randomize true 2> /dev/null; then
  fixed_layout=(setarch --addr-no-randomize)
fi

SECONDS=0
scripts/build.sh -DACCORDION_TESTS=ON -DACCORDION_BENCHMARKS=ON \
  -DACCORDION_EXAMPLES=ON "$@"
echo "test.sh: the build took $(minutes)"

for preset in asan tsan clang fuzz; do
  SECONDS=0
  cmake --preset "$preset" --log-level=WARNING
  cmake --build --preset "$preset" --parallel "$(nproc)"
  "${fixed_layout[@]}" ctest --preset "$preset"
  echo "test.sh: $preset took $(minutes)"
done

ctest --test-dir build --output-on-failure --no-tests=error
