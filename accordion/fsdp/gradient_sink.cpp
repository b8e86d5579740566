// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/gradient_sink.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "accordion/module/autograd_node.h"
#include "accordion/module/grad_destination.h"

namespace accordion {

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::variable_list;

class GradientSink : public AccumulateGrad, public OffersGradDestination {
 public:
  GradientSink(const at::Tensor& parameter, int index,
               std::weak_ptr<GradientReceiver> receiver)
      : AccumulateGrad(parameter),
        index_(index),
        receiver_(std::move(receiver)) {}

  variable_list apply(variable_list&& gradients) override {
    // The module may be gone while its graph lives on.
    if (const auto receiver = receiver_.lock()) {
      const at::NoGradGuard no_grad;
      deliver(*receiver, index_, gradients.at(0));
    }
    return {};
  }

  at::Tensor offer_destination() override {
    const auto receiver = receiver_.lock();
    return receiver ? offer(*receiver, index_) : at::Tensor();
  }

 protected:
  virtual at::Tensor offer(GradientReceiver& receiver, int index) {
    return receiver.offer_destination(index);
  }
  virtual void deliver(GradientReceiver& receiver, int index,
                       const at::Tensor& gradient) {
    receiver.receive_gradient(index, gradient);
  }

 private:
  int index_;
  std::weak_ptr<GradientReceiver> receiver_;
};

class GradientGuard final : public GradientSink {
 public:
  using GradientSink::GradientSink;

 protected:
  at::Tensor offer(GradientReceiver& /*receiver*/, int /*index*/) override {
    return {};
  }
  void deliver(GradientReceiver& receiver, int index,
               const at::Tensor& /*gradient*/) override {
    receiver.reject_gradient(index);
  }
};

}  // namespace

NodePtr make_gradient_sink(const at::Tensor& parameter, int index,
                           std::weak_ptr<GradientReceiver> receiver) {
  return make_node<GradientSink>(parameter, index, std::move(receiver));
}

NodePtr make_gradient_guard(const at::Tensor& parameter, int index,
                            std::weak_ptr<GradientReceiver> receiver) {
  return make_node<GradientGuard>(parameter, index, std::move(receiver));
}

void set_gradient_node(const at::Tensor& parameter, const NodePtr& node) {
  torch::autograd::impl::set_grad_accumulator(parameter, WeakNodePtr(node));
}

}  // namespace accordion
