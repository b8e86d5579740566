# What -DACCORDION_CUDA=ON needs besides LibTorch: the toolkit, and NCCL as the
# target accordion::nccl. Also read by the installed package.
find_package(CUDAToolkit 13 REQUIRED)

# CMake 3.25 does not know that nvcc compiles C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# LibTorch's wheels have NCCL beside them; toolkits often in their own folders.
# A program loads the one that libtorch_cuda asks for, by its name libnccl.so.2.
set(nccl_places "${ACCORDION_TORCH}/../nvidia/nccl"
  "${CUDAToolkit_LIBRARY_ROOT}" "${CUDAToolkit_TARGET_DIR}")
find_path(ACCORDION_NCCL_INCLUDE nccl.h
  HINTS ${nccl_places} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(ACCORDION_NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${nccl_places} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
if(NOT ACCORDION_NCCL_INCLUDE OR NOT ACCORDION_NCCL_LIBRARY)
  message(FATAL_ERROR
    "[cmake] ACCORDION_CUDA is ON, but NCCL was not found. Pass "
    "-DACCORDION_NCCL_INCLUDE=FOLDER, which holds nccl.h, and "
    "-DACCORDION_NCCL_LIBRARY=FILE; the Python package nvidia-nccl-cu13 has "
    "both.")
endif()
add_library(accordion::nccl INTERFACE IMPORTED GLOBAL)
target_include_directories(accordion::nccl SYSTEM INTERFACE
  "${ACCORDION_NCCL_INCLUDE}")
target_link_libraries(accordion::nccl INTERFACE "${ACCORDION_NCCL_LIBRARY}")

# accordion_cuda_kernels(NAME SOURCES … [DEPENDS …])
#
# Kernels, in a library of their own: the host's compiler flags are not nvcc's,
# and LibTorch's headers are none of its business.
function(accordion_cuda_kernels name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(accordion_${name} STATIC ${ARG_SOURCES})
  add_library(accordion::${name} ALIAS accordion_${name})
  set_target_properties(accordion_${name} PROPERTIES
    EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  set_property(GLOBAL APPEND PROPERTY ACCORDION_LIBRARIES accordion_${name})
  target_include_directories(accordion_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # No product is fused with a sum: elements round as on the host.
  target_compile_options(accordion_${name} PRIVATE
    --fmad=false -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${ACCORDION_WERROR}>:-Werror=all-warnings>)
  target_link_libraries(accordion_${name} PUBLIC ${ARG_DEPENDS} CUDA::cudart)
endfunction()
