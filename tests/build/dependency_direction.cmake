# Checks that each #include "accordion/X/…" below ROOT/accordion follows the
# order of the folders, and that folders without tensors include no LibTorch.
#
#   cmake -D ROOT=FOLDER -P dependency_direction.cmake
cmake_minimum_required(VERSION 3.25)

# May be included by each folder, besides its own headers.
set(allowed_simd "")
set(allowed_comm simd)
set(allowed_shard comm)
set(allowed_schedule comm)
set(allowed_offload comm)
set(allowed_module "")
set(allowed_ops simd module)
set(allowed_fsdp comm shard schedule offload module)
set(allowed_optim ${allowed_fsdp} fsdp ops)
set(allowed_models module ops)
set(allowed_data "")
set(allowed_plan comm shard schedule)
set(allowed_checkpoint ${allowed_optim} optim)
set(allowed_train ${allowed_checkpoint} checkpoint models module ops data plan)

# Files that use no LibTorch, by their path below accordion/; comm has two parts.
set(torch_free "^(simd|shard|schedule|offload|data|plan|ops/kernels)/|^comm/")
set(torch_part "^comm/(gloo/|nccl/|device_mesh)")
set(torch_header "<(torch|ATen|c10)/")

function(fault file line words)
  message(SEND_ERROR "accordion/${file}:${line} ${words}")
endfunction()

file(GLOB_RECURSE files RELATIVE "${ROOT}/accordion"
  "${ROOT}/accordion/*.h" "${ROOT}/accordion/*.cpp" "${ROOT}/accordion/*.cu")
list(FILTER files INCLUDE REGEX "/") # accordion.h itself includes what it likes
if(NOT files)
  message(FATAL_ERROR "no sources below '${ROOT}/accordion'")
endif()

foreach(file IN LISTS files)
  string(REGEX REPLACE "/.*" "" folder "${file}")
  if(NOT DEFINED allowed_${folder})
    fault("${file}" 1 "'${folder}' is not in the order; add it to tests/build/dependency_direction.cmake.")
    continue()
  endif()
  file(STRINGS "${ROOT}/accordion/${file}" lines)
  set(number 0)
  foreach(line IN LISTS lines)
    math(EXPR number "${number} + 1")
    if(line MATCHES "^ *# *include \"accordion/([a-z_]+)/")
      set(included "${CMAKE_MATCH_1}")
      if(NOT included IN_LIST allowed_${folder} AND NOT included STREQUAL folder)
        fault("${file}" ${number} "'${folder}' must not include '${included}'.")
      endif()
    elseif(line MATCHES "^ *# *include ${torch_header}"
        AND file MATCHES "${torch_free}" AND NOT file MATCHES "${torch_part}")
      fault("${file}" ${number} "this part uses no LibTorch, but: ${line}")
    endif()
  endforeach()
endforeach()
