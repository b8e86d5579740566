# torch/torch.h costs 12-17 s in every file that includes it; as a precompiled
# header, shared by all targets that accordion_use_torch, it is parsed once.
file(WRITE "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp" "")
add_library(accordion_torch_pch OBJECT "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp")
target_link_libraries(accordion_torch_pch PUBLIC accordion::torch)
accordion_compile_options(accordion_torch_pch)
target_precompile_headers(accordion_torch_pch PRIVATE <torch/torch.h>)
