#!/usr/bin/env bash
# Installs what a build needs and what is missing.
#
#   scripts/deps.sh          for the command and the library
#   scripts/deps.sh tests    for the tests as well
#   scripts/deps.sh cuda     for tests and -DACCORDION_CUDA=ON, but the toolkit
#
# System packages come from apt; LibTorch comes from the Python wheel, of which
# only headers and the libraries that are linked are unpacked, into .deps/. With
# ACCORDION_TORCH=PREFIX in the environment that LibTorch is used instead.
# Does nothing, in well under a second, where everything is there.
set -euo pipefail
[ -n "${HOME-}" ] || unset HOME # an empty one leads pip astray

packages=(
  g++ cmake ninja-build ccache
  libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
  libxxhash-dev libsentencepiece-dev liburing-dev
)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev clang
  libclang-rt-dev iproute2 python3)
download_packages=(python3 python3-pip ca-certificates)

torch_wheel="torch==2.15.0"
cuda_wheels=("nvidia-cuda-runtime>=13,<14" "nvidia-cuda-cupti>=13,<14")
nccl_wheel="nvidia-nccl-cu13"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
libtorch="$root/.deps/libtorch"

say() { echo "deps.sh: $*" >&2; }

fail() {
  say "$@"
  exit 1
}

# --- System packages ---------------------------------------------------------

# Those of the packages named that are not installed.
missing_of() {
  local installed
  installed="$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" \
    2> /dev/null | sed -n 's/^ii *//p')" || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<< "$installed")
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    return 1
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null
}

install_packages() {
  if ! command -v dpkg-query > /dev/null; then
    say "this is no Debian; make sure that these are installed: $*"
    return
  fi
  local missing
  mapfile -t missing < <(missing_of "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  # A fresh container has no package lists, most machines do.
  apt_install "${missing[@]}" 2> /dev/null && return
  as_root apt-get update -qq || true
  apt_install "${missing[@]}" || fail \
    "could not install the packages that are missing. As root, run:" $'\n' \
    "  apt-get update && apt-get install -y ${missing[*]}"
}

# --- LibTorch ----------------------------------------------------------------

# unpack WHEEL FOLDER PATTERN…: the files of a wheel that match.
unpack() {
  python3 - "$@" << 'PYTHON'
import fnmatch, sys, zipfile
wheel, folder, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist()
             if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    archive.extractall(folder, names)
PYTHON
}

# fetch FOLDER PATTERN… -- WHEEL…: downloads wheels and unpacks the files that
# match into .deps/libtorch/FOLDER, which appears whole or not at all.
fetch() {
  local folder="$1" patterns=()
  shift
  while [ "$1" != -- ]; do
    patterns+=("$1")
    shift
  done
  shift
  install_packages "${download_packages[@]}"
  say "downloading $*"
  rm -rf "$libtorch/part"
  mkdir -p "$libtorch/part/wheels"
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir \
    --no-deps --only-binary :all: --dest "$libtorch/part/wheels" "$@" ||
    fail "could not download $*. Pass a LibTorch of your own instead:" \
      "ACCORDION_TORCH=PREFIX, where PREFIX holds include/ and lib/."
  local wheel
  for wheel in "$libtorch"/part/wheels/*.whl; do
    unpack "$wheel" "$libtorch/part" "${patterns[@]}"
  done
  [ -d "$libtorch/part/$folder" ] ||
    fail "the wheels $* hold no file that matches ${patterns[*]}"
  printf '%s\n' "$*" > "$libtorch/part/$folder/wheel"
  rm -rf "${libtorch:?}/$folder"
  mv "$libtorch/part/$folder" "$libtorch/$folder"
}

# NCCL, which some toolkits bring: beside what libtorch_cpu needs of CUDA.
install_nccl() {
  local toolkit
  toolkit="$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")"
  if [ -e "$toolkit/include/nccl.h" ] || [ -e /usr/include/nccl.h ] ||
    [ -e "$libtorch/nvidia/nccl/include/nccl.h" ]; then
    return 0
  fi
  fetch nvidia 'nvidia/cu13/lib/libcudart.so*' 'nvidia/cu13/lib/libcupti.so*' \
    'nvidia/nccl/*' -- "${cuda_wheels[@]}" "$nccl_wheel"
}

# Libraries of CUDA that PREFIX's libtorch_cpu needs and that are not found.
missing_cuda() {
  ldd "$1/lib/libtorch_cpu.so" |
    sed -nE 's/^\s*(lib(cudart|cupti)\.so[^ ]*) => not found.*/\1/p'
}

install_torch() {
  mkdir -p "$libtorch"
  exec 9> "$libtorch/lock"
  flock 9
  trap 'rm -rf "$libtorch/part"' EXIT
  local libraries=('torch/lib/libtorch_cpu.so*' 'torch/lib/libc10.so*'
    'torch/lib/libgomp*') complete=1
  if [ "$wants_cuda" = 1 ]; then
    libraries+=('torch/lib/libtorch_cuda.so*' 'torch/lib/libc10_cuda.so*')
    [ -e "$libtorch/torch/lib/libtorch_cuda.so" ] || complete=0
  fi
  if [ "$(cat "$libtorch/torch/wheel" 2> /dev/null)" != "$torch_wheel" ] ||
    [ $complete = 0 ]; then
    fetch torch 'torch/include/*' "${libraries[@]}" -- "$torch_wheel"
  fi
  if [ -n "$(missing_cuda "$libtorch/torch")" ]; then
    # libtorch_cpu.so looks for them in ../../nvidia/cu13/lib.
    fetch nvidia 'nvidia/cu13/lib/libcudart.so*' \
      'nvidia/cu13/lib/libcupti.so*' -- "${cuda_wheels[@]}"
  fi
  [ "$wants_cuda" = 0 ] || install_nccl
}

check_torch() {
  local file
  for file in include lib/libtorch_cpu.so lib/libc10.so; do
    [ -e "$1/$file" ] || fail "ACCORDION_TORCH is '$1', which has no '$file'."
  done
  local missing
  missing="$(missing_cuda "$1")"
  [ -z "$missing" ] ||
    fail "the LibTorch in '$1' needs ${missing//$'\n'/, }, which the system" \
      "lacks: install the CUDA 13 runtime, or leave ACCORDION_TORCH unset."
}

wants_cuda=0
case "${1-}" in
  "") install_packages "${packages[@]}" ;;
  tests) install_packages "${packages[@]}" "${test_packages[@]}" ;;
  cuda)
    command -v nvcc > /dev/null ||
      fail "there is no nvcc. Install the CUDA 13 toolkit, and put its bin/" \
        "into PATH."
    install_packages "${packages[@]}" "${test_packages[@]}"
    wants_cuda=1
    ;;
  *) fail "unknown argument '$1'. Usage: scripts/deps.sh [tests|cuda]" ;;
esac
if [ -n "${ACCORDION_TORCH-}" ]; then
  check_torch "$ACCORDION_TORCH"
else
  install_torch
fi
