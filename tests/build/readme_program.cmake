# The program in README.md is examples/four_lines.cpp, which is compiled and run.
#
#   cmake -DROOT=… -P readme_program.cmake
file(READ "${ROOT}/README.md" readme)
file(READ "${ROOT}/examples/four_lines.cpp" example)
string(FIND "${example}" "#include" begin)
string(SUBSTRING "${example}" ${begin} -1 program)
string(FIND "${readme}" "```cpp\n${program}```" found)
if(found EQUAL -1)
  message(FATAL_ERROR "README.md does not show the program of "
    "examples/four_lines.cpp as it is. Copy it there, from #include on.")
endif()
