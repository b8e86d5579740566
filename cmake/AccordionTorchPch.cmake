# A file that includes LibTorch parses for 12-17 s; from a precompiled header,
# shared by all targets that accordion_use_torch, in none. Not torch/torch.h:
# GCC instantiates what a header's inline functions mention in every file that
# sees it, precompiled or not, which costs 5.5 s a file for torch/torch.h and
# 3.3 s for these. What few files need, those include themselves.
file(WRITE "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp" "")
add_library(accordion_torch_pch OBJECT "${CMAKE_BINARY_DIR}/accordion_torch_pch.cpp")
target_link_libraries(accordion_torch_pch PUBLIC accordion::torch)
accordion_compile_options(accordion_torch_pch)
target_precompile_headers(accordion_torch_pch PRIVATE
  <torch/csrc/autograd/custom_function.h>
  <torch/nn/module.h>
  <torch/nn/modules/container/sequential.h>
  <torch/nn/modules/embedding.h>
  <torch/nn/modules/linear.h>
  <torch/optim/optimizer.h>)
