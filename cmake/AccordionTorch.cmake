# The target accordion::torch: the CPU half of LibTorch.
#
# find_package(Torch) would ask for the CUDA toolkit with which the wheel was
# built. Only libtorch_cpu and libc10 are linked, so no CUDA driver is needed;
# libtorch_cpu itself loads libcudart and libcupti, which scripts/deps.sh lays
# beside it when the system has none.
foreach(file IN ITEMS include/torch/csrc/api/include/torch/torch.h
                      lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS "${ACCORDION_TORCH}/${file}")
    message(FATAL_ERROR
      "[cmake] ACCORDION_TORCH is '${ACCORDION_TORCH}', which has no '${file}'. "
      "Run scripts/deps.sh, or pass -DACCORDION_TORCH=PREFIX where PREFIX holds "
      "include/ and lib/ of LibTorch 2.11 or later.")
  endif()
endforeach()

add_library(accordion_torch INTERFACE)
add_library(accordion::torch ALIAS accordion_torch)
target_include_directories(accordion_torch SYSTEM INTERFACE
  "${ACCORDION_TORCH}/include"
  "${ACCORDION_TORCH}/include/torch/csrc/api/include")
target_link_libraries(accordion_torch INTERFACE
  "${ACCORDION_TORCH}/lib/libtorch_cpu.so"
  "${ACCORDION_TORCH}/lib/libc10.so")
# libtorch_cpu's own dependencies come from its RPATH or the system.
target_link_options(accordion_torch INTERFACE
  -Wl,--allow-shlib-undefined "LINKER:-rpath,${ACCORDION_TORCH}/lib")
# ATen's parallel loops are templates: they run in parallel only where OpenMP is on.
target_compile_options(accordion_torch INTERFACE -fopenmp)
target_link_options(accordion_torch INTERFACE -fopenmp)

# torch/torch.h costs 12-17 s in every file that includes it; as a precompiled
# header it is parsed once.
file(WRITE "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp" "")
add_library(accordion_torch_pch OBJECT "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp")
target_link_libraries(accordion_torch_pch PUBLIC accordion_torch)
accordion_compile_options(accordion_torch_pch)
target_precompile_headers(accordion_torch_pch PRIVATE <torch/torch.h>)
