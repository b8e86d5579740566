#!/usr/bin/env bash
# Builds for the GPU of this machine, into build-gpu/, and checks there that
# training is right (against plain LibTorch, the CPU and PyTorch's recorded
# curve), follows the schedule, and how fast it is beside PyTorch's eager FSDP2
# and the device's own limits. Less than 8 minutes on 16 cores.
#
#   scripts/gpu_check.sh            the check; wants no network
#   scripts/gpu_check.sh prepare    elsewhere: packages for a machine without
#                                   network, to be taken along in .deps/
#
# Wants the CUDA 13 toolkit, CMake, Ninja, and a python3 with PyTorch 2.11 or
# later, whose LibTorch is used. Exits with 1 where a check fails or was skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages="$PWD/.deps/gpu-packages"

say() { echo "gpu_check.sh: $*" >&2; }

fail() {
  say "$@"
  exit 1
}

# What the build needs of Debian or Ubuntu, unpacked without installing it.
prepare() {
  local folder
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' RETURN
  (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq \
    libfmt-dev libfmt9 nlohmann-json3-dev \
    libcli11-dev libtomlplusplus-dev libxxhash-dev libgtest-dev libgmock-dev \
    liburing-dev liburing2 libsentencepiece-dev libsentencepiece0 \
    libprotobuf-lite32)
  rm -rf "$packages"
  mkdir -p "$packages"
  local package
  for package in "$folder"/*.deb; do
    dpkg-deb -x "$package" "$packages"
  done
  say "$(du -sh "$packages" | cut -f1) in .deps/gpu-packages"
}

if [ "${1-}" = prepare ]; then
  prepare
  exit
fi
[ $# -eq 0 ] || fail "unknown argument '$1'. Usage: scripts/gpu_check.sh [prepare]"

SECONDS=0
command -v nvcc > /dev/null || export PATH="/usr/local/cuda/bin:$PATH"
for tool in nvcc cmake ninja python3 nvidia-smi; do
  command -v "$tool" > /dev/null || fail "there is no $tool in PATH"
done
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
torch="$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')"
python3 -c 'import torch
assert torch.cuda.is_available(), "PyTorch sees no CUDA device"
print("PyTorch", torch.__version__)'

# --- Build -------------------------------------------------------------------

options=()
if [ -d "$packages" ]; then
  options+=(-DCMAKE_PREFIX_PATH="$packages/usr")
  # What is headers only is included as if it were installed.
  export CPLUS_INCLUDE_PATH="$packages/usr/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  export LD_LIBRARY_PATH="$packages/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
cmake -S . -B build-gpu -G Ninja -DACCORDION_CUDA=ON \
  -DACCORDION_TORCH="$torch" -DACCORDION_EXAMPLES=OFF \
  -DCMAKE_CUDA_ARCHITECTURES=native "${options[@]}" --log-level=WARNING
cmake --build build-gpu --target gpu_test gpu_trainer_test gpu_benchmark
say "built in $SECONDS s"

# --- Parity and schedule -----------------------------------------------------

failed=()
for program in gpu_test gpu_trainer_test; do
  log="build-gpu/$program.log"
  if ! timeout 100 "build-gpu/bin/$program" > "$log" 2>&1; then
    failed+=("$program")
    grep -E "Failure|FAILED|what\(\)|rror" "$log" | head -40 || true
  elif grep -q "\[  SKIPPED \]" "$log"; then
    failed+=("$program (skipped)")
  fi
  tail -n 1 "$log"
done

# --- Speed -------------------------------------------------------------------

config="benchmarks/peers/configs/gpu.json"
for dtype in bf16 fp32; do
  step=("$config" "$dtype" 8 1024 20)
  ours="$(timeout 100 build-gpu/bin/gpu_benchmark "${step[@]}")" ||
    failed+=("gpu_benchmark $dtype")
  fsdp2="$(timeout 100 python3 benchmarks/peers/torch_cuda.py "${step[@]}")" ||
    failed+=("torch_cuda.py $dtype")
  python3 - "$dtype" "$ours" "$fsdp2" << 'PYTHON' || failed+=("speed $dtype")
import json, sys
dtype, ours, fsdp2 = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
print(f"{dtype}: step {ours['step_ms']:.1f} ms, FSDP2 eager {fsdp2['step_ms']:.1f} ms "
      f"({fsdp2['step_ms'] / ours['step_ms']:.2f} times as fast), roofline {ours['roofline_ms']:.1f} ms "
      f"({ours['of_roofline']:.0%} of it; matmul {ours['matmul_tflops']:.0f} TFLOP/s, "
      f"copy {ours['memory_gb_s']:.0f} GB/s); peak {ours['peak_mib']:.0f} MiB, FSDP2 {fsdp2['peak_mib']:.0f} MiB")
PYTHON
done

say "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ ${#failed[@]} -eq 0 ] || fail "these failed: ${failed[*]}"
say "all checks passed; NCCL among several ranks was not among them"
