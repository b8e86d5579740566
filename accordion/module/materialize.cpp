// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/materialize.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <c10/util/Exception.h>

#include "accordion/module/stock_init.h"

namespace accordion {

namespace {

constexpr int kMaxMissingListed = 4;

struct NamedBuffer {
  std::string key;
  at::Tensor buffer;
};

/// The buffers that a module itself registers, by whether they have values.
struct OwnBuffers {
  std::vector<NamedBuffer> known;
  std::vector<NamedBuffer> unknown;
};

OwnBuffers own_buffers(const torch::nn::Module& module) {
  OwnBuffers result;
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) {
      (item.value().is_meta() ? result.unknown : result.known)
          .push_back({item.key(), item.value()});
    }
  }
  return result;
}

/// Memory whose content says that nobody wrote it, where the dtype can.
void allocate_unwritten(const at::Tensor& tensor) {
  const at::Tensor data =
      at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  assign_data(tensor, data.is_floating_point()
                          ? data.fill_(std::numeric_limits<double>::quiet_NaN())
                          : data.zero_());
}

bool is_unwritten(const at::Tensor& tensor) {
  return tensor.is_floating_point() && tensor.numel() > 0 &&
         at::isnan(tensor).all().item<bool>();
}

class BufferRebuilder {
 public:
  explicit BufferRebuilder(const InitOptions& options) : options_(options) {}

  void run(torch::nn::Module& root) {
    visit(root, "");
    TORCH_CHECK_VALUE(
        num_missing_ == 0, "[rebuild_buffers] ", num_missing_, " buffer",
        num_missing_ == 1 ? " has" : "s have", " no values: ", missing_,
        num_missing_ > kMaxMissingListed ? ", …" : "",
        ". Implement accordion::BuffersFromConfig in the module and write into "
        "them there (buffer.copy_(…)), set InitOptions::fill_buffer, build "
        "them under an accordion::RealInit, or load values before.");
  }

 private:
  void visit(torch::nn::Module& module, const std::string& prefix) {
    if (auto* user = dynamic_cast<BuffersFromConfig*>(&module)) {
      reset(*user, own_buffers(module), prefix);
    }
    for (const NamedBuffer& item : own_buffers(module).unknown) {
      fill(module, item, prefix);
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), prefix + child.key() + ".");
    }
  }

  void reset(BuffersFromConfig& module, const OwnBuffers& buffers,
             const std::string& prefix) {
    std::vector<at::Tensor> loaded;
    for (const NamedBuffer& item : buffers.known) {
      loaded.push_back(item.buffer.clone());
    }
    for (const NamedBuffer& item : buffers.unknown) {
      allocate_unwritten(item.buffer);
    }
    module.reset_buffers();
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      buffers.known[i].buffer.copy_(loaded[i]);
    }
    for (const NamedBuffer& item : buffers.unknown) {
      if (is_unwritten(item.buffer)) {
        miss(prefix + item.key, item.buffer);
      }
    }
  }

  void fill(const torch::nn::Module& module, const NamedBuffer& item,
            const std::string& prefix) {
    const at::Tensor data =
        at::empty(item.buffer.sizes(), item.buffer.options().device(at::kCPU));
    if (options_.fill_buffer && options_.fill_buffer(prefix + item.key, data)) {
      assign_data(item.buffer, data);
    } else if (const auto value = stock_buffer_value(module, item.key)) {
      assign_data(item.buffer, data.fill_(*value));
    } else {
      miss(prefix + item.key, item.buffer);
    }
  }

  void miss(const std::string& name, const at::Tensor& buffer) {
    if (++num_missing_ <= kMaxMissingListed) {
      missing_ += c10::str(missing_.empty() ? "" : ", ", "'", name, "' ",
                           buffer.sizes());
    }
  }

  const InitOptions& options_;
  std::string missing_;
  int num_missing_ = 0;
};

}  // namespace

void assign_data(const at::Tensor& tensor, const at::Tensor& data) {
  if (tensor.is_meta() && !data.is_meta()) {
    tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  } else {
    tensor.set_data(data);
  }
}

void rebuild_buffers(torch::nn::Module& root, const InitOptions& options) {
  const at::NoGradGuard no_grad;
  BufferRebuilder(options).run(root);
}

void materialize(torch::nn::Module& root, const InitOptions& options) {
  const at::NoGradGuard no_grad;
  for (const ParameterInit& init : plan_initialization(root, options)) {
    const at::Tensor data = at::empty(
        init.parameter.sizes(), init.parameter.options().device(at::kCPU));
    initialize_piece(init, /*begin=*/0, data);
    assign_data(init.parameter, data);
  }
  rebuild_buffers(root, options);
}

}  // namespace accordion
