#!/usr/bin/env bash
# Compiles and links everything with -DACCORDION_CUDA=ON, warnings as errors,
# into build-cuda/. Wants the CUDA 13 toolkit (nvcc in PATH or in
# /usr/local/cuda/bin) and no GPU: nothing that it builds is started. Run it
# before a release; docs/gpu.md says what that proves.
#
#   scripts/cuda_build.sh [option of CMake …]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v nvcc > /dev/null || export PATH="/usr/local/cuda/bin:$PATH"
scripts/deps.sh cuda
cmake -S . -B build-cuda -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DACCORDION_CUDA=ON -DACCORDION_WERROR=ON \
  -DACCORDION_EXAMPLES=OFF \
  ${ACCORDION_TORCH:+"-DACCORDION_TORCH=$ACCORDION_TORCH"} "$@"
export CCACHE_SLOPPINESS=pch_defines,time_macros
cmake --build build-cuda --target accordion_cli gpu_test gpu_trainer_test \
  gpu_benchmark

# Nothing refers to libtorch_cuda, whose operators register themselves: a
# program that does not name it would find no operator for a CUDA tensor.
for program in accordion gpu_test gpu_trainer_test gpu_benchmark; do
  needed="$(readelf -d "build-cuda/bin/$program")"
  for library in libtorch_cuda.so libc10_cuda.so libnccl.so.2 libcudart.so.13; do
    if ! grep -q "NEEDED.*\[$library\]" <<< "$needed"; then
      echo "cuda_build.sh: $program does not load $library" >&2
      exit 1
    fi
  done
done
echo "cuda_build.sh: built and linked for CUDA; nothing of it has run"
