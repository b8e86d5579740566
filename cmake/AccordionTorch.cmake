# The target accordion::torch: the CPU half of LibTorch, and with ACCORDION_CUDA
# the other one.
#
# find_package(Torch) would ask for the CUDA toolkit with which the wheel was
# built. Only libtorch_cpu and libc10 are linked, so no CUDA driver is needed;
# libtorch_cpu itself loads libcudart and libcupti, which scripts/deps.sh lays
# beside it when the system has none. Also read by the installed package.
set(cuda_libraries "")
if(ACCORDION_CUDA)
  set(cuda_libraries lib/libtorch_cuda.so lib/libc10_cuda.so)
endif()
foreach(file IN ITEMS include/torch/csrc/api/include/torch/torch.h
                      lib/libtorch_cpu.so lib/libc10.so ${cuda_libraries})
  if(NOT EXISTS "${ACCORDION_TORCH}/${file}")
    message(FATAL_ERROR
      "[cmake] ACCORDION_TORCH is '${ACCORDION_TORCH}', which has no '${file}'. "
      "Pass -DACCORDION_TORCH=PREFIX where PREFIX holds include/ and lib/ of "
      "LibTorch 2.11 or later; scripts/deps.sh fetches one.")
  endif()
endforeach()

# Imported, so that exported targets may link it without exporting it.
add_library(accordion::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(accordion::torch SYSTEM INTERFACE
  "${ACCORDION_TORCH}/include"
  "${ACCORDION_TORCH}/include/torch/csrc/api/include")
target_link_libraries(accordion::torch INTERFACE
  "${ACCORDION_TORCH}/lib/libtorch_cpu.so"
  "${ACCORDION_TORCH}/lib/libc10.so")
if(ACCORDION_CUDA)
  # Nothing refers to libtorch_cuda: its operators register themselves when it
  # is loaded, so it is linked all the same. What it needs in turn (cuDNN,
  # cuBLAS, NVSHMEM and others) is found when a program starts, not here.
  target_link_libraries(accordion::torch INTERFACE
    "${ACCORDION_TORCH}/lib/libc10_cuda.so"
    -Wl,--push-state,--no-as-needed
    "${ACCORDION_TORCH}/lib/libtorch_cuda.so"
    -Wl,--pop-state
    CUDA::cudart)
endif()
# libtorch_cpu's own dependencies come from its RPATH or the system.
target_link_options(accordion::torch INTERFACE
  -Wl,--allow-shlib-undefined)
# ATen's parallel loops are templates: they run in parallel only where OpenMP is on.
target_compile_options(accordion::torch INTERFACE -fopenmp)
target_link_options(accordion::torch INTERFACE -fopenmp)
# LibTorch brings its own headers of fmt, newer than the system's library.
target_compile_definitions(accordion::torch INTERFACE FMT_HEADER_ONLY=1)
