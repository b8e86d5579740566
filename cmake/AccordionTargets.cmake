# Helpers that declare the targets of this project.

function(accordion_compile_options target)
  # -fPIC everywhere: programs and libraries share one precompiled header.
  target_compile_options(${target} PRIVATE -fPIC -Wall -Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # Warns of "text" + std::to_string(x) in inlined library code (GCC PR 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(ACCORDION_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ACCORDION_SANITIZE)
    target_compile_options(${target} PUBLIC
      -fsanitize=${ACCORDION_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=${ACCORDION_SANITIZE})
  endif()
endfunction()

# accordion_library(NAME [TORCH] SOURCES … [PLAIN …] [DEPENDS …])
#
# One static library per folder. Without TORCH it sees no LibTorch header, so
# that including one fails to build. PLAIN sources include next to nothing of
# LibTorch: without the precompiled header they compile twice as fast.
function(accordion_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;PLAIN;DEPENDS" ${ARGN})
  if(ARG_TORCH AND NOT ACCORDION_WITH_TORCH)
    return()
  endif()
  add_library(accordion_${name} STATIC ${ARG_SOURCES} ${ARG_PLAIN})
  add_library(accordion::${name} ALIAS accordion_${name})
  set_target_properties(accordion_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY ACCORDION_LIBRARIES accordion_${name})
  target_compile_features(accordion_${name} PUBLIC cxx_std_20)
  target_include_directories(accordion_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  accordion_compile_options(accordion_${name})
  target_link_libraries(accordion_${name} PUBLIC ${ARG_DEPENDS})
  if(ARG_TORCH)
    accordion_use_torch(accordion_${name})
  endif()
  accordion_skip_precompiled(${ARG_PLAIN})
endfunction()

# Gives a target LibTorch and the shared precompiled header.
#
# With LibTorch every file takes 3 s before its first line
# (AccordionTorchPch.cmake), so that a compiler takes several of them at once
# (ACCORDION_BATCH).
function(accordion_use_torch target)
  target_link_libraries(${target} PUBLIC accordion::torch)
  target_precompile_headers(${target} REUSE_FROM accordion_torch_pch)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${ACCORDION_BATCH} UNITY_BUILD_BATCH_SIZE 4)
endfunction()

function(accordion_skip_precompiled)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# For programs that do no work of their own (tests, the command line): a third
# less time to compile than -O3, which the libraries keep.
function(accordion_compile_fast target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# accordion_test(NAME [TORCH] [TIMEOUT seconds] SOURCES … [PLAIN …] [DEPENDS …])
#
# One test program, registered once with ctest. Tests that need several
# processes start them themselves (tests/support/rank_harness.h).
function(accordion_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;PLAIN;DEPENDS" ${ARGN})
  if(ARG_TORCH AND NOT ACCORDION_WITH_TORCH)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_PLAIN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  accordion_compile_options(${name})
  accordion_compile_fast(${name})
  target_compile_definitions(${name} PRIVATE
    ACCORDION_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} accordion_test_support)
  if(ARG_TORCH)
    accordion_use_torch(${name})
  endif()
  accordion_skip_precompiled(${ARG_PLAIN})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
