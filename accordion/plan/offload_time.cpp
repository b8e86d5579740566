// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/offload_time.h"

#include <algorithm>

#include "accordion/plan/activation_memory.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/real.h"
#include "accordion/plan/unit_times.h"

namespace accordion::plan {
namespace {

double transfer_time(double bytes, OffloadTo place, const Cluster& cluster) {
  if (place == OffloadTo::None) {
    return 0.0;
  }
  return bytes / (place == OffloadTo::Host ? cluster.host_bytes_per_s
                                           : cluster.disk_bytes_per_s);
}

/// Bytes that come and go beside one part of a step.
class Traffic {
 public:
  void add(OffloadTo place, double read, double written) {
    if (place == OffloadTo::Disk) {
      read_ += read;
      written_ += written;
    } else if (place == OffloadTo::Host) {
      over_link_ += read + written;
    }
  }
  /// A disk does both at a time, each at half of its rate for both.
  [[nodiscard]] double seconds(const Cluster& cluster) const {
    return over_link_ / cluster.host_bytes_per_s +
           2.0 * std::max(read_, written_) / cluster.disk_bytes_per_s;
  }

 private:
  double read_ = 0.0;
  double written_ = 0.0;
  double over_link_ = 0.0;
};

/// By what it runs beside.
struct Transfers {
  Traffic forward;
  Traffic backward;
  Traffic optimizer;
};

/// What is offloaded comes and goes where a step uses it: parameters for each
/// pass, activations out in forward and back in backward, gradients out of
/// backward, and all of a unit's state around its step.
Transfers transfers_of(const PlanRequest& request) {
  const Offload& offload = request.strategy.offload;
  const Precision& precision = request.training.precision;
  const double count = real(request.training.grad_accum);
  const double params = stepped_params(request);
  const double parameters = params * precision.parameter_bytes;
  const double gradients = params * precision.gradient_bytes;
  const double state = params * state_bytes(request.training.optimizer);
  const double saved =
      count * saved_by_layer(request) * layers_per_stage(request);
  Transfers transfers;
  transfers.forward.add(offload.parameters, count * parameters, 0.0);
  transfers.forward.add(offload.activations, 0.0, saved);
  transfers.backward.add(offload.parameters, count * parameters, 0.0);
  transfers.backward.add(offload.activations, saved, 0.0);
  // Each pass but the first adds to what those before it wrote.
  transfers.backward.add(offload.gradients, (count - 1.0) * gradients,
                         count * gradients);
  Traffic& step = request.training.step_in_backward ? transfers.backward
                                                    : transfers.optimizer;
  step.add(offload.optimizer, state, state);
  step.add(offload.parameters, parameters, parameters);
  step.add(offload.gradients, gradients, 0.0);
  return transfers;
}

/// Transfers run beside computation; what does not fit beside it is waited
/// for. Around the optimizer gradients go and parameters come back, or its
/// state comes and goes, exposed.
double exposed_offload(const PlanRequest& request, const TimePlan& time) {
  const Offload& offload = request.strategy.offload;
  const Precision& precision = request.training.precision;
  const Cluster& cluster = request.cluster;
  const double count = real(request.training.grad_accum);
  const double params = stepped_params(request);
  const double hidden =
      transfer_time(2.0 * count * params * precision.gather_bytes,
                    offload.parameters, cluster) +
      transfer_time(
          2.0 * count * saved_by_layer(request) * layers_per_stage(request),
          offload.activations, cluster);
  const double each = offload.step_on_device
                          ? 2.0 * state_bytes(request.training.optimizer)
                          : precision.gradient_bytes + precision.gather_bytes;
  // A unit's step in backward runs beside the backward of others.
  const bool beside =
      offload.step_on_device && request.training.step_in_backward;
  const double around =
      beside ? 0.0 : transfer_time(params * each, offload.optimizer, cluster);
  return std::max(0.0, hidden - time.forward_s - time.backward_s) + around;
}

}  // namespace

double offload_time(const PlanRequest& request, const TimePlan& time) {
  if (request.stack.reads_offloaded_ahead &&
      (request.strategy.offload.step_on_device ||
       request.strategy.offload.optimizer == OffloadTo::None)) {
    const Transfers transfers = transfers_of(request);
    const auto exposed = [&](const Traffic& traffic, double beside) {
      return std::max(0.0, traffic.seconds(request.cluster) - beside);
    };
    return exposed(transfers.forward, time.forward_s) +
           exposed(transfers.backward, time.backward_s) +
           exposed(transfers.optimizer, time.optimizer_s);
  }
  return exposed_offload(request, time);
}

}  // namespace accordion::plan
